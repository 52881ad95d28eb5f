//! The kernel's complaints of this boot, from `/dev/kmsg` (Documentation/ABI/testing/dev-kmsg),
//! each charged to the medium that it names.

use super::Source;
use crate::error::printable;
use crate::judge::{Finding, Verdict};
use crate::medium::mmc;
use crate::medium::tree::{Tree, name_of};
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

pub const KMSG: &str = "/dev/kmsg";
/// A record is at most this long; a smaller buffer gets EINVAL.
const RECORD: usize = 8192;
/// Records read at most: a ring buffer of 1 MiB holds fewer.
const RECORDS: usize = 65_536;
/// File systems that are remembered as not unmounted.
const UNCLEAN: usize = 16;
/// Characters of a line that are kept as the example.
const EXAMPLE: usize = 160;

/// What a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read or write that failed for good.
    BlockError,
    /// A page of a file that could not be written: data lost.
    LostWrite,
    /// Damage that a file system found, a journal that was given up.
    FileSystem,
    /// A file system that the kernel made read-only.
    ReadOnly,
    /// A card or eMMC that did not answer, or answered wrong.
    Card,
    /// The driver uas gave up on commands, or reset the disk for that.
    Uas,
    UsbReset,
    /// A USB device that could not be addressed, or a host that died.
    UsbLink,
    OverCurrent,
    Nvme,
    /// Of the whole board.
    UnderVoltage,
    /// Harmless by itself: the card stays at 3.3 V and so at 25 MB/s.
    NoLowVoltage,
    /// Harmless by itself: the host found no timing for a fast mode. Boards with a clock or device
    /// tree that is not quite right print it for hours, and work: Linux commit f1bb924e8f5b.
    Tuning,
    /// Harmless by itself: a file system that was not unmounted before the boot.
    NotUnmounted,
}

impl Kind {
    /// Worth a word by itself.
    fn serious(self) -> bool {
        !matches!(self, Kind::NotUnmounted | Kind::NoLowVoltage | Kind::Tuning)
    }
}

/// A line, shortened and made safe to print.
pub fn example(text: &str) -> String {
    printable(text).chars().take(EXAMPLE).collect()
}

