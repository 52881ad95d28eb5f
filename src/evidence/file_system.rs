//! The file systems on a medium: errors that they counted, their size against the medium's, and
//! whether one turned read-only.

use super::kernel_log::{Kind, Log};
use super::{RECORDED, Source, counted};
use crate::error::{printable, printable_path};
use crate::judge::{Finding, Verdict};
use crate::medium::mountinfo::{Entry, Mounts};
use crate::medium::tree::{Tree, name_of};
use crate::medium::{Mount, Role};
use crate::record::rfc3339;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SECTOR: u64 = 512;
/// A share of the whole below which the rest was forgotten; Armbian leaves 5 % by intent
/// (armbian-resize-filesystem), balena's device diagnostics warn from here on.
const EXPANDED: f64 = 0.8;
/// Before this, a board without a clock battery had not yet heard what time it is: 2020-01-01.
const CLOCK_WAS_SET: u64 = 1_577_836_800;

/// One mounted file system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileSystem {
    pub path: PathBuf,
    pub kind: String,
    /// The block device that it lies on: `mmcblk0p2`, `dm-0`.
    pub block: String,
    /// Errors that the file system itself counted; `None` where it does not count.
    pub errors: Option<Errors>,
    /// Mounted read-only though /etc/fstab does not ask for that.
    pub turned_read_only: bool,
    /// What is not used of a root medium.
    pub not_expanded: Option<String>,
    /// Bytes of the file system and bytes free; `None` where asking could cost I/O.
    pub space: Option<(u64, u64)>,
    /// Bytes written to it since it was made, by its own count.
    pub written: Option<u64>,
}

/// A file system's own error count. It survives reboots until fsck clears it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    pub count: u64,
    /// What and when, for a person.
    pub detail: String,
}

/// All mounted file systems of the medium that have one of their own to tell about.
pub fn file_systems(source: &Source) -> Vec<FileSystem> {
    let Ok(mounts) = Mounts::read(source.tree) else {
        return Vec::new();
    };
    let fstab = source.tree.bytes("/etc/fstab").unwrap_or_default();
    let fstab = Fstab(String::from_utf8_lossy(&fstab).into_owned());
    let medium = source.medium;
    let with_entry = medium.mounts.iter().filter_map(|mount| {
        let entry = mounts
            .entries
            .iter()
            .rev()
            .find(|e| e.point == mount.path)?;
        Some((mount, entry))
    });
    with_entry
        .map(|(mount, entry)| file_system(source, mount, entry, &fstab))
        .collect()
}

fn file_system(source: &Source, mount: &Mount, entry: &Entry, fstab: &Fstab) -> FileSystem {
    let tree = source.tree;
    let block = block_of(tree, entry);
    let space = space(tree, mount);
    FileSystem {
        path: mount.path.clone(),
        kind: mount.fs_type.clone(),
        errors: errors(tree, &mount.fs_type, &block),
        turned_read_only: entry.turned_read_only() && fstab.wants_writable(&mount.path),
        not_expanded: not_expanded(source, mount, &block, space),
        space,
        written: written(tree, &mount.fs_type, &block),
        block,
    }
}

/// What may hold a file system, and is neither mounted nor under another device: name, first byte.
pub fn unmounted(source: &Source) -> BTreeMap<String, u64> {
    let (tree, disk) = (source.tree, &source.disk);
    let Ok(mounts) = Mounts::read(tree) else {
        return BTreeMap::new();
    };
    let free = |place: &Path| {
        let number = tree.text(place.join("dev"));
        let mounted = |entry: &Entry| Some(&entry.device) == number.as_ref();
        number.is_some()
            && !mounts.entries.iter().any(mounted)
            && tree.list(place.join("holders")).is_empty()
    };
    let start = |name: String| {
        let sector: u64 = tree.number(disk.join(&name).join("start"))?;
        Some((name, sector.checked_mul(SECTOR)?))
    };
    let mut parts: BTreeMap<String, u64> = tree.list(disk).into_iter().filter_map(start).collect();
    match parts.is_empty() {
        true if free(disk) => drop(parts.insert(name_of(disk), 0)),
        true => {}
        false => parts.retain(|name, _| free(&disk.join(name))),
    }
    parts
}

/// The kernel's name of what is mounted: by number, or by its source where that is anonymous.
fn block_of(tree: &Tree, entry: &Entry) -> String {
    let link = format!("/sys/dev/block/{}", entry.device);
    let by_number = || Some(name_of(&tree.real(&link).ok()?));
    let found = match entry.anonymous() || !tree.exists(&link) {
        false => by_number(),
        true => tree.real(&entry.source).ok().map(|path| name_of(&path)),
    };
    found.unwrap_or_default()
}

