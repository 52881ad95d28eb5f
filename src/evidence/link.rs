//! The USB link of a disk: what was negotiated, what the disk could do, and what stands in the way.

use super::kernel_log::{Kind, Log};
use super::{Source, counted};
use crate::judge::{Finding, Verdict};
use crate::medium::Transport;
use crate::medium::tree::{Tree, name_of};
use crate::medium::usb;
use std::path::{Path, PathBuf};

/// The USB side of a disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usb {
    pub vendor: u16,
    pub product: u16,
    /// What the device calls itself.
    pub name: String,
    /// `uas` or `usb-storage`; empty where no driver is bound.
    pub driver: String,
    /// The flags of `usb-storage.quirks` that are in force for this device: `u`.
    pub quirks: Option<String>,
    /// Signalling rate, Mbit/s; 0 where the kernel does not know it.
    pub mbit_s: f64,
    /// Whether the device can do SuperSpeed (5000 Mbit/s and more), by its own descriptors.
    pub super_speed: Option<bool>,
    /// Whether a port of the board can and is free. `None` where no root hub is seen.
    pub board_super_speed: Option<bool>,
    /// The hub nearest to the disk that can do USB 2 at most: `214b:7250 USB2.0 HUB`.
    pub usb2_hub: Option<String>,
    /// What the device may draw, mA.
    pub max_power_ma: Option<u32>,
    /// Over-current events of the disk's port since the boot.
    pub over_current: u32,
    /// The same, during the run.
    pub over_current_during: u32,
}

/// A bridge chip that is known by its ids.
struct Bridge {
    vendor: u16,
    product: u16,
    name: &'static str,
    /// Distributions switch UAS off for it: home-assistant/operating-system, boards' cmdline.txt;
    /// drivers/usb/storage/unusual_uas.h in the kernel.
    uas_trouble: bool,
    /// smartmontools' drivedb.h lists it as passing ATA commands (`sat`).
    sat: bool,
}

const fn bridge(
    vendor: u16,
    product: u16,
    name: &'static str,
    uas_trouble: bool,
    sat: bool,
) -> Bridge {
    Bridge {
        vendor,
        product,
        name,
        uas_trouble,
        sat,
    }
}

const BRIDGES: &[Bridge] = &[
    bridge(0x0634, 0x5605, "Crucial X9", true, false),
    bridge(0x0bda, 0x9210, "Realtek RTL9210", false, false),
    bridge(0x0bda, 0x9201, "Realtek RTL9201", false, true),
    bridge(0x125f, 0xa88a, "ADATA", true, false),
    bridge(0x13fd, 0x3940, "Initio", true, false),
    bridge(0x14b0, 0x0206, "StarTech.com", true, false),
    bridge(0x152d, 0x0539, "JMicron JMS539", false, false),
    bridge(0x152d, 0x0562, "JMicron JMS562", true, false),
    bridge(0x152d, 0x0567, "JMicron JMS567", false, true),
    bridge(0x152d, 0x0578, "JMicron JMS578", true, true),
    bridge(0x152d, 0x0579, "JMicron", true, false),
    // Some are USB-SATA, some NVMe: smartmontools warns of the wrong command to this one.
    bridge(0x152d, 0x0583, "JMicron JMS583", true, false),
    bridge(0x152d, 0x1561, "JMicron JMS561", true, true),
    bridge(0x152d, 0x1576, "JMicron JMS576", false, true),
    bridge(0x152d, 0x2567, "JMicron JMS567", false, true),
    bridge(0x152d, 0xa578, "JMicron", true, false),
    bridge(0x152d, 0xa583, "JMicron JMS583", true, false),
    bridge(0x174c, 0x0829, "ASMedia", true, true),
    bridge(0x174c, 0x1153, "ASMedia ASM1153", false, true),
    bridge(0x174c, 0x225c, "ASMedia", true, true),
    bridge(0x174c, 0x2362, "ASMedia ASM2362", false, false),
    bridge(0x174c, 0x55aa, "ASMedia ASM1051/1153", true, true),
    bridge(0x2109, 0x0711, "VIA VL711", true, false),
    bridge(0x2109, 0x0715, "VIA VL715", true, false),
    bridge(0x7825, 0xa2a4, "Other World Computing", true, false),
];