/// Patterns: `*` is anything, `{}` the name that the line is charged to.
/// Sources: hardware.md 5.4, where each has the report that it was seen in.
const PATTERNS: &[(Kind, &str)] = &[
    (Kind::BlockError, "*error, dev {}, sector *"),
    (
        Kind::LostWrite,
        "Buffer I/O error on dev {}, logical block *",
    ),
    (
        Kind::LostWrite,
        "Buffer I/O error on device {}, logical block *",
    ),
    (Kind::FileSystem, "EXT4-fs error (device {})*"),
    // Others are about a resize, a directory that is full, a feature.
    (
        Kind::FileSystem,
        "EXT4-fs warning (device {}): *I/O error *",
    ),
    (Kind::FileSystem, "EXT4-fs warning (device {}): *error -5 *"),
    (
        Kind::FileSystem,
        "EXT4-fs warning (device {}): *from previous mount*",
    ),
    (
        Kind::FileSystem,
        "EXT4-fs warning (device {}): *csum_verify*",
    ),
    (
        Kind::ReadOnly,
        "EXT4-fs ({}): Remounting filesystem read-only*",
    ),
    (
        Kind::FileSystem,
        "EXT4-fs ({}): I/O error while writing superblock*",
    ),
    (Kind::FileSystem, "EXT4-fs ({}): mount failed*"),
    (
        Kind::FileSystem,
        "EXT4-fs ({}): error count since last fsck: *",
    ),
    (
        Kind::FileSystem,
        "EXT4-fs ({}): warning: mounting fs with errors*",
    ),
    (Kind::NotUnmounted, "EXT4-fs ({}): recovery complete*"),
    // ext4 without its journal refuses every write.
    (Kind::ReadOnly, "Aborting journal on device {}-8.*"),
    (Kind::FileSystem, "JBD2: *rror* for {}-8.*"),
    (Kind::FileSystem, "JBD2: *rror* on {}-8*"),
    (Kind::FileSystem, "BTRFS error (device {})*csum failed*"),
    (
        Kind::FileSystem,
        "BTRFS error (device {}: state *)*csum failed*",
    ),
    (Kind::FileSystem, "BTRFS warning (device {})*csum failed*"),
    (
        Kind::FileSystem,
        "BTRFS warning (device {}: state *)*csum failed*",
    ),
    (
        Kind::FileSystem,
        "BTRFS error (device {})*bdev * errs: wr *",
    ),
    (
        Kind::FileSystem,
        "BTRFS error (device {}: state *)*bdev * errs: wr *",
    ),
    (Kind::FileSystem, "BTRFS critical (device {})*"),
    (Kind::FileSystem, "BTRFS critical (device {}: state *)*"),
    (Kind::ReadOnly, "BTRFS info (device {})*forced readonly*"),
    (
        Kind::ReadOnly,
        "BTRFS info (device {}: state *)*forced readonly*",
    ),
    (Kind::FileSystem, "XFS ({}): *etadata corruption *"),
    (Kind::FileSystem, "XFS ({}): *etadata I/O error *"),
    (Kind::FileSystem, "XFS ({}): log I/O error *"),
    (Kind::FileSystem, "FAT-fs ({}): error, *"),
    (
        Kind::ReadOnly,
        "FAT-fs ({}): Filesystem has been set read-only*",
    ),
    (
        Kind::NotUnmounted,
        "FAT-fs ({}): Volume was not properly unmounted*",
    ),
    (Kind::FileSystem, "exFAT-fs ({}): error, *"),
    (
        Kind::NotUnmounted,
        "exFAT-fs ({}): Volume was not properly unmounted*",
    ),
    (Kind::NotUnmounted, "ntfs3: {}: volume is dirty *"),
    (Kind::NotUnmounted, "ntfs3({}): volume is dirty *"),
    (Kind::Card, "{}: error -* transferring data*"),
    (Kind::Card, "{}: error -* sending status command*"),
    (Kind::Card, "{}: error -* sending stop command*"),
    (Kind::Card, "{}: recovery failed!*"),
    (Kind::Card, "{}: Timeout waiting for hardware *interrupt*"),
    (Kind::Card, "{}: timeout waiting for hardware *interrupt*"),
    (Kind::Card, "{}: previous command never completed*"),
    (Kind::Card, "{}: reducing overclock due to errors*"),
    (Kind::Card, "{}: cancelling overclock*"),
    (Kind::Card, "{}: running CQE recovery*"),
    (Kind::Card, "{}: cqhci: timeout for tag *"),
    (Kind::Card, "{}: cqhci: spurious TCN*"),
    (Kind::Card, "{}: error -* whilst initialising SD card*"),
    (Kind::Card, "{}: error -* whilst initialising MMC card*"),
    (
        Kind::Card,
        "{}: error -* reading general info of SD ext reg*",
    ),
    (Kind::Card, "{}: card never left busy state*"),
    (Kind::Tuning, "{}: tuning execution failed: -*"),
    (Kind::NoLowVoltage, "{}: Skipping voltage switch*"),
    (
        Kind::Card,
        "{}: Problem switching card into high-speed mode!*",
    ),
    (Kind::Card, "{}: Controller never released inhibit bit*"),
    (Kind::Card, "{}: Card stuck *"),
    (Kind::Card, "mmc_host {}: Timeout sending command*"),
    (Kind::Tuning, "mmc_host {}: *All phases bad!*"),
    (Kind::Card, "dwmmc_rockchip {}: Busy; trying anyway*"),
    (Kind::Tuning, "dwmmc_rockchip {}: All phases bad!*"),
    (Kind::Card, "sunxi-mmc {}: smc * err, cmd *, * !!*"),
    (Kind::Uas, "sd * [{}] *uas_eh_abort_handler*"),
    (Kind::Uas, "sd * [{}] *data cmplt err -*"),
    (Kind::Uas, "scsi {}: uas_eh_device_reset_handler FAILED*"),
    (Kind::Uas, "scsi {}: uas_eh_device_reset_handler start*"),
    (
        Kind::UsbReset,
        "usb {}: reset * USB device number * using *",
    ),
    (Kind::UsbLink, "usb {}: device descriptor read/*, error -*"),
    (
        Kind::UsbLink,
        "usb {}: device not accepting address *, error -*",
    ),
    (Kind::UsbLink, "usb {}: unable to enumerate USB device*"),
    (Kind::UsbLink, "usb {}: attempt power cycle*"),
    (
        Kind::UsbLink,
        "usb {}: Cannot enable. Maybe the USB cable is bad?*",
    ),
    (
        Kind::UsbLink,
        "xhci?hcd {}: xHCI host not responding to stop endpoint command*",
    ),
    (
        Kind::UsbLink,
        "xhci?hcd {}: xHCI host controller not responding, assume dead*",
    ),
    (Kind::UsbLink, "xhci?hcd {}: HC died; cleaning up*"),
    (Kind::OverCurrent, "usb {}: over-current change*"),
    (Kind::OverCurrent, "usb {}: over-current condition*"),
    (Kind::Nvme, "nvme {}: I/O * timeout*"),
    (Kind::Nvme, "nvme {}: I/O tag * timeout*"),
    (Kind::Nvme, "nvme {}: controller is down; will reset*"),
    (Kind::Nvme, "nvme {}: Device not ready*"),
    (Kind::UnderVoltage, "Under-voltage detected!*"),
    (Kind::UnderVoltage, "hwmon *: Under*oltage detected!*"),
];

