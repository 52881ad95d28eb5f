//! Who is there: the media of this machine, what each one is, and where it may be written.
//!
//! Everything is read under a root (`/` on the machine itself, a recorded tree in tests).

mod describe;
mod identity;
pub mod mmc;
pub mod mountinfo;
mod nvme;
pub mod registers;
mod resolve;
mod share;
pub mod tree;
pub mod usb;

#[cfg(test)]
mod cases_test;
#[cfg(test)]
mod registers_test;

use crate::error::{Error, Result, printable};
use resolve::Machine;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
pub use tree::Tree;

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
    /// A share of another machine.
    Network,
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
#[derive(Clone, Debug, PartialEq, Deserialize)]
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

/// All media of the machine under `root`: the root medium, every disk with a USB ancestor where
/// `usb_disks` is set, and `configured` ones (a path, a device, a `/dev/disk/by-id` link or a mount point).
/// # Errors
/// Only where `/proc/self/mountinfo` or `/sys/block` cannot be read at all.
pub fn find(root: &Path, configured: &[String], usb_disks: bool) -> Result<Found> {
    let mut search = Search::new(root)?;
    if let Err(reason) = search.add_own(usb_disks) {
        search.refuse("/", &reason);
    }
    for asked in configured {
        search.ask(asked);
    }
    Ok(search.finish())
}

/// Just the media that `asked` names, as `run --medium` does. Role and identity are those
/// that [`find`] would give.
/// # Errors
/// As [`find`].
pub fn find_only(root: &Path, asked: &[String]) -> Result<Found> {
    let mut search = Search::new(root)?;
    // The others are looked at too: an identity depends on who else claims it. Why there
    // is no root medium was not asked.
    let _ = search.add_own(true);
    let wanted: Vec<String> = asked.iter().flat_map(|asked| search.ask(asked)).collect();
    let mut found = search.finish();
    found.media.retain(|medium| wanted.contains(&medium.device));
    Ok(found)
}

/// The disks found so far.
struct Search {
    machine: Machine,
    disks: Vec<(Role, PathBuf)>,
    shares: Vec<Medium>,
    none: Vec<NoMedium>,
}

impl Search {
    fn new(root: &Path) -> Result<Self> {
        let machine = Machine::read(root)?;
        let blocks = machine.tree.at("/sys/block");
        std::fs::read_dir(&blocks).map_err(|cause| Error::new("read", blocks, cause))?;
        Ok(Self {
            machine,
            disks: Vec::new(),
            shares: Vec::new(),
            none: Vec::new(),
        })
    }

    /// The root medium and what hangs on USB, or why there is no root medium.
    fn add_own(&mut self, usb_disks: bool) -> std::result::Result<(), String> {
        let root = self.machine.root_disks();
        for below in root.iter().flatten() {
            self.add(Role::Root, below.disk.clone());
        }
        if usb_disks {
            for disk in self.usb_disks() {
                self.add(Role::Attached, disk);
            }
        }
        root.map(|_| ())
    }

    /// Adds the disks, or the share, that `asked` names and returns their devices.
    fn ask(&mut self, asked: &str) -> Vec<String> {
        if let Some(share) = self.share(asked) {
            return vec![share];
        }
        let below = self.machine.asked_disks(asked).unwrap_or_else(|reason| {
            self.refuse(asked, &reason);
            Vec::new()
        });
        let disks: Vec<PathBuf> = below.into_iter().map(|below| below.disk).collect();
        for disk in &disks {
            self.add(Role::Configured, disk.clone());
        }
        disks.iter().map(|disk| tree::name_of(disk)).collect()
    }

    /// Adds the share that `asked` lies on, without touching it: its server may not answer.
    fn share(&mut self, asked: &str) -> Option<String> {
        let path = Path::new(asked);
        let entry = self.machine.mounts.owner(path)?;
        if !path.is_absolute()
            || !resolve::is_network(&entry.fs_type)
            || entry.point == Path::new("/")
        {
            return None;
        }
        let share = share::medium(&self.machine.tree, entry, path, self.shares.len());
        let known = self
            .shares
            .iter()
            .find(|known| known.identity == share.identity);
        let device = known.unwrap_or(&share).device.clone();
        if device == share.device {
            self.shares.push(share);
        }
        Some(device)
    }

    fn refuse(&mut self, asked: &str, reason: &str) {
        self.none.push(NoMedium {
            asked: printable(asked),
            reason: printable(reason),
        });
    }

    /// The first role that a disk is found in stays.
    fn add(&mut self, role: Role, disk: PathBuf) {
        if !self.disks.iter().any(|(_, known)| *known == disk) {
            self.disks.push((role, disk));
        }
    }

    fn usb_disks(&self) -> Vec<PathBuf> {
        let tree = &self.machine.tree;
        let disks = tree.list("/sys/block").into_iter().filter_map(|name| {
            let disk = tree.real(format!("/sys/block/{name}")).ok()?;
            let refused = self.machine.refusal(&disk, &name).is_some();
            (!refused && usb::above(tree, &disk).is_some()).then_some(disk)
        });
        disks.collect()
    }

    fn finish(self) -> Found {
        let mut media: Vec<(Medium, String)> = self
            .disks
            .iter()
            .map(|(role, disk)| describe::medium(&self.machine, *role, disk))
            .collect();
        identity::separate(&mut media);
        let disks = media.into_iter().map(|(medium, _)| medium);
        let mut media: Vec<Medium> = disks.chain(self.shares).collect();
        media.sort_by_key(|medium| (medium.role != Role::Root, medium.device.clone()));
        Found {
            media,
            none: self.none,
        }
    }
}
