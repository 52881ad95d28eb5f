//! What is known of one identity: its runs, its baseline, and how much we wrote to it.

use crate::config::Profile;
use crate::evidence::{self, written::Counter};
use crate::judge::{Before, Finding, Verdict};
use crate::probe::Probe;
use crate::probe::canary::Canary;
use crate::probe::fill::Fill;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// Runs that are kept of each medium.
pub const RUNS: usize = 32;
/// Findings that are kept of each run, worst first.
pub const FINDINGS: usize = 6;

/// When something was: boards have no clock battery, so the boot counts as much as the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct When {
    /// Wall clock, RFC 3339 in UTC; wrong before the first time synchronisation.
    pub time: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// Seconds since that boot.
    pub uptime: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub profile: String,
    pub verdict: Verdict,
    /// Every probe of the profile had its turn.
    pub complete: bool,
    /// Why it is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<String>,
    /// Seconds that the run took.
    pub seconds: f64,
    /// Bytes that it wrote to the medium.
    pub written: u64,
    pub when: When,
    /// How the medium was reached: figures of another link are not compared with these.
    #[serde(default)]
    pub link: String,
    /// Each probe's figure in its unit, MB/s or IOPS, where the medium was ours alone.
    #[serde(default)]
    pub figures: BTreeMap<Probe, f64>,
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// What was proved of the capacity, and how far.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub capacity: String,
}

/// Every glance finds these anew where they still hold.
const MEASURED_BY_GLANCE: [&str; 2] = ["random-read-slow", "sequential-read-slow"];

impl Run {
    /// Complete, with all probes of a medium: more than a glance.
    pub fn is_full(&self) -> bool {
        self.complete && self.profile != Profile::Glance.name()
    }
}

/// What is known of one identity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    /// The kernel's name when it was last seen.
    pub device: String,
    pub bytes: u64,
    /// Bytes that we have ever written to it.
    pub written: u64,
    /// Set while a run is under way, so that a power cut leaves its mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<String>,
    pub first_seen: When,
    pub last_seen: When,
    /// The link that the baseline was measured on.
    #[serde(default)]
    pub baseline_link: String,
    /// Each probe's figure in the first complete run on that link that has it.
    #[serde(default)]
    pub baseline: BTreeMap<Probe, f64>,
    /// Latencies of the last run: pairs of µs and operations.
    #[serde(default)]
    pub latency: BTreeMap<Probe, Vec<(f64, u32)>>,
    /// What the disk counted about itself in the last run that asked it.
    #[serde(default)]
    pub health: BTreeMap<String, u64>,
    /// What its file systems had been written when the last run began.
    #[serde(default)]
    pub counter: Counter,
    /// The blocks that the last run left, see [`Canary`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// A fill that was stopped and may go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
    /// A run with all probes was complete once; `routine` has not all.
    #[serde(default)]
    pub whole: bool,
    /// The last runs, oldest first.
    #[serde(default, rename = "run")]
    pub runs: heapless::Vec<Run, RUNS>,
}

impl Record {
    /// Adds a run; the oldest one goes where there is no room, but the last complete one stays: later
    /// runs speak of it.
    pub fn add(&mut self, run: Run) {
        if self.runs.is_full() {
            let complete = self.runs.iter().rposition(Run::is_full);
            self.runs.remove(usize::from(complete == Some(0)));
        }
        self.written += run.written;
        self.whole |= run.is_full() && run.profile != Profile::Routine.name();
        if run.is_full() {
            if self.baseline_link != run.link {
                self.baseline.clear();
                self.baseline_link = run.link.clone();
            }
            for (&probe, &figure) in &run.figures {
                self.baseline.entry(probe).or_insert(figure);
            }
        }
        // There is room: one was removed above where it was full.
        let _ = self.runs.push(run);
    }

    /// The last run that said something of writes too.
    pub fn last_full(&self) -> Option<&Run> {
        self.runs.iter().rev().find(|run| run.is_full())
    }

    /// What the judge compares a run on `link` with.
    pub fn before(&self, link: &str) -> Before {
        let figures = |map: &BTreeMap<Probe, f64>| {
            map.iter()
                .map(|(&probe, &figure)| (probe, figure))
                .collect()
        };
        if self.baseline_link != link {
            return Before::default();
        }
        let same = self.runs.iter().filter(|run| run.link == link);
        Before {
            baseline: figures(&self.baseline),
            runs: same.map(|run| figures(&run.figures)).collect(),
        }
    }

    /// What a glance, which reads a little and writes nothing, has no better answer to: the last
    /// complete run's findings, and what failed since, each with its date. Of a kind that is in
    /// `fresh` the new one stands.
    pub fn carried(&self, fresh: &[Finding]) -> Vec<Finding> {
        let Some(at) = self.runs.iter().rposition(Run::is_full) else {
            return vec![Finding::new(
                "not-measured",
                Verdict::Unknown,
                "no complete run of this medium is known",
            )];
        };
        let mut carried: Vec<Finding> = Vec::new();
        for (n, run) in self.runs.iter().enumerate().skip(at) {
            for finding in &run.findings {
                let stands = match n == at {
                    true => !MEASURED_BY_GLANCE.contains(&finding.code.as_str()),
                    false => finding.severity == Verdict::Fail,
                };
                let dated = finding.dated(&run.when.time);
                let newer = fresh.iter().any(|f| f.code == finding.code);
                let anew = evidence::CODES.contains(&finding.code.as_str());
                if stands && !newer && !anew && !carried.contains(&dated) {
                    carried.push(dated);
                }
            }
        }
        carried
    }
}

impl When {
    /// Now, on this machine. What cannot be read stays empty.
    pub fn now() -> Self {
        let since_epoch = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let uptime = uptime
            .split_whitespace()
            .next()
            .and_then(|seconds| seconds.parse().ok());
        Self {
            time: rfc3339(since_epoch.as_secs()),
            boot: boot.trim().to_string(),
            uptime: uptime.unwrap_or(0.0),
        }
    }
}

/// Seconds since 1970 as `2026-12-01T02:31:00Z`; the calendar by Howard Hinnant's days_from_civil.
pub fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86400, seconds % 86400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Three significant digits: more is not in any figure.
pub fn rounded(figure: f64) -> f64 {
    format!("{figure:.2e}").parse().unwrap_or(figure)
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
#[cfg(test)]
pub use tests::run;
