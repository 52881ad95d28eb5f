//! All free space but the reserve, written and read back: hours that a person asked for. It goes
//! on where it was stopped, as its files stay and the state knows how far it was.

pub mod files;
pub mod tally;

#[cfg(test)]
mod fill_test;

use super::Message;
use super::io::MIB;
use super::pattern::{self, BLOCK, Random};
use crate::probe::capacity::diagnose::Fate;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use tally::{GENERATION, Tally};

/// Bytes a second below which a fill is given up; SD's slowest speed class writes twice that.
pub const FLOOR: u64 = 1_000_000;
/// Parts of a fill, each a file with a speed of its own.
const PARTS: u64 = 1024;
const GIB: u64 = 1 << 30;
/// Blocks that are read after each part, anywhere in what was written: nobody has to write a
/// fake full to know it.
const SAMPLES: usize = 16;
/// Reads that failed after which no more is read: each may take the kernel's time-out.
const ERRORS: u64 = 16;

/// How far a fill is, for whoever goes on with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// Where its files lie; empty once their space is given back.
    pub directory: PathBuf,
    pub salt: u64,
    /// Bytes of a part; the last one may be smaller.
    pub part: u64,
    /// Bytes of all parts, at most.
    pub bytes: u64,
    /// A run by itself has left it alone; the next one does not.
    #[serde(default)]
    pub passed: bool,
    /// MB/s of each part that was written.
    #[serde(default)]
    pub written: Vec<f64>,
    /// MB/s of each part that was read back, 0 where something in it was wrong.
    #[serde(default)]
    pub read: Vec<f64>,
}

impl Fill {
    /// For `bytes` of free space: parts of 1 GiB, of less on a small disk, so that there are some,
    /// and of 2 or 3 GiB on a large one; vfat knows no larger files.
    fn new(bytes: u64, salt: u64) -> Self {
        let part = match bytes {
            few if few < 16 * GIB => (few / 16).max(16 * MIB) >> 20 << 20,
            many => (many.div_ceil(PARTS * GIB) * GIB).min(3 * GIB),
        };
        Self {
            salt,
            part,
            bytes: bytes.min(PARTS * part) >> 20 << 20,
            ..Self::default()
        }
    }

    pub fn blocks(&self) -> u64 {
        self.bytes / BLOCK as u64
    }

    /// Parts that were read back and are right, from the first one on.
    pub fn right(&self) -> usize {
        let right = self.read.iter().take_while(|&&mb_s| mb_s > 0.0);
        right.count().min(self.written.len())
    }

    /// What a fill that was stopped takes, and what may be done with it.
    pub fn stays(&self) -> String {
        let bytes = self.written.len() as u64 * self.part;
        format!(
            "{} MiB stay filled in {}: the same command goes on with it, any other run gives them back",
            bytes.min(self.bytes) >> 20,
            crate::error::printable_path(&self.directory)
        )
    }

    /// "GiB", or how much a part is.
    fn unit(&self) -> String {
        match self.part {
            GIB => "GiB".into(),
            other => format!("part of {} MiB", other >> 20),
        }
    }

    /// The slowest part of a pass, and the median: "12th of 28 at 3.20 MB/s, median 17.4".
    fn slowest(rates: &[f64]) -> Option<String> {
        let right = rates.iter().enumerate().filter(|rate| *rate.1 > 0.0);
        let (n, rate) = right.min_by(|a, b| a.1.total_cmp(b.1))?;
        let mut sorted = rates.to_vec();
        sorted.sort_by(f64::total_cmp);
        let short = crate::judge::short;
        Some(format!(
            "number {} of {} at {} MB/s, median {}",
            n + 1,
            rates.len(),
            short(*rate),
            short(sorted[sorted.len() / 2])
        ))
    }

    /// The speeds as a person reads them; empty where nothing was filled.
    pub fn speeds(&self) -> String {
        let say = |word, rates: &[f64]| {
            let slowest = Self::slowest(rates)?;
            Some(format!("; slowest {} {word}: {slowest}", self.unit()))
        };
        let written = say("written", &self.written).unwrap_or_default();
        written + &say("read", &self.read).unwrap_or_default()
    }
}

