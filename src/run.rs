//! The command `run`: media, one child after the other, judge, state, report.

use crate::config::{Config, Profile};
use crate::error::{Error, Result, printable, printable_path};
use crate::evidence::boot_before::BootBefore;
use crate::evidence::written::{counter, since, words};
use crate::evidence::{self, Evidence, smart::Smart};
use crate::first_boot;
use crate::judge::{self, Finding, Subject, Verdict};
use crate::medium::{self, Found, Medium, Transport};
use crate::probe::Probe;
use crate::probe::budget::Plan;
use crate::probe::capacity::live::CLAIM;
use crate::probe::fill::{self, Fill};
use crate::probe::job::Job;
use crate::probe::place::{self, Place};
use crate::probe::scratch;
use crate::record::{FINDINGS, Record, Run, When, rounded};
use crate::report::{self, Report};
use crate::state::{Directory, State};
use crate::supervise::{self, Outcome};
use crate::{CONFIGURATION, INTERNAL, USAGE, compat, config_path, failed, say};
use argh::FromArgs;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where the state is kept.
pub const STATE: &str = "/var/lib/storage-selftest";

/// Seconds that a sleeping disk may take to its first answer, besides its profile's time: a
/// 3.5" disk spins up in 5 to 12.
const SPIN_UP: f64 = 15.0;

/// Seconds in which the files of a fill are removed at the latest, on a slow vfat too.
const REMOVAL: f64 = 60.0;

/// How long `--wait` waits, for each of the two things that it waits for.
const PATIENCE: Duration = Duration::from_secs(300);

/// test media and say what was found
#[derive(FromArgs)]
#[argh(subcommand, name = "run")]
pub struct Arguments {
    /// boot, glance, routine or full; without it boot for a new medium, else glance
    #[argh(option)]
    profile: Option<String>,
    /// test this device, or the disk of this path, instead of all media; may be given again
    #[argh(option)]
    medium: Vec<String>,
    /// full: fill at most so much of the free space (8GiB), 0 for none; without it all but the reserve
    #[argh(option)]
    fill: Option<String>,
    /// configuration file
    #[argh(option)]
    config: Option<PathBuf>,
    /// directory of the state file
    #[argh(option, default = "STATE.into()")]
    state_dir: PathBuf,
    /// say what would be done and do no I/O
    #[argh(switch)]
    dry_run: bool,
    /// wait for the first boot's own work and for another run; no test while a reboot is pending
    #[argh(switch)]
    wait: bool,
}

/// What the whole command works with.
struct Work<'a> {
    arguments: &'a Arguments,
    config: Config,
    profile: Option<Profile>,
    /// Bytes of free space that a full run by hand fills.
    fill: u64,
    directory: Directory,
    state: State,
    /// Whether the state can be written at all.
    keep: bool,
    interrupted: Arc<AtomicBool>,
    /// Why the board is to be stopped, for its console.
    stop: Option<String>,
}

/// Runs the command; returns the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    let (mut work, found) = match prepare(arguments) {
        Ok(prepared) => prepared,
        Err(status) => return status,
    };
    found.none.iter().for_each(report::journal::no_medium);
    // An empty card reader is no medium, unless somebody asks for it.
    let empty = |m: &&Medium| m.bytes == 0 && m.role == medium::Role::Attached;
    let asked = !arguments.medium.is_empty();
    let media: Vec<&Medium> = found.media.iter().filter(|m| asked || !empty(m)).collect();
    if media.is_empty() {
        log::warn!("no medium was found to test");
        return Verdict::Unknown.exit_status();
    }
    let verdict = match found.none.is_empty() {
        true => Verdict::Pass,
        false => Verdict::Unknown,
    };
    if arguments.dry_run {
        work.state = work.directory.read(false);
        media
            .iter()
            .for_each(|medium| work.say_what_would_be_done(medium));
        return verdict.exit_status();
    }
    match work.test(&media) {
        Ok(worst) => verdict.max(worst).exit_status(),
        Err(error) => failed(&error, INTERNAL),
    }
}

