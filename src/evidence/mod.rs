//! What the system already knows about a medium, read without any I/O on it: its link, its
//! registers, its file systems, the kernel's complaints, the board it hangs on.
//!
//! [`collect`] reads under a root (`/`, or a recorded tree); [`judge`] is pure. What is not
//! offered is `None` or empty, and no error: it is shown as unknown and judged by nobody.

pub mod board;
pub mod boot_before;
pub mod card;
pub mod file_system;
pub mod kernel_log;
pub mod link;
pub mod smart;
pub mod written;

#[cfg(test)]
mod cases_test;

use crate::judge::Finding;
use crate::medium::tree::Tree;
use crate::medium::{Link, Medium};
use crate::probe::Measurement;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where a recorded tree keeps what no file of the machine holds: `statfs`, `throttled`.
pub const RECORDED: &str = "/.storage-selftest";

/// All evidence about one medium.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    pub board: board::Board,
    pub card: Option<card::Card>,
    pub file_systems: Vec<file_system::FileSystem>,
    /// KiB that the kernel reads ahead; 128 as a rule.
    pub read_ahead_kib: Option<u32>,
    /// Bytes a day that the machine writes, since the boot.
    pub written_a_day: Option<f64>,
    pub usb: Option<link::Usb>,
    pub scsi: Option<link::ScsiCounters>,
    pub log: kernel_log::Log,
    /// Where it is kept, and is the medium's for sure: see [`boot_before::BootBefore::tell`].
    pub boot_before: Option<boot_before::BootBefore>,
    /// What the disk counts about itself, where it was asked: see [`smart::way`].
    pub smart: Option<smart::Smart>,
}

/// What the collectors of one medium read from.
pub struct Source<'a> {
    pub tree: &'a Tree,
    pub medium: &'a Medium,
    /// Its own directory in sysfs, `/sys/devices/…/block/sda`.
    pub disk: PathBuf,
}

/// Reads what the machine under `root` knows about `medium` now.
pub fn collect(root: &Path, medium: &Medium) -> Evidence {
    with_source(root, medium, |source| Evidence {
        usb: link::usb(source),
        card: card::card(source),
        file_systems: file_system::file_systems(source),
        boot_before: boot_before::read(source),
        ..counters(source)
    })
}

/// Reads it again after a run. What does not change is taken over from its `start`: a disk that
/// hangs is not asked anew.
pub fn collect_after(root: &Path, medium: &Medium, start: &Evidence) -> Evidence {
    with_source(root, medium, |source| {
        let mut now = Evidence {
            usb: start.usb.clone(),
            card: start.card.clone(),
            file_systems: start.file_systems.clone(),
            boot_before: start.boot_before.clone(),
            ..counters(source)
        };
        if let (Some(scsi), Some(start)) = (&mut now.scsi, &start.scsi) {
            let asked = smart::way(source) == Some(smart::Way::Sat);
            scsi.during = Some(scsi.less(start, asked));
        }
        if let Some(card) = &mut now.card {
            card.count_errors(source);
        }
        if let Some(usb) = &mut now.usb {
            usb.count_over_current(source);
        }
        let lines = |log: &kernel_log::Log| log.count(kernel_log::Kind::UnderVoltage);
        let rose = lines(&now.log) > lines(&start.log);
        now.board.since(&start.board, rose);
        now
    })
}

/// What may change while a run goes on.
fn counters(source: &Source) -> Evidence {
    Evidence {
        board: board::board(source),
        scsi: link::scsi_counters(source),
        log: kernel_log::read(source),
        written_a_day: written::since_boot(source),
        read_ahead_kib: source.tree.number(source.disk.join("queue/read_ahead_kb")),
        ..Evidence::default()
    }
}

/// How the disk may be asked for what it counts about itself.
pub fn way_to_ask(root: &Path, medium: &Medium) -> Option<smart::Way> {
    with_source(root, medium, smart::way)
}

/// Names and first bytes of its partitions, or of the whole disk, that are not in use.
pub fn unmounted(root: &Path, medium: &Medium) -> BTreeMap<String, u64> {
    with_source(root, medium, file_system::unmounted)
}

/// For `list`: the same as [`collect`], and on the machine itself the disk is asked, too.
pub fn collect_and_ask(root: &Path, medium: &Medium) -> Evidence {
    let ask = || {
        let way = way_to_ask(root, medium)?;
        let device = Path::new("/dev").join(medium.device.replace('!', "/"));
        smart::read(&std::fs::File::open(device).ok()?, way).ok()
    };
    let values = if root == Path::new("/") { ask() } else { None };
    Evidence {
        smart: values.map(|values| smart::Smart {
            values,
            ..Default::default()
        }),
        ..collect(root, medium)
    }
}

fn with_source<T>(root: &Path, medium: &Medium, read: impl Fn(&Source) -> T) -> T {
    let tree = Tree::new(root);
    let link = Path::new("/sys/block").join(&medium.device);
    read(&Source {
        tree: &tree,
        medium,
        disk: tree.real(&link).unwrap_or(link),
    })
}