/// Look-alikes: what the block layer prints for a command that a disk need not know, what
/// sunxi-mmc prints while it asks an SD slot whether an SDIO or MMC device is in it, a card pulled
/// out before it was ready (-123, ENOMEDIUM), an interrupt that got lost.
const HARMLESS: &[&str] = &[
    "operation not supported error, dev *",
    "*: error -123 whilst initialising *",
    "nvme *: I/O * timeout, completion polled*",
    "*:(DISCARD) *",
    "*:(WRITE_ZEROES) *",
    "*:(SECURE_ERASE) *",
    "sunxi-mmc *: smc * err, cmd 5, *",
    "sunxi-mmc *: smc * err, cmd 8, *",
    "sunxi-mmc *: smc * err, cmd 52, *",
    "sunxi-mmc *: smc * err, cmd 55, *",
    "sunxi-mmc *: smc * err, cmd 1, *",
];

/// A line that says that a name means another device from here on.
const ANEW: &[&str] = &[
    "sd * [{}] Attached SCSI *",
    "usb {}: USB disconnect, device number *",
    "{}: card * removed*",
];

/// One kind of complaint about a medium.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub kind: Kind,
    pub count: u32,
    /// The first line, shortened.
    pub example: String,
}

/// What this boot's log says of a medium.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Whether the log could be read at all.
    pub known: bool,
    pub events: Vec<Event>,
    /// Block devices whose file system was not unmounted before this boot.
    pub unclean: Vec<String>,
    /// The mode that a card came up in: `ultra high speed SDR104 SDXC card`.
    pub card_mode: Option<String>,
}

/// Reads the log and keeps what concerns the medium.
pub fn read(source: &Source) -> Log {
    let names = Names::of(source);
    let mut log = Log::default();
    let known = records(source.tree, |text| {
        log.add(text, &names);
    });
    log.known = known.is_ok();
    log
}

