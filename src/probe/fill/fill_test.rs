//! Fills of emulated disks: real size, what is shown beyond it, memory in front, damage.

use super::tally::Tally;
use super::{Fill, Parts, Troubles, address, read_part, sample_is_bad, write_part};
use crate::probe::capacity::Blocks;
use crate::probe::capacity::diagnose::Diagnosis;
use crate::probe::capacity::fake_test::{Beyond, Fake};
use crate::probe::io::MIB;
use crate::probe::pattern::{BLOCK, Random};
use std::io;

const CLAIMED: u64 = 112 * MIB;
/// The fill lies from here on.
const START: u64 = 16 * MIB;
const PART: u64 = 16 * MIB;

struct On<'a> {
    disk: &'a mut Fake,
    /// The file system tells where files lie.
    placed: bool,
    /// A MiB that cannot be read from this block on, for so many readings.
    unreadable: (u64, u32),
}

impl Parts for On<'_> {
    fn write(&mut self, n: u64, offset: u64, data: &[u8]) -> io::Result<bool> {
        for (k, block) in data.chunks_exact(BLOCK).enumerate() {
            let at = START + n * PART + offset + (k * BLOCK) as u64;
            self.disk.write(at, block)?;
        }
        Ok(true)
    }

    fn read(&mut self, n: u64, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let at = n * PART + offset;
        let (bad, times) = &mut self.unreadable;
        if *times > 0 && (at..at + buffer.len() as u64).contains(bad) {
            *times -= 1;
            return Err(io::ErrorKind::Other.into());
        }
        self.disk.read(START + at, buffer)
    }

    fn first_bad(&mut self, n: u64, offset: u64, buffer: &mut [u8]) -> io::Result<Option<u64>> {
        match self.read(n, offset, buffer) {
            Ok(()) => Ok(None),
            Err(_) => Ok(Some(self.unreadable.0 % PART)),
        }
    }

    fn address(&mut self, n: u64, offset: u64) -> Option<u64> {
        self.placed.then_some(START + n * PART + offset)
    }
}

fn fake(real: u64, beyond: Beyond, cache: usize) -> Fake {
    let mut disk = Fake::new(real, beyond, cache);
    disk.claimed = CLAIMED;
    disk
}

fn on(disk: &mut Fake) -> On<'_> {
    On {
        disk,
        placed: true,
        unreadable: (0, 0),
    }
}

/// Writes and reads all parts; the parts that a sample let be written, and what was found.
fn fill(on: &mut On, salt: u64) -> (u64, Tally, Vec<Diagnosis>) {
    let mut fill = Fill::new(CLAIMED - START, salt);
    assert_eq!(fill.part, PART);
    fill.bytes = CLAIMED - START;
    let (mut buffer, mut block) = (vec![0; MIB as usize], vec![0; BLOCK]);
    let mut random = Random::new(salt);
    let mut parts = 0;
    while parts * PART < fill.bytes {
        assert_eq!(
            write_part(on, &fill, parts, PART, &mut buffer).unwrap(),
            PART
        );
        parts += 1;
        if sample_is_bad(on, &fill, parts * PART, &mut random, &mut block) {
            break;
        }
    }
    write_part(on, &fill, 0, 8 * MIB, &mut buffer).unwrap();
    let mut tally = Tally::new(fill.blocks());
    let mut troubles = Troubles::default();
    for n in 0..parts {
        read_part(on, &fill, (n, PART), &mut tally, &mut troubles, &mut buffer).unwrap();
    }
    let found = tally.diagnoses(&mut |i| address(on, &fill, i));
    (parts, tally, found)
}

#[test]
fn every_loss_is_found_with_its_first_block() {
    let memories = [0, 64 << 10, 1 << 20, 4 << 20];
    for (beyond, cache) in [
        Beyond::Zeros,
        Beyond::Ones,
        Beyond::Noise,
        Beyond::LastWritten,
    ]
    .into_iter()
    .zip(memories)
    {
        let real = 52 * MIB + 3 * BLOCK as u64;
        let mut disk = fake(real, beyond, cache);
        let (parts, tally, found) = fill(&mut on(&mut disk), 3);
        let [
            Diagnosis::Ends {
                first_bad,
                last_good,
                ..
            },
        ] = found[..]
        else {
            panic!("{beyond:?}: {found:?}");
        };
        assert_eq!(first_bad, real, "{beyond:?}");
        assert_eq!(last_good, real - BLOCK as u64);
        assert!(tally.confirmed);
        // Once something is wrong it is not written to its end.
        assert!(parts < 6, "{beyond:?}: {parts}");
    }
}

