//! Where a file lies on vfat and exfat, by their own tables on the disk. FIBMAP would tell, but wants
//! CAP_SYS_RAWIO, and who has that may send a disk any command.
//! FAT: Microsoft "FAT: General Overview of On-Disk Format" 1.03. exFAT: "exFAT file system
//! specification" 1.00. What is read may be a fake's garbage: nothing in it is trusted.

use super::extents::{self, Extent};
use super::io::read_exact;
use super::job::Job;
use crate::sys::Buffer;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Read at a time, and the boundary of every read: no disk has larger sectors.
const PAGE: u64 = 4096;
/// Bytes of a directory that are read at most.
const DIRECTORY: usize = 4 << 20;
/// More pieces of a file than these are left out.
const PIECES: usize = 4096;

/// A file or directory as its entry describes it.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    name: String,
    bytes: u64,
    first: u32,
    /// exFAT: its clusters follow each other, and the table says nothing of them.
    contiguous: bool,
    directory: bool,
}

/// Where the file at `path` on a medium of `job` lies; its file system is synchronised for that.
/// # Errors
/// With the reason why that cannot be told.
pub fn lies(disk: &File, job: &Job, path: &Path) -> Result<Vec<Extent>, String> {
    let (mut volume, within) = volume(disk, job, path)?;
    volume.lies(&within).map_err(|e| e.to_string())
}

/// The files in the directory at `path`, each with the byte of the disk where it begins.
/// # Errors
/// With the reason why that cannot be told.
pub fn places(disk: &File, job: &Job, path: &Path) -> Result<Vec<(String, u64)>, String> {
    let (mut volume, within) = volume(disk, job, path)?;
    let entries = volume.list(&within).map_err(|e| e.to_string())?;
    let begins = |entry: Entry| Some((entry.name, volume.start + volume.place(entry.first).ok()?));
    Ok(entries.into_iter().filter_map(begins).collect())
}

/// The synchronised file system of `path`, and the path from its root.
fn volume<'a>(disk: &'a File, job: &Job, path: &Path) -> Result<(Volume<'a>, PathBuf), String> {
    let said = |e: io::Error| e.to_string();
    let file = File::open(path).map_err(said)?;
    nix::unistd::syncfs(&file).map_err(|e| said(e.into()))?;
    let start = extents::start(&file, &job.sys)?;
    let mounts = job.mounts.iter().map(|mount| &mount.path);
    let mount = mounts.filter(|mount| path.starts_with(mount)).max();
    let within = mount.and_then(|mount| path.strip_prefix(mount).ok());
    let volume = Volume::open(disk, start).map_err(said)?;
    Ok((volume, within.unwrap_or(path).to_path_buf()))
}

/// The tables of a mounted file system. They must have been synchronised.
struct Volume<'a> {
    disk: &'a File,
    /// Byte of the disk where the file system begins.
    start: u64,
    exfat: bool,
    /// Bytes from the file system's start on.
    table: u64,
    heap: u64,
    cluster: u64,
    clusters: u32,
    root: Entry,
    page: Buffer,
    page_at: u64,
}

impl<'a> Volume<'a> {
    /// The file system that begins at byte `start` of the disk.
    /// # Errors
    /// Of a read, and where it is none of these.
    fn open(disk: &'a File, start: u64) -> io::Result<Self> {
        let mut volume = Self {
            disk,
            start,
            exfat: false,
            table: 0,
            heap: 0,
            cluster: 0,
            clusters: 0,
            root: Entry {
                name: String::new(),
                bytes: 0,
                first: 0,
                contiguous: false,
                directory: true,
            },
            page: Buffer::new(PAGE as usize)?,
            page_at: u64::MAX,
        };
        let mut boot = [0; 512];
        volume.read(0, &mut boot)?;
        let right = match boot[3..11] == *b"EXFAT   " {
            true => volume.exfat(&boot),
            false => volume.fat(&boot),
        };
        match right {
            Some(()) if volume.cluster >= 512 && volume.clusters > 0 => Ok(volume),
            _ => Err(wrong("no such file system")),
        }
    }