/// Hands the text of each record to `each`, oldest first.
fn records(tree: &Tree, mut each: impl FnMut(&str)) -> io::Result<()> {
    if !tree.is_machine() {
        let content = tree.bytes(KMSG)?;
        String::from_utf8_lossy(&content).lines().for_each(|line| {
            if let Some(text) = record_text(line) {
                each(text);
            }
        });
        return Ok(());
    }
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(KMSG)?;
    let mut buffer = vec![0; RECORD];
    for _ in 0..RECORDS {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                let record = String::from_utf8_lossy(&buffer[..length]);
                if let Some(text) = record.lines().next().and_then(record_text) {
                    each(text);
                }
            }
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => break,
            // Records were overwritten before they were read: the next read goes on after them.
            Err(cause) if cause.raw_os_error() == Some(nix::libc::EPIPE) => {}
            Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// Words of the drivers that storage hangs on; what else the kernel says is nobody's business.
const STORAGE: &[&str] = &[
    "mmc",
    "[sd",
    "usb ",
    "uas",
    "usb-storage",
    "scsi",
    "nvme",
    "EXT4",
    "JBD2",
    "BTRFS",
    "F2FS",
    "XFS",
    "FAT-fs",
    "ntfs3",
    "I/O error",
    "oltage",
    "xhci",
    "over-current",
];

/// The records that concern storage, as lines of a recorded tree, the latest `limit` bytes of them,
/// without those that name serial numbers.
/// # Errors
/// Where the log cannot be read.
pub fn storage_records(tree: &Tree, limit: usize) -> io::Result<String> {
    let mut lines = VecDeque::new();
    let mut length = 0;
    records(tree, |text| {
        if concerns_storage(text) {
            let line = format!("6,0,0,-;{}\n", printable(text));
            length += line.len();
            lines.push_back(line);
        }
        while length > limit {
            length -= lines.pop_front().map_or(length, |line: String| line.len());
        }
    })?;
    Ok(lines.into_iter().collect())
}

/// And names no serial number.
pub fn concerns_storage(text: &str) -> bool {
    STORAGE.iter().any(|word| text.contains(word)) && !text.contains("erial")
}

/// The message of `priority,sequence,usec,flags;message`, where the kernel itself spoke: facility 0.
/// Lines that start with a blank belong to the record before.
fn record_text(line: &str) -> Option<&str> {
    if line.starts_with(' ') {
        return None;
    }
    let (head, text) = line.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    (priority < 8).then_some(text)
}

/// What a kernel line may call the medium.
pub struct Names {
    /// The parts of its path in sysfs: hosts, ports, controllers.
    path: Vec<String>,
    disk: String,
    /// Its partitions, and what lies between them and a file system: `dm-0`.
    blocks: Vec<String>,
}

impl Names {
    pub fn of(source: &Source) -> Self {
        let disk = name_of(&source.disk);
        let parts = source.tree.list(&source.disk).into_iter();
        let layers = source.medium.mounts.iter().flat_map(|mount| &mount.layers);
        let layers = layers.map(|layer| layer.split(' ').next().unwrap_or_default().to_string());
        let parts = parts.filter(|name| is_partition(&disk, name));
        let mut path: Vec<String> = source
            .disk
            .components()
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect();
        path.extend(mmc::host(&source.disk));
        Self {
            path,
            blocks: parts.chain(layers).collect(),
            disk,
        }
    }

    #[cfg(test)]
    pub fn new(path: &[&str], disk: &str, blocks: &[&str]) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        Self {
            path: owned(path),
            disk: disk.into(),
            blocks: owned(blocks),
        }
    }

    fn own(&self, name: &str) -> bool {
        let is = |own: &String| own == name;
        name == self.disk
            || is_partition(&self.disk, name)
            || self.blocks.iter().any(is)
            || self.path.iter().any(is)
            || port_child(name).is_some_and(|child| self.path.contains(&child))
    }
}

/// `sda1` of `sda`, `mmcblk0p2` of `mmcblk0`.
fn is_partition(disk: &str, name: &str) -> bool {
    let rest = name.strip_prefix(disk);
    let digit_end = disk.ends_with(|c: char| c.is_ascii_digit());
    let number = rest.and_then(|rest| {
        if digit_end {
            rest.strip_prefix('p')
        } else {
            Some(rest)
        }
    });
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
}

/// The device that a port holds: `1-1-port2` holds `1-1.2`, `usb1-port2` holds `1-2`.
fn port_child(name: &str) -> Option<String> {
    let (hub, port) = name.split_once("-port")?;
    Some(match hub.strip_prefix("usb") {
        Some(bus) => format!("{bus}-{port}"),
        None => format!("{hub}.{port}"),
    })
}

/// What a line tells, and of whom; an empty name is the board's.
pub fn classify(text: &str) -> Option<(Kind, &str)> {
    let (kind, name) = PATTERNS
        .iter()
        .find_map(|(kind, pattern)| Some((*kind, matches(pattern, text)?)))?;
    let harmless = HARMLESS
        .iter()
        .any(|pattern| matches(pattern, text).is_some());
    (!harmless).then_some((kind, name))
}

/// Where the first wildcard stands. By bytes: this is done a hundred times a line.
fn literal_end(pattern: &str) -> usize {
    let wild = |byte: u8| matches!(byte, b'*' | b'{' | b'?');
    pattern.bytes().position(wild).unwrap_or(pattern.len())
}

