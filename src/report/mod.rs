//! What people and machines read: the journal, the terminal, the table.

pub mod history;
pub mod journal;
pub mod list;
pub mod progress;
pub mod table;

pub use crate::judge::short;
use crate::judge::{Finding, Verdict, kind};
use crate::medium::{Medium, Role};
use crate::probe::Probe;
use crate::record::Run;
use crate::supervise::Outcome;

/// All that is reported of one medium's run.
pub struct Report<'a> {
    pub medium: &'a Medium,
    pub profile: &'static str,
    pub outcome: &'a Outcome,
    pub findings: &'a [Finding],
    pub verdict: Verdict,
    pub seconds: f64,
    /// A glance reads little and says the last full test's verdict again: journals are volatile on
    /// many boards, and each boot's line should tell the whole.
    pub last_full: Option<&'a Run>,
}

/// 10^9 bytes with one digit, as on the box.
pub fn gigabytes(bytes: u64) -> String {
    match bytes {
        b if b >= 1_000_000_000 => format!("{:.1} GB", b as f64 / 1e9),
        b => format!("{:.1} MB", b as f64 / 1e6),
    }
}

pub fn role(role: Role) -> &'static str {
    match role {
        Role::Root => "root medium",
        Role::Attached => "attached",
        Role::Configured => "configured",
    }
}

impl Report<'_> {
    /// Medium, verdict, reason, what to do: the line that is read first.
    pub fn summary(&self) -> String {
        let medium = self.medium;
        let who = format!(
            "{} {} {} ({})",
            medium.device,
            medium.name,
            gigabytes(medium.bytes),
            role(medium.role)
        );
        let verdict = self.verdict.word();
        match self.findings.first() {
            None => format!("{who}: {verdict}: {}{}", self.figures(), self.last_full()),
            Some(finding) => {
                let to_do = kind(&finding.code).map_or("", |kind| kind.to_do);
                let more = match self.findings.len() {
                    1 => String::new(),
                    n => format!(" (and {} more)", n - 1),
                };
                format!(
                    "{who}: {verdict}: {}: {}{more}{}. To do: {to_do}",
                    finding.code,
                    finding.sentence,
                    self.last_full()
                )
            }
        }
    }

    fn last_full(&self) -> String {
        self.last_full.map_or(String::new(), |run| {
            let (verdict, profile) = (run.verdict.word(), &run.profile);
            format!(
                "; last full test: {verdict}, {profile} run of {}",
                run.when.time
            )
        })
    }

    /// How a pass was established: the figures, what was verified and what it cost.
    fn figures(&self) -> String {
        let figure = |probe: Probe| self.outcome.results.figure(probe).map_or("-".into(), short);
        let mut text = format!(
            "reads {} MB/s and {} IOPS",
            figure(Probe::SequentialRead),
            figure(Probe::RandomRead)
        );
        let back = self
            .outcome
            .results
            .measured
            .iter()
            .find(|m| m.probe == Probe::ReadBack);
        if let Some(back) = back {
            text += &format!(
                ", writes {} MB/s and {} IOPS, {} MiB read back right",
                figure(Probe::DurableWrite),
                figure(Probe::RandomWriteDurable),
                back.bytes >> 21 // each byte was read twice
            );
        }
        text + &format!(" ({} run, {:.0} s)", self.profile, self.seconds)
    }
}
