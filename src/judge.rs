//! Measurements and limits become findings. A pure function: no clock, no file, no device.

use crate::config::Limits;
use crate::medium::{Link, Role};
use crate::probe::{Fault, FaultKind, Measurement, NotMeasured, Probe, Reason};
use serde::{Deserialize, Serialize};

/// In rising order: the verdict of a medium is its worst finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Pass,
    Warn,
    /// Something that must be measured was not.
    Unknown,
    Fail,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Warn => "warn",
            Verdict::Unknown => "unknown",
            Verdict::Fail => "fail",
        }
    }

    /// The documented exit status.
    pub fn exit_status(self) -> u8 {
        match self {
            Verdict::Pass => 0,
            Verdict::Warn => 1,
            Verdict::Fail => 2,
            Verdict::Unknown => 3,
        }
    }
}

/// A kind of finding: the README's table and `show` come from [`KINDS`].
pub struct Kind {
    pub code: &'static str,
    pub meaning: &'static str,
    pub to_do: &'static str,
}

macro_rules! kinds {
    ($($code:literal, $meaning:literal, $to_do:literal;)+) => {
        &[$(Kind { code: $code, meaning: $meaning, to_do: $to_do }),+]
    };
}

pub const KINDS: &[Kind] = kinds![
    "random-read-slow", "random reads are slower than a system needs", "use a card of class A1 or better, or an SSD";
    "random-write-slow", "random writes are slower than a system needs", "use a card of class A1 or better, or an SSD";
    "durable-write-slow", "data takes long to be safe on the medium", "use a faster medium; on USB try another port and cable";
    "sequential-read-slow", "an attached disk reads slower than its link allows", "try another port, cable or bridge; look for UAS trouble in the kernel log";
    "stall", "single operations took very long", "save your data; check power and cable; replace the medium if it happens again";
    "read-slower-than-write", "the disk reads much slower than it writes: a fault of the link or bridge, or a cache", "try another port and cable; if the driver is uas, try usb-storage.quirks";
    "slower-than-before", "the median of three runs is far below this medium's first run", "save your data; a medium that slows down is often about to fail";
    "read-error", "the medium could not read some of its sectors", "save your data now and replace the medium";
    "write-error", "the medium could not write", "save your data now and replace the medium";
    "data-lost", "what was written was not there when it was read back", "do not trust this medium; replace it";
    "data-changed", "what was written came back changed", "check power and cable, then replace the medium";
    "cached", "a figure came from memory, not from the medium", "run again when the machine has little to do; report it if it stays";
    "read-back-incomplete", "not all that was written could be read back in time", "run with --profile full";
    "not-mounted", "no file system of the medium is mounted, so nothing was written", "mount it and run again";
    "read-only", "the medium or its file system is read-only, so nothing was written", "find out why: a card at its end of life turns read-only";
    "no-space", "too little free space to write without touching the reserve", "make space and run again";
    "not-permitted", "the test was not allowed to do its work", "run as root";
    "device-gone", "the medium vanished during the test", "check power and cable";
    "no-answer", "the medium gave no answer before the deadline", "save your data; check power and cable; replace the medium if it happens again";
    "interrupted", "the run was stopped before it was complete", "run again";
    "not-measured", "something that must be measured was not", "read the sentence; run again";
    "no-medium", "there is no disk behind what was asked for", "name a disk, or a path on one";
];

/// The kind with this code; codes come from [`KINDS`] alone.
pub fn kind(code: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.code == code)
}

/// One judged statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub code: String,
    pub severity: Verdict,
    pub sentence: String,
}

impl Finding {
    pub fn new(code: &'static str, severity: Verdict, sentence: impl Into<String>) -> Self {
        let (code, sentence) = (code.into(), sentence.into());
        Self {
            code,
            severity,
            sentence,
        }
    }
}

/// What a judgement needs to know of a medium.
#[derive(Clone, Debug)]
pub struct Subject {
    pub role: Role,
    pub rotational: bool,
    pub link: Option<Link>,
}

/// What earlier runs of the same identity measured.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// Figures of the first complete run.
    pub baseline: Vec<(Probe, f64)>,
    /// Figures of the runs before this one, the latest last.
    pub runs: Vec<Vec<(Probe, f64)>>,
}

/// All that one run found out.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// What this run had to measure.
    pub wanted: Vec<Probe>,
    pub measured: Vec<Measurement>,
    pub not_measured: Vec<NotMeasured>,
    pub faults: Vec<Fault>,
}

impl Results {
    /// The figure of a probe in its unit, where it was measured.
    pub fn figure(&self, probe: Probe) -> Option<f64> {
        self.measured
            .iter()
            .find(|m| m.probe == probe)
            .map(Measurement::figure)
    }
}

