//! Where on the disk a file lies: its extents, plus where the file system's device begins.

use super::pattern::BLOCK;
use crate::sys;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A piece of a file that is one piece on the disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// From the start of the file.
    pub file: u64,
    /// From the start of the whole disk.
    pub disk: u64,
    pub length: u64,
}

/// More pieces than this are left out, 1.5 MiB of memory: less coverage, and it is stated.
const MOST: usize = 65536;

/// Extents whose physical address is no place on the disk where the file's bytes stand as they are:
/// UNKNOWN, DELALLOC, ENCODED, DATA_ENCRYPTED, NOT_ALIGNED, DATA_INLINE, DATA_TAIL, SHARED
/// (linux/fiemap.h).
const ELSEWHERE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x2000;

/// Where `file` of a file system of type `fs_type` lies on the disk whose directory in /sys is
/// `disk`, in the order of the file. Pieces that have no address are left out.
/// # Errors
/// With the reason why no address can be told.
pub fn of(file: &File, fs_type: &str, disk: &Path) -> Result<Vec<Extent>, String> {
    if matches!(fs_type, "btrfs" | "bcachefs" | "zfs") {
        // What they call physical lies in an address space of their own.
        return Err(format!(
            "{fs_type} does not say where on the disk a file lies"
        ));
    }
    let start = start(file, disk)?;
    let found = fiemap(file);
    let mut found = found.map_err(|e| format!("ask {fs_type} where a file lies: {e}"))?;
    found.iter_mut().for_each(|extent| extent.disk += start);
    Ok(found)
}

/// Byte of the whole disk, whose directory in /sys is `disk`, where the file's file system begins.
/// # Errors
/// With the reason why it cannot be told.
pub fn start(file: &File, disk: &Path) -> Result<u64, String> {
    let dev = file.metadata().map_err(|e| format!("stat: {e}"))?.dev();
    let (major, minor) = (nix::sys::stat::major(dev), nix::sys::stat::minor(dev));
    start_of(Path::new("/sys"), major, minor, disk)
}

/// Byte of the whole disk where the device `major:minor` begins: the disk itself, or a partition.
/// # Errors
/// Where it is neither: device-mapper tells its offsets to no reader of /sys.
fn start_of(sys: &Path, major: u64, minor: u64, disk: &Path) -> Result<u64, String> {
    let real = |path: &Path| fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()));
    let device = real(&sys.join(format!("dev/block/{major}:{minor}")))?;
    let disk = real(disk)?;
    if device == disk {
        return Ok(0);
    }
    if device.parent() != Some(&disk) {
        let layer = fs::read_to_string(device.join("dm/name")).unwrap_or_default();
        let what = match layer.trim() {
            "" => "another device".to_string(),
            name => format!("device-mapper ({})", crate::error::printable(name)),
        };
        return Err(format!("{what} lies between the file system and the disk"));
    }
    let path = device.join("start");
    let text = fs::read_to_string(&path).map_err(|e| format!("read {}: {e}", path.display()))?;
    let sectors: u64 = text
        .trim()
        .parse()
        .map_err(|_| format!("read {}: not a number", path.display()))?;
    Ok(sectors * 512)
}

fn fiemap(file: &File) -> io::Result<Vec<Extent>> {
    const FIEMAP_EXTENT_LAST: u32 = 1;
    let mut found: Vec<Extent> = Vec::new();
    let mut from = 0;
    loop {
        let raw = sys::extents(file, from)?;
        let last = raw.last().copied();
        for piece in raw.iter().filter(|piece| piece.flags & ELSEWHERE == 0) {
            add(&mut found, piece.logical, piece.physical, piece.length);
        }
        match last {
            Some(last)
                if last.flags & FIEMAP_EXTENT_LAST == 0
                    && last.logical + last.length > from
                    && found.len() < MOST =>
            {
                from = last.logical + last.length;
            }
            _ => return Ok(found),
        }
    }
}

/// Adds a piece, to the last one where it goes on there.
pub fn add(found: &mut Vec<Extent>, file: u64, disk: u64, length: u64) {
    match found.last_mut() {
        Some(last) if last.file + last.length == file && last.disk + last.length == disk => {
            last.length += length;
        }
        _ => found.push(Extent { file, disk, length }),
    }
}

/// Where in the file the block of the disk at `address` lies.
pub fn in_file(extents: &[Extent], address: u64) -> Option<u64> {
    let block = BLOCK as u64;
    let holds = |e: &&Extent| address >= e.disk && address + block <= e.disk + e.length;
    let extent = extents.iter().find(holds)?;
    Some(extent.file + address - extent.disk)
}

/// Where on the disk the block at `offset` of the file lies.
pub fn on_disk(extents: &[Extent], offset: u64) -> Option<u64> {
    let n = extents.partition_point(|extent| extent.file <= offset);
    let extent = extents.get(n.checked_sub(1)?)?;
    let whole = offset + BLOCK as u64 <= extent.file + extent.length;
    whole.then_some(extent.disk + offset - extent.file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: [Extent; 2] = [
        Extent {
            file: 0,
            disk: 1 << 20,
            length: 8192,
        },
        Extent {
            file: 8192,
            disk: 1 << 30,
            length: 4096,
        },
    ];

    #[test]
    fn a_block_is_found_and_never_across_an_end() {
        assert_eq!(in_file(&PIECES, 1 << 30), Some(8192));
        assert_eq!(in_file(&PIECES, (1 << 20) + 8192), None);
        assert_eq!(in_file(&PIECES, (1 << 20) + 6144), None);
        assert_eq!(on_disk(&PIECES, 8192), Some(1 << 30));
        assert_eq!(on_disk(&PIECES, 4096), Some((1 << 20) + 4096));
        assert_eq!(on_disk(&PIECES, 6144), None);
        assert_eq!(on_disk(&PIECES, 12288), None);
    }

    #[test]
    fn pieces_that_go_on_become_one() {
        let mut found = Vec::new();
        add(&mut found, 0, 4096, 4096);
        add(&mut found, 4096, 8192, 4096);
        add(&mut found, 8192, 4096, 4096);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].length, 8192);
    }

    /// `/sys/block/sda/sda1/start` counts sectors of 512 bytes whatever the disk's own are
    /// (Documentation/ABI/stable/sysfs-block).
    #[test]
    fn a_partition_begins_where_sys_says_and_device_mapper_is_refused() {
        let root = std::env::temp_dir().join(format!("extents-{}", std::process::id()));
        let disk = root.join("devices/sda");
        fs::create_dir_all(disk.join("sda1")).unwrap();
        fs::create_dir_all(root.join("devices/dm-0/dm")).unwrap();
        fs::create_dir_all(root.join("dev/block")).unwrap();
        fs::write(disk.join("sda1/start"), "8192\n").unwrap();
        fs::write(root.join("devices/dm-0/dm/name"), "crypt\n").unwrap();
        for (number, target) in [("8:0", "sda"), ("8:1", "sda/sda1"), ("254:0", "dm-0")] {
            let target = root.join("devices").join(target);
            std::os::unix::fs::symlink(target, root.join("dev/block").join(number)).unwrap();
        }
        let found = [(8, 0), (8, 1), (254, 0)].map(|(a, b)| start_of(&root, a, b, &disk));
        fs::remove_dir_all(&root).unwrap();
        let refused = "device-mapper (crypt) lies between the file system and the disk";
        assert_eq!(found, [Ok(0), Ok(4 << 20), Err(refused.into())]);
    }
}