/// `lifetime_write_kbytes` of ext4 and f2fs: Documentation/ABI/testing/sysfs-fs-ext4, sysfs-fs-f2fs.
fn written(tree: &Tree, kind: &str, block: &str) -> Option<u64> {
    let kib: u64 = tree.number(format!("/sys/fs/{kind}/{block}/lifetime_write_kbytes"))?;
    kib.checked_mul(1024)
}

/// What the file system counted.
fn errors(tree: &Tree, kind: &str, block: &str) -> Option<Errors> {
    match kind {
        "ext4" | "ext3" | "ext2" => ext4_errors(tree, block),
        "btrfs" => btrfs_errors(tree, block),
        "f2fs" => f2fs_errors(tree, block),
        _ => None,
    }
}

/// fs/ext4/sysfs.c: counted in the superblock, with the time of the first and the last one.
fn ext4_errors(tree: &Tree, block: &str) -> Option<Errors> {
    let attribute = |name: &str| format!("/sys/fs/ext4/{block}/{name}");
    let count: u64 = tree.number(attribute("errors_count"))?;
    let function = tree.text(attribute("last_error_func")).unwrap_or_default();
    let at: u64 = tree.number(attribute("last_error_time")).unwrap_or(0);
    let when = match at {
        0..CLOCK_WAS_SET => "before the clock was set".to_string(),
        at => format!("on {}", rfc3339(at)),
    };
    Some(Errors {
        count,
        detail: format!("the last one {when} in {}", printable(function.trim())),
    })
}

/// `/sys/fs/btrfs/UUID/devinfo/ID/error_stats`, since 5.14: counted since the file system was made.
fn btrfs_errors(tree: &Tree, block: &str) -> Option<Errors> {
    let uuid = tree
        .list("/sys/fs/btrfs")
        .into_iter()
        .find(|uuid| tree.exists(format!("/sys/fs/btrfs/{uuid}/devices/{block}")))?;
    let devices = format!("/sys/fs/btrfs/{uuid}/devinfo");
    let mut worst = Vec::new();
    let mut count = 0_u64;
    let mut known = false;
    for id in tree.list(&devices) {
        let stats = tree.bytes(format!("{devices}/{id}/error_stats"));
        for line in String::from_utf8_lossy(&stats.unwrap_or_default()).lines() {
            let Some((name, number)) = line.split_once(' ') else {
                continue;
            };
            known = true;
            let number: u64 = number.trim().parse().unwrap_or(0);
            count = count.saturating_add(number);
            if number > 0 {
                worst.push(format!("{number} {}", printable(name)));
            }
        }
    }
    known.then(|| Errors {
        count,
        detail: worst.join(", "),
    })
}

/// Documentation/ABI/testing/sysfs-fs-f2fs, stat/sb_status: bit 2 asks for fsck.
fn f2fs_errors(tree: &Tree, block: &str) -> Option<Errors> {
    let status = tree.text(format!("/sys/fs/f2fs/{block}/stat/sb_status"))?;
    let status = u64::from_str_radix(status.trim().trim_start_matches("0x"), 16).ok()?;
    Some(Errors {
        count: u64::from(status & 4 != 0),
        detail: "f2fs asks for fsck".into(),
    })
}

struct Fstab(String);

impl Fstab {
    /// It has a line for this place, and no `ro` in it.
    fn wants_writable(&self, path: &Path) -> bool {
        let line = self.0.lines().rev().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let same = |point: &str| Path::new(point) == path;
            (!line.trim_start().starts_with('#') && fields.len() > 3 && same(fields[1]))
                .then_some(fields)
        });
        line.is_some_and(|fields| {
            fields[2] != "overlay" && !fields[3].split(',').any(|option| option == "ro")
        })
    }
}

/// Bytes in all and bytes free. Only of file systems that answer from memory: vfat may count its
/// whole table for it, and a share may never answer.
fn space(tree: &Tree, mount: &Mount) -> Option<(u64, u64)> {
    if !matches!(mount.fs_type.as_str(), "ext4" | "ext3" | "xfs" | "f2fs") {
        return None;
    }
    if tree.is_machine() {
        let space = crate::probe::scratch::space(&mount.path).ok()?;
        return Some((space.size, space.free));
    }
    let text = tree.bytes(format!("{RECORDED}/statfs")).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().find_map(|line| {
        let mut fields = line.rsplitn(3, ' ');
        let (free, size, path) = (fields.next()?, fields.next()?, fields.next()?);
        (Path::new(path) == mount.path).then_some((size.parse().ok()?, free.parse().ok()?))
    })
}

