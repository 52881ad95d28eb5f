//! Measurements, evidence and limits become findings. A pure function: no clock, no file, no device.

use crate::config::Limits;
use crate::evidence::{self, Evidence};
use crate::medium::{Link, Role};
use crate::probe::{Fault, FaultKind, Measurement, NotMeasured, Probe, Proved, Reason};
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
    /// The journal's MESSAGE_ID, a random 128-bit number of 32 hexadecimal digits, for ever
    /// (`systemd-id128 new` makes one). The catalog says what to do by it.
    pub id: &'static str,
    pub meaning: &'static str,
    pub to_do: &'static str,
}

macro_rules! kinds {
    ($($code:literal $id:literal, $meaning:literal, $to_do:literal;)+) => {
        &[$(Kind { code: $code, id: $id, meaning: $meaning, to_do: $to_do }),+]
    };
}

pub const KINDS: &[Kind] = kinds![
    "random-read-slow" "cf892fc1f28543d29e76597149525741", "random reads are slower than a system needs", "use a card of class A1 or better, or an SSD";
    "random-write-slow" "20bfac6c07df4c41b55a368e41decbf9", "random writes are slower than a system needs", "use a card of class A1 or better, or an SSD";
    "durable-write-slow" "17709974f7f44aa3af39a10309296ebb", "data takes long to be safe on the medium", "use a faster medium; on USB try another port and cable";
    "sequential-read-slow" "8388998064fd41538660a10a0b3362e2", "an attached disk reads slower than its link allows", "try another port, cable or bridge; look for UAS trouble in the kernel log";
    "stall" "cf358dd6bdb842e1a6d67bc68acb303b", "single operations took very long", "save your data; check power and cable; replace the medium if it happens again";
    "read-slower-than-write" "045dcda03d4f44eaa7c750037a6508d6", "the disk reads much slower than it writes: a fault of the link or bridge, or a cache", "try another port and cable; if the driver is uas, try usb-storage.quirks";
    "slower-than-before" "e2b228838d3541c9b7ea6a692bff1c67", "the median of three runs is far below this medium's first run", "save your data; a medium that slows down is often about to fail";
    "read-error" "f97808c129734fad910bde48e53db5ae", "the medium could not read some of its sectors", "save your data now and replace the medium";
    "write-error" "18413faf028a4f8e8423341c6bbb51cd", "the medium could not write", "save your data now and replace the medium";
    "data-lost" "8f1b221628e64a59bd952692c4f1208f", "what was written was not there when it was read back", "do not trust this medium; replace it";
    "data-changed" "623dc0cf8aa74422923f93e87ab21e30", "what was written came back changed", "check power and cable, then replace the medium";
    "data-overwritten" "73ae040c06944d698488f7572918efd9", "what was written somewhere was overwritten by what was written elsewhere", "do not trust this medium; replace it";
    "data-forgotten" "ce0c9d7f30ba4d0b9d90f2e6d1a5c7b4", "what an earlier run wrote was gone after a power cycle", "save your data now and replace the medium: it takes writes and forgets them";
    "capacity-wraps" "77fecbf9de384f7dabff8ea3aa726c97", "the medium is smaller than it says: data beyond its real size overwrites other data", "do not trust this medium; have your money back";
    "capacity-lost" "849a3bc2538143e9a63f37e2caf597f0", "the medium is smaller than it says, or its end is broken: data beyond is lost", "do not trust this medium; have your money back";
    "busy" "45427df423934951bd1113693058eb6d", "others used the medium or the processor at the same time, so a bad figure proves nothing", "run again when the machine has little to do";
    "usb2-port" "24bbd27b33fbf2a3c0aae081a42fc87a", "a SuperSpeed disk that got a USB 2 link though the board can do more", "use a SuperSpeed (blue) port; plug it in again, firmly; try another cable";
    "usb2-hub" "afe674fdd839e0d1bae053fe2ed29946", "a SuperSpeed disk behind a hub that can do USB 2 only", "plug it into the board itself, or use a USB 3 hub";
    "usb1-link" "e8e3fef5fa02b1b1849c06ed68743433", "a disk on a link of USB 1, twelve Mbit/s at most", "try another port, cable or hub";
    "uas-trouble" "5eca0a65e6d4729fe30ec7b456d58afd", "the driver uas had to abort commands of this disk, or is known for it", "try the kernel parameter usb-storage.quirks=VID:PID:u with the ids in the sentence; check power";
    "usb-errors" "1f1919f2fec7d6505c45e01fc27a7b15", "the USB link of the disk had resets or failures", "check power and cable; try another port; replace the bridge if it goes on";
    "over-current" "89287f6f9bb45d09cf6984adb965bc30", "the USB port of the disk was overloaded", "use a hub or disk with its own power supply";
    "scsi-errors" "237babd99ca7549385723a5db41defd9", "commands to the disk failed or timed out during the run", "check power and cable; save your data if it happens again";
    "kernel-io-error" "547754fdf5459ae51986b8b49da859c5", "the kernel could not read or write the medium since the boot", "save your data now; check power and cable, then replace the medium";
    "card-errors" "dd489de9acbcde4024e0698d42c8b1a8", "the card or eMMC did not answer its host as it should", "clean the contacts, check power; replace the card if it happens again";
    "nvme-errors" "79d4ed29521ec81cc12297022c3b2cdb", "the NVMe disk did not answer in time", "check its seat and power; update its firmware";
    "boot-before" "600a2244ecd547ef89d4e5e46968b5c7", "in the boot before this one the kernel complained about the medium", "save your data; check power and cable; replace the medium if it happens again";
    "file-system-error" "b8060cf7294d97f9d886bbaa435d3ec1", "a file system on the medium was found damaged", "save your data; run fsck; replace the medium if it happens again";
    "under-voltage" "2c116242eb53b2467ac6e1b77e5e36e3", "the board got too little voltage: every figure is in doubt", "use a better power supply and cable, then run again";
    "turned-read-only" "27d325f5234c924af41495dea76f53bf", "a file system turned read-only though /etc/fstab wants it writable", "save your data now; look into the kernel log; a card at its end of life turns read-only";
    "not-expanded" "02d5b7d7e7f3fbe622478d1f75807165", "the system uses a part of its medium only", "expand the root file system: raspi-config, or systemctl start armbian-resize-filesystem";
    "throttled" "26816a80329f6ca83ca519804abbcc81", "the board was too hot, or held its clock down: every figure is in doubt", "cool the board, then run again";
    "identity-suspicious" "a244b497a96ab5013c364ecb113c60ad", "what the card says of itself looks made up; good cards may look so too", "run with --profile full (it may take hours), and do not trust it before that passed";
    "worn" "5236d5a734754ce25d41591adf368689", "the eMMC has used up its life or its reserve, by its own count", "save your data and plan to replace it";
    "write-protected" "adcecedff916e4a8e29e74fe0f4c510d", "the card declares itself write-protected, as some do at the end of their life", "save your data now and replace the card";
    "below-class" "49b7a8fdacb65b9fcb159ea36e6fcf15", "the card does not reach half of what its speed class promises", "have it replaced, or use it for less; a copied label is one reason";
    "smart-errors" "b5f2c7ffd1626e0d71c6f767681bb862", "the disk counts errors that good disks do not have, by SMART", "save your data; replace the disk if the numbers rise";
    "smart-critical" "8d268dcaad188e6066950b542a4e4c04", "the disk itself warns that it is about to fail, by SMART", "save your data now and replace the disk";
    "cached" "f673db27fab5493a8360ec42af15c884", "a figure came from memory, not from the medium", "run again when the machine has little to do; report it if it stays";
    "read-back-incomplete" "b27c6368e8384242b686ad996cbdb7e6", "not all that was written could be read back in time", "run with --profile full --fill 0";
    "not-mounted" "4c731b07cc9547f7bfc53affddb24d76", "no file system of the medium is mounted, so nothing was written", "mount it and run again";
    "read-only" "da3c19d05f034e469221bba98762c82c", "the medium or its file system is read-only, so nothing was written", "find out why: a card at its end of life turns read-only";
    "no-space" "da8fca0573c44a119bc27ff9c16891ba", "too little free space to write without touching the reserve", "make space and run again";
    "not-permitted" "6cedd3ee320746c8833cbff2b28e1e56", "the test was not allowed to do its work", "run as root";
    "device-gone" "1b8bb2576feb4026a03063411525632c", "the medium vanished during the test", "check power and cable";
    "no-answer" "8c952bce15014de39636e3fb22a9ad30", "the medium gave no answer before the deadline", "save your data; check power and cable; replace the medium if it happens again";
    "interrupted" "de2fcea05e6c45a6af143274fb0575d8", "the run was stopped before it was complete", "run again";
    "not-measured" "a23d01b902634a609695b30bef96d75f", "something that must be measured was not", "read the sentence; run again";
    "postponed" "912fb6be8861441aaf17e24e310afff4", "the first boot's own work or another run goes on, or a reboot is pending, so nothing was tested", "wait for it or reboot; the next boot tests";
    "no-medium" "3b8fc8bc51904805be5207e55b3c6a9e", "there is no disk behind what was asked for", "name a disk, or a path on one";
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

    /// The same with the time of the run that made it, where it has none yet.
    pub fn dated(&self, time: &str) -> Self {
        let sentence = match self.sentence.starts_with("on ") {
            true => self.sentence.clone(),
            false => format!("on {time}: {}", self.sentence),
        };
        Self {
            sentence,
            ..self.clone()
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
    /// What probes without a figure proved.
    pub proved: Vec<Proved>,
}

impl Results {
    /// What a probe without a figure proved; empty where it proved nothing.
    pub fn proved_of(&self, probe: Probe) -> String {
        let proved = self.proved.iter().find(|proved| proved.probe == probe);
        proved.map_or(String::new(), |proved| proved.sentence.clone())
    }

    /// The figure of a probe in its unit, where it was measured.
    pub fn figure(&self, probe: Probe) -> Option<f64> {
        self.measured
            .iter()
            .find(|m| m.probe == probe)
            .map(Measurement::figure)
    }
}

/// Judges one run of one medium; findings come worst first, a cause before what it explains.
pub fn judge(
    subject: &Subject,
    results: &Results,
    evidence: &Evidence,
    limits: &Limits,
    before: &Before,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(results.faults.iter().map(fault));
    missing(results, &mut findings);
    findings.extend(read_back_incomplete(results));
    let trusted = ceiling(subject, results, &mut findings);
    slow(subject, &trusted, limits, &mut findings);
    stalls(&trusted, limits, &mut findings);
    relations(&trusted, limits, &mut findings);
    slower_than_before(&trusted, limits, before, &mut findings);
    let calm: Vec<Measurement> = trusted.into_iter().filter(|m| !is_busy(m)).collect();
    evidence::judge(evidence, &subject.link, &calm, &mut findings);
    evidence::order(&mut findings);
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
        FaultKind::DataOverwritten => "data-overwritten",
        FaultKind::CapacityWraps => "capacity-wraps",
        FaultKind::CapacityLost => "capacity-lost",
        FaultKind::DataForgotten => "data-forgotten",
    };
    let at = fault
        .sector
        .map(|sector| format!(" at sector {sector}"))
        .unwrap_or_default();
    let data = matches!(
        fault.kind,
        FaultKind::DataLost
            | FaultKind::DataChanged
            | FaultKind::DataOverwritten
            | FaultKind::DataForgotten
    );
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
        let proved = results.proved.iter().any(|p| p.probe == probe);
        // These tell more of a good disk; no limit rests on them alone.
        let extra = matches!(probe, Probe::RandomReadQueued | Probe::RandomWriteSpan);
        if measured
            || proved
            || extra
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
}

fn read_back_incomplete(results: &Results) -> Option<Finding> {
    let written = measurement(&results.measured, Probe::DurableWrite)?.bytes;
    let back = measurement(&results.measured, Probe::ReadBack)?.bytes;
    (back < 2 * written).then(|| {
        let sentence = format!(
            "{} of {} MiB were read back twice in time",
            back >> 21,
            written >> 20
        );
        Finding::new("read-back-incomplete", Verdict::Unknown, sentence)
    })
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

/// The figures that the link can carry, and those above it.
fn within_ceiling(link: &Option<Link>, results: &Results) -> (Vec<Measurement>, Vec<Measurement>) {
    let ceiling = link.as_ref().map_or(f64::INFINITY, |l| l.ceiling_mb_s);
    let made = |m: &&Measurement| m.operations > 0 && m.seconds > 0.0;
    let measured = results.measured.iter().filter(made).cloned();
    measured.partition(|m| m.mb_s() <= ceiling)
}

/// A figure above what the link can carry came from a cache: it is named and not judged further.
fn ceiling(subject: &Subject, results: &Results, findings: &mut Vec<Finding>) -> Vec<Measurement> {
    let (trusted, above) = within_ceiling(&subject.link, results);
    for (measured, link) in above.iter().zip(subject.link.iter().cycle()) {
        let sentence = format!(
            "{}: {:.1} MB/s is more than {} can carry ({:.1} MB/s)",
            measured.probe.words(),
            measured.mb_s(),
            link.description,
            link.ceiling_mb_s
        );
        findings.push(Finding::new("cached", Verdict::Unknown, sentence));
    }
    trusted
}

fn measurement(measured: &[Measurement], probe: Probe) -> Option<&Measurement> {
    measured.iter().find(|m| m.probe == probe)
}

/// What others did meanwhile counts in a medium's favour: what the figure would be, had all bytes
/// been ours, and had we never waited for a processor.
fn at_best(measured: &Measurement) -> f64 {
    let share = measured.foreign_bytes as f64 / measured.bytes.max(1) as f64;
    let own = (measured.seconds - measured.waited).max(0.05 * measured.seconds);
    measured.figure() * (1.0 + share) * measured.seconds / own
}

/// Others moved a quarter of our own bytes or more, or had the processor for a fifth of the time:
/// the figure is not the medium's alone.
fn is_busy(measured: &Measurement) -> bool {
    let moved = measured.foreign_bytes >= measured.bytes / 4 && measured.foreign_bytes > 0;
    moved || starved(measured)
}

fn starved(measured: &Measurement) -> bool {
    measured.waited >= measured.seconds / 5.0 && measured.waited > 0.0
}

/// What made a figure that proves nothing.
fn others(measured: &Measurement) -> String {
    match starved(measured) {
        true => format!(
            ", but {:.0} % of the time went by waiting for a processor",
            100.0 * measured.waited / measured.seconds
        ),
        false => format!(
            ", while others moved {:.1} MiB",
            measured.foreign_bytes as f64 / f64::from(1 << 20)
        ),
    }
}

/// The figures that later runs may be compared with: of the medium, and of it alone.
pub fn comparable(link: &Option<Link>, results: &Results) -> Vec<(Probe, f64)> {
    let (trusted, _) = within_ceiling(link, results);
    let calm = trusted.iter().filter(|m| !is_busy(m));
    calm.map(|m| (m.probe, m.figure())).collect()
}

/// Under `fail` fails, under `warn` is a warning; busy where others may be the cause.
fn below(
    code: &'static str,
    measured: Option<&Measurement>,
    warn: f64,
    fail: f64,
    findings: &mut Vec<Finding>,
) {
    let Some(measured) = measured else { return };
    let (figure, best) = (measured.figure(), at_best(measured));
    let (words, unit) = (measured.probe.words(), measured.probe.unit());
    let said = format!("{words} {} {unit}", short(figure));
    let (code, severity, limit) = match (best < fail, best < warn, figure < warn) {
        (true, _, _) => (code, Verdict::Fail, fail),
        (_, true, _) => (code, Verdict::Warn, warn),
        (_, _, true) => ("busy", Verdict::Unknown, warn),
        _ => return,
    };
    let others = match code {
        "busy" => others(measured),
        _ => String::new(),
    };
    let sentence = format!("{said}, at least {limit} wanted{others}");
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
    let find = |probe| measurement(measured, probe);
    if !subject.rotational || subject.role == Role::Root {
        let (warn, fail) = (limits.random_read_warn, limits.random_read_fail);
        let read = find(Probe::RandomRead);
        below("random-read-slow", read, warn, fail, findings);
        random_write_slow(measured, limits, findings);
    }
    let (warn, fail) = (limits.durable_write_warn, limits.durable_write_fail);
    let write = find(Probe::DurableWrite);
    below("durable-write-slow", write, warn, fail, findings);
    let usb = subject.link.as_ref().map_or(0.0, |link| link.usb_mbit_s);
    if subject.role != Role::Root && usb >= 480.0 {
        let warn = match usb > 480.0 {
            true => limits.superspeed_warn,
            false => limits.usb2_warn,
        };
        let read = find(Probe::SequentialRead);
        below("sequential-read-slow", read, warn, 0.0, findings);
    }
}

/// With a volatile cache a flush for each write measures the flush: the floor is for the figure
/// without, the failing limit for the durable one.
fn random_write_slow(measured: &[Measurement], limits: &Limits, findings: &mut Vec<Finding>) {
    let (warn, fail) = (limits.random_write_warn, limits.random_write_fail);
    let durable = measurement(measured, Probe::RandomWriteDurable);
    let plain = measurement(measured, Probe::RandomWrite);
    // The small file flatters cards that keep few allocation units open: the lower figure counts.
    let span = measurement(measured, Probe::RandomWriteSpan);
    let lower = |small: Option<&Measurement>| match (small, span) {
        (Some(small), Some(span)) => span.figure() < small.figure(),
        _ => false,
    };
    match plain {
        Some(_) if durable.is_none_or(|m| at_best(m) >= fail) => {
            let judged = if lower(plain) { span } else { plain };
            below("random-write-slow", judged, warn, 0.0, findings);
        }
        _ => {
            let judged = if lower(durable) { span } else { durable };
            below("random-write-slow", judged, warn, fail, findings);
        }
    }
}

/// An operation of 1 MiB may take long on a slow medium: a stall is long against its like too.
const OVER_MEDIAN: f64 = 2.0;

fn stalls(measured: &[Measurement], limits: &Limits, findings: &mut Vec<Finding>) {
    // With many in flight an operation's latency is our own queue's.
    let stalled = measured.iter().filter(|m| {
        let unlike = !m.probe.sequential() || m.max_us >= OVER_MEDIAN * m.median_us;
        m.depth == 1 && m.max_us / 1e3 >= limits.stall_ms && unlike
    });
    let (excused, real): (Vec<&Measurement>, Vec<_>) =
        stalled.partition(|m| others_explain(m, limits));
    let judged = if real.is_empty() { excused } else { real };
    let longest = judged.iter().max_by(|a, b| a.max_us.total_cmp(&b.max_us));
    let Some(longest) = longest else { return };
    let count: u32 = judged.iter().map(|m| m.stalls).sum();
    let long: u32 = judged.iter().map(|m| m.long_stalls).sum();
    let (code, severity) = match (others_explain(longest, limits), long) {
        (true, _) => ("busy", Verdict::Unknown),
        (false, 2..) => ("stall", Verdict::Fail),
        (false, _) => ("stall", Verdict::Warn),
    };
    let sentence = format!(
        "{}: one operation took {} ms; {count} of 250 ms or more, {long} of 1 s or more{}",
        longest.probe.words(),
        short(longest.max_us / 1e3),
        if code == "busy" {
            ", while others used the medium or the processor"
        } else {
            ""
        }
    );
    findings.push(Finding::new(code, severity, sentence));
}

/// Whether all stalls of a measurement together, at their shortest, may be others' doing: the time
/// that we waited for a processor, and the time in which a medium just good enough moves the
/// others' bytes.
fn others_explain(measured: &Measurement, limits: &Limits) -> bool {
    let long = f64::from(measured.long_stalls);
    let short = f64::from(measured.stalls) - long;
    let shortest = long + short * 0.25; // the bounds of Histogram
    let stalled = shortest.max(measured.max_us / 1e6);
    let moved = measured.foreign_bytes as f64 / 1e6 / limits.durable_write_fail.max(1.0);
    moved + measured.waited >= stalled
}

fn relations(measured: &[Measurement], limits: &Limits, findings: &mut Vec<Finding>) {
    let read = measurement(measured, Probe::SequentialRead);
    let write = measurement(measured, Probe::DurableWrite);
    if let (Some(read), Some(write)) = (read, write)
        && write.figure() > limits.write_over_read * at_best(read)
    {
        let (read, write) = (short(read.figure()), short(write.figure()));
        let sentence = format!("reads {read} MB/s but writes {write} MB/s");
        findings.push(Finding::new(
            "read-slower-than-write",
            Verdict::Warn,
            sentence,
        ));
    }
}

/// One finding for all figures that fell, since their cause is one; the deepest fall is told.
fn slower_than_before(
    measured: &[Measurement],
    limits: &Limits,
    before: &Before,
    findings: &mut Vec<Finding>,
) {
    let mut fallen: Vec<(f64, String)> = Vec::new();
    for &(probe, first) in &before.baseline {
        let now = measurement(measured, probe).filter(|m| !is_busy(m));
        let Some(median) = now.and_then(|now| median_of_three(before, now)) else {
            continue;
        };
        if median < limits.slower_than_before * first {
            let (words, unit) = (probe.words(), probe.unit());
            let said = format!(
                "{words} {} {unit} (median of three), at first {}",
                short(median),
                short(first)
            );
            fallen.push((median / first, said));
        }
    }
    fallen.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((_, said)) = fallen.first() {
        let more = match fallen.len() {
            1 => String::new(),
            n => format!(", and {} more fell", n - 1),
        };
        let sentence = format!("{said}{more}");
        findings.push(Finding::new("slower-than-before", Verdict::Warn, sentence));
    }
}

/// Of this figure and the two before it; none where there are fewer.
fn median_of_three(before: &Before, now: &Measurement) -> Option<f64> {
    let earlier = before.runs.iter().rev();
    let earlier = earlier.filter_map(|run| run.iter().find(|f| f.0 == now.probe));
    let mut last: Vec<f64> = earlier.map(|f| f.1).take(2).collect();
    last.push(now.figure());
    last.sort_by(f64::total_cmp);
    (last.len() == 3).then(|| last[1])
}

#[cfg(test)]
#[path = "judge_test.rs"]
pub(crate) mod tests;