/// Arguments and configuration, checked before anything is touched, and the media.
/// # Errors
/// With the exit status; why was said.
fn prepare(arguments: &Arguments) -> std::result::Result<(Work<'_>, Found), u8> {
    let root = Path::new("/");
    let profile = arguments.profile.as_deref().map(named).transpose()?;
    let fill = to_fill(arguments, profile)?;
    let config = Config::read(&config_path(root, &arguments.config))
        .map_err(|error| failed(&error, CONFIGURATION))?;
    if arguments.wait
        && let Err(reason) = first_boot::wait(root, PATIENCE)
    {
        report::journal::postponed(&reason);
        return Err(Verdict::Unknown.exit_status());
    }
    let found = match arguments.medium.is_empty() {
        true => medium::find(root, &config.media, config.select.usb_disks),
        false => medium::find_only(root, &arguments.medium),
    };
    let work = Work {
        arguments,
        config,
        profile,
        fill,
        directory: Directory::new(&arguments.state_dir),
        state: State::default(),
        keep: false,
        interrupted: Arc::default(),
        stop: None,
    };
    Ok((work, found.map_err(|error| failed(&error, INTERNAL))?))
}

fn named(profile: &str) -> std::result::Result<Profile, u8> {
    Profile::named(profile).ok_or_else(|| {
        let profile = printable(profile);
        log::error!("--profile {profile}: is none of boot, glance, routine, full");
        USAGE
    })
}

/// Only who asks for a full run gets his disk filled: no timer, no first test.
fn to_fill(arguments: &Arguments, profile: Option<Profile>) -> std::result::Result<u64, u8> {
    let by_hand = profile == Some(Profile::Full) && !arguments.wait;
    let all = u64::MAX >> 1; // TOML's integers are signed
    let limit = arguments.fill.as_deref().map(compat::bytes);
    match limit {
        Some(None) => Err("wants a size as 512MiB or 8GiB"),
        Some(_) if !by_hand => Err("goes with --profile full, and not with --wait"),
        None if !by_hand => Ok(0),
        limit => Ok(limit.flatten().unwrap_or(all).min(all)),
    }
    .map_err(|wrong| {
        log::error!("--fill: {wrong}");
        USAGE
    })
}

/// What the disk counts about itself; as it was known last where this run might not ask it, as
/// under systemd.
fn health(outcome: &Outcome, record: Option<&Record>) -> Option<Smart> {
    let before = record.map(|record| record.health.clone());
    let before = before.unwrap_or_default();
    let values = outcome.health.clone().unwrap_or_else(|| before.clone());
    (!values.is_empty()).then_some(Smart { values, before })
}