/// Adds what the evidence says to the findings of the measurements.
/// `measured` is what others' I/O did not blur.
pub fn judge(
    evidence: &Evidence,
    link: &Option<Link>,
    measured: &[Measurement],
    findings: &mut Vec<Finding>,
) {
    if let Some(card) = &evidence.card {
        let ceiling = link.as_ref().map(|link| link.ceiling_mb_s);
        card.judge(ceiling, measured, findings);
    }
    if let Some(usb) = &evidence.usb {
        link::judge(usb, &evidence.log, findings);
    }
    if let Some(scsi) = &evidence.scsi {
        findings.extend(scsi.finding());
    }
    for finding in evidence.log.findings() {
        // A counter tells the same as its lines, and more exactly.
        if findings.iter().all(|known| known.code != finding.code) {
            findings.push(finding);
        }
    }
    findings.extend(
        evidence
            .boot_before
            .as_ref()
            .and_then(|boot| boot.finding()),
    );
    evidence.board.judge(&evidence.log, findings);
    if let Some(smart) = &evidence.smart {
        smart.judge(findings);
    }
    for file_system in &evidence.file_systems {
        file_system.judge(&evidence.log, findings);
    }
}

/// `1 error`, `2 errors`.
pub fn counted(count: u64, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}

/// Codes that [`judge`] gives anew in each run, so that none is carried over from an earlier one.
pub const CODES: &[&str] = &[
    "usb2-port",
    "usb2-hub",
    "usb1-link",
    "uas-trouble",
    "usb-errors",
    "over-current",
    "scsi-errors",
    "kernel-io-error",
    "card-errors",
    "nvme-errors",
    "boot-before",
    "file-system-error",
    "smart-errors",
    "smart-critical",
    "identity-suspicious",
    "worn",
    "write-protected",
    "below-class",
    "turned-read-only",
    "not-expanded",
    "under-voltage",
    "throttled",
];

const SLOW: &[&str] = &[
    "sequential-read-slow",
    "durable-write-slow",
    "read-slower-than-write",
    "slower-than-before",
];
const HELD_UP: &[&str] = &["random-read-slow", "random-write-slow", "stall"];

/// Whether `cause` is a reason for `symptom`. A slow link slows what is sequential; bad power, and
/// a driver that must reset its disk, slow everything.
pub fn explains(cause: &str, symptom: &str) -> bool {
    match cause {
        "usb2-port" | "usb2-hub" => SLOW.contains(&symptom),
        "usb1-link" | "under-voltage" | "throttled" | "over-current" | "uas-trouble" => {
            SLOW.contains(&symptom) || HELD_UP.contains(&symptom)
        }
        _ => false,
    }
}

/// From cause to symptom: power, heat, the link, its driver, what the medium says of itself, data,
/// and what is only built on it. What was measured slow comes after all of these.
const CAUSES: &[&str] = &[
    "under-voltage",
    "over-current",
    "throttled",
    "usb1-link",
    "usb2-port",
    "usb2-hub",
    "uas-trouble",
    "usb-errors",
    "smart-critical",
    "worn",
    "smart-errors",
    "write-protected",
    "capacity-wraps",
    "capacity-lost",
    "card-errors",
    "nvme-errors",
    "scsi-errors",
    "kernel-io-error",
    "boot-before",
    "data-forgotten",
    "data-lost",
    "data-overwritten",
    "data-changed",
    "write-error",
    "read-error",
    "file-system-error",
    "turned-read-only",
];

/// Where a kind of finding stands among the causes; what is merely slow comes last.
pub fn rank(code: &str) -> usize {
    let at = CAUSES.iter().position(|cause| *cause == code);
    at.unwrap_or(CAUSES.len())
}

/// Worst first, among equals cause before symptom; a cause also leads a worse symptom that it
/// explains.
pub fn order(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), rank(&finding.code)));
    let Some(first) = findings.first().map(|finding| finding.code.clone()) else {
        return;
    };
    let cause = findings
        .iter()
        .position(|finding| explains(&finding.code, &first));
    if let Some(at) = cause {
        findings[..=at].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Verdict::{self, *};

    fn ordered(codes: &[(&'static str, Verdict)]) -> Vec<String> {
        let mut findings: Vec<Finding> = codes
            .iter()
            .map(|&(code, severity)| Finding::new(code, severity, ""))
            .collect();
        order(&mut findings);
        findings.into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_cause_comes_before_its_symptom() {
        // A disk on a port of USB 2: the port leads, though what it slows fails.
        let port = ("usb2-port", Warn);
        let slow = ordered(&[("durable-write-slow", Fail), ("stall", Fail), port]);
        assert_eq!(slow, ["usb2-port", "durable-write-slow", "stall"]);
        // Bad power explains the resets, and these the errors; none of it explains a fake.
        let power = ordered(&[
            ("sequential-read-slow", Warn),
            ("file-system-error", Warn),
            ("kernel-io-error", Warn),
            ("usb-errors", Warn),
            ("under-voltage", Warn),
            ("capacity-wraps", Fail),
        ]);
        assert_eq!(
            power,
            [
                "capacity-wraps",
                "under-voltage",
                "usb-errors",
                "kernel-io-error",
                "file-system-error",
                "sequential-read-slow"
            ]
        );
        // The link does not explain lost data.
        assert_eq!(ordered(&[port, ("data-lost", Fail)])[0], "data-lost");
        // What has no rank keeps the judge's order.
        assert_eq!(
            ordered(&[("stall", Warn), ("below-class", Warn)]),
            ["stall", "below-class"]
        );
    }

    #[test]
    fn each_cause_is_a_kind_of_finding() {
        for code in CAUSES {
            assert!(crate::judge::kind(code).is_some(), "{code}");
        }
    }
}