fn known(vendor: u16, product: u16) -> Option<&'static Bridge> {
    let own = |b: &&Bridge| (b.vendor, b.product) == (vendor, product);
    BRIDGES.iter().find(own)
}

/// Whether the bridge of a disk is known to hand ATA commands on.
pub fn passes_ata(tree: &Tree, disk: &Path) -> bool {
    let bridge = || {
        let device = usb::above(tree, disk).filter(|device| !device.driver.is_empty())?;
        known(
            id(tree, &device.dir, "idVendor")?,
            id(tree, &device.dir, "idProduct")?,
        )
    };
    bridge().is_some_and(|bridge| bridge.sat)
}

/// The evidence of a disk on USB; `None` for any other.
pub fn usb(source: &Source) -> Option<Usb> {
    let tree = source.tree;
    let device = usb::above(tree, &source.disk)?;
    let dir = &device.dir;
    let (vendor, product) = (id(tree, dir, "idVendor")?, id(tree, dir, "idProduct")?);
    Some(Usb {
        vendor,
        product,
        name: words(tree, dir),
        quirks: quirks(tree, vendor, product),
        super_speed: super_speed(tree, dir, device.mbit_s),
        board_super_speed: board_super_speed(tree),
        usb2_hub: usb2_hub(tree, dir),
        max_power_ma: tree
            .text(dir.join("bMaxPower"))
            .and_then(|text| text.trim().trim_end_matches("mA").parse().ok()),
        over_current: over_current(tree, dir),
        over_current_during: 0,
        driver: device.driver,
        mbit_s: device.mbit_s,
    })
}

/// Documentation/ABI/testing/sysfs-bus-usb: of the port that the device is plugged into.
fn over_current(tree: &Tree, dir: &Path) -> u32 {
    tree.number(dir.join("port/over_current_count"))
        .unwrap_or(0)
}

fn id(tree: &Tree, dir: &Path, name: &str) -> Option<u16> {
    u16::from_str_radix(tree.text(dir.join(name))?.trim(), 16).ok()
}

/// `manufacturer product`, as far as the device has them.
fn words(tree: &Tree, dir: &Path) -> String {
    let part = |name: &str| tree.text(dir.join(name)).unwrap_or_default();
    let both = format!("{} {}", part("manufacturer").trim(), part("product").trim());
    both.trim().to_string()
}

/// `usb-storage.quirks=VID:PID:FLAGS,…`, Documentation/admin-guide/kernel-parameters.txt.
fn quirks(tree: &Tree, vendor: u16, product: u16) -> Option<String> {
    let all = tree.text("/sys/module/usb_storage/parameters/quirks")?;
    let number = |text: &str| {
        let text = text.trim().to_lowercase();
        u16::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    };
    all.split(',').find_map(|entry| {
        let mut parts = entry.splitn(3, ':');
        let own = number(parts.next()?)? == vendor && number(parts.next()?)? == product;
        own.then(|| parts.next().map(|flags| flags.trim().to_lowercase()))?
    })
}

/// bcdUSB in hexadecimal digits: 0x0210 for ` 2.10`.
fn version(tree: &Tree, dir: &Path) -> Option<u16> {
    let text = tree.text(dir.join("version"))?;
    u16::from_str_radix(&text.trim().replace('.', ""), 16).ok()
}

/// At 480 Mbit/s a SuperSpeed device says so only in its BOS descriptor (USB 3.2, 9.6.2), which it
/// has from bcdUSB 2.01 on; older devices are not asked, as the kernel does not ask them.
fn super_speed(tree: &Tree, dir: &Path, mbit_s: f64) -> Option<bool> {
    if mbit_s >= 5000.0 {
        return Some(true);
    }
    if version(tree, dir)? < 0x0201 {
        return Some(false);
    }
    bos_super_speed(&bos(tree, dir)?)
}

