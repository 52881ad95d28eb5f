//! Who is there: the media of this machine, what each one is, and where it may be written.
//!
//! Everything is read under a root (`/` on the machine itself, a recorded tree in tests).

use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Why a medium is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It holds `/`.
    Root,
    /// It hangs on USB.
    Attached,
    /// It is named in the configuration or on the command line.
    Configured,
}

/// How the medium is connected, in the words of `parted -l` and the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    Mmc,
    Usb,
    Scsi,
    Nvme,
    Virtio,
    Loop,
    Other,
}

/// The link that bounds the speed of the medium.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// One phrase for a person: `USB 480 Mbit/s, usb-storage`, `SD high-speed, 50 MHz, 4 bit`.
    pub description: String,
    /// What the link can carry at most, MB/s (10^6), after line coding and packet overhead.
    pub ceiling_mb_s: f64,
    /// USB signalling rate in Mbit/s (1.5 to 20000); 0 where the link is not USB.
    pub usb_mbit_s: f64,
}

/// A mounted file system that lies on the medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is mounted, as in mountinfo (octal escapes decoded).
    pub path: PathBuf,
    /// The file system's type, as in mountinfo.
    pub fs_type: String,
    pub read_only: bool,
    /// What lies between the file system and the medium, outermost first: `dm-0 (LUKS)`, `md127`.
    pub layers: Vec<String>,
}

/// One whole disk under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Medium {
    pub role: Role,
    /// The kernel's name, `mmcblk0`: for this boot only.
    pub device: String,
    /// What makes it the same one tomorrow: `cid:…`, `wwn:…` or `disk:vendor:model:serial:bytes`.
    pub identity: String,
    /// The name as `parted -l` prints it: `SD SC32G`, `CFD CSSD -PNM64WJ2`.
    pub name: String,
    /// The model in one piece where SCSI's 8 + 16 byte fields cut it: `CFD CSSD-PNM64WJ2`.
    pub joined_name: Option<String>,
    pub transport: Transport,
    /// Size in bytes as the disk claims it; 0 where there is no medium in the drive.
    pub bytes: u64,
    /// Logical block size in bytes: 512 or 4096.
    pub logical_block: u32,
    pub rotational: bool,
    pub read_only: bool,
    /// `queue/write_cache` says `write back`: a write is durable only after a flush.
    pub volatile_cache: bool,
    /// The active I/O scheduler: `none`, `mq-deadline`, `bfq`, `kyber`; empty where it cannot be read.
    pub scheduler: String,
    pub link: Option<Link>,
    pub mounts: Vec<Mount>,
}

/// A place that was asked for and is no medium, with the reason: `tmpfs is RAM`.
#[derive(Clone, Debug, PartialEq)]
pub struct NoMedium {
    /// `/`, or the path or device as it was asked for.
    pub asked: String,
    pub reason: String,
}

/// The media found, and the places that are none.
#[derive(Debug, Default)]
pub struct Found {
    /// Root medium first, then by device name.
    pub media: Vec<Medium>,
    pub none: Vec<NoMedium>,
}

/// All media of the machine under `root`: the root medium, every disk with a USB ancestor,
/// and `configured` ones (a path, a device, a `/dev/disk/by-id` link or a mount point).
/// # Errors
/// Only where `/proc/self/mountinfo` or `/sys/block` cannot be read at all.
pub fn find(root: &Path, configured: &[String]) -> Result<Found> {
    let _ = (root, configured);
    Ok(Found::default())
}

/// Just the media that `asked` names, as `run --medium` does.
/// # Errors
/// As [`find`].
pub fn find_only(root: &Path, asked: &[String]) -> Result<Found> {
    let _ = (root, asked);
    Ok(Found::default())
}
