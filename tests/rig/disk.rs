//! A disk that QEMU reaches over NBD and that fails the way a test says: what no
//! healthy build machine has. Faults may be changed while the guest works on it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// The unit of a sector number, whatever the sector size that the guest sees.
pub const SECTOR: u64 = 512;

/// Memory in front of a fake: blocks of this size are kept or lost as a whole.
const BLOCK: u64 = 4096;

/// What is wrong with a disk. The default is nothing.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Real size of a fake that takes addresses modulo it.
    pub wraps_at: Option<u64>,
    /// Real size of a fake that loses what lies beyond.
    pub loses_from: Option<u64>,
    /// What is read beyond; zeros otherwise.
    pub shows: Option<Shows>,
    /// Of 1000 blocks so many keep no write, from [`SOUND`] on.
    pub damaged: u64,
    /// Bytes of the last writes that a fake still knows (f3's emulated drive has it too).
    pub fake_cache: u64,
    /// Requests a second; one that goes on where the last one ended is no new request.
    pub iops: Option<u64>,
    /// Bytes a second.
    pub bps: Option<u64>,
    /// Sectors whose read, or write, fails.
    pub read_error: Option<Range<u64>>,
    pub write_error: Option<Range<u64>>,
    /// Says yes to writes and does nothing.
    pub drops_writes: bool,
    /// Stores every write with one bit of each 4 KiB inverted.
    pub flips_writes: bool,
    /// Of 10^9 bits so many are inverted as they are stored, or each time anew as they are read,
    /// behind [`TABLES`].
    pub flips: u64,
    pub unsteady: u64,
    /// How long the next write takes, once; a stall.
    pub stalls: VecDeque<Duration>,
    /// Says yes to a flush and keeps nothing until the power is cut.
    pub lies_about_flush: bool,
}

/// So much of a damaged disk is sound, that it can be mounted.
const SOUND: u64 = 256 << 20;

/// Where the data of a small ext4 begins.
const TABLES: u64 = 24 << 20;

/// What a fake shows where it has nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    Ones,
    Noise,
    /// The block that was written last.
    Last,
}

struct State {
    /// The block written last, and a number that is never the same.
    last_block: Vec<u8>,
    noise: u64,
    faults: Faults,
    /// Old content of all that was written since the last flush, in order.
    unflushed: Vec<(u64, Vec<u8>)>,
    cached: BTreeMap<u64, Vec<u8>>,
    cached_order: VecDeque<u64>,
    /// When the disk has done all that it was asked for.
    busy_until: Instant,
    last_end: u64,
}

pub struct Disk {
    file: File,
    size: u64,
    /// Bytes a second that its bus carries; QEMU's own has no limit.
    link: Option<u64>,
    state: Mutex<State>,
}

