//! The words that describe a guest's devices, in tests and in `make rig-shell`:
//!
//!     KIND=SIZE[,OPTION[=VALUE]]...[:FILE-SYSTEM]
//!
//! KIND is one of [`KINDS`], OPTION any of [`OPTIONS`].

use crate::disk::{Disk, Faults, SECTOR, Shows};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Kind, what the guest sees.
pub const KINDS: &[(&str, &str)] = &[
    ("sd", "SD card on an SD host, its size a power of two"),
    (
        "emmc",
        "eMMC, on the armhf board only, where no other disk is",
    ),
    ("usb2", "usb-storage on EHCI, at 480 Mbit/s"),
    ("usb3", "usb-storage on xHCI, at 5000 Mbit/s"),
    ("uas2", "USB attached SCSI on EHCI, at 480 Mbit/s"),
    ("uas", "USB attached SCSI on xHCI, at 5000 Mbit/s"),
    ("hub", "usb-storage behind a hub on xHCI, at 12 Mbit/s"),
    ("virtio", "virtio-blk"),
    ("nvme", "NVMe on one lane of PCI Express"),
    ("sata", "SATA on a host of its own"),
];

/// Option, its value, what it does.
pub const OPTIONS: &[(&str, &str, &str)] = &[
    ("serial", "TEXT", "serial number that the device tells"),
    ("model", "TEXT", "model that the device tells (USB)"),
    ("sector", "BYTES", "512 or 4096 (not sd)"),
    ("fake", "SIZE", "real size: addresses beyond wrap around"),
    ("lost", "SIZE", "real size: what is written beyond is lost"),
    (
        "shows",
        "WHAT",
        "what is read beyond: ones, noise or last (written); zeros otherwise",
    ),
    (
        "damaged",
        "N",
        "of 1000 blocks above 256M so many keep no write",
    ),
    (
        "cache",
        "SIZE",
        "memory of the last writes in front of a fake",
    ),
    ("iops", "N", "requests a second"),
    ("bps", "N", "bytes a second"),
    (
        "read-error",
        "SECTOR",
        "reading this sector of 512 bytes fails; `N-`: all from N on",
    ),
    ("write-error", "SECTOR", "writing it fails"),
    ("blkdebug", "SECTOR", "QEMU itself fails to read it"),
    ("stall", "MS", "the first four writes take this long"),
    ("drop", "", "writes are accepted and dropped"),
    ("flip", "", "writes are stored with a bit inverted"),
    (
        "flips",
        "N",
        "of 10^9 bits so many are stored inverted, behind 24M",
    ),
    (
        "unsteady",
        "N",
        "so many are read inverted, each time others",
    ),
    ("forget", "", "a power cut loses even what was flushed"),
    (
        "served",
        "",
        "no fault yet, but a test can make one (USB disks always are)",
    ),
];

/// Where the only partition begins, bytes.
pub const PART_START: u64 = 1 << 20;

/// How QEMU is told of a device: on its command line as `-device JSON`, or by its monitor.
pub type Json = String;

pub struct Drive {
    pub kind: String,
    pub image: PathBuf,
    /// In its only partition.
    pub fs: Option<String>,
    /// What the guest called it when it was plugged in last.
    pub name: String,
    /// With a disk of ours in between, where faults can be made.
    pub disk: Option<Arc<Disk>>,
    pub blockdevs: Vec<Json>,
    pub devices: Vec<Json>,
    /// For `-drive`, where the board itself has the device.
    pub board: Option<String>,
}

impl Drive {
    /// It is not plugged in: the board has it, by such a `-drive`.
    pub fn on_board(&mut self, options: &str) {
        let file = self.image.display();
        self.board = Some(format!("{options},format=raw,file={file}"));
        self.blockdevs.clear();
        self.devices.clear();
    }
}

/// `8G` or `512M` or a number of bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let power = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("not a size: {text}")),
    };
    digits
        .parse::<u64>()
        .map(|n| n << power)
        .map_err(|_| format!("not a size: {text}"))
}

/// `100` is one sector, `100-` all from there to the end.
fn sectors(text: &str) -> Result<Range<u64>, String> {
    match text.strip_suffix('-') {
        Some(first) => Ok(size(first)?..u64::MAX),
        None => size(text).map(|only| only..only + 1),
    }
}