/// Matches the whole of `text`; returns what `{}` stands for, or an empty name.
fn matches<'a>(pattern: &str, text: &'a str) -> Option<&'a str> {
    let (literal, rest) = pattern.split_at(literal_end(pattern));
    if rest.is_empty() {
        return (literal == text).then_some("");
    }
    let text = text.strip_prefix(literal)?;
    if let Some(rest) = rest.strip_prefix('?') {
        let mut chars = text.chars();
        chars.next()?;
        return matches(rest, chars.as_str());
    }
    if let Some(rest) = rest.strip_prefix("{}") {
        let part_of_name = |c: char| c.is_ascii_alphanumeric() || "._:-!".contains(c);
        let longest = text.find(|c: char| !part_of_name(c)).unwrap_or(text.len());
        return (1..=longest)
            .find(|&end| matches(rest, &text[end..]).is_some())
            .map(|end| &text[..end]);
    }
    let rest = &rest[1..];
    if rest.is_empty() {
        return Some("");
    }
    // What follows up to the next wildcard is looked for at once: a log has thousands of lines.
    let literal = &rest[..literal_end(rest)];
    text.match_indices(literal)
        .find_map(|(at, _)| matches(rest, &text[at..]))
}

impl Log {
    /// Takes a line in; true where it is a complaint.
    pub fn add(&mut self, text: &str, names: &Names) -> bool {
        if let Some(name) = ANEW.iter().find_map(|pattern| matches(pattern, text)) {
            if names.own(name) {
                self.events.retain(|event| event.kind == Kind::UnderVoltage);
            }
            return false;
        }
        if let Some(name) = matches("{}: new * card at address *", text).filter(|n| names.own(n)) {
            let mode = text[name.len()..].trim_start_matches(": new ");
            self.card_mode = mode.split(" at address").next().map(printable);
        }
        let Some((kind, name)) = classify(text) else {
            return false;
        };
        if !name.is_empty() && !names.own(name) {
            return false;
        }
        if kind == Kind::NotUnmounted {
            self.unclean.push(printable(name));
            self.unclean.truncate(UNCLEAN);
        }
        match self.events.iter_mut().find(|event| event.kind == kind) {
            Some(event) => event.count = event.count.saturating_add(1),
            None => self.events.push(Event {
                kind,
                count: 1,
                example: example(text),
            }),
        }
        kind.serious()
    }

    pub fn count(&self, kind: Kind) -> u32 {
        self.events
            .iter()
            .find(|event| event.kind == kind)
            .map_or(0, |event| event.count)
    }

    /// How many lines are complaints.
    pub fn complaints(&self) -> u32 {
        let serious = self.events.iter().filter(|event| event.kind.serious());
        serious.map(|event| event.count).sum()
    }

    /// How many lines are complaints, and the first of the most serious kind.
    pub fn summary(&self) -> String {
        match self.events.iter().find(|event| event.kind.serious()) {
            _ if !self.known => "unknown".into(),
            None => "nothing about it in this boot".into(),
            Some(event) => {
                let complaints = super::counted(self.complaints().into(), "complaint");
                format!("{complaints} in this boot: {}", event.example)
            }
        }
    }

    /// Findings, one for each code.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        for event in &self.events {
            let Some(code) = code(event) else { continue };
            if findings.iter().any(|finding| finding.code == code) {
                continue;
            }
            let count: u32 = self
                .events
                .iter()
                .filter(|other| self::code(other) == Some(code))
                .map(|other| other.count)
                .sum();
            let times = if count == 1 { "once" } else { "times" };
            let how_often = match count {
                1 => times.to_string(),
                n => format!("{n} {times}"),
            };
            let sentence = format!(
                "the kernel said {how_often} since the boot: {}",
                event.example
            );
            findings.push(Finding::new(code, Verdict::Warn, sentence));
        }
        findings
    }
}

/// The finding that an event is worth. A single reset happens to good disks too; what uas does is
/// judged with the link, the voltage with the board.
fn code(event: &Event) -> Option<&'static str> {
    Some(match event.kind {
        Kind::BlockError | Kind::LostWrite => "kernel-io-error",
        Kind::FileSystem | Kind::ReadOnly => "file-system-error",
        Kind::Card => "card-errors",
        Kind::UsbReset if event.count < 2 => return None,
        Kind::UsbReset | Kind::UsbLink => "usb-errors",
        Kind::OverCurrent => "over-current",
        Kind::Nvme => "nvme-errors",
        Kind::UnderVoltage | Kind::Uas | Kind::NotUnmounted | Kind::NoLowVoltage | Kind::Tuning => {
            return None;
        }
    })
}

#[cfg(test)]
#[path = "kernel_log_test.rs"]
mod tests;
