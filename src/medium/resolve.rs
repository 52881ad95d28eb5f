//! From a path, a mount or a block device down to the whole disks that carry it.

use super::mountinfo::{Entry, Mounts, number};
use super::tree::{Tree, name_of};
use crate::error::{Result, cause_text};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// More layers than anyone stacks: past it, what we read goes in circles.
const DEPTH_LIMIT: u8 = 16;

/// A disk found below something, with what lies between, outermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// The disk's own directory, `/sys/devices/…/block/sda`.
    pub disk: PathBuf,
    pub layers: Vec<String>,
}

/// The disks, or the reason why there is none.
pub type Disks = std::result::Result<Vec<Below>, String>;

/// Whether a loop device is a medium of its own (whoever names it means it) or one more
/// layer (what holds `/` is the disk that its file lies on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    AreMedia,
    AreLayers,
}

/// What is read once and asked often.
#[derive(Debug)]
pub struct Machine {
    pub tree: Tree,
    pub mounts: Mounts,
}

impl Machine {
    /// # Errors
    /// Where mountinfo cannot be read.
    pub fn read(root: &Path) -> Result<Self> {
        let tree = Tree::new(root);
        let mounts = Mounts::read(&tree)?;
        Ok(Self { tree, mounts })
    }

    /// The disks that hold `/`.
    pub fn root_disks(&self) -> Disks {
        let Some(entry) = self.mounts.owner(Path::new("/")) else {
            return Err("mountinfo has no line for /".to_string());
        };
        if entry.fs_type == "overlay" {
            return self.lower_disks(entry);
        }
        // Without an initramfs the kernel names its root /dev/root, which is no device.
        if entry.anonymous() && entry.source == "/dev/root" {
            return self.command_line_disks();
        }
        self.mount_disks(entry, Loops::AreLayers)
    }

    /// The disks that `asked` names: a block device, a link to one, or any path on a mount.
    pub fn asked_disks(&self, asked: &str) -> Disks {
        let failed = |cause| format!("{asked}: {}", cause_text(&cause));
        let path = self.tree.real(asked).map_err(failed)?;
        if path == Path::new("/") {
            return self.root_disks();
        }
        match self.tree.at(&path).metadata() {
            Ok(meta) if meta.file_type().is_block_device() => {
                self.block_disks(&self.numbered(&number(meta.rdev()))?, Loops::AreMedia)
            }
            Ok(meta) if meta.is_dir() || meta.is_file() => match self.mounts.owner(&path) {
                Some(entry) => self.mount_disks(entry, Loops::AreMedia),
                None => Err(format!("{asked} lies on no mount that mountinfo knows")),
            },
            Ok(_) => Err(format!(
                "{asked} is neither a block device nor a place on a file system"
            )),
            // A recorded tree has no device nodes.
            Err(cause) => match path
                .strip_prefix("/dev")
                .ok()
                .and_then(|name| self.named(&name.to_string_lossy()))
            {
                Some(block) if !self.tree.is_machine() => self.block_disks(&block, Loops::AreMedia),
                _ => Err(failed(cause)),
            },
        }
    }

    /// The disks that writes to a mount reach.
    pub fn mount_disks(&self, entry: &Entry, loops: Loops) -> Disks {
        self.mount_disks_at(entry, loops, 0)
    }

    fn mount_disks_at(&self, entry: &Entry, loops: Loops, depth: u8) -> Disks {
        if depth > DEPTH_LIMIT {
            return Err(format!("{}: layers without end", entry.point.display()));
        }
        let fs_type = entry.fs_type.as_str();
        match fs_type {
            "tmpfs" | "ramfs" | "rootfs" | "devtmpfs" => {
                Err(format!("{fs_type} is RAM, not a medium"))
            }
            "overlay" => self.upper_disks(entry, loops, depth),
            "btrfs" => self.btrfs_disks(entry, loops, depth),
            _ if is_network(fs_type) => Err(format!(
                "{fs_type} {} is a share, no medium of this machine",
                entry.source
            )),
            _ if entry.anonymous() => self.source_disks(entry, loops, depth),
            _ => match self.numbered(&entry.device) {
                Ok(block) => self.block_disks_at(&block, loops, depth),
                Err(reason) => self.source_disks(entry, loops, depth).map_err(|_| reason),
            },
        }
    }

    /// What holds `/` under an overlay: the lower directories, which overlayroot keeps mounted
    /// at /media/root-ro. Where they are hidden, only the kernel's command line tells.
    fn lower_disks(&self, entry: &Entry) -> Disks {
        let lower = entry.lower_dirs();
        let owners: Vec<&Entry> = lower
            .iter()
            .filter_map(|dir| self.layer_owner(entry, dir))
            .collect();
        if owners.is_empty() {
            return self.command_line_disks().map_err(|reason| {
                format!(
                    "/ is an overlay whose lower directory {} is hidden; {reason}",
                    lower.join(":")
                )
            });
        }
        gather(
            owners
                .iter()
                .map(|owner| self.mount_disks(owner, Loops::AreLayers)),
        )
    }

