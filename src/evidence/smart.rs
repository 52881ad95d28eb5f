//! What SATA and NVMe disks count about themselves. Asked only where the way is known to work:
//! NVMe's own log, and ATA commands through bridges that pass them (SAT-2); never a disk that sleeps.

use super::Source;
use super::link;
use crate::judge::{Finding, Verdict};
use crate::medium::Transport;
use crate::sys;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// How a disk is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// ATA commands in SCSI ones.
    Sat,
    Nvme,
}

/// Raw values by name, and nothing else: what counts is whether they are zero and stay.
pub type Values = BTreeMap<String, u64>;

/// Raw values of now and, where it is known, of the last run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Smart {
    pub values: Values,
    pub before: Values,
}

/// ATA attributes that predict a failure (Backblaze, "What SMART Stats Tell Us About Hard Drives"),
/// and the hours that give them their measure.
const ATTRIBUTES: &[(u8, &str)] = &[
    (5, "reallocated"),
    (187, "uncorrectable"),
    (188, "timeouts"),
    (197, "pending"),
    (198, "offline-uncorrectable"),
    (9, "hours"),
];
/// Those that are zero on a good disk. Timeouts are a cable's, too: only their rise counts.
const ZERO: &[&str] = &[
    "reallocated",
    "uncorrectable",
    "pending",
    "offline-uncorrectable",
    "media-errors",
];
const RISING: &[&str] = &["timeouts"];

/// How the medium may be asked; `None` where nobody knows that it is safe.
pub fn way(source: &Source) -> Option<Way> {
    let text = |name: &str| source.tree.text(source.disk.join("device").join(name));
    match source.medium.transport {
        Transport::Nvme => Some(Way::Nvme),
        Transport::Usb => link::passes_ata(source.tree, &source.disk).then_some(Way::Sat),
        // libata's own translation.
        Transport::Scsi if text("vendor")?.trim() == "ATA" => Some(Way::Sat),
        _ => None,
    }
}

/// Asks the disk.
/// # Errors
/// Those of the ioctl, and a sentence where the answer makes no sense or the disk sleeps.
pub fn read(disk: &File, way: Way) -> io::Result<Values> {
    match way {
        Way::Nvme => {
            let mut log = [0; 512];
            sys::nvme_health_log(disk, &mut log)?;
            nvme(&log).ok_or_else(|| io::Error::other("the NVMe health log is empty"))
        }
        Way::Sat => {
            if !awake(disk)? {
                return Err(io::Error::other("the disk sleeps"));
            }
            let mut data = [0; 512];
            sys::scsi_command(disk, &SMART_READ_DATA, &mut data)?;
            ata(&data).ok_or_else(|| io::Error::other("no SMART data in the answer"))
        }
    }
}

/// ATA PASS-THROUGH(16), SAT-2 12.2.3: SMART READ DATA, ATA/ATAPI-8 7.52.6.
const SMART_READ_DATA: [u8; 16] = [
    0x85, 0x08, 0x0e, 0, 0xd0, 0, 1, 0, 0, 0, 0x4f, 0, 0xc2, 0, 0xb0, 0,
];
/// CHECK POWER MODE, with the registers asked for.
const CHECK_POWER_MODE: [u8; 16] = [0x85, 0x06, 0x2c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe5, 0];

/// Whether the disk says that it is awake; one that cannot say so is let alone.
fn awake(disk: &File) -> io::Result<bool> {
    let sense = sys::scsi_command(disk, &CHECK_POWER_MODE, &mut [])?;
    Ok(power_mode(&sense).is_some_and(|mode| mode >= 0x80))
}

/// The count register: 0 and 1 standby, 0x80 to 0x83 idle, 0xff active or idle (ATA8-ACS 7.8).
/// In descriptor sense (SAT-2, ATA Return descriptor 09h) or fixed sense with 00/1d.
fn power_mode(sense: &[u8]) -> Option<u8> {
    match sense.first()? & 0x7f {
        0x72 => match *sense.get(8..14)? {
            [0x09, 0x0c, _, _, _, count] => Some(count),
            _ => None,
        },
        0x70 if sense.get(12..14)? == [0, 0x1d] => sense.get(6).copied(),
        _ => None,
    }
}