/// From sysfs, or, since kernels before 6.9 do not show it, from the device itself.
fn bos(tree: &Tree, dir: &Path) -> Option<Vec<u8>> {
    match tree.bytes(dir.join("bos_descriptors")) {
        Ok(bos) => Some(bos),
        Err(_) if tree.is_machine() => {
            let bus = tree.number(dir.join("busnum"))?;
            let device = tree.number(dir.join("devnum"))?;
            crate::sys::usb_bos(bus, device).ok()
        }
        Err(_) => None,
    }
}

/// The descriptor of a disk's USB device, and its place in sysfs; `None` where it says no more
/// than bcdUSB does.
pub fn bos_of(tree: &Tree, disk: &str) -> Option<(PathBuf, Vec<u8>)> {
    let disk = tree.real(format!("/sys/block/{disk}")).ok()?;
    let device = usb::above(tree, &disk)?;
    let asked = device.mbit_s < 5000.0 && version(tree, &device.dir)? >= 0x0201;
    let bos = bos(tree, &device.dir).filter(|_| asked)?;
    Some((device.dir.join("bos_descriptors"), bos))
}

/// Whether a BOS descriptor holds the SuperSpeed capability (type 3) with 5 Gbit/s among its
/// speeds, or SuperSpeedPlus (type 0x0a): USB 3.2, 9.6.2. `None` where it makes no sense.
pub fn bos_super_speed(bos: &[u8]) -> Option<bool> {
    const BOS: u8 = 0x0f;
    const DEVICE_CAPABILITY: u8 = 0x10;
    let [5, BOS, ..] = bos else { return None };
    let mut rest = bos.get(5..)?;
    let mut found = false;
    while let [length, kind, capability, ..] = *rest {
        let descriptor = rest.get(..usize::from(length)).filter(|d| d.len() >= 3)?;
        found |= kind == DEVICE_CAPABILITY
            && match capability {
                3 => descriptor.get(4).is_some_and(|speeds| speeds & 8 != 0),
                0x0a => true,
                _ => false,
            };
        rest = &rest[usize::from(length)..];
    }
    Some(found)
}

/// Root hubs tell what the board's controllers can do. `Some(true)` where a SuperSpeed port is
/// free, or holds a hub that another disk can be plugged into; `Some(false)` where there is none
/// to be had.
fn board_super_speed(tree: &Tree) -> Option<bool> {
    let devices = "/sys/bus/usb/devices";
    let names = tree.list(devices);
    let number = |name: &str, attribute: &str| -> Option<f64> {
        tree.number(format!("{devices}/{name}/{attribute}"))
    };
    let roots: Vec<&String> = names
        .iter()
        .filter(|name| name.starts_with("usb"))
        .collect();
    let free = |root: &&&String| {
        let bus = format!("{}-", root.trim_start_matches("usb"));
        let taken = names.iter().filter(|name| {
            let port = name.strip_prefix(&bus);
            let own = port.is_some_and(|port| port.bytes().all(|c| c.is_ascii_digit()));
            let class = tree.text(format!("{devices}/{name}/bDeviceClass"));
            own && class.as_deref() != Some("09")
        });
        number(root, "speed").unwrap_or(0.0) >= 5000.0
            && number(root, "maxchild").is_none_or(|ports| (taken.count() as f64) < ports)
    };
    let known = roots.iter().any(|root| number(root, "speed").is_some());
    known.then(|| roots.iter().any(|root| free(&root)))
}

/// A hub between root hub and disk with bcdUSB 2.00 or less. The USB 2 half of a USB 3 hub says
/// 2.10, as does the one on the board of a Raspberry Pi 4: those are not in the way.
fn usb2_hub(tree: &Tree, dir: &Path) -> Option<String> {
    let hubs = dir.ancestors().skip(1).take_while(|above| {
        tree.exists(above.join("idVendor")) && !name_of(above).starts_with("usb")
    });
    for hub in hubs {
        if version(tree, hub).is_some_and(|version| version < 0x0201) {
            let (vendor, product) = (id(tree, hub, "idVendor")?, id(tree, hub, "idProduct")?);
            let text = format!("{vendor:04x}:{product:04x} {}", words(tree, hub));
            return Some(text.trim().to_string());
        }
    }
    None
}