impl Work<'_> {
    fn test(mut self, media: &[&Medium]) -> Result<Verdict> {
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::flag::register(signal, self.interrupted.clone())
                .map_err(|e| Error::new("catch signals for", "/proc/self", e))?;
        }
        let patience = if self.arguments.wait {
            PATIENCE
        } else {
            Duration::ZERO
        };
        let lock = match self.directory.lock(patience, &self.interrupted) {
            Ok(lock) => Some(lock),
            // A root that turned read-only is what we are here to tell: go on without a state.
            Err(error) if error.cause.raw_os_error().is_some() => {
                log::error!("{error}; the result will not be kept");
                None
            }
            // For a unit that is no failure: a fill by hand takes hours.
            Err(error) if self.arguments.wait => {
                report::journal::postponed(&error.to_string());
                return Ok(Verdict::Unknown);
            }
            Err(error) => return Err(error),
        };
        self.keep = lock.is_some();
        self.state = self.directory.read(self.keep);
        let mut verdict = Verdict::Pass;
        let mut table = String::new();
        for medium in media {
            if self.interrupted.load(Ordering::Relaxed) {
                verdict = verdict.max(Verdict::Unknown);
                break;
            }
            let (worst, block) = self.medium(medium)?;
            verdict = verdict.max(worst);
            table += &block;
        }
        if !report::journal::native() {
            say(&table);
        }
        // Another state than the machine's own is an experiment.
        if self.arguments.state_dir == Path::new(STATE) {
            report::outlets::update(Path::new("/"), &self.config.report, &self.state);
        }
        if let Some(reason) = &self.stop
            && let Err(error) = report::console::stop(Path::new("/"), "systemctl", reason)
        {
            log::error!("{error}");
        }
        Ok(verdict)
    }

    /// One medium from its job to its report.
    fn medium(&mut self, medium: &Medium) -> Result<(Verdict, String)> {
        let medium = &mounted_now(medium);
        let profile = self.profile_for(medium, &self.state);
        let job = self.job(medium, profile);
        self.stopped_fill(medium, &job);
        // Before a fill begins, what an older one left may have to go.
        let more = if self.fill > 0 { REMOVAL } else { 0.0 };
        let deadline = Duration::from_secs_f64(self.config.deadline(profile) + more);
        let record = self.state.media.get(&medium.identity).cloned();
        self.mark_unfinished(medium, profile)?;
        let mut known_before = evidence::collect(Path::new("/"), medium);
        let begun = When::now();
        let told = |before: &BootBefore| before.tell(medium, record.as_ref(), &begun.boot);
        known_before.boot_before = known_before.boot_before.filter(told);
        let counter = counter(&known_before.file_systems);
        let start = Instant::now();
        let known = self.state.media.get(&medium.identity);
        let mut fill = known.and_then(|record| record.fill.clone());
        let outcome = match medium.bytes {
            0 if !job.share => Outcome::default(),
            // One medium whose child cannot start is unknown; the others go on.
            _ => supervise::run(&job, deadline, &self.interrupted, &mut |message| {
                report::progress::say(medium, message);
                if fill::hear(&mut fill, message)
                    && let Some(record) = self.state.media.get_mut(&medium.identity)
                {
                    // A power cut finds out how far it was.
                    record.fill.clone_from(&fill);
                    if self.keep
                        && let Err(error) = self.directory.write(&mut self.state)
                    {
                        log::debug!("{error}");
                    }
                }
            })
            .unwrap_or_else(|error| supervise::not_started(&job, &error)),
        };
        let seconds = start.elapsed().as_secs_f64();
        let mut evidence = match self.interrupted.load(Ordering::Relaxed) {
            true => known_before, // whoever sent the signal waits
            false => evidence::collect_after(Path::new("/"), medium, &known_before),
        };
        evidence.smart = health(&outcome, record.as_ref());
        let written = record.as_ref().and_then(|before| {
            let last = before.runs.last()?;
            let a_day = since(&counter, &begun, &before.counter, last)?;
            Some(words(medium, &evidence, a_day, "the last run"))
        });
        self.record(medium).counter = counter;
        let findings = self.judge(medium, profile, &outcome, &evidence);
        let verdict = judge::verdict(&findings);
        self.remember(medium, profile, &outcome, &evidence, &findings, seconds)?;
        let record = self.state.media.get(&medium.identity);
        let report = Report {
            medium,
            profile: profile.name(),
            outcome: &outcome,
            board: &evidence.board,
            findings: &findings,
            verdict,
            seconds,
            written,
            last_full: match profile {
                Profile::Glance => record.and_then(Record::last_full),
                _ => None,
            },
        };
        report::journal::report(&report);
        if self.config.select.stop_on_fake {
            self.stop = self.stop.take().or(report::console::reason(&report));
        }
        Ok((verdict, report::table::block(&report)))
    }

    /// As asked; otherwise `boot` for a medium that is new or whose last run did not finish.
    fn profile_for(&self, medium: &Medium, state: &State) -> Profile {
        let known = state.media.get(&medium.identity);
        // A run that left something unknown is owed another one, or "run again" would never help.
        let known_all = |run: &Run| {
            run.findings
                .iter()
                .all(|finding| finding.severity != Verdict::Unknown)
        };
        let first = Profile::named(&self.config.select.first_profile).unwrap_or(Profile::Boot);
        let finished = known.is_some_and(|record| {
            // Where the monthly run comes first, the capacity is still to be proved.
            let whole = record.whole || first == Profile::Routine;
            whole && record.unfinished.is_none() && record.last_full().is_some_and(known_all)
        });
        let stopped = known.and_then(|record| record.fill.as_ref());
        match self.profile {
            Some(profile) => profile,
            None if finished => Profile::Glance,
            // It leaves no space for more.
            None if stopped.is_some_and(|fill| self.passes(fill)) => Profile::Glance,
            None => first,
        }
    }

    /// The first run by itself leaves a fill that was stopped to whoever may go on with it.
    fn passes(&self, fill: &Fill) -> bool {
        self.arguments.wait && !fill.passed
    }

    /// Says what becomes of a fill that was stopped.
    fn stopped_fill(&mut self, medium: &Medium, job: &Job) {
        let Some(record) = self.state.media.get_mut(&medium.identity) else {
            return;
        };
        let Some(fill) = record.fill.as_mut().filter(|_| job.plan.fill == 0) else {
            return;
        };
        if job.keep_fill {
            fill.passed = true;
            log::warn!("{}: {}", medium.device, fill.stays());
        } else {
            record.fill = None;
        }
    }

    fn job(&self, medium: &Medium, profile: Profile) -> Job {
        let record = self.state.media.get(&medium.identity);
        let fill = record.and_then(|record| record.fill.clone());
        let spins = medium.rotational || medium.transport == Transport::Usb;
        Job {
            device: Path::new("/dev").join(medium.device.replace('!', "/")),
            sys: match medium.transport {
                Transport::Network => PathBuf::from("/sys"), // never gone
                _ => Path::new("/sys/block").join(&medium.device),
            },
            share: medium.transport == Transport::Network,
            bytes: medium.bytes,
            logical_block: medium.logical_block,
            volatile_cache: medium.volatile_cache,
            read_only: medium.read_only,
            mounts: medium.mounts.clone(),
            asked: {
                let named = self.arguments.medium.iter().chain(&self.config.media);
                named.map(PathBuf::from).collect()
            },
            health: evidence::way_to_ask(Path::new("/"), medium),
            unmounted: evidence::unmounted(Path::new("/"), medium),
            state_directory: absolute(&self.arguments.state_dir),
            // Files of a fill take a while to be removed.
            spin_up: if spins || fill.is_some() {
                SPIN_UP
            } else {
                0.0
            },
            only_clean: false,
            canary: record.and_then(|record| record.canary.clone()),
            keep_fill: self.fill > 0 || fill.as_ref().is_some_and(|fill| self.passes(fill)),
            fill,
            seed: seed(),
            plan: Plan {
                fill: self.fill,
                ..self.config.plan(profile)
            },
        }
    }

    fn record(&mut self, medium: &Medium) -> &mut Record {
        let now = When::now();
        let record = self
            .state
            .media
            .entry(medium.identity.clone())
            .or_insert_with(|| Record {
                first_seen: now.clone(),
                ..Record::default()
            });
        record.name = medium.name.clone();
        record.device = medium.device.clone();
        record.bytes = medium.bytes;
        record.last_seen = now;
        record
    }

    fn mark_unfinished(&mut self, medium: &Medium, profile: Profile) -> Result<()> {
        let reason = format!("the {} run did not come to its end", profile.name());
        self.record(medium).unfinished = Some(reason);
        self.write_state()
    }

    fn write_state(&mut self) -> Result<()> {
        if !self.keep {
            return Ok(());
        }
        if let Err(error) = self.directory.write(&mut self.state) {
            // A full or failing root medium must not hide the result.
            log::error!("{error}; the result will not be kept");
            self.keep = false;
        }
        Ok(())
    }

    fn judge(
        &self,
        medium: &Medium,
        profile: Profile,
        outcome: &Outcome,
        evidence: &Evidence,
    ) -> Vec<Finding> {
        if medium.bytes == 0 && medium.transport != Transport::Network {
            return vec![Finding::new(
                "no-medium",
                Verdict::Unknown,
                format!("{} has 0 bytes", medium.device),
            )];
        }
        let subject = Subject {
            role: medium.role,
            rotational: medium.rotational,
            link: medium.link.clone(),
        };
        let unknown = Record::default();
        let record = self.state.media.get(&medium.identity).unwrap_or(&unknown);
        let before = record.before(&link_of(medium, outcome));
        let limits = &self.config.limits;
        let mut findings = judge::judge(&subject, &outcome.results, evidence, limits, &before);
        if profile == Profile::Glance {
            findings.extend(record.carried(&findings));
            evidence::order(&mut findings);
        }
        findings
    }

    fn remember(
        &mut self,
        medium: &Medium,
        profile: Profile,
        outcome: &Outcome,
        evidence: &Evidence,
        findings: &[Finding],
        seconds: f64,
    ) -> Result<()> {
        // No later run may be compared with what bad power or heat made of a medium.
        let figures = judge::comparable(&medium.link, &outcome.results)
            .into_iter()
            .filter(|_| evidence.board.figures_stand())
            .map(|(probe, figure)| (probe, rounded(figure)))
            .collect();
        let run = Run {
            profile: profile.name().into(),
            verdict: judge::verdict(findings),
            complete: outcome.unfinished.is_none(),
            unfinished: outcome
                .unfinished
                .as_ref()
                .map(|(_, detail)| detail.clone()),
            seconds: rounded(seconds),
            written: outcome.written,
            when: When::now(),
            link: link_of(medium, outcome),
            figures,
            findings: findings.iter().take(FINDINGS).cloned().collect(),
            capacity: proved(outcome),
        };
        let record = self.record(medium);
        record.unfinished = run.unfinished.clone();
        if let Some(fill) = &outcome.fill {
            record.fill = (!fill.directory.as_os_str().is_empty()).then(|| fill.clone());
        }
        let latency = |m: &crate::probe::Measurement| (m.probe, m.histogram.clone());
        if let Some(health) = &outcome.health {
            record.health = health.clone();
        }
        record.latency = outcome.results.measured.iter().map(latency).collect();
        if let Some(canary) = &outcome.canary {
            record.canary = (!canary.path.as_os_str().is_empty()).then(|| canary.clone());
        }
        record.add(run);
        self.write_state()
    }

    fn say_what_would_be_done(&self, medium: &Medium) {
        let profile = self.profile_for(medium, &self.state);
        let job = self.job(medium, profile);
        let words: Vec<&str> = job.probes().iter().map(|probe| probe.words()).collect();
        let mut text = format!(
            "{}: {} run, at most {:.0} s and {:.1} MiB written{}\n  probes      {}\n",
            medium.device,
            profile.name(),
            self.config.deadline(profile),
            if job.plan.file == 0 {
                0.0
            } else {
                job.plan.written as f64 / f64::from(1 << 20)
            },
            if job.plan.fill > 0 {
                ", besides the fill"
            } else {
                ""
            },
            words.join(", ")
        );
        text += &match place::find(&job) {
            Ok(place) => format!(
                "  written to  a new file in {}{}{}\n",
                printable_path(&place.directory),
                claimed(&job.plan, self.state.media.get(&medium.identity)),
                filled(&job, &place)
            ),
            Err((_, why)) => format!("  no writes   {why}\n"),
        };
        say(&text);
    }
}

