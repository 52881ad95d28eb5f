//! The canary: blocks across the whole disk that one run leaves stamped and the next one reads,
//! after a power cycle. It beats every memory in front of a disk, and catches a card that says yes
//! to writes and forgets them.

use super::io::read_exact;
use super::job::Context;
use super::pattern::{self, BLOCK, Seen};
use super::place::Place;
use super::{Fault, FaultKind, Message, Probe, Proved};
use crate::error::printable_path;
use crate::sys::Buffer;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Its name in the directory that a run may write to.
pub const NAME: &str = ".storage-selftest.canary";
/// Blocks that are kept.
pub const BLOCKS: usize = 64;
/// Blocks that each start stamps anew.
const ANEW: usize = 8;

/// What has to be known to tell whether it is still there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    pub path: PathBuf,
    pub salt: u64,
    /// The boot in which it was last written.
    pub boot: String,
    /// When its directory had last changed before it was made: a directory that is as it was then
    /// has forgotten it, another one has lost it to whoever deleted it.
    pub before: String,
    /// Blocks that were stamped anew so far, each in its turn, over and over.
    pub anew: u64,
}

impl Canary {
    /// How often the block was stamped, modulo 256: enough to tell a newer stamp from an older one.
    fn generation(&self, n: u64) -> u8 {
        let blocks = BLOCKS as u64;
        (1 + (self.anew + blocks - 1 - n) / blocks) as u8
    }
}

fn boot() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_string()
}

fn changed(directory: &Path) -> io::Result<String> {
    let meta = fs::metadata(directory)?;
    Ok(format!("{}.{:09}", meta.mtime(), meta.mtime_nsec()))
}

/// Makes a nameless `file` of [`BLOCKS`] blocks the canary of `place`.
/// # Errors
/// Of the first step that failed; no file is left then.
pub fn make(file: &File, place: &Place, salt: u64) -> io::Result<Canary> {
    let path = place.directory.join(NAME);
    remove(&place.directory)?;
    let mut block = Buffer::new(BLOCK)?;
    for n in 0..BLOCKS as u64 {
        pattern::fill(&mut block, salt, n, 1);
        file.write_all_at(&block, n * BLOCK as u64)?;
    }
    file.sync_all()?;
    let before = changed(&place.directory)?;
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::AT_SYMLINK_FOLLOW;
    nix::unistd::linkat(AT_FDCWD, nameless.as_str(), AT_FDCWD, &path, follow)?;
    File::open(&place.directory)?.sync_all()?;
    Ok(Canary {
        path,
        salt,
        boot: boot(),
        before,
        anew: 0,
    })
}

/// Removes an older one: a regular file with one name, no link is followed.
/// # Errors
/// Where it cannot be removed.
pub fn remove(directory: &Path) -> io::Result<()> {
    let path = directory.join(NAME);
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() && meta.nlink() == 1 => fs::remove_file(&path),
        Ok(_) => Err(io::Error::other("the canary's name is another's")),
        Err(_) => Ok(()),
    }
}

/// What the blocks together say.
#[derive(Debug, Default, PartialEq)]
struct Found {
    kept: usize,
    gone: u64,
    changed: u64,
    unlike: u64,
    example: String,
}

/// What one block says, after two readings.
fn look(found: &mut Found, canary: &Canary, n: u64, first: &[u8], second: &[u8]) {
    let (salt, generation) = (canary.salt, canary.generation(n));
    let at = format!("block {n} of {}", printable_path(&canary.path));
    if first != second {
        found.unlike += 1;
        found.example = format!("two readings of {at} differ");
        return;
    }
    // A run that was cut off has stamped it anew, and could not say so any more.
    let word = first[..8].try_into().map_or(0, u64::from_le_bytes);
    let newer = (0..128)
        .map(|more| generation.wrapping_add(more))
        .find(|&g| word == pattern::first_word(salt, n, g));
    match pattern::compare(first, salt, n, newer.unwrap_or(generation)) {
        Seen::Same => found.kept += 1,
        Seen::Changed(bits) => {
            found.changed += 1;
            found.example = format!("{bits} of 32768 bits changed in {at}");
        }
        Seen::Lost(instead) => {
            found.gone += 1;
            found.example = format!("{instead} in {at}");
        }
    }
}

