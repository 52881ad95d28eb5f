//! The proof on emulated disks of 32 GiB, as in f3's own tests: real size, what is shown beyond it,
//! a memory in front, damaged blocks.

use super::diagnose::Diagnosis;
use super::marker::Marker;
use super::{Blocks, Proof, aliases, stamps};
use crate::probe::extents::Extent;
use crate::probe::pattern::{self, BLOCK, Random};
use std::collections::{HashMap, VecDeque};
use std::io;

const CLAIMED: u64 = 32 << 30;
const MARKER: u64 = 16 << 20;
const PAGE: u64 = BLOCK as u64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Beyond {
    Wraps,
    Zeros,
    Ones,
    Noise,
    LastWritten,
}

/// A disk that is whole up to `real` bytes; flash by its own 512-byte sectors.
pub struct Fake {
    pub claimed: u64,
    real: u64,
    beyond: Beyond,
    cache: usize,
    known: HashMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
    flash: HashMap<u64, [u8; 512]>,
    last: Vec<u8>,
    noise: Random,
    /// Of 1000 pages so many keep nothing.
    pub dead: u64,
    /// Of 1000 pages so many flip a bit.
    pub flips: u64,
    wrote: u64,
    /// Stamps that there is time for.
    room: usize,
}

impl Fake {
    pub fn new(real: u64, beyond: Beyond, cache: usize) -> Self {
        Self {
            claimed: CLAIMED,
            real,
            beyond,
            cache,
            known: HashMap::new(),
            order: VecDeque::new(),
            flash: HashMap::new(),
            last: vec![0; BLOCK],
            noise: Random::new(real),
            dead: 0,
            flips: 0,
            wrote: 0,
            room: usize::MAX,
        }
    }

    /// A system of `mib` MiB of data on it, as a real card has low down.
    fn with_system(mut self, mib: u64) -> Self {
        let mut block = [0; BLOCK];
        for n in 0..mib {
            pattern::fill(&mut block, 99, n, 0);
            self.store(n << 20, &block);
        }
        self
    }

    /// Files in one piece, block after block.
    fn with_data(mut self, from: u64, first: u64, mib: u64) -> Self {
        let mut block = [0; BLOCK];
        for n in 0..mib * 256 {
            pattern::fill(&mut block, 98, first + n, 0);
            self.store(from + n * PAGE, &block);
        }
        self
    }

    fn place(&self, at: u64) -> Option<u64> {
        match self.beyond {
            Beyond::Wraps => Some(at % self.real),
            _ => (at < self.real).then_some(at),
        }
    }

    fn chance(at: u64, of_1000: u64) -> bool {
        Random::new(at / PAGE).below(1000) < of_1000
    }

    fn store(&mut self, at: u64, block: &[u8]) {
        for (n, sector) in block.chunks_exact(512).enumerate() {
            let at = at + n as u64 * 512;
            if let Some(place) = self.place(at) {
                if Self::chance(place, self.dead) {
                    continue;
                }
                let mut sector: [u8; 512] = sector.try_into().unwrap();
                sector[7] ^= u8::from(n == 3 && Self::chance(place, self.flips));
                self.flash.insert(place / 512, sector);
            }
        }
    }
}

