//! The command `record`: what this program reads of a machine, as a tree in a tar archive that
//! `list --root` reads again. It is what a bug report needs, and no more: just the files that were
//! read, without serial numbers, without the names of the user's places.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::evidence::{self, RECORDED, boot_before, kernel_log, link};
use crate::medium::tree::{self, Tree};
use crate::medium::{self, Medium};
use crate::tar::Tar;
use crate::{CONFIGURATION, INTERNAL, config_path, failed, say};
use argh::FromArgs;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of one file that are kept.
const FILE: usize = 64 << 10;
/// Bytes of the kernel's log that are kept.
const LOG: usize = 128 << 10;

/// write what is known of this machine's media into FILE.tar, which list --root reads again
#[derive(FromArgs)]
#[argh(subcommand, name = "record")]
pub struct Arguments {
    /// archive to be made; it must not exist
    #[argh(positional)]
    file: PathBuf,
    /// keep serial numbers and the names of mount points
    #[argh(switch)]
    full: bool,
    /// read /sys, /proc and /etc under this directory
    #[argh(option, default = "\"/\".into()")]
    root: PathBuf,
    /// configuration file
    #[argh(option)]
    config: Option<PathBuf>,
}

/// Runs the command; returns the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    let config = match Config::read(&config_path(&arguments.root, &arguments.config)) {
        Ok(config) => config,
        Err(error) => return failed(&error, CONFIGURATION),
    };
    let file = match File::create_new(&arguments.file) {
        Ok(file) => file,
        Err(cause) => return failed(&Error::new("create", &arguments.file, cause), INTERNAL),
    };
    let written = record(&arguments.root, &config.media, arguments.full, file);
    match written {
        Ok(bytes) => {
            let kib = bytes.div_ceil(1024);
            say(&format!("{}: {kib} KiB\n", arguments.file.display()));
            0
        }
        Err(error) => failed(&error, INTERNAL),
    }
}

/// Writes the archive and returns its size in bytes.
fn record(root: &Path, configured: &[String], full: bool, file: File) -> Result<u64> {
    // A link in /dev/disk/by-id has a serial number in its name.
    let named: Vec<String> = configured
        .iter()
        .filter(|name| full || !name.starts_with("/dev/disk/"))
        .cloned()
        .collect();
    tree::watch();
    let found = medium::find(root, &named, true)?;
    for medium in &found.media {
        evidence::collect(root, medium);
    }
    let seen = tree::watched();
    let mut recorder = Recorder {
        tree: Tree::new(root),
        mask: Mask::new(full, &found.media),
        tar: Tar::new(Counted(BufWriter::new(file), 0)),
    };
    let write = |recorder: &mut Recorder| -> io::Result<()> {
        for path in &seen {
            recorder.add(path)?;
        }
        recorder.extra(&found.media)
    };
    let failed = |cause| Error::new("write", "the archive", cause);
    write(&mut recorder).map_err(failed)?;
    let bytes = recorder.tar.size();
    recorder.tar.finish().map_err(failed)?;
    Ok(bytes)
}

/// A writer that counts.
struct Counted(BufWriter<File>, u64);