/// Reads the canary that the last run left, tells what became of it and stamps some of it anew.
/// Where it is not there any more, no later run asks for it.
pub fn verify(context: &mut Context, mut canary: Canary) {
    let other_boot = boot() != canary.boot;
    (context.tell)(Message::Started(Probe::Canary));
    let file = match open(&canary.path) {
        Ok(file) => file,
        Err(error) => return missing(context, &canary, &error),
    };
    let found = match read(&file, &canary) {
        Ok(found) => found,
        Err(error) => {
            let stop = context.stop(Probe::Canary, &error, "read the canary");
            if let super::Stop::Fault(fault) = stop {
                (context.tell)(Message::Fault(fault));
            }
            return;
        }
    };
    let blocks = BLOCKS;
    let gone = match other_boot {
        true => FaultKind::DataForgotten,
        false => FaultKind::DataLost,
    };
    for (kind, count) in [
        (gone, found.gone),
        (FaultKind::DataChanged, found.changed + found.unlike),
    ] {
        if count > 0 {
            fault(context, kind, count, found.example.clone());
        }
    }
    if found.kept == blocks {
        let since = if other_boot {
            "the last boot"
        } else {
            "an earlier run of this boot"
        };
        prove(
            context,
            format!("{blocks} blocks of {since} are as they were"),
        );
    }
    let bytes = (ANEW * BLOCK) as u64;
    if found.kept > 0 && context.spend(bytes) {
        match stamp(&file, &mut canary) {
            Ok(()) => (context.tell)(Message::Canary(canary)),
            Err(error) => {
                let stop = context.stop(Probe::Canary, &error, "stamp the canary");
                if let super::Stop::Fault(mut fault) = stop {
                    fault.kind = FaultKind::WriteError;
                    (context.tell)(Message::Fault(fault));
                }
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NOFOLLOW.bits() | OFlag::O_DIRECT.bits())
        .open(path)
}

fn read(file: &File, canary: &Canary) -> io::Result<Found> {
    let mut first = Buffer::new(BLOCK)?;
    let mut second = Buffer::new(BLOCK)?;
    let mut found = Found::default();
    for n in 0..BLOCKS as u64 {
        let offset = n * BLOCK as u64;
        read_exact(file, &mut first, offset)?;
        read_exact(file, &mut second, offset)?;
        if *first != *second {
            // Once may be chance: only what differs again is told.
            read_exact(file, &mut first, offset)?;
            read_exact(file, &mut second, offset)?;
        }
        look(&mut found, canary, n, &first, &second);
    }
    Ok(found)
}

fn stamp(file: &File, canary: &mut Canary) -> io::Result<()> {
    let mut block = Buffer::new(BLOCK)?;
    for _ in 0..ANEW {
        let n = canary.anew % BLOCKS as u64;
        canary.anew += 1;
        pattern::fill(&mut block, canary.salt, n, canary.generation(n));
        file.write_all_at(&block, n * BLOCK as u64)?;
    }
    file.sync_data()?;
    canary.boot = boot();
    Ok(())
}

/// The file is not there: forgotten where its directory is as it was before the file was made.
fn missing(context: &mut Context, canary: &Canary, error: &io::Error) {
    if error.kind() != io::ErrorKind::NotFound {
        return; // not mounted for writing, say: later runs will see
    }
    let directory = canary.path.parent().unwrap_or(Path::new("/"));
    if changed(directory).is_ok_and(|now| now == canary.before) {
        let path = printable_path(&canary.path);
        let detail = format!("{path} is gone, and its directory is as it was before");
        fault(context, FaultKind::DataForgotten, BLOCKS as u64, detail);
    } else if directory.exists() {
        prove(context, "the blocks of the last run were deleted".into());
        (context.tell)(Message::Canary(Canary::default()));
    }
}

fn fault(context: &mut Context, kind: FaultKind, count: u64, detail: String) {
    (context.tell)(Message::Fault(Fault {
        probe: Probe::Canary,
        kind,
        sector: None,
        count,
        confirmed: true,
        detail,
    }));
}

fn prove(context: &mut Context, sentence: String) {
    (context.tell)(Message::Proved(Proved {
        probe: Probe::Canary,
        sentence,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canary() -> Canary {
        Canary {
            path: "/c".into(),
            salt: 7,
            // Block 0 was stamped anew twice, block 1 once.
            anew: 65,
            ..Canary::default()
        }
    }

    fn seen(seed: u64, index: u64, generation: u8) -> Found {
        let mut block = [0; BLOCK];
        pattern::fill(&mut block, seed, index, generation);
        let mut found = Found::default();
        look(&mut found, &canary(), 0, &block, &block);
        found
    }

    #[test]
    fn a_block_may_be_newer_than_known_but_never_older_or_anothers() {
        assert_eq!((seen(7, 0, 3).kept, seen(7, 0, 4).kept), (1, 1));
        assert_eq!(seen(7, 0, 2).gone, 1);
        assert_eq!((seen(7, 1, 3).gone, seen(8, 0, 3).gone), (1, 1));
    }

    #[test]
    fn each_block_is_stamped_anew_in_its_turn() {
        let generations = |anew| {
            let canary = Canary {
                anew,
                ..Canary::default()
            };
            [0, 1, 63].map(|n| canary.generation(n))
        };
        assert_eq!(generations(0), [1, 1, 1]);
        assert_eq!(generations(1), [2, 1, 1]);
        assert_eq!(generations(64), [2, 2, 2]);
        assert_eq!(generations(65), [3, 2, 2]);
    }

    #[test]
    fn a_flipped_bit_is_a_change_and_two_readings_must_agree() {
        let (mut good, mut found) = ([0; BLOCK], Found::default());
        pattern::fill(&mut good, 7, 0, 3);
        let mut bad = good;
        bad[4000] ^= 4;
        look(&mut found, &canary(), 0, &bad, &bad);
        look(&mut found, &canary(), 0, &good, &bad);
        assert_eq!((found.changed, found.unlike, found.gone), (1, 1, 0));
    }
}