/// Judges one run of one medium; findings come worst first.
pub fn judge(
    subject: &Subject,
    results: &Results,
    limits: &Limits,
    before: &Before,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(results.faults.iter().map(fault));
    missing(results, &mut findings);
    let trusted = ceiling(subject, results, &mut findings);
    slow(subject, &trusted, limits, &mut findings);
    stalls(&trusted, limits, &mut findings);
    relations(&trusted, limits, before, &mut findings);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// The worst of the findings; pass where there are none.
pub fn verdict(findings: &[Finding]) -> Verdict {
    findings
        .iter()
        .map(|f| f.severity)
        .max()
        .unwrap_or(Verdict::Pass)
}

fn fault(fault: &Fault) -> Finding {
    let code = match fault.kind {
        FaultKind::ReadError => "read-error",
        FaultKind::WriteError => "write-error",
        FaultKind::DataLost => "data-lost",
        FaultKind::DataChanged => "data-changed",
    };
    let at = fault
        .sector
        .map(|sector| format!(" at sector {sector}"))
        .unwrap_or_default();
    let data = matches!(fault.kind, FaultKind::DataLost | FaultKind::DataChanged);
    // Only what a second try confirmed condemns a medium; data that is there in one reading and
    // not in the next is bad all the same, and a failed write was an application's data.
    let severity = match fault.confirmed || data || fault.kind == FaultKind::WriteError {
        true => Verdict::Fail,
        false => Verdict::Warn,
    };
    let blocks = if data {
        format!("{} blocks: ", fault.count)
    } else {
        String::new()
    };
    let again = if fault.confirmed || data {
        ""
    } else {
        "; a second try worked"
    };
    let again = if fault.kind == FaultKind::WriteError {
        ""
    } else {
        again
    };
    Finding::new(
        code,
        severity,
        format!(
            "{}{at}: {blocks}{}{again}",
            fault.probe.words(),
            fault.detail
        ),
    )
}

/// Fails closed: whatever was wanted and has neither figure nor fault is a finding.
fn missing(results: &Results, findings: &mut Vec<Finding>) {
    // Backwards, so that the probes that share a reason are named in their order.
    for &probe in results.wanted.iter().rev() {
        let measured = results
            .measured
            .iter()
            .any(|m| m.probe == probe && m.operations > 0 && m.seconds > 0.0);
        // The queued read tells more of a good disk; no limit rests on it.
        if measured
            || probe == Probe::RandomReadQueued
            || results
                .faults
                .iter()
                .any(|f| f.probe == probe && fault(f).severity == Verdict::Fail)
        {
            continue;
        }
        let reason = results.not_measured.iter().find(|n| n.probe == probe);
        let (code, detail) = match reason {
            Some(not) => (reason_code(not.reason), not.detail.as_str()),
            None => ("not-measured", "no result"),
        };
        let same = findings
            .iter_mut()
            .find(|f| f.code == code && f.sentence.ends_with(detail));
        match same {
            Some(finding) => finding.sentence = format!("{}, {}", probe.words(), finding.sentence),
            None => findings.push(Finding::new(
                code,
                Verdict::Unknown,
                format!("{}: {detail}", probe.words()),
            )),
        }
    }
    let written = results
        .measured
        .iter()
        .find(|m| m.probe == Probe::DurableWrite);
    let back = results.measured.iter().find(|m| m.probe == Probe::ReadBack);
    if let (Some(written), Some(back)) = (written, back)
        && back.bytes < 2 * written.bytes
    {
        let sentence = format!(
            "{} of {} MiB were read back twice in time",
            back.bytes >> 21,
            written.bytes >> 20
        );
        findings.push(Finding::new(
            "read-back-incomplete",
            Verdict::Unknown,
            sentence,
        ));
    }
}

fn reason_code(reason: Reason) -> &'static str {
    match reason {
        Reason::Cached => "cached",
        Reason::NoSpace => "no-space",
        Reason::ReadOnly => "read-only",
        Reason::NotMounted => "not-mounted",
        Reason::NotPermitted => "not-permitted",
        Reason::DeviceGone => "device-gone",
        Reason::NoAnswer => "no-answer",
        Reason::Interrupted => "interrupted",
        Reason::Time | Reason::Unsupported | Reason::Other => "not-measured",
    }
}

/// A figure above what the link can carry came from a cache: it is named and not judged further.
fn ceiling(subject: &Subject, results: &Results, findings: &mut Vec<Finding>) -> Vec<Measurement> {
    let mut trusted = Vec::new();
    for measured in results
        .measured
        .iter()
        .filter(|m| m.operations > 0 && m.seconds > 0.0)
    {
        let mb_s = measured.bytes as f64 / 1e6 / measured.seconds;
        match &subject.link {
            Some(link) if mb_s > link.ceiling_mb_s => {
                let sentence = format!(
                    "{}: {mb_s:.1} MB/s is more than {} can carry ({:.1} MB/s)",
                    measured.probe.words(),
                    link.description,
                    link.ceiling_mb_s
                );
                findings.push(Finding::new("cached", Verdict::Unknown, sentence));
            }
            _ => trusted.push(measured.clone()),
        }
    }
    trusted
}

fn find(measured: &[Measurement], probe: Probe) -> Option<f64> {
    measured
        .iter()
        .find(|m| m.probe == probe)
        .map(Measurement::figure)
}