/// One device from its words, with its image in `dir`.
pub fn drive(words: &str, id: &str, dir: &Path) -> Result<Drive, String> {
    let wrong = |what: &str| format!("{words}: {what}");
    let (words_, fs) = match words.split_once(':') {
        Some((words, fs)) => (words, Some(fs)),
        None => (words, None),
    };
    let mut options = words_.split(',');
    let (kind, bytes) = options
        .next()
        .and_then(|first| first.split_once('='))
        .ok_or_else(|| wrong("KIND=SIZE is missing"))?;
    let bytes = size(bytes)?;
    let (mut serial, mut model, mut sector) = (format!("RIG-{}", id.to_uppercase()), None, 512);
    let (mut faults, mut served, mut blkdebug) = (Faults::default(), false, None);
    for option in options {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let number = || size(value).map_err(|_| wrong(&format!("{name} needs a number")));
        served |= !matches!(name, "serial" | "model" | "sector" | "blkdebug");
        match name {
            "serial" => serial = value.into(),
            "model" => model = Some(value),
            "sector" => sector = number()?,
            "fake" => faults.wraps_at = Some(number()?),
            "lost" => faults.loses_from = Some(number()?),
            "shows" => {
                faults.shows = Some(match value {
                    "ones" => Shows::Ones,
                    "noise" => Shows::Noise,
                    "last" => Shows::Last,
                    _ => return Err(wrong("shows is ones, noise or last")),
                });
            }
            "damaged" => faults.damaged = number()?,
            "cache" => faults.fake_cache = number()?,
            "iops" => faults.iops = Some(number()?),
            "bps" => faults.bps = Some(number()?),
            "read-error" => faults.read_error = Some(sectors(value)?),
            "write-error" => faults.write_error = Some(sectors(value)?),
            "blkdebug" => blkdebug = Some(number()?),
            "stall" => faults.stalls = vec![Duration::from_millis(number()?); 4].into(),
            "drop" => faults.drops_writes = true,
            "flip" => faults.flips_writes = true,
            "flips" => faults.flips = number()?,
            "unsteady" => faults.unsteady = number()?,
            "forget" => faults.lies_about_flush = true,
            "served" => {}
            _ => return Err(wrong(&format!("no such option: {name}"))),
        }
    }
    if kind == "emmc" && (served || blkdebug.is_some()) {
        return Err(wrong("the eMMC has no faults"));
    }
    if matches!(kind, "sd" | "emmc") && !bytes.is_power_of_two() {
        return Err(wrong("QEMU's card must have a power of two as its size"));
    }

    let image = dir.join(format!("{id}.img"));
    make_image(&image, bytes, fs).map_err(|error| wrong(&error.to_string()))?;
    // What real disks reach on these links.
    let link = match kind {
        "hub" => Some(1_000_000),
        "usb2" | "uas2" => Some(36_000_000),
        "usb3" | "uas" => Some(350_000_000),
        "nvme" => Some(200_000_000),
        _ => None,
    };
    let mut blockdevs = Vec::new();
    let disk = if served || link.is_some() {
        let socket = dir.join(format!("{id}.nbd"));
        let disk = Disk::serve(&image, &socket, link, faults)
            .map_err(|error| wrong(&error.to_string()))?;
        blockdevs.push(format!(
            r#"{{"driver":"nbd","node-name":"{id}-node","server":{{"type":"unix","path":"{}"}}}}"#,
            socket.display()
        ));
        Some(disk)
    } else {
        blockdevs.push(format!(
            r#"{{"driver":"file","node-name":"{id}-node","filename":"{}","cache":{{"no-flush":true}}}}"#,
            image.display()
        ));
        None
    };
    let mut below = format!("{id}-node");
    if let Some(sector) = blkdebug {
        blockdevs.push(format!(
            r#"{{"driver":"blkdebug","node-name":"{id}-debug","image":"{below}","inject-error":[{{"event":"none","iotype":"read","errno":5,"sector":{sector}}}]}}"#
        ));
        below = format!("{id}-debug");
    }
    blockdevs.push(format!(
        r#"{{"driver":"raw","node-name":"{id}-raw","file":"{below}"}}"#
    ));

    let device = Device {
        id,
        serial: &serial,
        model,
        sector,
    };
    let on_board = kind == "emmc";
    let devices = match device.json(kind) {
        Some(devices) => devices,
        None if on_board => Vec::new(),
        None => return Err(wrong("no such kind of device")),
    };
    let mut drive = Drive {
        kind: kind.into(),
        image,
        fs: fs.map(str::to_string),
        name: String::new(),
        disk,
        blockdevs,
        devices,
        board: None,
    };
    if on_board {
        // Behind the two SD cards that the board could have: QEMU's hw/arm/aspeed.c.
        drive.on_board("if=sd,index=2");
    }
    Ok(drive)
}

/// What a device tells the guest of itself.
struct Device<'a> {
    id: &'a str,
    serial: &'a str,
    model: Option<&'a str>,
    sector: u64,
}