impl Usb {
    fn bridge(&self) -> Option<&'static Bridge> {
        known(self.vendor, self.product)
    }

    /// Whether UAS is switched off for this bridge by distributions.
    pub fn uas_trouble(&self) -> bool {
        self.bridge().is_some_and(|bridge| bridge.uas_trouble)
    }

    /// `152d:0578 JMicron JMS578`: known by its ids, else what it calls itself.
    pub fn who(&self) -> String {
        let name = self.bridge().map_or(self.name.as_str(), |b| b.name);
        format!("{:04x}:{:04x} {name}", self.vendor, self.product)
            .trim()
            .to_string()
    }

    /// Reads the port's counter again, after a run.
    pub fn count_over_current(&mut self, source: &Source) {
        let device = usb::above(source.tree, &source.disk);
        let now = device.map_or(0, |device| over_current(source.tree, &device.dir));
        self.over_current_during = now.saturating_sub(self.over_current);
    }

    /// One phrase: what the disk could do and what it may do here.
    pub fn ability(&self) -> &'static str {
        match (self.super_speed, self.board_super_speed) {
            (Some(true), _) if self.mbit_s >= 5000.0 => "SuperSpeed, as it should be",
            (Some(true), Some(false)) => "a SuperSpeed disk; the board has no SuperSpeed port free",
            (Some(true), _) if self.usb2_hub.is_some() => "a SuperSpeed disk behind a USB 2 hub",
            (Some(true), Some(true)) => "a SuperSpeed disk on a USB 2 link",
            (Some(true), None) => "a SuperSpeed disk",
            (Some(false), _) => "a USB 2 disk",
            (None, _) => "unknown whether it can do SuperSpeed",
        }
    }
}

/// Findings of the link, with the trouble that the kernel saw on it.
pub fn judge(usb: &Usb, log: &Log, findings: &mut Vec<Finding>) {
    let who = usb.who();
    let warn = |code, sentence: String| Finding::new(code, Verdict::Warn, sentence);
    if usb.mbit_s > 0.0 && usb.mbit_s < 480.0 {
        let sentence = format!("{who} runs at {} Mbit/s", usb.mbit_s);
        findings.push(warn("usb1-link", sentence));
    } else if usb.super_speed == Some(true)
        && usb.mbit_s < 5000.0
        && usb.board_super_speed == Some(true)
    {
        findings.push(match &usb.usb2_hub {
            Some(hub) => warn(
                "usb2-hub",
                format!(
                    "{who} can do SuperSpeed but hangs on the USB 2 hub {hub}, at {} Mbit/s",
                    usb.mbit_s
                ),
            ),
            None => warn(
                "usb2-port",
                format!(
                    "{who} can do SuperSpeed, as can a free port of this board, but the link is {} Mbit/s",
                    usb.mbit_s
                ),
            ),
        });
    }
    if let Some(finding) = uas_trouble(usb, log, findings) {
        findings.push(finding);
    }
    if usb.over_current_during > 0 {
        let sentence = format!(
            "{} on its port during the run",
            counted(usb.over_current_during.into(), "over-current event")
        );
        findings.push(warn("over-current", sentence));
    } else if usb.over_current > 0 {
        let sentence = format!(
            "{} on its port since the boot",
            counted(usb.over_current.into(), "over-current event")
        );
        findings.push(warn("over-current", sentence));
    }
}

/// Aborts or repeated resets under `uas`; a bridge that is merely known for them is left in peace
/// until it is slow.
fn uas_trouble(usb: &Usb, log: &Log, findings: &[Finding]) -> Option<Finding> {
    if usb.driver != "uas" {
        return None;
    }
    let known = if usb.uas_trouble() {
        ", which is known for it"
    } else {
        ""
    };
    let (aborts, resets) = (log.count(Kind::Uas), log.count(Kind::UsbReset));
    let sentence = if aborts > 0 {
        format!(
            "the driver uas aborted commands or reset {}{known} {aborts} times since the boot",
            usb.who()
        )
    } else if usb.uas_trouble() && resets > 1 {
        format!("{}{known}, was reset {resets} times", usb.who())
    } else if usb.uas_trouble()
        && findings.iter().any(|f| {
            matches!(
                f.code.as_str(),
                "sequential-read-slow" | "read-slower-than-write" | "stall"
            )
        })
    {
        format!("{} is known for trouble with the driver uas", usb.who())
    } else {
        return None;
    };
    Some(Finding::new("uas-trouble", Verdict::Warn, sentence))
}