/// Under `fail` fails, under `warn` is a warning.
fn below(
    code: &'static str,
    probe: Probe,
    figure: Option<f64>,
    warn: f64,
    fail: f64,
    findings: &mut Vec<Finding>,
) {
    let Some(figure) = figure else { return };
    let (severity, limit) = match figure {
        f if f < fail => (Verdict::Fail, fail),
        f if f < warn => (Verdict::Warn, warn),
        _ => return,
    };
    let (words, unit) = (probe.words(), probe.unit());
    let sentence = format!("{words} {} {unit}, at least {limit} wanted", short(figure));
    findings.push(Finding::new(code, severity, sentence));
}

/// A figure with as many digits as it deserves.
pub fn short(figure: f64) -> String {
    match figure {
        f if f >= 99.95 => format!("{f:.0}"),
        f if f >= 9.995 => format!("{f:.1}"),
        f => format!("{f:.2}"),
    }
}

fn slow(subject: &Subject, measured: &[Measurement], limits: &Limits, findings: &mut Vec<Finding>) {
    if !subject.rotational || subject.role == Role::Root {
        let read = find(measured, Probe::RandomRead);
        let (warn, fail) = (limits.random_read_warn, limits.random_read_fail);
        below(
            "random-read-slow",
            Probe::RandomRead,
            read,
            warn,
            fail,
            findings,
        );
        // With a volatile cache a flush for each write measures the flush: the floor is for the
        // figure without, the failing limit for the durable one.
        let durable = find(measured, Probe::RandomWriteDurable);
        let (warn, fail) = (limits.random_write_warn, limits.random_write_fail);
        let probe = Probe::RandomWriteDurable;
        match find(measured, Probe::RandomWrite) {
            Some(plain) if durable.is_none_or(|d| d >= fail) => {
                below(
                    "random-write-slow",
                    Probe::RandomWrite,
                    Some(plain),
                    warn,
                    0.0,
                    findings,
                );
            }
            _ => below("random-write-slow", probe, durable, warn, fail, findings),
        }
    }
    let write = find(measured, Probe::DurableWrite);
    let (warn, fail) = (limits.durable_write_warn, limits.durable_write_fail);
    below(
        "durable-write-slow",
        Probe::DurableWrite,
        write,
        warn,
        fail,
        findings,
    );
    if let Some(link) = subject
        .link
        .as_ref()
        .filter(|link| subject.role != Role::Root && link.usb_mbit_s >= 480.0)
    {
        let warn = if link.usb_mbit_s > 480.0 {
            limits.superspeed_warn
        } else {
            limits.usb2_warn
        };
        let read = find(measured, Probe::SequentialRead);
        below(
            "sequential-read-slow",
            Probe::SequentialRead,
            read,
            warn,
            0.0,
            findings,
        );
    }
}

fn stalls(measured: &[Measurement], limits: &Limits, findings: &mut Vec<Finding>) {
    // With many in flight an operation's latency is our own queue's.
    let measured: Vec<&Measurement> = measured.iter().filter(|m| m.depth == 1).collect();
    let longest = measured.iter().max_by(|a, b| a.max_us.total_cmp(&b.max_us));
    let Some(longest) = longest.filter(|m| m.max_us / 1e3 >= limits.stall_ms) else {
        return;
    };
    let stalls: u32 = measured.iter().map(|m| m.stalls).sum();
    let long: u32 = measured.iter().map(|m| m.long_stalls).sum();
    let severity = if long >= 2 {
        Verdict::Fail
    } else {
        Verdict::Warn
    };
    let sentence = format!(
        "{}: one operation took {} ms; {stalls} of 250 ms or more, {long} of 1 s or more",
        longest.probe.words(),
        short(longest.max_us / 1e3)
    );
    findings.push(Finding::new("stall", severity, sentence));
}

fn relations(
    measured: &[Measurement],
    limits: &Limits,
    before: &Before,
    findings: &mut Vec<Finding>,
) {
    let (read, write) = (
        find(measured, Probe::SequentialRead),
        find(measured, Probe::DurableWrite),
    );
    if let (Some(read), Some(write)) = (read, write)
        && write > limits.write_over_read * read
    {
        let sentence = format!(
            "reads {} MB/s but writes {} MB/s",
            short(read),
            short(write)
        );
        findings.push(Finding::new(
            "read-slower-than-write",
            Verdict::Warn,
            sentence,
        ));
    }
    for &(probe, first) in &before.baseline {
        let Some(now) = find(measured, probe) else {
            continue;
        };
        let earlier = before
            .runs
            .iter()
            .rev()
            .filter_map(|run| run.iter().find(|f| f.0 == probe));
        let mut last: Vec<f64> = earlier.map(|f| f.1).take(2).collect();
        last.push(now);
        last.sort_by(f64::total_cmp);
        if last.len() == 3 && last[1] < limits.slower_than_before * first {
            let unit = probe.unit();
            let (median, first) = (short(last[1]), short(first));
            let sentence = format!(
                "{} {median} {unit} (median of three), at first {first}",
                probe.words()
            );
            findings.push(Finding::new("slower-than-before", Verdict::Warn, sentence));
        }
    }
}

#[cfg(test)]
#[path = "judge_test.rs"]
mod tests;
