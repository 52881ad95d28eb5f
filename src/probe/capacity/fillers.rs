//! The claim on exFAT, which takes no hole out of a file: large files that are allocated and never
//! written, a small one behind each, and then the large ones go. Only the small ones are stamped.

use super::live::CLAIM;
use crate::error::cause_text;
use crate::probe::extents::Extent;
use crate::probe::fat;
use crate::probe::fill::files::Held;
use crate::probe::io::Counters;
use crate::probe::job::Context;
use crate::probe::pattern::BLOCK;
use crate::probe::place::Place;
use crate::probe::scratch;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Instant;

/// The directory of the files; the next run removes what a killed one left.
pub const NAME: &str = ".storage-selftest.claim";
/// Small files, which are all open: half of what a process may have (getrlimit(2), the usual 1024).
pub const MOST: usize = 512;
/// Files after which the disk's counters tell what a file costs here, and bytes that all of them may.
const TRIED: usize = 16;
pub const TABLES: u64 = 2 << 20;

pub struct Fillers {
    held: Held,
    path: PathBuf,
    /// The small files with their places.
    pub files: Vec<(File, [Extent; 1])>,
    /// Bytes that were claimed.
    pub bytes: u64,
}

impl Fillers {
    /// Claims about `wanted` bytes with `count` small files in them, as far as the time allows.
    /// # Errors
    /// With the reason why the disk cannot be sampled through this file system.
    pub fn claim(
        context: &Context,
        place: &Place,
        wanted: u64,
        count: usize,
    ) -> Result<Self, String> {
        if !allocates_without_zeros() {
            return Err("exfat writes zeros for what it allocates before Linux 6.8".into());
        }
        let said = |e: io::Error| format!("claim free space: {}", cause_text(&e));
        let path = place.directory.join(NAME);
        DirBuilder::new().mode(0o700).create(&path).map_err(said)?;
        let mut claim = Self {
            held: Held::open(&path).map_err(said)?,
            path,
            files: Vec::new(),
            bytes: 0,
        };
        let opened = claim
            .allocate(context, place, wanted, count)
            .map_err(said)?;
        let places = fat::places(&context.disk, &context.job, &claim.path)?;
        claim.remove(|n| n % 2 == 0).map_err(said)?;
        for (n, file) in opened {
            let name = format!("{n:04}");
            if let Some((_, disk)) = places.iter().find(|(of, _)| *of == name) {
                let (file_at, disk, length) = (0, *disk, BLOCK as u64);
                let extent = Extent {
                    file: file_at,
                    disk,
                    length,
                };
                claim.files.push((file, [extent]));
            }
        }
        claim
            .files
            .sort_unstable_by_key(|(_, [extent])| extent.disk);
        Ok(claim)
    }

    /// Even numbers are the large files.
    fn allocate(
        &mut self,
        context: &Context,
        place: &Place,
        wanted: u64,
        count: usize,
    ) -> io::Result<Vec<(u64, File)>> {
        let stat = context.job.sys.join("stat");
        let written = || Counters::read(&stat).map_or(0, |counters| counters.written);
        let (start, before) = (Instant::now(), written());
        let each = wanted / count.max(1) as u64 / BLOCK as u64 * BLOCK as u64;
        let mut small = Vec::new();
        for n in 0..count as u64 {
            let free = scratch::space(&place.directory)?.free;
            if start.elapsed() >= CLAIM || free < place.reserve + each {
                break;
            }
            if n == TRIED as u64 {
                nix::unistd::syncfs(self.held.file())?;
                let cost = written().saturating_sub(before) / TRIED as u64;
                if cost * count as u64 > TABLES {
                    break; // free space in crumbs, each an entry of the table
                }
            }
            File::create_new(self.held.part(2 * n))?.set_len(each)?;
            let (file, _) = scratch::open(&self.held.part(2 * n + 1), &place.fs_type, true)?;
            file.set_len(BLOCK as u64)?;
            small.push((2 * n + 1, file));
            self.bytes += each;
        }
        Ok(small)
    }

    fn remove(&self, which: impl Fn(u64) -> bool) -> io::Result<()> {
        self.held.remove_if(which, || {}).map(drop)
    }
}

impl Drop for Fillers {
    fn drop(&mut self) {
        let removed = self
            .remove(|_| true)
            .and_then(|()| fs::remove_dir(&self.path));
        if let Err(error) = removed {
            log::warn!("{}", crate::error::Error::new("remove", &self.path, error));
        }
    }
}

/// Linux 6.8 lets a file be longer than what was written of it; before, the
/// whole length was written.
fn allocates_without_zeros() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(8))
}