/// For how long free space is low meanwhile, at most and the last time.
fn claimed(plan: &Plan, record: Option<&Record>) -> String {
    if plan.stamps == 0 {
        return String::new();
    }
    let seconds = CLAIM.as_secs();
    let runs = record.map_or(&[][..], |record| &record.runs);
    let mut said = runs.iter().rev().flat_map(|run| run.capacity.split("; "));
    let last = said.find(|said| said.contains("were claimed for"));
    let last = last.map_or(String::new(), |last| format!("; last time {last}"));
    format!("\n  claimed     all free space but the reserve, for {seconds} s at most{last}")
}

/// What a fill would write, and for how long.
fn filled(job: &Job, place: &Place) -> String {
    if !job.probes().contains(&Probe::Fill) {
        return String::new();
    }
    let free = scratch::space(&place.directory).map_or(0, |space| space.free);
    let bytes = free.saturating_sub(place.reserve).min(job.plan.fill);
    let earlier = match &job.fill {
        Some(fill) => format!("; {}", fill.stays()),
        None => String::new(),
    };
    let hours = |bytes_a_second: u64| 2.0 * bytes as f64 / bytes_a_second as f64 / 3600.0;
    format!(
        "\n  fill        {:.1} GiB written, read back and given back: {:.1} h at 20 MB/s, at most {:.1} h{earlier}",
        bytes as f64 / f64::from(1 << 30),
        hours(20_000_000),
        hours(fill::FLOOR)
    )
}

