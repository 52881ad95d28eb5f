//! Is the disk as large as it claims? Proved on a live system with a few MiB, see README.

pub mod aliases;
pub mod diagnose;
pub mod fillers;
pub mod live;
pub mod marker;
pub mod stamps;

#[cfg(test)]
pub mod fake_test;

use crate::probe::pattern::Random;
use diagnose::{Diagnosis, diagnose};
use marker::{Marker, Scan};
use stamps::Stamps;
use std::io;

/// Stamps that are written before the durable write, so that it pushes them out of any memory
/// that a fake keeps in front.
pub const EARLY: usize = 64;
/// Stamps of the whole proof, at most; the budget may allow fewer.
pub const STAMPS: usize = 1024;

/// What the proof reads and writes, by address on the whole disk: a disk with our files on it, or
/// an emulated one in tests.
pub trait Blocks {
    /// Bytes that the disk claims.
    fn bytes(&self) -> u64;
    /// Reads past every cache of the machine.
    fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes one block of a file of ours.
    fn write(&mut self, at: u64, block: &[u8]) -> io::Result<()>;
    /// Makes durable what was written.
    fn flush(&mut self) -> io::Result<()>;
    /// How many more blocks can be stamped, read back and put back in the proof's time, after
    /// `stamped` ones were read back and put back. `None` where there is no time even for these.
    fn room(&self, stamped: usize) -> Option<usize>;
}

/// A proof under way.
pub struct Proof {
    /// Modulus that blocks low on the disk showed before anything was written, see
    /// [`aliases::find`].
    pub alias: Option<u64>,
    pub scan: Scan,
    pub stamps: Stamps,
    /// Not stamped yet, coarse to fine.
    rounds: Vec<Vec<u64>>,
    pub diagnoses: Vec<Diagnosis>,
    /// A stamp was bad in both readings.
    pub confirmed: bool,
    /// The stamps were not all read back: the time was over.
    pub unread: bool,
}

impl Proof {
    /// What is done before the durable write: a few stamps where no data is.
    /// # Errors
    /// Of a read or a write; stamps written before are put back.
    pub fn begin(
        disk: &mut dyn Blocks,
        alias: Option<u64>,
        addresses: &[u64],
        salt: u64,
    ) -> io::Result<Self> {
        let mut random = Random::new(salt);
        let mut proof = Self {
            alias,
            scan: Scan::default(),
            stamps: Stamps::new(salt),
            rounds: stamps::rounds(addresses, &mut random),
            diagnoses: Vec::new(),
            confirmed: false,
            unread: false,
        };
        if let Err(error) = proof.early(disk) {
            let _ = proof.restore(disk); // the first error is the one to tell
            return Err(error);
        }
        Ok(proof)
    }

    fn early(&mut self, disk: &mut dyn Blocks) -> io::Result<()> {
        for round in &mut self.rounds {
            let mut left = Vec::new();
            for at in round.drain(..) {
                let count = self.stamps.count();
                let room = count < EARLY && disk.room(count).is_some_and(|room| room > 0);
                if !room || !self.stamps.stamp(disk, at, true)? {
                    left.push(at);
                }
            }
            *round = left;
        }
        disk.flush()
    }

    /// The marker's images, then the early stamps, then the others round by round; it ends with the
    /// first proof of a fake. Nothing is put back yet.
    /// # Errors
    /// Of a read or a write.
    pub fn go_on(
        &mut self,
        disk: &mut dyn Blocks,
        mut marker: Option<&mut Marker>,
    ) -> io::Result<()> {
        // What looks like an image may be a copy: an image follows what is written.
        let alias = match (self.alias, &mut marker) {
            (Some(alias), Some(marker)) => marker.confirms(disk, alias)?.unwrap_or(true),
            (alias, _) => alias.is_some(),
        };
        if alias {
            return Ok(());
        }
        self.alias = None;
        if let Some(marker) = marker {
            self.scan = marker.scan(disk, self.stamps.count())?;
            if self.scan.wraps_at.is_some() {
                return Ok(());
            }
        }
        if disk.room(self.stamps.count()).is_none() {
            self.unread = true;
            return Ok(());
        }
        self.read_back(disk)?;
        for round in std::mem::take(&mut self.rounds) {
            let room = disk.room(self.stamps.count()).unwrap_or(0);
            if self.fake() || room == 0 {
                break;
            }
            for &at in round.iter().take(room) {
                self.stamps.stamp(disk, at, false)?;
            }
            self.stamps.lowest_again(disk)?;
            disk.flush()?;
            self.read_back(disk)?;
        }
        Ok(())
    }

    fn read_back(&mut self, disk: &mut dyn Blocks) -> io::Result<()> {
        self.diagnoses = diagnose(&self.stamps.read_back(disk)?);
        self.confirmed = self.stamps.confirmed();
        Ok(())
    }

    /// Address of some stamp that was not kept.
    pub fn first_bad(&self) -> Option<u64> {
        self.diagnoses.iter().find_map(|d| match *d {
            Diagnosis::Ends { first_bad, .. } => Some(first_bad),
            Diagnosis::Changed { first, .. }
            | Diagnosis::Lost { first, .. }
            | Diagnosis::Overwritten { first, .. } => Some(first),
            Diagnosis::Wraps { .. } | Diagnosis::Unreadable { .. } => None,
        })
    }

    /// The disk has not the size that it claims.
    pub fn fake(&self) -> bool {
        let fake = |d: &Diagnosis| matches!(d, Diagnosis::Ends { .. } | Diagnosis::Wraps { .. });
        self.wraps_at().is_some() || self.diagnoses.iter().any(fake)
    }

    /// Puts everything back as it was.
    /// # Errors
    /// Of the first write that failed.
    pub fn restore(&mut self, disk: &mut dyn Blocks) -> io::Result<()> {
        self.stamps
            .restore(disk, |disk, at, block| disk.write(at, block))
    }

    /// Real size of a disk that takes addresses modulo it, where that was seen.
    pub fn wraps_at(&self) -> Option<u64> {
        let stamps = self.diagnoses.iter().find_map(|d| match d {
            Diagnosis::Wraps { real } => Some(*real),
            _ => None,
        });
        self.alias.or(self.scan.wraps_at).or(stamps)
    }
}

/// Greatest common divisor.
fn gcd(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        b => gcd(b, a % b),
    }
}