impl Device<'_> {
    /// For `-device` or the monitor, in the order in which they are plugged.
    fn json(&self, kind: &str) -> Option<Vec<Json>> {
        let Self {
            id, serial, sector, ..
        } = self;
        let drive = format!(r#""drive":"{id}-raw""#);
        let disk = format!(
            r#"{drive},"serial":"{serial}","logical_block_size":{sector},"physical_block_size":{sector}"#
        );
        let devices = match kind {
            "sd" => vec![
                format!(r#"{{"driver":"sdhci-pci","id":"{id}-host"}}"#),
                format!(
                    r#"{{"driver":"sd-card","id":"{id}","bus":"pcie.0/{id}-host/sd-bus",{drive}}}"#
                ),
            ],
            "usb2" => self.usb("usb-bot", r#""bus":"ehci.0""#, &disk),
            "usb3" => self.usb("usb-bot", r#""bus":"xhci.0""#, &disk),
            "uas2" => self.usb("usb-uas", r#""bus":"ehci.0""#, &disk),
            "uas" => self.usb("usb-uas", r#""bus":"xhci.0""#, &disk),
            "hub" => {
                let mut devices = vec![format!(
                    r#"{{"driver":"usb-hub","id":"{id}-hub","bus":"xhci.0","port":"4"}}"#
                )];
                devices.extend(self.usb("usb-bot", r#""bus":"xhci.0","port":"4.1""#, &disk));
                devices
            }
            "virtio" => vec![format!(
                r#"{{"driver":"virtio-blk-pci","id":"{id}",{disk}}}"#
            )],
            "nvme" => vec![
                // Each port needs a number of its own; the ids have one.
                format!(
                    r#"{{"driver":"pcie-root-port","id":"{id}-port","chassis":{}}}"#,
                    id.trim_start_matches(|c: char| !c.is_ascii_digit())
                ),
                format!(r#"{{"driver":"nvme","id":"{id}","bus":"{id}-port",{disk}}}"#),
            ],
            "sata" => vec![
                format!(r#"{{"driver":"ich9-ahci","id":"{id}-host"}}"#),
                format!(r#"{{"driver":"ide-hd","id":"{id}","bus":"{id}-host.0",{disk}}}"#),
            ],
            _ => return None,
        };
        Some(devices)
    }

    /// A bridge and the SCSI disk behind it, which takes the place of QEMU's `usb-storage`:
    /// that one has a model of its own.
    fn usb(&self, bridge: &str, at: &str, disk: &str) -> Vec<Json> {
        let Self { id, serial, .. } = self;
        let product = self
            .model
            .map_or(String::new(), |model| format!(r#","product":"{model}""#));
        vec![
            format!(r#"{{"driver":"{bridge}","id":"{id}-usb","serial":"{serial}",{at}}}"#),
            format!(r#"{{"driver":"scsi-hd","id":"{id}","bus":"{id}-usb.0",{disk}{product}}}"#),
        ]
    }
}

/// A sparse image; with a file system in a partition, as a stick comes from the shop.
fn make_image(image: &Path, bytes: u64, fs: Option<&str>) -> io::Result<()> {
    File::create(image)?.set_len(bytes)?;
    let Some(fs) = fs else { return Ok(()) };
    let part = image.with_extension("part");
    File::create(&part)?.set_len(bytes - PART_START)?;
    // Kind of the partition, and how to make the file system.
    let (id, mkfs): (u8, &[&str]) = match fs {
        "ext4" => (0x83, &["mkfs.ext4", "-q", "-F"]),
        "ext4-nojournal" => (0x83, &["mkfs.ext4", "-q", "-F", "-O", "^has_journal"]),
        "f2fs" => (0x83, &["mkfs.f2fs", "-q", "-f"]),
        "btrfs" => (0x83, &["mkfs.btrfs", "-q", "-f"]),
        "xfs" => (0x83, &["mkfs.xfs", "-q", "-f"]),
        "vfat" => (0x0c, &["mkfs.vfat", "-F", "32"]),
        "exfat" => (0x07, &["mkfs.exfat"]),
        "ntfs3" => (0x07, &["mkfs.ntfs", "-Q", "-F", "-q"]),
        _ => return Err(io::Error::other(format!("no such file system: {fs}"))),
    };
    let made = Command::new(mkfs[0]).args(&mkfs[1..]).arg(&part).output()?;
    if !made.status.success() {
        return Err(io::Error::other(
            String::from_utf8_lossy(&made.stderr).into_owned(),
        ));
    }
    let copied = Command::new("dd")
        .args(["bs=1M", "seek=1", "conv=sparse,notrunc", "status=none"])
        .arg(format!("if={}", part.display()))
        .arg(format!("of={}", image.display()))
        .status()?;
    std::fs::remove_file(&part)?;
    if !copied.success() {
        return Err(io::Error::other("dd failed"));
    }
    // One entry of an MBR; nobody asks for cylinders and heads.
    let mut mbr = [0; 512];
    mbr[440..444].copy_from_slice(b"rig!");
    mbr[446..454].copy_from_slice(&[0, 0xfe, 0xff, 0xff, id, 0xfe, 0xff, 0xff]);
    mbr[454..458].copy_from_slice(&((PART_START / SECTOR) as u32).to_le_bytes());
    mbr[458..462].copy_from_slice(&(((bytes - PART_START) / SECTOR) as u32).to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    std::os::unix::fs::FileExt::write_all_at(&File::options().write(true).open(image)?, &mbr, 0)
}