/// What was proved of the capacity, by a sample and by a fill.
fn proved(outcome: &Outcome) -> String {
    let sample = outcome.results.proved_of(Probe::Capacity);
    match outcome.results.proved_of(Probe::Fill) {
        none if none.is_empty() => sample,
        fill => format!("{sample}; fill: {fill}"),
    }
}

/// The medium as it is mounted now: others were tested since it was found, and a mount point
/// that lost its disk leads to another medium.
fn mounted_now(medium: &Medium) -> Medium {
    let asked = match (medium.transport, medium.mounts.first()) {
        (Transport::Network, Some(mount)) => mount.path.to_string_lossy().into(),
        _ => format!("/dev/{}", medium.device.replace('!', "/")),
    };
    let found = medium::find_only(Path::new("/"), &[asked])
        .unwrap_or_default()
        .media;
    let mounts = found
        .into_iter()
        .find(|now| now.device == medium.device)
        .map(|now| now.mounts);
    Medium {
        mounts: mounts.unwrap_or_default(),
        ..medium.clone()
    }
}

/// How the medium was reached: figures of different ways are not compared.
fn link_of(medium: &Medium, outcome: &Outcome) -> String {
    let link = medium.link.as_ref().map_or("", |link| &link.description);
    let through_file = outcome.results.measured.iter().any(|m| !m.whole_disk);
    format!(
        "{link}{}",
        if through_file { ", through a file" } else { "" }
    )
}

/// The child may work elsewhere, and compares places by where they are.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Different data for each run: what an earlier run wrote must not pass for this one's.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    let read = fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    if read.is_err() {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        bytes = (now.as_nanos() as u64).to_le_bytes();
    }
    u64::from_le_bytes(bytes) >> 1 // TOML's integers are signed
}