/// 512 bytes: 30 attributes of 12 bytes from byte 2 on, a sum of zero. A bridge that lies gives zeros.
pub fn ata(data: &[u8; 512]) -> Option<Values> {
    let sum = data.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if sum != 0 || data[2] == 0 {
        return None;
    }
    let mut values = Values::new();
    for attribute in data[2..362].chunks_exact(12) {
        if let Some((id, name)) = ATTRIBUTES.iter().find(|(id, _)| *id == attribute[0]) {
            let raw = |bytes: &[u8]| {
                bytes
                    .iter()
                    .rev()
                    .fold(0, |value, byte| value << 8 | u64::from(*byte))
            };
            // Some makers pack three counters of 16 bits into the raw value of 188, and other
            // things above the lower 32 bits of the rest.
            let length = if *id == 188 { 2 } else { 4 };
            values.insert(name.to_string(), raw(&attribute[5..5 + length]));
        }
    }
    (!values.is_empty()).then_some(values)
}

/// NVM Express base specification, SMART / Health Information (02h).
pub fn nvme(log: &[u8; 512]) -> Option<Values> {
    let number = |at: usize| {
        let bytes = log.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let values = [
        ("critical", u64::from(log[0])),
        ("spare-percent", u64::from(log[3])),
        ("used-percent", u64::from(log[5])),
        // Units of 512000 bytes.
        ("written-gb", number(48)?.saturating_mul(512) / 1_000_000),
        ("hours", number(128)?),
        ("unsafe-shutdowns", number(144)?),
        ("media-errors", number(160)?),
    ];
    let empty = log.iter().all(|&byte| byte == 0);
    (!empty).then(|| values.map(|(name, value)| (name.to_string(), value)).into())
}

impl Smart {
    fn get(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    fn rise(&self, name: &str) -> u64 {
        self.before
            .get(name)
            .map_or(0, |before| self.get(name).saturating_sub(*before))
    }

    /// Findings: errors it counted, wear, and what it calls critical itself.
    pub fn judge(&self, findings: &mut Vec<Finding>) {
        let counted = |name: &&&str| self.get(name) > 0;
        let rising = |name: &&&str| self.rise(name) > 0;
        let said = |name: &&str| match self.rise(name) {
            0 => format!("{} {name}", self.get(name)),
            rise => format!(
                "{} {name} ({rise} more than at the last run)",
                self.get(name)
            ),
        };
        let parts: Vec<String> = ZERO
            .iter()
            .filter(counted)
            .chain(RISING.iter().filter(rising))
            .map(said)
            .collect();
        if !parts.is_empty() {
            let sentence = format!("the disk counts {}", parts.join(", "));
            findings.push(Finding::new("smart-errors", Verdict::Warn, sentence));
        }
        // Bit 2: its reliability is degraded; 3: it became read-only. 0: the spare blocks run out.
        let critical = self.get("critical");
        let severity = if critical & 0b1100 != 0 {
            Verdict::Fail
        } else {
            Verdict::Warn
        };
        if critical & 0b1101 != 0 {
            let sentence =
                format!("the disk itself gives a critical warning, bits 0x{critical:02x}");
            findings.push(Finding::new("smart-critical", severity, sentence));
        }
        let used = self.get("used-percent");
        if used >= 90 {
            let sentence = format!("{used} % of its life is used, by its own count");
            findings.push(Finding::new("worn", Verdict::Warn, sentence));
        }
    }

    /// All values in one line.
    pub fn words(&self) -> String {
        let parts = self
            .values
            .iter()
            .map(|(name, value)| format!("{value} {name}"));
        parts.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table as smartmontools' documentation shows it for a Seagate disk: 5 is 8, 187 is 2,
    /// 188 is packed (1, 1, 4), 197 is 0, 9 has minutes in its upper bytes.
    fn table() -> [u8; 512] {
        let mut data = [0; 512];
        let attributes: [(u8, [u8; 6]); 5] = [
            (5, [8, 0, 0, 0, 0, 0]),
            (9, [0x10, 0x27, 0, 0, 0x55, 1]),
            (187, [2, 0, 0, 0, 0, 0]),
            (188, [4, 0, 1, 0, 1, 0]),
            (197, [0; 6]),
        ];
        for (at, (id, raw)) in attributes.iter().enumerate() {
            data[2 + 12 * at] = *id;
            data[7 + 12 * at..13 + 12 * at].copy_from_slice(raw);
        }
        let sum = data.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        data[511] = sum.wrapping_neg();
        data
    }

    #[test]
    fn attributes() {
        let values = ata(&table()).unwrap();
        let wanted = [
            ("hours", 10_000),
            ("pending", 0),
            ("reallocated", 8),
            ("timeouts", 4),
            ("uncorrectable", 2),
        ];
        let wanted: Values = wanted.map(|(name, value)| (name.to_string(), value)).into();
        assert_eq!(values, wanted);
        assert_eq!(ata(&[0; 512]), None, "a bridge that lies");
        let mut broken = table();
        broken[3] = 1;
        assert_eq!(ata(&broken), None, "a wrong sum");
    }

    #[test]
    fn only_what_rises_or_should_be_zero_is_found() {
        let mut smart = Smart {
            values: ata(&table()).unwrap(),
            before: Values::new(),
        };
        let found = |smart: &Smart| {
            let mut findings = Vec::new();
            smart.judge(&mut findings);
            findings.into_iter().map(|f| f.sentence).collect::<Vec<_>>()
        };
        assert_eq!(
            found(&smart),
            ["the disk counts 8 reallocated, 2 uncorrectable"]
        );
        smart.before = [("reallocated".to_string(), 5), ("timeouts".to_string(), 1)].into();
        assert_eq!(
            found(&smart),
            [
                "the disk counts 8 reallocated (3 more than at the last run), 2 uncorrectable, 4 timeouts (3 more than at the last run)"
            ]
        );
    }

    /// Offsets of the NVM Express specification, figure "SMART / Health Information log".
    #[test]
    fn nvme_log() {
        let mut log = [0; 512];
        (log[0], log[3], log[4], log[5]) = (0b100, 100, 10, 93);
        log[48..50].copy_from_slice(&2_000_u16.to_le_bytes()); // 1.024 GB
        log[160] = 7;
        let smart = Smart {
            values: nvme(&log).unwrap(),
            before: Values::new(),
        };
        assert_eq!((smart.get("written-gb"), smart.get("media-errors")), (1, 7));
        let mut findings = Vec::new();
        smart.judge(&mut findings);
        let codes: Vec<_> = findings
            .iter()
            .map(|f| (f.code.as_str(), f.severity))
            .collect();
        assert_eq!(
            codes,
            [
                ("smart-errors", Verdict::Warn),
                ("smart-critical", Verdict::Fail),
                ("worn", Verdict::Warn)
            ]
        );
        assert_eq!(nvme(&[0; 512]), None);
    }

    /// SAT-2: what a JMicron and a libata disk answer to CHECK POWER MODE.
    #[test]
    fn sleepers_are_known() {
        let descriptor = |count: u8| {
            let mut sense = vec![0x72, 1, 0, 0x1d, 0, 0, 0, 14];
            sense.extend([0x09, 0x0c, 0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0, 0x50]);
            sense
        };
        assert_eq!(power_mode(&descriptor(0xff)), Some(0xff));
        assert_eq!(power_mode(&descriptor(0)), Some(0));
        let mut fixed = vec![0x70, 0, 1, 0x50, 0, 0, 0xff, 10, 0, 0, 0, 0, 0, 0x1d];
        assert_eq!(power_mode(&fixed), Some(0xff));
        fixed[13] = 0;
        assert_eq!(power_mode(&fixed), None);
        assert_eq!(power_mode(&[]), None);
    }
}