    /// exFAT 3.1, main boot sector.
    fn exfat(&mut self, boot: &[u8]) -> Option<()> {
        let (sector, shift) = (u32::from(boot[108]), u32::from(boot[109]));
        if !(9..=12).contains(&sector) || shift > 25 - sector {
            return None;
        }
        self.exfat = true;
        self.table = u64::from(u32_at(boot, 80)?) << sector;
        self.heap = u64::from(u32_at(boot, 88)?) << sector;
        self.clusters = u32_at(boot, 92)?;
        self.root.first = u32_at(boot, 96)?;
        self.cluster = 1 << (sector + shift);
        Some(())
    }

    /// FAT 3.1 to 3.5; FAT32 alone, since FAT12 and FAT16 are of media that hold no proof.
    fn fat(&mut self, boot: &[u8]) -> Option<()> {
        let sector = u64::from(u16_at(boot, 11)?);
        let (per_cluster, tables) = (u64::from(boot[13]), u64::from(boot[16]));
        let reserved = u64::from(u16_at(boot, 14)?);
        let table = u64::from(u32_at(boot, 36)?);
        let fat32 = u16_at(boot, 17)? == 0 && u16_at(boot, 22)? == 0;
        if !fat32 || !(512..=4096).contains(&sector) || per_cluster == 0 {
            return None;
        }
        let heap = reserved + tables * table;
        let clusters = u64::from(u32_at(boot, 32)?).checked_sub(heap)? / per_cluster;
        self.table = reserved * sector;
        self.heap = heap * sector;
        self.cluster = per_cluster * sector;
        self.clusters = u32::try_from(clusters).ok()?;
        self.root.first = u32_at(boot, 44)?;
        Some(())
    }

    /// Where the file at `path`, from the file system's root, lies.
    /// # Errors
    /// Of a read, and where there is no such file.
    fn lies(&mut self, path: &Path) -> io::Result<Vec<Extent>> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(wrong("no path of a file"));
        };
        let entries = self.list(directory)?;
        let entry = entries.iter().find(|entry| *entry.name == *name);
        self.extents(entry.ok_or_else(|| wrong("no such file in its tables"))?)
    }

    /// The entries of the directory at `path`, from the file system's root.
    /// # Errors
    /// Of a read, and where there is no such directory.
    fn list(&mut self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut at = self.root.clone();
        for part in path.components() {
            let Component::Normal(name) = part else {
                continue;
            };
            let entries = self.entries(&at)?;
            let found = entries
                .into_iter()
                .find(|e| e.directory && *e.name == *name);
            at = found.ok_or_else(|| wrong("no such directory in its tables"))?;
        }
        self.entries(&at)
    }

    /// Where it lies on the disk; all of what was allocated for it.
    /// # Errors
    /// Of a read, and where the table leads nowhere.
    fn extents(&mut self, entry: &Entry) -> io::Result<Vec<Extent>> {
        let mut found = Vec::new();
        let (mut cluster, mut done) = (entry.first, 0);
        while done < entry.bytes && found.len() < PIECES {
            let at = self.start + self.place(cluster)?;
            extents::add(&mut found, done, at, self.cluster);
            done += self.cluster;
            if done < entry.bytes {
                cluster = self.next(cluster, entry.contiguous)?;
            }
        }
        Ok(found)
    }

    fn entries(&mut self, directory: &Entry) -> io::Result<Vec<Entry>> {
        let mut bytes = Vec::new();
        let mut cluster = directory.first;
        // FAT does not know a directory's length, exFAT has it in its entry.
        let known = match directory.bytes {
            0 => u64::MAX,
            bytes => bytes,
        };
        while bytes.len() < DIRECTORY && (bytes.len() as u64) < known {
            let from = bytes.len();
            let Ok(at) = self.place(cluster) else {
                break; // the chain's end
            };
            bytes.resize(from + self.cluster as usize, 0);
            self.read(at, &mut bytes[from..])?;
            if bytes[from..].chunks_exact(32).any(|entry| entry[0] == 0) {
                break;
            }
            cluster = self.next(cluster, directory.contiguous)?;
        }
        let entries = bytes.chunks_exact(32).take_while(|entry| entry[0] != 0);
        Ok(match self.exfat {
            true => exfat_entries(entries),
            false => fat_entries(entries),
        })
    }

    /// The cluster after this one.
    fn next(&mut self, cluster: u32, contiguous: bool) -> io::Result<u32> {
        if contiguous {
            return Ok(cluster.wrapping_add(1));
        }
        let mut bytes = [0; 4];
        self.read(self.table + u64::from(cluster) * 4, &mut bytes)?;
        let next = u32::from_le_bytes(bytes);
        // FAT32 keeps the upper four bits for others.
        Ok(if self.exfat { next } else { next & 0x0fff_ffff })
    }

    /// Where a cluster begins, from the file system's start.
    fn place(&self, cluster: u32) -> io::Result<u64> {
        let n = cluster.checked_sub(2).filter(|n| *n < self.clusters);
        let n = n.ok_or_else(|| wrong("no such cluster"))?;
        Ok(self.heap + u64::from(n) * self.cluster)
    }

    /// Bytes at `at`, from the file system's start, past the page cache.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let here = self.start + at + done as u64;
            let page = here / PAGE * PAGE;
            if page != self.page_at {
                self.page_at = u64::MAX;
                read_exact(self.disk, &mut self.page, page)?;
                self.page_at = page;
            }
            let from = (here - page) as usize;
            let length = (PAGE as usize - from).min(bytes.len() - done);
            bytes[done..done + length].copy_from_slice(&self.page[from..from + length]);
            done += length;
        }
        Ok(())
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::other(what)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// UTF-16 up to the first zero, as it lies in entries.
fn text(units: &[u16]) -> String {
    let end = units.iter().position(|unit| *unit == 0);
    String::from_utf16_lossy(&units[..end.unwrap_or(units.len())])
}