/// Whether the root partition, or the file system in it, ends long before the medium does, with
/// nothing behind it. Armbian's file that says "do not resize" is respected.
fn not_expanded(
    source: &Source,
    mount: &Mount,
    block: &str,
    space: Option<(u64, u64)>,
) -> Option<String> {
    let (tree, medium) = (source.tree, source.medium);
    let root = ["/", "/media/root-ro"]
        .iter()
        .any(|p| mount.path == Path::new(p));
    if medium.role != Role::Root || !root || tree.exists("/root/.no_rootfs_resize") {
        return None;
    }
    let number = |part: &str, name: &str| -> Option<u64> {
        let sectors: u64 = tree.number(source.disk.join(part).join(name))?;
        sectors.checked_mul(SECTOR)
    };
    let (start, size) = (number(block, "start")?, number(block, "size")?);
    let last = tree
        .list(&source.disk)
        .iter()
        .filter_map(|part| number(part, "start"))
        .all(|other| other <= start);
    let end = start.saturating_add(size);
    let gb = |bytes: u64| bytes as f64 / 1e9;
    if last && (end as f64) < EXPANDED * medium.bytes as f64 {
        let text = format!(
            "the root partition ends at {:.1} of {:.1} GB",
            gb(end),
            gb(medium.bytes)
        );
        return Some(text);
    }
    let (used, _) = space?;
    ((used as f64) < EXPANDED * size as f64).then(|| {
        format!(
            "the root file system has {:.1} of the {:.1} GB of its partition",
            gb(used),
            gb(size)
        )
    })
}

impl FileSystem {
    pub fn judge(&self, log: &Log, findings: &mut Vec<Finding>) {
        let path = printable_path(&self.path);
        let errors = self.errors.as_ref().filter(|errors| errors.count > 0);
        let told = findings.iter().any(|f| f.code == "file-system-error");
        if let (Some(errors), false) = (errors, told) {
            let sentence = format!(
                "{path} ({} on {}) counted {}, {}",
                self.kind,
                self.block,
                counted(errors.count, "error"),
                errors.detail
            );
            findings.push(Finding::new("file-system-error", Verdict::Warn, sentence));
        }
        if self.turned_read_only {
            // The kernel did it, or the user: only the first one proves anything, and an error that
            // was counted may be years old.
            let proved = log.count(Kind::ReadOnly) > 0;
            let severity = if proved { Verdict::Fail } else { Verdict::Warn };
            let sentence = format!("{path} is read-only, though /etc/fstab wants it writable");
            findings.push(Finding::new("turned-read-only", severity, sentence));
        }
        if let Some(text) = &self.not_expanded {
            findings.push(Finding::new("not-expanded", Verdict::Warn, text.clone()));
        }
    }

    /// What `list` adds to a mount.
    pub fn note(&self) -> String {
        let mut note = String::new();
        if let Some((size, free)) = self.space.filter(|(size, _)| *size > 0) {
            note += &format!(", {:.0} % free", free as f64 / size as f64 * 100.0);
        }
        match &self.errors {
            Some(errors) if errors.count > 0 => {
                note += &format!(", {}, {}", counted(errors.count, "error"), errors.detail);
            }
            Some(_) => note += ", no errors",
            None => {}
        }
        if self.turned_read_only {
            note += ", not as /etc/fstab wants it";
        }
        note
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fstab() {
        // Raspberry Pi OS, with the boot partition made read-only by raspi-config; overlayroot.
        let fstab = Fstab(
            "proc /proc proc defaults 0 0\n\
             PARTUUID=ab-01  /boot/firmware  vfat  defaults,ro 0 2\n\
             #PARTUUID=ab-03 /data ext4 defaults 0 2\n\
             PARTUUID=ab-02  /  ext4  defaults,noatime,errors=remount-ro 0 1\n"
                .into(),
        );
        assert!(fstab.wants_writable(Path::new("/")));
        assert!(!fstab.wants_writable(Path::new("/boot/firmware")));
        assert!(!fstab.wants_writable(Path::new("/data")));
        let overlay = "/media/root-ro/ / overlay lowerdir=/media/root-ro/,upperdir=/u 0 0\n";
        assert!(!Fstab(overlay.into()).wants_writable(Path::new("/")));
        assert!(!Fstab("garbage\n\0 / \n".into()).wants_writable(Path::new("/")));
    }
}