impl Disk {
    /// Serves `image` on the socket `at` until the process ends.
    pub fn serve(
        image: &Path,
        at: &Path,
        link: Option<u64>,
        faults: Faults,
    ) -> io::Result<Arc<Self>> {
        let file = File::options().read(true).write(true).open(image)?;
        let size = file.metadata()?.len();
        let disk = Arc::new(Self {
            file,
            size,
            link,
            state: Mutex::new(State {
                faults,
                last_block: vec![0; BLOCK as usize],
                noise: 1,
                unflushed: Vec::new(),
                cached: BTreeMap::new(),
                cached_order: VecDeque::new(),
                busy_until: Instant::now(),
                last_end: u64::MAX,
            }),
        });
        let listener = UnixListener::bind(at)?;
        let served = disk.clone();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let disk = served.clone();
                // QEMU hangs up when it ends: no error of the disk.
                thread::spawn(move || disk.talk(connection));
            }
        });
        Ok(disk)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    /// Changes what is wrong, also while a request waits.
    pub fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.lock().faults);
    }

    /// What was not flushed is gone, as when the plug is pulled.
    pub fn cut_power(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.cached.clear();
        state.cached_order.clear();
        for (at, old) in std::mem::take(&mut state.unflushed).into_iter().rev() {
            self.file.write_all_at(&old, at)?;
        }
        Ok(())
    }

    /// Lets the time pass that the request takes on this disk.
    fn take_time(&self, at: u64, length: u64, write: bool) {
        let mut state = self.lock();
        let mut cost = Duration::ZERO;
        if let Some(iops) = state.faults.iops
            && at != state.last_end
        {
            cost += Duration::from_secs(1) / u32::try_from(iops.max(1)).unwrap_or(u32::MAX);
        }
        if let Some(bps) = [state.faults.bps, self.link].into_iter().flatten().min() {
            cost += Duration::from_nanos(length * 1_000_000_000 / bps.max(1));
        }
        if write && let Some(stall) = state.faults.stalls.pop_front() {
            cost += stall;
        }
        state.last_end = at + length;
        let now = Instant::now();
        state.busy_until = state.busy_until.max(now) + cost;
        let wait = state.busy_until - now;
        drop(state);
        thread::sleep(wait);
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.take_time(at, buffer.len() as u64, false);
        let mut state = self.lock();
        fails(state.faults.read_error.as_ref(), at, buffer.len())?;
        each_block(at, buffer.len(), |at, range| {
            let part = &mut buffer[range];
            let unsteady = state.faults.unsteady;
            let read = match (state.cached.get(&(at / BLOCK)), state.faults.place(at)) {
                (Some(block), _) => {
                    let from = (at % BLOCK) as usize;
                    part.copy_from_slice(&block[from..from + part.len()]);
                    Ok(())
                }
                (None, Some(place)) => self.file.read_exact_at(part, place),
                (None, None) => {
                    state.show(at, part);
                    Ok(())
                }
            };
            state.flip(at, part, unsteady);
            read
        })
    }

    fn write(&self, at: u64, data: &mut [u8]) -> io::Result<()> {
        self.take_time(at, data.len() as u64, true);
        let mut state = self.lock();
        fails(state.faults.write_error.as_ref(), at, data.len())?;
        if state.faults.drops_writes {
            return Ok(());
        }
        each_block(at, data.len(), |at, range| {
            let part = &mut data[range];
            if state.faults.flips_writes {
                part[part.len() / 2] ^= 0x10;
            }
            let flips = state.faults.flips;
            state.flip(at, part, flips);
            if state.faults.fake_cache > 0 {
                self.remember(&mut state, at, part)?;
            }
            if state.faults.shows == Some(Shows::Last) {
                let from = (at % BLOCK) as usize;
                state.last_block[from..from + part.len()].copy_from_slice(part);
            }
            let damaged = at >= SOUND && mixed(at / BLOCK) % 1000 < state.faults.damaged;
            let Some(place) = state.faults.place(at).filter(|_| !damaged) else {
                return Ok(());
            };
            let mut old = vec![0; part.len()];
            self.file.read_exact_at(&mut old, place)?;
            state.unflushed.push((place, old));
            self.file.write_all_at(part, place)
        })
    }

    /// Puts a written part of a block into the memory of a fake, and forgets the oldest.
    fn remember(&self, state: &mut State, at: u64, part: &[u8]) -> io::Result<()> {
        let number = at / BLOCK;
        if !state.cached.contains_key(&number) {
            let mut block = vec![0; BLOCK as usize];
            if let Some(place) = state.faults.place(number * BLOCK) {
                self.file.read_exact_at(&mut block, place)?;
            }
            state.cached.insert(number, block);
            state.cached_order.push_back(number);
        }
        let from = (at % BLOCK) as usize;
        if let Some(block) = state.cached.get_mut(&number) {
            block[from..from + part.len()].copy_from_slice(part);
        }
        while state.cached_order.len() as u64 * BLOCK > state.faults.fake_cache {
            if let Some(oldest) = state.cached_order.pop_front() {
                state.cached.remove(&oldest);
            }
        }
        Ok(())
    }

    fn flush(&self) {
        let mut state = self.lock();
        if !state.faults.lies_about_flush {
            state.unflushed.clear();
        }
    }

    /// The NBD protocol, as much of it as QEMU uses.
    fn talk(&self, mut peer: UnixStream) -> io::Result<()> {
        const OPTION: u64 = 0x4948_4156_454f_5054; // IHAVEOPT
        peer.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
        take::<4>(&mut peer)?; // its flags: it asks for nothing that we lack
        loop {
            if u64::from_be_bytes(take(&mut peer)?) != OPTION {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let option = u32::from_be_bytes(take(&mut peer)?);
            let mut data = vec![0; u32::from_be_bytes(take(&mut peer)?) as usize];
            peer.read_exact(&mut data)?;
            let mut answer = |kind: u32, data: &[u8]| {
                let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
                bytes.extend(option.to_be_bytes());
                bytes.extend(kind.to_be_bytes());
                bytes.extend((data.len() as u32).to_be_bytes());
                bytes.extend(data);
                peer.write_all(&bytes)
            };
            match option {
                // INFO and GO: the size, and that it can flush.
                6 | 7 => {
                    let mut export = vec![0, 0];
                    export.extend(self.size.to_be_bytes());
                    export.extend([0, 1 | 4 | 8]);
                    answer(3, &export)?;
                    answer(1, &[])?;
                    if option == 7 {
                        break;
                    }
                }
                2 => return answer(1, &[]),
                _ => answer(0x8000_0001, &[])?,
            }
        }
        loop {
            let header: [u8; 28] = take(&mut peer)?;
            let number = |from: usize, to: usize| {
                header[from..to]
                    .iter()
                    .fold(0_u64, |n, &byte| n << 8 | u64::from(byte))
            };
            let (flags, kind, at, length) =
                (number(4, 6), number(6, 8), number(16, 24), number(24, 28));
            let mut data = vec![0; if kind < 2 { length as usize } else { 0 }];
            let result = match kind {
                0 => self.read(at, &mut data),
                1 => {
                    peer.read_exact(&mut data)?;
                    self.write(at, &mut data)
                }
                2 => return Ok(()),
                3 => {
                    self.flush();
                    Ok(())
                }
                _ => Err(io::Error::from_raw_os_error(22)),
            };
            if kind == 1 && flags & 1 != 0 {
                self.flush();
            }
            let errno = result
                .err()
                .map_or(0, |error| error.raw_os_error().unwrap_or(5));
            let mut bytes = 0x6744_6698_u32.to_be_bytes().to_vec();
            bytes.extend(errno.to_be_bytes());
            bytes.extend(&header[8..16]);
            if kind == 0 && errno == 0 {
                bytes.extend(&data);
            }
            peer.write_all(&bytes)?;
        }
    }
}

