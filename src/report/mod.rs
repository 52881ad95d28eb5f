//! What people and machines read: the journal, the terminal, the table.

pub mod console;
pub mod history;
pub mod journal;
pub mod list;
pub mod metrics;
pub mod motd;
pub mod outlets;
pub mod progress;
pub mod table;

use crate::error::{Error, Result};
use crate::evidence::board::Board;
pub use crate::judge::short;
use crate::judge::{Finding, Verdict, kind};
use crate::medium::{Medium, Role};
use crate::probe::Probe;
use crate::record::{Record, Run};
use crate::state::State;
use crate::supervise::Outcome;
use std::fs;
use std::io::Write;
use std::path::Path;

/// All that is reported of one medium's run.
pub struct Report<'a> {
    pub medium: &'a Medium,
    pub profile: &'static str,
    pub outcome: &'a Outcome,
    pub board: &'a Board,
    pub findings: &'a [Finding],
    pub verdict: Verdict,
    pub seconds: f64,
    /// What the board wrote to it since the last run, and what that means.
    pub written: Option<String>,
    /// A glance reads little and says the last full test's verdict again: journals are volatile on
    /// many boards, and each boot's line should tell the whole.
    pub last_full: Option<&'a Run>,
}

/// The media that are there: seen in this boot, not pulled out since, and with no other one in
/// their place.
fn there<'a>(root: &Path, state: &'a State, boot: &str) -> Vec<(&'a String, &'a Record)> {
    let seen = |record: &Record| record.last_seen.boot == boot;
    let plugged = |record: &Record, identity: &str| {
        identity.starts_with("share:") || root.join("sys/block").join(&record.device).exists()
    };
    let later = |record: &Record| {
        state.media.values().any(|other| {
            let uptime = other.last_seen.uptime;
            other.device == record.device && seen(other) && uptime > record.last_seen.uptime
        })
    };
    let there = |(identity, record): &(&String, &Record)| {
        seen(record) && plugged(record, identity) && !later(record)
    };
    state.media.iter().filter(there).collect()
}

/// Writes a file so that nobody ever reads half of it. Several at once, as udev starts them, have
/// a temporary file each.
/// # Errors
/// With the step that failed; the old file is whole then.
fn replace(path: &Path, temporary: &Path, text: &str) -> Result<()> {
    let mut temporary = temporary.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let temporary = Path::new(&temporary);
    if let Some(directory) = path.parent().filter(|d| d.ends_with("motd.d")) {
        fs::create_dir_all(directory).map_err(|e| Error::new("create", directory, e))?;
    }
    let written = fs::File::create(temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let done = written
        .map_err(|e| Error::new("write", temporary, e))
        .and_then(|()| fs::rename(temporary, path).map_err(|e| Error::new("rename to", path, e)));
    if done.is_err() {
        let _ = fs::remove_file(temporary); // the first error is the one to tell
    }
    done
}

/// 10^9 bytes with one digit, as on the box.
pub fn gigabytes(bytes: u64) -> String {
    match bytes {
        0 => "size unknown".into(),
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

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::record::When;

    /// One card, seen in the boot `this-boot`, whose only run has this verdict.
    pub fn state(verdict: Verdict) -> State {
        let when = When {
            time: "2026-12-01T02:31:00Z".into(),
            boot: "this-boot".into(),
            uptime: 130.0,
        };
        let finding = Finding::new("data-lost", verdict, "12 blocks came back as zeros");
        let run = Run {
            capacity: String::new(),
            profile: "boot".into(),
            verdict,
            complete: true,
            unfinished: None,
            seconds: 12.0,
            written: 20 << 20,
            when: when.clone(),
            link: String::new(),
            figures: [(Probe::SequentialRead, 43.5)].into(),
            findings: if verdict == Verdict::Pass {
                vec![]
            } else {
                vec![finding]
            },
        };
        let mut record = Record {
            name: "SD SC32G".into(),
            device: "mmcblk0".into(),
            last_seen: when,
            ..Record::default()
        };
        record.add(run);
        let mut state = State::default();
        state.media.insert("cid:03".into(), record);
        state
    }
}