#[test]
fn every_wrap_is_found_with_its_modulus() {
    for real in [64 * MIB, 39 * MIB + 4096 * 3] {
        let mut disk = fake(real, Beyond::Wraps, 1 << 20);
        let (_, _, found) = fill(&mut on(&mut disk), 4);
        assert_eq!(found, [Diagnosis::Wraps { real }]);
    }
}

#[test]
fn a_genuine_disk_is_right_and_damage_is_damage() {
    for (dead, flips) in [(0, 0), (1, 0), (200, 0), (0, 10)] {
        let mut disk = fake(u64::MAX, Beyond::Wraps, 0);
        (disk.dead, disk.flips) = (dead, flips);
        let (_, tally, found) = fill(&mut on(&mut disk), 5);
        let damage =
            |d: &Diagnosis| matches!(d, Diagnosis::Lost { .. } | Diagnosis::Changed { .. });
        assert!(found.iter().all(damage), "{found:?}");
        assert_eq!(found.is_empty(), dead + flips == 0, "{dead} {flips}");
        assert_eq!(tally.confirmed, dead + flips > 0);
    }
}

/// Where nobody tells where a file lies, data is lost, and nothing is said of the size.
#[test]
fn without_addresses_data_is_lost() {
    let mut disk = fake(64 * MIB, Beyond::Zeros, 0);
    let mut on = on(&mut disk);
    on.placed = false;
    let (_, tally, found) = fill(&mut on, 6);
    assert!(!tally.is_placed());
    assert!(
        matches!(
            found[..],
            [Diagnosis::Lost {
                instead: "zeros",
                ..
            }]
        ),
        "{found:?}"
    );
}

#[test]
fn a_read_that_fails_once_is_no_bad_block() {
    for (times, unreadable) in [(1, 0), (9, 1)] {
        let mut disk = fake(u64::MAX, Beyond::Wraps, 0);
        let mut on = on(&mut disk);
        let bad = 40 * MIB + 7 * BLOCK as u64;
        // The samples read too, but not this block.
        on.unreadable = (bad, times);
        let (_, tally, found) = fill(&mut on, 7);
        assert_eq!(tally.bad(), unreadable);
        let want = Diagnosis::Unreadable {
            count: 1,
            first: START + bad,
        };
        assert_eq!(found, vec![want; unreadable as usize]);
    }
}

/// What an earlier fill of the same places left cannot pass for this one's.
#[test]
fn an_older_fill_is_other_content() {
    let mut disk = fake(u64::MAX, Beyond::Wraps, 0);
    fill(&mut on(&mut disk), 8);
    let fill = Fill {
        part: PART,
        bytes: CLAIMED - START,
        salt: 9,
        ..Fill::default()
    };
    let mut tally = Tally::new(fill.blocks());
    let mut buffer = vec![0; MIB as usize];
    let mut troubles = Troubles::default();
    read_part(
        &mut on(&mut disk),
        &fill,
        (0, PART),
        &mut tally,
        &mut troubles,
        &mut buffer,
    )
    .unwrap();
    assert_eq!(tally.bad(), PART / BLOCK as u64);
}

#[test]
fn parts_are_a_gibibyte_on_a_card_and_never_too_many() {
    let part = |gib: u64| Fill::new(gib << 30, 1).part;
    assert_eq!((part(28), part(1024)), (1 << 30, 1 << 30));
    assert_eq!((part(1025), part(2000)), (2 << 30, 2 << 30));
    // vfat's largest file is 4 GiB less a byte.
    assert_eq!(part(16_000), 3 << 30);
    assert_eq!(Fill::new(200 << 20, 1).part, 16 << 20);
}

#[test]
fn what_is_right_ends_with_the_first_part_that_is_not() {
    let fill = Fill {
        written: vec![1.0; 4],
        read: vec![1.0, 1.0, 0.0, 1.0],
        ..Fill::default()
    };
    assert_eq!(fill.right(), 2);
}

#[test]
fn the_slowest_part_is_told_and_not_a_wrong_one() {
    let fill = Fill {
        part: 1 << 30,
        written: vec![17.0, 3.2, 18.0],
        read: vec![20.0, 0.0, 21.5],
        ..Fill::default()
    };
    assert_eq!(
        fill.speeds(),
        "; slowest GiB written: number 2 of 3 at 3.20 MB/s, median 17.0\
         ; slowest GiB read: number 1 of 3 at 20.0 MB/s, median 20.0"
    );
}