    fn upper_disks(&self, entry: &Entry, loops: Loops, depth: u8) -> Disks {
        let Some(upper) = entry.upper_dir() else {
            return Err("overlay without an upper directory: nothing can be written".to_string());
        };
        match self.layer_owner(entry, &upper) {
            Some(owner) => self
                .mount_disks_at(owner, loops, depth + 1)
                .map_err(|reason| format!("overlay over {reason}")),
            None => Err(format!(
                "overlay whose upper directory {upper} is hidden: writes may stay in RAM"
            )),
        }
    }

    /// The mount that a directory of an overlay lies on. `None` where it is hidden: the path is
    /// that of the process that mounted it, which may have had another root or another
    /// working directory (an initramfs, a container runtime).
    fn layer_owner(&self, overlay: &Entry, dir: &str) -> Option<&Entry> {
        let seen = dir.starts_with('/') && (!self.tree.is_machine() || self.tree.exists(dir));
        let owner = self.mounts.owner(Path::new(dir)).filter(|_| seen)?;
        (owner.id != overlay.id).then_some(owner)
    }

    /// Every device of the file system: stat and mountinfo show anonymous numbers only.
    fn btrfs_disks(&self, entry: &Entry, loops: Loops, depth: u8) -> Disks {
        let Some(block) = self.source_block(&entry.source) else {
            return Err(format!("btrfs from {}: no such block device", entry.source));
        };
        let member = name_of(&block);
        for fsid in self.tree.list("/sys/fs/btrfs") {
            let devices = self.tree.list(format!("/sys/fs/btrfs/{fsid}/devices"));
            if devices.contains(&member) {
                let blocks = devices.iter().filter_map(|name| self.named(name));
                return gather(blocks.map(|block| self.block_disks_at(&block, loops, depth)));
            }
        }
        self.block_disks_at(&block, loops, depth)
    }

    /// By the mount's source: fuseblk has an anonymous number, bcachefs joins devices with colons.
    fn source_disks(&self, entry: &Entry, loops: Loops, depth: u8) -> Disks {
        if !entry.source.starts_with("/dev/") {
            return Err(format!("{} has no block device", entry.fs_type));
        }
        gather(
            entry
                .source
                .split(':')
                .map(|source| match self.source_block(source) {
                    Some(block) => self.block_disks_at(&block, loops, depth),
                    None => Err(format!("{source}: no such block device")),
                }),
        )
    }

    /// `root=` of the kernel's command line.
    fn command_line_disks(&self) -> Disks {
        let line = self.tree.text("/proc/cmdline").unwrap_or_default();
        let Some(root) = line
            .split_whitespace()
            .rev()
            .find_map(|word| word.strip_prefix("root="))
        else {
            return Err("the kernel's command line has no root=".to_string());
        };
        let link = match root.split_once('=') {
            Some(("PARTUUID", id)) => format!("/dev/disk/by-partuuid/{}", id.to_ascii_lowercase()),
            Some(("UUID", id)) => format!("/dev/disk/by-uuid/{id}"),
            Some(("LABEL", id)) => format!("/dev/disk/by-label/{id}"),
            Some(("PARTLABEL", id)) => format!("/dev/disk/by-partlabel/{id}"),
            _ => root.to_string(),
        };
        match self.source_block(&link) {
            Some(block) => self.block_disks(&block, Loops::AreLayers),
            None => Err(format!(
                "root={root} of the kernel's command line names no device here"
            )),
        }
    }

    /// The disks under a block device, partition or layer.
    pub fn block_disks(&self, block: &Path, loops: Loops) -> Disks {
        self.block_disks_at(block, loops, 0)
    }

    fn block_disks_at(&self, block: &Path, loops: Loops, depth: u8) -> Disks {
        let disk = self.whole_disk(block);
        let name = name_of(&disk);
        if depth > DEPTH_LIMIT {
            return Err(format!("{name}: layers without end"));
        }
        let slaves = self.tree.list(disk.join("slaves"));
        let below = if !slaves.is_empty() {
            let blocks = slaves.iter().filter_map(|slave| self.named(slave));
            gather(blocks.map(|slave| self.block_disks_at(&slave, loops, depth + 1)))
        } else if loops == Loops::AreLayers && name.starts_with("loop") {
            self.file_disks(&disk, depth)
        } else if let Some(reason) = self.refusal(&disk, &name) {
            return Err(reason);
        } else {
            return Ok(vec![Below {
                disk,
                layers: Vec::new(),
            }]);
        };
        let layer = self.layer(&disk, &name);
        let mut below = below.map_err(|reason| format!("{layer}: {reason}"))?;
        for disk in &mut below {
            disk.layers.insert(0, layer.clone());
        }
        Ok(below)
    }