impl Blocks for Fake {
    fn bytes(&self) -> u64 {
        self.claimed
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        for (n, sector) in buffer.chunks_exact_mut(512).enumerate() {
            let at = at + n as u64 * 512;
            let within = (at % PAGE) as usize;
            if let Some(block) = self.known.get(&(at / PAGE)) {
                sector.copy_from_slice(&block[within..within + 512]);
            } else if let Some(place) = self.place(at) {
                let kept = self.flash.get(&(place / 512));
                sector.copy_from_slice(kept.unwrap_or(&[0; 512]));
            } else {
                match self.beyond {
                    Beyond::Ones => sector.fill(0xff),
                    Beyond::Noise => {
                        let next = &mut self.noise;
                        sector
                            .iter_mut()
                            .for_each(|byte| *byte = next.below(256) as u8);
                    }
                    Beyond::LastWritten => sector.copy_from_slice(&self.last[within..within + 512]),
                    _ => sector.fill(0),
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, at: u64, block: &[u8]) -> io::Result<()> {
        self.wrote += block.len() as u64;
        self.last = block.to_vec();
        if self.cache > 0 {
            if self.known.insert(at / PAGE, block.to_vec()).is_none() {
                self.order.push_back(at / PAGE);
            }
            while self.order.len() * BLOCK > self.cache {
                let oldest = self.order.pop_front().unwrap();
                self.known.remove(&oldest);
            }
        }
        self.store(at, block);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn room(&self, stamped: usize) -> Option<usize> {
        self.room.checked_sub(stamped)
    }
}

/// What a boot run does of it: the claim is all from 1 GiB on, the marker lies at 300 MiB.
fn prove(disk: &mut Fake, seed: u64) -> Proof {
    prove_with(disk, seed, 300 << 20)
}

/// The same with the marker at `low`, and nothing claimed in the last GiB.
fn prove_with(disk: &mut Fake, seed: u64, low: u64) -> Proof {
    let free = [Extent {
        file: 0,
        disk: 1 << 30,
        length: disk.claimed - (if low < 1 << 30 { 1 << 30 } else { 2 << 30 }),
    }];
    let addresses = stamps::choose(&free, 768, &mut Random::new(seed));
    let alias = aliases::find(disk).unwrap();
    let addresses = if alias.is_some() { &[] } else { &addresses[..] };
    let mut proof = Proof::begin(disk, alias, addresses, seed).unwrap();
    let mut block = [0; BLOCK];
    for n in 0..MARKER / PAGE {
        pattern::fill(&mut block, seed ^ 1, n, 1);
        disk.write(low + n * PAGE, &block).unwrap();
    }
    let blocks = (0..MARKER / PAGE).map(|n| (low + n * PAGE, n, 1));
    let mut marker = Marker::new(seed ^ 1, blocks);
    disk.wrote -= MARKER;
    proof.go_on(disk, Some(&mut marker)).unwrap();
    proof
}

fn ends(proof: &Proof) -> Option<(u64, u64)> {
    proof.diagnoses.iter().find_map(|d| match d {
        Diagnosis::Ends {
            last_good,
            first_bad,
            ..
        } => Some((*last_good, *first_bad)),
        _ => None,
    })
}

const CACHES: [usize; 4] = [0, 64 << 10, 1 << 20, 16 << 20];

/// Half, a quarter, an eighth; the two of issue 5; twenty random ones in sectors.
#[test]
fn every_wrap_is_found_with_its_modulus() {
    let mut random = Random::new(20);
    let mut moduli = vec![16 << 30, 8 << 30, 4 << 30, 7450 << 20, 7680 << 20];
    moduli.extend((0..20).map(|_| (2 << 30) + random.below((29 << 30) / 512) * 512));
    for (n, &modulus) in moduli.iter().enumerate() {
        // The marker is at 300 MiB: each cache takes its turn on the random ones.
        let caches = if n < 5 {
            &CACHES[..]
        } else {
            &CACHES[n % 4..n % 4 + 1]
        };
        for &cache in caches {
            let mut disk = Fake::new(modulus, Beyond::Wraps, cache);
            let proof = prove(&mut disk, n as u64);
            assert_eq!(proof.wraps_at(), Some(modulus), "cache {cache}");
            assert!(disk.wrote <= 12 << 20, "{} bytes", disk.wrote);
        }
    }
}

/// Where the file system allocates from where it stopped, the file comes behind what was claimed.
#[test]
fn a_marker_near_the_end_has_its_images_below() {
    let mut random = Random::new(21);
    for n in 0..20 {
        let modulus = (2 << 30) + random.below((28 << 30) / 512) * 512;
        let mut disk = Fake::new(modulus, Beyond::Wraps, 0);
        let proof = prove_with(&mut disk, n, CLAIMED - (40 << 20));
        assert_eq!(proof.wraps_at(), Some(modulus));
    }
}

#[test]
fn a_usual_size_is_found_before_anything_is_written() {
    for modulus in [4 << 30, 7450 << 20, 7680 << 20] {
        let mut disk = Fake::new(modulus, Beyond::Wraps, 0).with_system(300);
        assert_eq!(aliases::find(&mut disk).unwrap(), Some(modulus));
    }
}

#[test]
fn any_size_is_found_by_a_run_of_data_before_anything_is_written() {
    let mut random = Random::new(22);
    for _ in 0..8 {
        let modulus = (2 << 30) + random.below((25 << 30) / 512) * 512;
        let disk = Fake::new(modulus, Beyond::Wraps, 0);
        let mut disk = disk.with_data(0, 99_999, 1).with_data(100 << 20, 0, 32);
        assert_eq!(aliases::find(&mut disk).unwrap(), Some(modulus));
    }
}

/// A system to boot and one to fall back to: copies at a usual distance, and at any.
#[test]
fn a_copy_of_a_partition_is_no_image() {
    for distance in [512 << 20, (17 << 30) + (12 << 20)] {
        let disk = Fake::new(u64::MAX, Beyond::Wraps, 0);
        let mut disk = disk
            .with_data(4 << 20, 0, 48)
            .with_data((4 << 20) + distance, 0, 48);
        // A partition table.
        disk.store(0, &[[1; 446].as_slice(), &[2; BLOCK - 446]].concat());
        assert_eq!(aliases::find(&mut disk).unwrap(), None);
    }
}

/// The whole disk's image lies on it, and is taken for an alias until something is written.
#[test]
fn an_image_of_the_disk_on_the_disk_is_no_fake() {
    let disk = Fake::new(u64::MAX, Beyond::Wraps, 0);
    let mut disk = disk.with_data(0, 0, 48).with_data(17 << 30, 0, 48);
    assert_eq!(aliases::find(&mut disk).unwrap(), Some(17 << 30));
    let proof = prove(&mut disk, 1);
    assert_eq!((proof.fake(), proof.alias), (false, None));
}

#[test]
fn every_loss_is_found_whatever_stands_instead_and_in_any_memory() {
    for beyond in [
        Beyond::Zeros,
        Beyond::Ones,
        Beyond::Noise,
        Beyond::LastWritten,
    ] {
        for (n, real) in [4 << 30, 7450 << 20, 16 << 30, 24 << 30]
            .into_iter()
            .enumerate()
        {
            // Each size with another memory; the table below has all of them.
            let cache = CACHES[(n + beyond as usize) % 4];
            {
                let mut disk = Fake::new(real, beyond, cache);
                let mut proof = prove(&mut disk, n as u64);
                let what = format!(
                    "{beyond:?} from {real}, cache {cache}: {:?}",
                    proof.diagnoses
                );
                assert_eq!(proof.wraps_at(), None, "{what}");
                let Some((last_good, first_bad)) = ends(&proof) else {
                    panic!("{what}")
                };
                assert!(last_good < real && real <= first_bad, "{what}");
                proof.restore(&mut disk).unwrap();
                assert!(disk.wrote <= 12 << 20, "{} bytes", disk.wrote);
            }
        }
    }
}

#[test]
fn a_genuine_disk_is_none_of_it_and_is_as_it_was() {
    for seed in 0..5 {
        let mut disk = Fake::new(u64::MAX, Beyond::Wraps, CACHES[seed as usize % 4]);
        disk.claimed = [64 << 20, 1 << 30, 8 << 30, CLAIMED, 64 << 30][seed as usize % 5];
        disk.claimed += 2 << 30;
        let mut disk = disk.with_system(200);
        let mut block = [0; BLOCK];
        disk.read(10 << 20, &mut block).unwrap();
        let mut proof = prove(&mut disk, seed);
        assert_eq!(
            (proof.wraps_at(), &proof.diagnoses[..]),
            (None, &[][..]),
            "{seed}"
        );
        assert_eq!(proof.stamps.count(), 768);
        proof.restore(&mut disk).unwrap();
        // All that is left is the system and the marker.
        let marker = (MARKER / 512) as usize;
        let left = disk
            .flash
            .values()
            .filter(|s| s.iter().any(|&b| b != 0))
            .count();
        assert_eq!(left, marker + 200 * 8);
    }
}

/// <https://github.com/AltraMayor/f3/issues/15>: says 31983 MiB, good up to 0xea3e4000, zeros beyond.
/// f3probe of its day called it the real thing.
#[test]
fn f3_15_a_card_that_reads_zeros_from_3_8_gb() {
    let real = 0xea3e_4000;
    for seed in 0..5 {
        let mut disk = Fake::new(real, Beyond::Zeros, 0);
        disk.claimed = 31983 << 20;
        let proof = prove(&mut disk, seed);
        let (last_good, first_bad) = ends(&proof).expect("where it ends");
        assert!(
            last_good < real && real <= first_bad,
            "{last_good} {first_bad}"
        );
    }
}

/// <https://github.com/AltraMayor/f3/issues/52>: of 15,547,328 sectors, 997,860 hold what was written,
/// here and there over the whole card. f3probe said that 4.00 GB are good, behind 63 MiB of memory:
/// if it has them, only a full run sees more than these, or the canary after a power cut.
#[test]
fn f3_52_a_card_that_is_junk_from_end_to_end() {
    for seed in 0..5 {
        let mut disk = Fake::new(u64::MAX, Beyond::Zeros, 0);
        disk.claimed = 15_563_776 * 512;
        disk.dead = 1000 - 1000 * 997_860 / 15_547_328;
        let proof = prove(&mut disk, seed);
        assert!(!proof.diagnoses.is_empty());
        assert_eq!(proof.wraps_at(), None);
        // Nobody may take 4 GB of it for good.
        let usable = ends(&proof).map_or(0, |(last_good, _)| last_good);
        assert!(usable < 2 << 30, "{:?}", proof.diagnoses);
    }
}

/// <https://github.com/AltraMayor/f3/issues/243>: a good card of 124,735,488 sectors with 1 MiB of
/// memory, which f3probe called a counterfeit, and good when it was asked again.
#[test]
fn f3_243_a_good_card_stays_good() {
    for seed in 0..5 {
        let mut disk = Fake::new(u64::MAX, Beyond::Wraps, 1 << 20).with_system(200);
        disk.claimed = 124_735_488 * 512;
        let proof = prove(&mut disk, seed);
        assert_eq!(proof.diagnoses[..], []);
        assert_eq!(proof.stamps.count(), 768);
    }
}

#[test]
fn damage_is_damage() {
    for (dead, flips) in [(10, 0), (1, 0), (0, 10), (0, 1000)] {
        let mut disk = Fake::new(u64::MAX, Beyond::Wraps, 0);
        (disk.dead, disk.flips) = (dead, flips);
        let proof = prove(&mut disk, 5);
        let damage =
            |d: &Diagnosis| matches!(d, Diagnosis::Lost { .. } | Diagnosis::Changed { .. });
        assert!(proof.diagnoses.iter().all(damage), "{:?}", proof.diagnoses);
        // One in a hundred cannot hide from 768 stamps; one in a thousand can.
        assert!(!proof.diagnoses.is_empty() || dead == 1);
        assert_eq!(proof.wraps_at(), None);
    }
}

/// The low blocks of a fake that wraps hold what they held, once the proof is over.
#[test]
fn a_fakes_system_is_whole_after_the_proof() {
    for n in 0..5 {
        let modulus = (3 << 30) + n * 4096 * 997;
        let mut disk = Fake::new(modulus, Beyond::Wraps, 0).with_system(1024);
        let before = disk.flash.clone();
        let mut proof = prove(&mut disk, n);
        assert_eq!(proof.wraps_at(), Some(modulus));
        proof.restore(&mut disk).unwrap();
        let marker = (300 << 20) / 512..(316 << 20) / 512;
        for (at, sector) in &before {
            assert!(
                marker.contains(at) || disk.flash[at] == *sector,
                "sector {at}"
            );
        }
    }
}

/// A slow card: what the time does not suffice for is not stamped, and nothing stays stamped.
#[test]
fn the_time_bounds_the_stamps_and_all_of_them_are_put_back() {
    let zeros = |disk: &Fake| disk.flash.values().all(|sector| *sector == [0; 512]);
    let mut disk = Fake::new(CLAIMED, Beyond::Zeros, 0);
    disk.room = 100;
    let mut proof = prove(&mut disk, 5);
    assert_eq!((proof.stamps.count(), proof.unread), (100, false));
    proof.restore(&mut disk).unwrap();
    let mut disk = Fake::new(CLAIMED, Beyond::Zeros, 0);
    let mut proof = Proof::begin(&mut disk, None, &[1 << 30, 2 << 30, 3 << 30], 6).unwrap();
    disk.room = 2;
    proof.go_on(&mut disk, None).unwrap();
    assert_eq!((proof.stamps.count(), proof.unread), (3, true));
    assert!(!zeros(&disk));
    proof.restore(&mut disk).unwrap();
    assert!(zeros(&disk));
}
