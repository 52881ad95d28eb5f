//! `/proc/self/mountinfo`, proc_pid_mountinfo(5):
//! `ID PARENT MAJ:MIN ROOT POINT OPTIONS [tag...] - TYPE SOURCE SUPER_OPTIONS`.

use super::tree::Tree;
use crate::error::{Error, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// One line.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub id: u32,
    pub parent: u32,
    /// `MAJ:MIN`; major 0 is an anonymous device.
    pub device: String,
    /// The directory of the file system that is mounted; `/` unless a bind mount or subvolume.
    pub root: PathBuf,
    pub point: PathBuf,
    pub fs_type: String,
    pub source: String,
    options: String,
    super_options: String,
}

impl Entry {
    fn parse(line: &[u8]) -> Option<Self> {
        // The number of optional tags varies: the lone `-` is the only way to find their end.
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let dash = fields.iter().skip(6).position(|&field| field == b"-")? + 6;
        let text = |index: usize| {
            Some(String::from_utf8_lossy(&unescape(fields.get(index)?)).into_owned())
        };
        let path = |index: usize| {
            Some(PathBuf::from(OsString::from_vec(unescape(
                fields.get(index)?,
            ))))
        };
        Some(Self {
            id: text(0)?.parse().ok()?,
            parent: text(1)?.parse().ok()?,
            device: text(2)?,
            root: path(3)?,
            point: path(4)?,
            options: text(5)?,
            fs_type: text(dash + 1)?,
            source: text(dash + 2)?,
            super_options: text(dash + 3).unwrap_or_default(),
        })
    }

    pub fn anonymous(&self) -> bool {
        self.device.starts_with("0:")
    }

    /// The mount or its file system is read-only.
    pub fn read_only(&self) -> bool {
        [&self.options, &self.super_options]
            .iter()
            .any(|options| options.split(',').any(|option| option == "ro"))
    }

    /// The file system itself is read-only, not just this mount of it: a service's sandbox has
    /// mounts of its own (`ProtectSystem=`).
    pub fn turned_read_only(&self) -> bool {
        split_unescaped(&self.super_options, ',').contains(&"ro")
    }

    /// Space that is given back is trimmed at once: `discard`, `discard=async`.
    pub fn discards(&self) -> bool {
        let options = split_unescaped(&self.super_options, ',');
        options.contains(&"discard") || self.super_option("discard").is_some()
    }

    /// A directory of a file system is mounted, not its top. On btrfs that is what a
    /// subvolume looks like, so it says nothing there.
    pub fn is_bind(&self) -> bool {
        self.root != Path::new("/") && self.fs_type != "btrfs"
    }

    /// The value of `key=` among the super options; overlay writes `\,` for a comma in a path.
    pub fn super_option(&self, key: &str) -> Option<&str> {
        split_unescaped(&self.super_options, ',')
            .into_iter()
            .find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
    }

    /// The lower directories of an overlay, top first.
    pub fn lower_dirs(&self) -> Vec<String> {
        let mut dirs = Vec::new();
        for option in split_unescaped(&self.super_options, ',') {
            if let Some(list) = option.strip_prefix("lowerdir=") {
                dirs.extend(split_unescaped(list, ':').into_iter().map(plain));
            } else if let Some(dir) = option.strip_prefix("lowerdir+=") {
                dirs.push(plain(dir));
            }
        }
        dirs.retain(|dir| !dir.is_empty());
        dirs
    }

    /// The upper directory of an overlay: where its writes go.
    pub fn upper_dir(&self) -> Option<String> {
        self.super_option("upperdir").map(plain)
    }
}

/// All mounts of this namespace.
#[derive(Debug)]
pub struct Mounts {
    pub entries: Vec<Entry>,
}

impl Mounts {
    /// # Errors
    /// Where mountinfo cannot be read. A line that makes no sense is left out.
    pub fn read(tree: &Tree) -> Result<Self> {
        let content = tree
            .bytes(MOUNTINFO)
            .map_err(|cause| Error::new("read", tree.at(MOUNTINFO), cause))?;
        let mut mounts = Self::parse(&content);
        if tree.is_machine() && !mounts.entries.iter().any(|e| e.point == Path::new("/")) {
            mounts.add_root();
        }
        Ok(mounts)
    }

    pub fn parse(content: &[u8]) -> Self {
        let lines = content.split(|&byte| byte == b'\n');
        Self {
            entries: lines.filter_map(Entry::parse).collect(),
        }
    }

    /// In a chroot whose top is no mount point, mountinfo has no line for `/`: ask the kernel.
    fn add_root(&mut self) {
        let (Ok(stat), Ok(statfs)) = (std::fs::metadata("/"), nix::sys::statfs::statfs("/")) else {
            return;
        };
        let ids: Vec<u32> = self.entries.iter().map(|entry| entry.id).collect();
        for entry in &mut self.entries {
            if !ids.contains(&entry.parent) {
                entry.parent = 0;
            }
        }
        self.entries.push(Entry {
            device: number(stat.dev()),
            root: PathBuf::from("/"),
            point: PathBuf::from("/"),
            fs_type: magic_name(statfs.filesystem_type()).to_string(),
            ..Entry::default()
        });
    }