    /// The disks that hold a loop device's file.
    fn file_disks(&self, disk: &Path, depth: u8) -> Disks {
        let Some(file) = self.tree.text(disk.join("loop/backing_file")) else {
            return Err("no file behind it".to_string());
        };
        match self.mounts.owner(Path::new(&file)) {
            Some(entry) if !file.ends_with(" (deleted)") => self
                .mount_disks_at(entry, Loops::AreLayers, depth + 1)
                .map_err(|reason| format!("its file {file}: {reason}")),
            _ => Err(format!("its file {file} cannot be seen from here")),
        }
    }

    /// `dm-0 (LUKS)`: the prefix of dm/uuid is the name of the subsystem that made it.
    fn layer(&self, disk: &Path, name: &str) -> String {
        let uuid = self.tree.text(disk.join("dm/uuid")).unwrap_or_default();
        let kinds = [
            ("CRYPT-LUKS", "LUKS"),
            ("CRYPT-", "crypt"),
            ("LVM-", "LVM"),
            ("mpath-", "multipath"),
        ];
        match kinds.iter().find(|(prefix, _)| uuid.starts_with(prefix)) {
            Some((_, kind)) => format!("{name} ({kind})"),
            None => name.to_string(),
        }
    }

    fn whole_disk(&self, block: &Path) -> PathBuf {
        match block.parent() {
            Some(disk) if self.tree.exists(block.join("partition")) => disk.to_path_buf(),
            _ => block.to_path_buf(),
        }
    }

    /// Why a whole disk is no medium of its own.
    pub fn refusal(&self, disk: &Path, name: &str) -> Option<String> {
        let numbered = |prefix: &str| {
            let rest = name.strip_prefix(prefix)?;
            rest.starts_with(|c: char| c.is_ascii_digit())
                .then_some(rest)
        };
        let reason = if numbered("zram").or(numbered("ram")).is_some() {
            "is RAM, not a medium"
        } else if numbered("mmcblk")
            .is_some_and(|rest| rest.contains("boot") || rest.contains("rpmb"))
        {
            "is a boot or RPMB area of an eMMC, not a medium of its own"
        } else if numbered("sr").or(numbered("fd")).is_some() {
            "is an optical or floppy drive, not a medium that is tested"
        } else if numbered("dm-")
            .or(numbered("md"))
            .or(numbered("bcache"))
            .is_some()
        {
            "has no disk below it that can be seen"
        } else if numbered("loop").is_some() && !self.tree.exists(disk.join("loop/backing_file")) {
            "has no file behind it"
        } else if numbered("loop").is_some() && self.tree.flag(disk.join("ro")) {
            "is a read-only loop device, not a medium"
        } else {
            return None;
        };
        Some(format!("{name} {reason}"))
    }

    /// The sysfs directory of a device number.
    fn numbered(&self, number: &str) -> std::result::Result<PathBuf, String> {
        let link = format!("/sys/dev/block/{number}");
        match self.tree.real(&link) {
            Ok(dir) if self.tree.exists(&link) => Ok(dir),
            _ => Err(format!("{link}: no such block device")),
        }
    }

    /// The sysfs directory of a device by its kernel name (`/` in it is written `!`).
    pub fn named(&self, name: &str) -> Option<PathBuf> {
        let link = PathBuf::from(format!("/sys/class/block/{}", name.replace('/', "!")));
        if name.is_empty() || name.starts_with('.') || !self.tree.exists(&link) {
            return None;
        }
        self.tree.real(&link).ok()
    }

    /// The sysfs directory behind a path in `/dev`.
    fn source_block(&self, source: &str) -> Option<PathBuf> {
        let path = self.tree.real(source).ok()?;
        if let Ok(meta) = self.tree.at(&path).metadata()
            && meta.file_type().is_block_device()
        {
            return self.numbered(&number(meta.rdev())).ok();
        }
        self.named(&path.strip_prefix("/dev").ok()?.to_string_lossy())
    }
}

/// A file system that another machine, or a program on this one, answers for.
pub fn is_network(fs_type: &str) -> bool {
    let known = [
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "afs", "fuse",
    ];
    known.contains(&fs_type) || fs_type.starts_with("fuse.")
}

/// All disks that were found, each once; the first reason where there is none at all.
fn gather(all: impl Iterator<Item = Disks>) -> Disks {
    let mut found: Vec<Below> = Vec::new();
    let mut reason = None;
    for disks in all {
        match disks {
            Ok(disks) => {
                for below in disks {
                    if !found.iter().any(|known| known.disk == below.disk) {
                        found.push(below);
                    }
                }
            }
            Err(why) => reason = reason.or(Some(why)),
        }
    }
    if found.is_empty() {
        return Err(reason.unwrap_or_else(|| "no disk below it can be seen".to_string()));
    }
    Ok(found)
}