impl Write for Counted {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.0.write(buffer)?;
        self.1 += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Tar<Counted> {
    fn size(&self) -> u64 {
        self.writer().1
    }
}

struct Recorder {
    tree: Tree,
    mask: Mask,
    tar: Tar<Counted>,
}

impl Recorder {
    /// A path with all links on the way to it, so that it leads to the same place in the archive.
    fn add(&mut self, path: &Path) -> io::Result<()> {
        // `/proc/self` is a link to a number that is gone tomorrow.
        let place = match path.starts_with("/proc") {
            true => path.to_path_buf(),
            false => self.links(path)?,
        };
        let at = self.tree.at(&place);
        match at.metadata() {
            Ok(meta) if meta.is_dir() => self.tar.directory(&place),
            Ok(meta) if meta.is_file() => match content(&at) {
                Ok(bytes) => self.tar.file(&place, &self.mask.content(&place, bytes)),
                // An attribute that cannot be read is not there for the reader either.
                Err(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn links(&mut self, path: &Path) -> io::Result<PathBuf> {
        let mut links = Vec::new();
        let place = self.tree.walk_links(path, &mut |from, to| {
            links.push((from.to_path_buf(), to.to_path_buf()));
        });
        for (from, to) in links {
            self.tar.link(&from, &to)?;
        }
        Ok(place)
    }

    /// What no file has: the space of file systems, the firmware's word, the log's own lines.
    fn extra(&mut self, media: &[Medium]) -> io::Result<()> {
        let mut space = String::new();
        for medium in media {
            // Kernels before 6.9 have no file for it.
            if let Some((path, bos)) = link::bos_of(&self.tree, &medium.device) {
                self.tar.file(&path, &bos)?;
            }
            for system in evidence::collect(self.tree.root(), medium).file_systems {
                if let Some((size, free)) = system.space {
                    let path = self.mask.place(&system.path);
                    space += &format!("{} {size} {free}\n", path.display());
                }
            }
        }
        let recorded = Path::new(RECORDED);
        self.tar.file(&recorded.join("statfs"), space.as_bytes())?;
        if let Some(bits) = evidence::board::throttled(&self.tree) {
            let text = format!("throttled=0x{bits:x}\n");
            self.tar
                .file(&recorded.join("throttled"), text.as_bytes())?;
        }
        let log = kernel_log::storage_records(&self.tree, LOG);
        if let Ok(log) = log {
            self.tar.file(Path::new(kernel_log::KMSG), log.as_bytes())?;
        }
        if let Some((path, export)) = boot_before::record(&self.tree, LOG) {
            self.tar.file(Path::new(&path), &export)?;
        }
        Ok(())
    }
}

/// At most 64 KiB of a file; of a process's maps only the line about pages.
fn content(at: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(at)?.take(FILE as u64).read_to_end(&mut bytes)?;
    if at.ends_with("proc/self/smaps") {
        let text = String::from_utf8_lossy(&bytes);
        let line = text
            .lines()
            .find(|line| line.starts_with("KernelPageSize:"));
        return Ok(format!("{}\n", line.unwrap_or_default()).into_bytes());
    }
    Ok(bytes)
}

/// Hides serial numbers and the user's places, the same one always in the same way.
struct Mask {
    full: bool,
    salt: u64,
    /// Mount points that the user named, in their order.
    places: Vec<PathBuf>,
}

impl Mask {
    fn new(full: bool, media: &[Medium]) -> Self {
        let mut salt = [0; 8];
        let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut salt));
        let system = |path: &Path| {
            let own = [
                "/boot",
                "/var",
                "/usr",
                "/etc",
                "/efi",
                "/tmp",
                "/run/lower",
            ];
            path == Path::new("/")
                || path == Path::new("/home")
                || own.iter().any(|top| path.starts_with(top))
                || path.starts_with("/media/root-ro")
                || path.starts_with("/media/root-rw")
        };
        let mounts = media.iter().flat_map(|medium| &medium.mounts);
        let mut places: Vec<PathBuf> = mounts
            .map(|mount| mount.path.clone())
            .filter(|path| !system(path))
            .collect();
        places.sort();
        places.dedup();
        Self {
            full,
            // Nothing is left unmasked for want of a good salt.
            salt: match random {
                Ok(()) => u64::from_le_bytes(salt),
                Err(_) => u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            },
            places,
        }
    }

    /// `/mnt/1` for a place that the user named.
    fn place(&self, path: &Path) -> PathBuf {
        match self.places.iter().position(|place| place == path) {
            Some(at) if !self.full => PathBuf::from(format!("/mnt/{}", at + 1)),
            _ => path.to_path_buf(),
        }
    }

    fn content(&self, path: &Path, bytes: Vec<u8>) -> Vec<u8> {
        if self.full {
            return bytes;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        let masked = match &*name {
            "serial" => self.hide(&text(), 0),
            "cid" => self.cid(path, &text()),
            "wwid" => self.hide(&text(), 5),
            "vpd_pg80" => {
                let rest = bytes.get(4..).unwrap_or_default();
                let hidden = self.hide(&String::from_utf8_lossy(rest), 0);
                return [bytes.get(..4).unwrap_or_default(), hidden.as_bytes()].concat();
            }
            "backing_file" => self.inside(Path::new(text().trim_end())),
            "mountinfo" => self.mountinfo(&text()),
            "fstab" => self.fstab(&text()),
            "cmdline" => command_line(&text()),
            _ => return bytes,
        };
        masked.into_bytes()
    }

    /// A file of the user's, still on the mount that it lies on.
    fn inside(&self, path: &Path) -> String {
        let holds = |place: &&PathBuf| path.starts_with(place);
        let longest = self
            .places
            .iter()
            .filter(holds)
            .max_by_key(|p| p.components().count());
        let top = longest.map_or(PathBuf::from("/"), |place| self.place(place));
        format!("{}\n", top.join("image").display())
    }

    /// Letters and digits after the first `keep` characters become others, by what they all were.
    /// A serial number below 65536 stays: that it is so low says something, and of nobody.
    fn hide(&self, text: &str, keep: usize) -> String {
        let number = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16);
        if keep == 0 && text.starts_with("0x") && number.is_ok_and(|number| number < 0x1_0000) {
            return text.to_string();
        }
        // FNV-1a, from the salt on.
        let mut hash = text.bytes().fold(self.salt | 1, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let mut hidden = String::new();
        for (at, c) in text.chars().enumerate() {
            let prefix = at < keep || (at < 2 && text.starts_with("0x"));
            hidden.push(match c.is_ascii_alphanumeric() && !prefix {
                true => {
                    hash = hash.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    char::from(b"123456789abcdef"[(hash >> 32) as usize % 15])
                }
                false => c,
            });
        }
        hidden
    }

    /// The serial number of an SD card is in digits 18 to 25 of its CID, of an eMMC in 20 to 27;
    /// the checksum at the end goes too.
    fn cid(&self, path: &Path, text: &str) -> String {
        // An eMMC's serial number has the bits 47 to 16, a card's 55 to 24. Linux gives each eMMC the
        // address 1 (drivers/mmc/core/mmc.c), as some cards have too; but these have a 0 behind it.
        let line = text.trim();
        let device = path.parent().unwrap_or(path).to_string_lossy();
        let emmc = device.ends_with(":0001") && line.get(26..27) != Some("0");
        let at = if emmc { 20 } else { 18 };
        let (Some(head), Some(serial), Some(rest)) =
            (line.get(..at), line.get(at..at + 8), line.get(at + 8..30))
        else {
            return String::new();
        };
        let serial = match serial.starts_with("0000") {
            true => serial.to_string(),
            false => self.hide(serial, 0),
        };
        format!("{head}{serial}{rest}00\n")
    }

    /// Only what lies on block devices, what covers that, and overlays: no shares, no user's names.
    fn mountinfo(&self, text: &str) -> String {
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let lines = lines.iter().filter(|fields| fields.len() > 9);
        let kind_and_source = |fields: &[&str]| {
            let dash = fields.iter().position(|field| *field == "-")?;
            Some((
                fields.get(dash + 1)?.to_string(),
                fields.get(dash + 2)?.to_string(),
            ))
        };
        let own = |fields: &&Vec<&str>| {
            kind_and_source(fields).is_some_and(|(kind, source)| {
                fields[4] == "/"
                    || source.starts_with("/dev/")
                    || kind == "overlay"
                    || kind == "btrfs"
            })
        };
        let points: Vec<&str> = lines.clone().filter(own).map(|fields| fields[4]).collect();
        let covers = |fields: &&Vec<&str>| {
            let local = kind_and_source(fields).is_some_and(|(kind, _)| kind == "tmpfs");
            local
                && points
                    .iter()
                    .any(|point| Path::new(point).starts_with(fields[4]))
        };
        let mut kept = String::new();
        for fields in lines.filter(|fields| own(fields) || covers(fields)) {
            let mut fields: Vec<String> = fields.iter().map(|field| field.to_string()).collect();
            for (at, place) in self.places.iter().enumerate() {
                let place = place.to_string_lossy();
                if fields[4] == place.replace('\\', "\\134").replace(' ', "\\040") {
                    fields[4] = format!("/mnt/{}", at + 1);
                }
            }
            // The directory that a bind mount shows.
            if fields[3].starts_with("/home/") {
                fields[3] = "/home".into();
            }
            kept += &(fields.join(" ") + "\n");
        }
        kept
    }

    /// Lines of local file systems: a share's has its server, its user, sometimes a password.
    fn fstab(&self, text: &str) -> String {
        let mut kept = String::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [source, point, kind, options, ..] = fields[..] else {
                continue;
            };
            let local = ["UUID=", "PARTUUID=", "LABEL=", "/dev/"];
            if source.starts_with('#') || !local.iter().any(|start| source.starts_with(start)) {
                continue;
            }
            let point = self.place(Path::new(point));
            kept += &format!("{source} {} {kind} {options}\n", point.display());
        }
        kept
    }
}

/// The words that say what the root is; others may hold anything.
fn command_line(text: &str) -> String {
    const KEPT: &[&str] = &[
        "root=",
        "rootfstype=",
        "rootflags=",
        "overlayroot=",
        "boot=",
        "usb-storage.quirks=",
    ];
    let kept: Vec<&str> = text
        .split_whitespace()
        .filter(|word| {
            KEPT.iter().any(|start| word.starts_with(start)) || matches!(*word, "ro" | "rw")
        })
        .collect();
    kept.join(" ") + "\n"
}

#[cfg(test)]
#[path = "archive_test.rs"]
mod tests;