/// Keeps in `fill` what a child tells of it; true where the state is to know it at once.
pub fn hear(fill: &mut Option<Fill>, message: &Message) -> bool {
    match (message, fill) {
        (Message::Filling(new), fill) => *fill = Some(new.clone()),
        (Message::Filled { read, mb_s }, Some(fill)) => {
            let rates = match read {
                true => &mut fill.read,
                false => &mut fill.written,
            };
            rates.push(crate::record::rounded(*mb_s));
        }
        (Message::Emptied {}, Some(fill)) => fill.directory = PathBuf::new(),
        _ => return false,
    }
    true
}

/// The files of a fill by their number, or an emulated disk in tests.
pub trait Parts {
    /// Writes at `offset` of part `n`; false where there is no room for more.
    fn write(&mut self, n: u64, offset: u64, data: &[u8]) -> io::Result<bool>;
    /// Reads past every cache of the machine.
    fn read(&mut self, n: u64, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// The first bad block behind a read that failed; `None` where it works now.
    fn first_bad(&mut self, n: u64, offset: u64, buffer: &mut [u8]) -> io::Result<Option<u64>>;
    /// Where on the disk that lies.
    fn address(&mut self, n: u64, offset: u64) -> Option<u64>;
}

/// Where block `index` of the fill lies on the disk.
fn address(parts: &mut dyn Parts, fill: &Fill, index: u64) -> Option<u64> {
    let at = index * BLOCK as u64;
    parts.address(at / fill.part, at % fill.part)
}

/// Writes part `n`; returns its bytes, fewer than wanted where there is no more room.
fn write_part(
    parts: &mut dyn Parts,
    fill: &Fill,
    n: u64,
    bytes: u64,
    buffer: &mut [u8],
) -> io::Result<u64> {
    let first = n * (fill.part / BLOCK as u64);
    for offset in (0..bytes).step_by(MIB as usize) {
        for (n, block) in buffer.chunks_exact_mut(BLOCK).enumerate() {
            let index = first + offset / BLOCK as u64 + n as u64;
            pattern::fill(block, fill.salt, index, GENERATION);
        }
        if !parts.write(n, offset, buffer)? {
            return Ok(offset);
        }
    }
    Ok(bytes)
}

/// Whether some blocks of the first `bytes` are bad, twice.
fn sample_is_bad(
    parts: &mut dyn Parts,
    fill: &Fill,
    bytes: u64,
    random: &mut Random,
    buffer: &mut [u8],
) -> bool {
    let mut bad = |index: u64| {
        let at = index * BLOCK as u64;
        let read = parts.read(at / fill.part, at % fill.part, buffer);
        read.is_err() || tally::fate(buffer, fill.salt, index, fill.blocks()) != Fate::Kept
    };
    (0..SAMPLES).any(|_| {
        let index = random.below(bytes / BLOCK as u64);
        bad(index) && bad(index)
    })
}

/// What reading came upon besides the blocks' content.
#[derive(Default)]
pub struct Troubles {
    /// Reads that failed again.
    pub failed: u64,
    /// Reads that failed once.
    pub once: u64,
}

/// Reads part `n` of `bytes` bytes; a MiB with a bad block is read again, as long as there are
/// few of them.
fn read_part(
    parts: &mut dyn Parts,
    fill: &Fill,
    (n, bytes): (u64, u64),
    tally: &mut Tally,
    troubles: &mut Troubles,
    buffer: &mut [u8],
) -> io::Result<()> {
    let block = BLOCK as u64;
    let first = n * (fill.part / block);
    for offset in (0..bytes).step_by(MIB as usize) {
        let index = first + offset / block;
        if parts.read(n, offset, buffer).is_err() {
            if let Some(bad) = parts.first_bad(n, offset, buffer)? {
                let index = first + bad / block;
                tally.note(index, Fate::Unreadable, &mut |i| address(parts, fill, i));
                tally.confirmed = true;
                troubles.failed += 1;
                if troubles.failed >= ERRORS {
                    return Ok(());
                }
                continue;
            }
            troubles.once += 1;
        }
        let before = tally.bad();
        let mut bad = None;
        for (k, block) in (index..).zip(buffer.chunks_exact(BLOCK)) {
            let fate = tally::fate(block, fill.salt, k, fill.blocks());
            if fate != Fate::Kept {
                bad = bad.or(Some(k));
            }
            tally.note(k, fate, &mut |i| address(parts, fill, i));
        }
        if let Some(k) = bad
            && before < 64
        {
            parts.read(n, offset, buffer)?;
            let again = &buffer[(k - index) as usize * BLOCK..][..BLOCK];
            tally.confirmed |= tally::fate(again, fill.salt, k, fill.blocks()) != Fate::Kept;
        }
    }
    Ok(())
}