    /// The mount that `path` lies on. The path has no links and need not exist.
    ///
    /// It is the kernel's own walk: from the root mount down, at each step onto the nearest
    /// mount that covers the path. The order of lines is no guide (`/proc` may come before `/`).
    pub fn owner(&self, path: &Path) -> Option<&Entry> {
        let Some(mut at) = self.root_mount() else {
            let covers = self.entries.iter().filter(|e| path.starts_with(&e.point));
            return covers.max_by_key(|e| e.point.components().count());
        };
        for _ in 0..self.entries.len() {
            let children = self
                .entries
                .iter()
                .rev()
                .filter(|e| e.parent == at.id && e.id != at.id && path.starts_with(&e.point));
            match children.min_by_key(|e| e.point.components().count()) {
                Some(child) => at = child,
                None => break,
            }
        }
        Some(at)
    }

    fn root_mount(&self) -> Option<&Entry> {
        self.entries.iter().rev().find(|e| {
            let top = e.parent == e.id || !self.entries.iter().any(|other| other.id == e.parent);
            top && e.point == Path::new("/")
        })
    }

    /// No other mount covers it.
    pub fn is_visible(&self, entry: &Entry) -> bool {
        self.owner(&entry.point)
            .is_some_and(|top| top.id == entry.id)
    }
}

/// A device number as sysfs and mountinfo write it.
pub fn number(device: u64) -> String {
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    format!("{major}:{minor}")
}

/// statfs(2), f_type. As text, since the field's width and sign differ between targets.
fn magic_name(magic: nix::sys::statfs::FsType) -> &'static str {
    match format!("{:x}", magic.0).as_str() {
        "ef53" => "ext4",
        "9123683e" => "btrfs",
        "58465342" => "xfs",
        "f2f52010" => "f2fs",
        "1021994" => "tmpfs",
        "794c7630" => "overlay",
        "6969" => "nfs",
        _ => "unknown",
    }
}

/// `\040` and the like; a backslash without three octal digits stays.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match tail {
            [
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ] if *first == b'\\' => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

fn split_unescaped(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if c == separator && !escaped {
            parts.push(&text[start..at]);
            start = at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

fn plain(text: &str) -> String {
    text.replace("\\,", ",").replace("\\:", ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(mounts: &Mounts, path: &str) -> u32 {
        mounts.owner(Path::new(path)).unwrap().id
    }

    #[test]
    fn tags_and_escapes() {
        let line = br"36 35 98:0 /mnt1 /mnt/a\040b\134 rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue";
        let entry = Entry::parse(line).unwrap();
        assert_eq!(entry.point, Path::new(r"/mnt/a b\"));
        assert_eq!(
            (entry.fs_type.as_str(), entry.source.as_str()),
            ("ext3", "/dev/root")
        );
        assert!(!entry.read_only() && entry.is_bind() && !entry.anonymous());
        // Real line of 6.18: no tags at all.
        let line = b"50 27 0:42 / /mnt/bm rw,relatime - btrfs /dev/loop2 rw,discard=async,subvol=/";
        assert!(Entry::parse(line).unwrap().anonymous());
    }

    #[test]
    fn garbage_is_left_out() {
        let mounts =
            Mounts::parse(b"\n\xff\xfe\n1 2 3\n- - - - - - - -\n27 1 254:0 / / rw - ext4\n");
        assert!(mounts.entries.is_empty());
        assert!(mounts.owner(Path::new("/")).is_none());
    }

    #[test]
    fn overlay_directories() {
        let line =
            br"52 27 0:43 / /m rw - overlay o rw,lowerdir=/a\134:b:/c\134,d,upperdir=/u,workdir=/w";
        let entry = Entry::parse(line).unwrap();
        assert_eq!(entry.lower_dirs(), ["/a:b", "/c,d"]);
        assert_eq!(entry.upper_dir().as_deref(), Some("/u"));
    }

    #[test]
    fn the_top_mount_owns_the_path() {
        let mounts = Mounts::parse(
            b"22 27 0:21 / /proc rw - proc proc rw\n\
              27 1 254:0 / / rw - ext4 /dev/vda rw\n\
              30 27 8:1 / /a/b rw - ext4 /dev/sda1 rw\n\
              31 27 8:2 / /a rw - ext4 /dev/sda2 rw\n\
              32 31 8:3 / /a rw - ext4 /dev/sda3 rw\n",
        );
        assert_eq!(point(&mounts, "/etc/fstab"), 27);
        assert_eq!(point(&mounts, "/proc/1"), 22);
        // /a/b was mounted first and is hidden by what came over /a.
        assert_eq!(point(&mounts, "/a/b/c"), 32);
        assert_eq!(point(&mounts, "/ab"), 27);
        assert!(!mounts.is_visible(&mounts.entries[2]));
    }
}