/// exFAT 7.4 to 7.7: a file's entry, its stream's, its name's, 15 characters each.
fn exfat_entries<'b>(entries: impl Iterator<Item = &'b [u8]>) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    let (mut directory, mut name) = (None, Vec::new());
    for entry in entries {
        match entry[0] {
            0x85 => directory = Some(entry[4] & 0x10 != 0),
            0xc0 => {
                let Some(directory) = directory.take() else {
                    continue;
                };
                let number = |at: usize| u32_at(entry, at).unwrap_or(0);
                name.clear();
                found.push(Entry {
                    name: String::new(),
                    bytes: u64::from(number(24)) | u64::from(number(28)) << 32,
                    first: number(20),
                    contiguous: entry[1] & 2 != 0,
                    directory,
                });
            }
            0xc1 => {
                name.extend(
                    entry[2..]
                        .chunks_exact(2)
                        .map(|c| u16::from_le_bytes([c[0], c[1]])),
                );
                if let Some(last) = found.last_mut() {
                    last.name = text(&name);
                }
            }
            // Something else, or one that was removed: its names follow it.
            _ => directory = None,
        }
    }
    found
}

/// FAT 6 and 7: the parts of a long name, the last one first, then the entry itself. A name
/// that is only a short one is none of ours, and comes as it stands there.
fn fat_entries<'b>(entries: impl Iterator<Item = &'b [u8]>) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut name: Vec<u16> = Vec::new();
    for entry in entries {
        if entry[0] == 0xe5 {
            name.clear();
        } else if entry[11] == 0x0f {
            if entry[0] & 0x40 != 0 {
                name.clear();
            }
            let units = [&entry[1..11], &entry[14..26], &entry[28..32]];
            let part = units.iter().flat_map(|bytes| bytes.chunks_exact(2));
            let part: Vec<u16> = part.map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
            name.splice(..0, part);
        } else {
            let short = || String::from_utf8_lossy(&entry[..11]).into_owned();
            let high = u16_at(entry, 20).unwrap_or(0);
            let low = u16_at(entry, 26).unwrap_or(0);
            found.push(Entry {
                name: if name.is_empty() {
                    short()
                } else {
                    text(&name)
                },
                bytes: u64::from(u32_at(entry, 28).unwrap_or(0)),
                first: u32::from(high) << 16 | u32::from(low),
                contiguous: false,
                directory: entry[11] & 0x10 != 0,
            });
            name.clear();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn run(program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A file in two pieces in a directory with a long name, against mtools' `mshowfat`:
    /// `::/DIR/NAME <3-4> <9>`. exFAT is compared in the rig, where a kernel knows it.
    #[test]
    fn vfat_as_mtools_sees_it() {
        let path = std::env::temp_dir().join(format!("fat-{}.img", std::process::id()));
        let image = path.to_str().unwrap();
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        run("mkfs.vfat", &["-F", "32", "-s", "1", image]);
        let source = path.with_extension("data");
        let put = |name: &str, bytes: usize| {
            std::fs::write(&source, vec![7; bytes]).unwrap();
            run("mcopy", &["-i", image, source.to_str().unwrap(), name]);
        };
        run("mmd", &["-i", image, "::/a directory of its own"]);
        put("::/first", 700);
        put("::/between", 700);
        put("::/last", 700);
        run("mdel", &["-i", image, "::/first"]);
        // The hint where to look for free clusters (FSInfo, sector 1, byte 492): unknown.
        let hint = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&hint, &[0xff; 4], 512 + 492).unwrap();
        let name = "a directory of its own/.storage-selftest.scratch";
        put(&format!("::/{name}"), 5000);
        let shown = run("mshowfat", &["-i", image, &format!("::/{name}")]);
        let disk = File::open(&path).unwrap();
        let mut volume = Volume::open(&disk, 0).unwrap();
        let cluster = |n: &str| volume.place(n.parse().unwrap()).unwrap();
        let mut wanted = Vec::new();
        for piece in shown.split(['<', '>']).skip(1).step_by(2) {
            let (from, to) = piece.split_once('-').unwrap_or((piece, piece));
            wanted.push((cluster(from), cluster(to) + 512 - cluster(from)));
        }
        let found = volume.lies(Path::new(name)).unwrap();
        let found: Vec<_> = found.iter().map(|e| (e.disk, e.length)).collect();
        assert!(found.len() > 1, "{shown}");
        assert_eq!(found, wanted, "{shown}");
        assert!(volume.lies(Path::new("first")).is_err(), "removed");
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&source).unwrap();
    }

    /// A fake shows anything.
    #[test]
    fn garbage_is_an_error_and_no_panic() {
        let path = std::env::temp_dir().join(format!("fat-{}.garbage", std::process::id()));
        let mut random = crate::probe::pattern::Random::new(5);
        for exfat in [true, false].repeat(200) {
            let mut bytes: Vec<u8> = (0..64 << 10).map(|_| random.below(256) as u8).collect();
            if exfat {
                bytes[3..11].copy_from_slice(b"EXFAT   ");
                (bytes[108], bytes[109]) = (9, 3);
            } else {
                (bytes[11], bytes[12], bytes[16]) = (0, 2, 2);
                bytes[17..19].fill(0);
                bytes[22..24].fill(0);
            }
            let first = bytes[0]; // most tables of these lie far away
            bytes[80..88].copy_from_slice(&[first & 63, 0, 0, 0, 1, 0, 0, 0]);
            bytes[88..96].copy_from_slice(&[first & 63, 0, 0, 0, 9, 0, 0, 0]);
            std::fs::write(&path, &bytes).unwrap();
            let disk = File::open(&path).unwrap();
            if let Ok(mut volume) = Volume::open(&disk, 0) {
                assert!(volume.lies(Path::new("a/file")).is_err());
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}