impl State {
    /// Inverts a bit of the block by chance; of 10^9 bits so many.
    fn flip(&mut self, at: u64, part: &mut [u8], of: u64) {
        if of == 0 || at < TABLES {
            return;
        }
        self.noise += 1;
        let (chance, bits) = (mixed(self.noise), part.len() as u64 * 8);
        if chance % 1_000_000_000 < of * bits {
            let bit = (chance >> 32) % bits;
            part[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    /// What is read where there is nothing.
    fn show(&mut self, at: u64, part: &mut [u8]) {
        match self.faults.shows {
            None => part.fill(0),
            Some(Shows::Ones) => part.fill(0xff),
            Some(Shows::Last) => {
                let from = (at % BLOCK) as usize;
                part.copy_from_slice(&self.last_block[from..from + part.len()]);
            }
            Some(Shows::Noise) => {
                for word in part.chunks_exact_mut(8) {
                    self.noise += 1;
                    word.copy_from_slice(&mixed(self.noise).to_le_bytes());
                }
            }
        }
    }
}

/// The finish of SplitMix64 (Steele, Lea and Flood 2014): every bit depends on every bit.
fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

impl Faults {
    /// Where on the medium an address lies; nowhere, on a fake that loses it.
    fn place(&self, at: u64) -> Option<u64> {
        match (self.wraps_at, self.loses_from) {
            (Some(real), _) => Some(at % real),
            (None, Some(real)) if at >= real => None,
            _ => Some(at),
        }
    }
}

fn fails(sectors: Option<&Range<u64>>, at: u64, length: usize) -> io::Result<()> {
    let touched = at / SECTOR..(at + length as u64).div_ceil(SECTOR);
    match sectors {
        Some(bad) if bad.start < touched.end && touched.start < bad.end => {
            Err(io::Error::from_raw_os_error(5))
        }
        _ => Ok(()),
    }
}

/// Calls `f` with the address and the range in the buffer of each block's part.
fn each_block(
    at: u64,
    length: usize,
    mut f: impl FnMut(u64, Range<usize>) -> io::Result<()>,
) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        let here = at + done as u64;
        let part = ((BLOCK - here % BLOCK) as usize).min(length - done);
        f(here, done..done + part)?;
        done += part;
    }
    Ok(())
}

fn take<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
