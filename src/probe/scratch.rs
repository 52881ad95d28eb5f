//! The one file that probes write: without a name where the file system allows it, so that
//! nothing can be left behind; otherwise under one fixed name that the next run removes.

use super::pattern::BLOCK;
use super::place::Place;
use crate::error::{Error, Result};
use crate::sys::{self, DirectIo};
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The name where a file must have one (vfat, exfat, ntfs3).
pub const NAME: &str = ".storage-selftest.scratch";

pub struct Scratch {
    pub file: File,
    /// The file system takes direct I/O; otherwise every write is flushed by itself.
    pub direct: bool,
    named: Option<PathBuf>,
    fs_type: String,
    /// What was written where: the generation of each 4 KiB block, 0 for none.
    pub generations: Vec<u8>,
}

impl Scratch {
    /// A new, empty file in `place`.
    /// # Errors
    /// `ENODEV` where another file system is there now.
    pub fn create(place: &Place) -> io::Result<Self> {
        let (directory, fs_type) = (&place.directory, place.fs_type.as_str());
        if fs::metadata(directory)?.dev() != place.dev {
            return Err(io::Error::from_raw_os_error(nix::libc::ENODEV));
        }
        let (file, direct, named) = match open_either(directory, OFlag::O_TMPFILE.bits(), false) {
            Ok((file, direct)) => (file, direct, None),
            Err(error) if no_nameless_files(&error) => {
                let path = directory.join(NAME);
                let flags = OFlag::O_NOFOLLOW.bits();
                let (file, direct) = open_either(&path, flags, true)?;
                (file, direct, Some(path))
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            direct: direct && really_direct(&file, fs_type),
            file,
            named,
            fs_type: fs_type.into(),
            generations: Vec::new(),
        })
    }

    /// See [`reserve`].
    pub fn reserve(&self, bytes: u64) -> io::Result<()> {
        reserve(&self.file, &self.fs_type, bytes)
    }

    /// Times its size that the file system itself may write for a flushed 4 KiB: with a full
    /// journal ext4 writes the block there with two of its own, btrfs was seen to write 70 KiB.
    pub fn file_systems_own(&self) -> u64 {
        match self.fs_type.as_str() {
            "ext4" | "xfs" | "vfat" | "exfat" => 3,
            _ => 20,
        }
    }

    pub fn fs_type(&self) -> &str {
        &self.fs_type
    }

    /// Its path, where the file system wants one.
    pub fn path(&self) -> Option<&Path> {
        self.named.as_deref()
    }

    /// Blocks that were written at least once.
    pub fn blocks(&self) -> u64 {
        self.generations.len() as u64
    }

    pub fn bytes(&self) -> u64 {
        self.blocks() * BLOCK as u64
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(path) = &self.named
            && let Err(error) = fs::remove_file(path)
        {
            log::warn!("{}", Error::new("remove", path, error));
        }
    }
}

/// Whether what was opened for direct I/O gets it.
fn really_direct(file: &File, fs_type: &str) -> bool {
    if fs_type == "btrfs" {
        // Without it btrfs takes the open and then goes through the page cache.
        return sys::no_copy_on_write(file).is_ok();
    }
    match sys::direct_io(file) {
        DirectIo::Refused => false,
        DirectIo::NotSaid => matches!(fs_type, "ext4" | "xfs" | "f2fs"),
        _ => true,
    }
}

/// A file with a name, made where `new`; the second value as [`Scratch::direct`].
/// # Errors
/// As open(2).
pub fn open(path: &Path, fs_type: &str, new: bool) -> io::Result<(File, bool)> {
    let (file, direct) = open_either(path, OFlag::O_NOFOLLOW.bits(), new)?;
    let direct = direct && really_direct(&file, fs_type);
    Ok((file, direct))
}

/// Asks for `bytes` in as few pieces as can be, where that costs no writes of zeros.
pub fn reserve(file: &File, fs_type: &str, bytes: u64) -> io::Result<()> {
    if !matches!(fs_type, "ext4" | "xfs" | "f2fs" | "btrfs") {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes as i64) {
        Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens with direct I/O, and without where the file system refuses that.
fn open_either(path: &Path, flags: i32, new: bool) -> io::Result<(File, bool)> {
    let open = |extra: i32| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(new)
            .mode(0o600)
            .custom_flags(flags | extra)
            .open(path)
    };
    match open(OFlag::O_DIRECT.bits()) {
        Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => {
            if new {
                // The kernel made the file before it refused the flag.
                let _ = fs::remove_file(path);
            }
            Ok((open(0)?, false))
        }
        opened => Ok((opened?, true)),
    }
}

/// EISDIR comes from kernels before 3.11, ENOENT and EINVAL from some FUSE servers.
fn no_nameless_files(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(nix::libc::EOPNOTSUPP | nix::libc::EISDIR | nix::libc::ENOENT | nix::libc::EINVAL)
    )
}

/// Bytes of a file system: all of it, and what is free for everyone.
pub struct Space {
    pub size: u64,
    pub free: u64,
}

/// The space of the file system of `directory`.
/// # Errors
/// As statvfs(3).
#[allow(clippy::unnecessary_cast)] // statvfs counts in 32 bits on some of our targets
pub fn space(directory: &Path) -> io::Result<Space> {
    let fs = nix::sys::statvfs::statvfs(directory)?;
    let unit = fs.fragment_size() as u64;
    let bytes = |blocks: u64| blocks.saturating_mul(unit);
    Ok(Space {
        size: bytes(fs.blocks() as u64),
        free: bytes(fs.blocks_available() as u64),
    })
}

/// Removes a file that a killed run left in `directory`; nothing where there is none.
/// Only a regular file with one name is touched, and no link is followed.
/// # Errors
/// Where there is one and it cannot be removed.
pub fn remove_left(directory: &Path) -> Result<bool> {
    let path = directory.join(NAME);
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() && meta.nlink() == 1 => {
            fs::remove_file(&path).map_err(|e| Error::new("remove", &path, e))?;
            Ok(true)
        }
        _ => Ok(false),
    }
}