/// Commands that failed or timed out, drivers/scsi/scsi_sysfs.c.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScsiCounters {
    /// Since the disk is there; unsupported commands are among them, so only a rise says something.
    pub errors: u32,
    pub timeouts: u32,
    /// What both rose by during the run.
    pub during: Option<(u32, u32)>,
}

/// `None` for a disk without them.
pub fn scsi_counters(source: &Source) -> Option<ScsiCounters> {
    if !matches!(source.medium.transport, Transport::Usb | Transport::Scsi) {
        return None;
    }
    let counter = |name: &str| {
        let text = source.tree.text(source.disk.join("device").join(name))?;
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    Some(ScsiCounters {
        errors: counter("ioerr_cnt")?,
        // Kernels before 6.1 do not count these.
        timeouts: counter("iotmo_cnt").unwrap_or(0),
        during: None,
    })
}

impl ScsiCounters {
    /// What they rose by. A disk that was `asked` for its SMART data answers with sense data, which
    /// the kernel counts for an error: those two commands are ours.
    pub fn less(&self, start: &Self, asked: bool) -> (u32, u32) {
        let own = if asked { 2 } else { 0 };
        (
            self.errors.saturating_sub(start.errors + own),
            self.timeouts.saturating_sub(start.timeouts),
        )
    }

    pub fn finding(&self) -> Option<Finding> {
        let (errors, timeouts) = self.during.filter(|&during| during != (0, 0))?;
        let sentence =
            format!("{errors} commands failed and {timeouts} timed out while it was tested");
        Some(Finding::new("scsi-errors", Verdict::Warn, sentence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Real bytes of a JMicron bridge, hardware.md 4: LPM, SuperSpeed at 5 Gbit/s, container id.
    #[test]
    fn bos() {
        let mut bos = vec![5, 0x0f, 0x2a, 0, 3, 7, 0x10, 2, 2, 0, 0, 0];
        assert_eq!(bos_super_speed(&bos), Some(false), "LPM only");
        bos.extend([10, 0x10, 3, 0, 0x0e, 0, 1, 10, 10, 0]);
        assert_eq!(bos_super_speed(&bos), Some(true));
        // wSpeedsSupported without bit 3: low, full and high speed only.
        bos[16] = 0x07;
        assert_eq!(bos_super_speed(&bos), Some(false));
        for broken in [
            &[][..],
            &[5, 0x0f],
            &[5, 0x0f, 9, 0, 1, 0, 0x10, 3],
            &[4; 9],
        ] {
            assert_eq!(bos_super_speed(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn a_rise_counts_and_our_own_commands_do_not() {
        let counters = |errors, timeouts| ScsiCounters {
            errors,
            timeouts,
            during: None,
        };
        assert_eq!(counters(9, 1).less(&counters(7, 0), false), (2, 1));
        assert_eq!(counters(9, 1).less(&counters(7, 1), true), (0, 0));
        // The disk went and came again.
        assert_eq!(counters(1, 0).less(&counters(7, 1), false), (0, 0));
    }

    #[test]
    fn the_driver_is_blamed_only_with_a_reason() {
        let usb = Usb {
            vendor: 0x152d,
            product: 0x0578,
            driver: "uas".into(),
            mbit_s: 5000.0,
            super_speed: Some(true),
            board_super_speed: Some(true),
            ..Usb::default()
        };
        let mut findings = Vec::new();
        judge(&usb, &Log::default(), &mut findings);
        assert_eq!(findings, []);
        let slow = Finding::new("sequential-read-slow", Verdict::Warn, "30 MB/s");
        findings.push(slow);
        judge(&usb, &Log::default(), &mut findings);
        assert_eq!(findings[1].code, "uas-trouble");
        super::super::order(&mut findings);
        assert_eq!(findings[0].code, "uas-trouble", "the cause leads");
    }
}
