//! What the child of one medium is told to do, and how it does it: each probe in its turn,
//! checked against the disk's own counters.

use super::budget::{Budget, Plan};
use super::canary::{self, Canary};
use super::capacity::live;
use super::fill::{self, Fill};
use super::io::{Counters, waited};
use super::place::{self, Place, Refused};
use super::scratch::{self, Scratch};
use super::unclean;
use super::{
    Measurement, Message, NotMeasured, Probe, Proved, Reason, Stop, random_read, random_write,
    read_back, sequential_read, write,
};
use crate::error::{Result, printable_path};
use crate::medium::Mount;
use nix::sys::stat::{major, minor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

/// The orders for the child of one medium.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The whole disk's node, opened read-only.
    pub device: PathBuf,
    /// Its directory `/sys/block/D`.
    pub sys: PathBuf,
    /// A network share: there is no disk to read, and no counter of what reached it.
    pub share: bool,
    pub bytes: u64,
    pub logical_block: u32,
    /// A write is durable only after a flush.
    pub volatile_cache: bool,
    pub read_only: bool,
    /// Mounted file systems of the medium, see [`place::find`].
    pub mounts: Vec<Mount>,
    /// Paths that were asked for.
    pub asked: Vec<PathBuf>,
    pub state_directory: PathBuf,
    /// How the disk may be asked for what it counts about itself, where that is known.
    pub health: Option<crate::evidence::smart::Way>,
    /// Names and first bytes of what may hold a file system that is not mounted.
    #[serde(default)]
    pub unmounted: BTreeMap<String, u64>,
    /// Seconds that the very first read may take beyond the plan: a disk has to spin up.
    pub spin_up: f64,
    /// What the last run left on the medium to be read now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// What is known of a fill that was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
    /// Such a fill stays.
    pub keep_fill: bool,
    /// Just remove what a killed run left.
    pub only_clean: bool,
    pub seed: u64,
    pub plan: Plan,
}

impl Job {
    /// Bytes of a random operation: 4 KiB, more where the disk has larger blocks.
    pub fn block(&self) -> u32 {
        self.logical_block.max(4096)
    }

    /// Where the disk has a volatile cache, the time of the random write is for two figures.
    fn random_write_share(&self) -> u64 {
        if self.volatile_cache { 2 } else { 1 }
    }

    pub fn random_write_seconds(&self) -> f64 {
        self.plan.random_write_seconds / self.random_write_share() as f64
    }

    pub fn random_write_operations(&self) -> u64 {
        self.plan.random_writes / self.random_write_share()
    }

    /// The probes of this job, in order.
    pub fn probes(&self) -> Vec<Probe> {
        if self.share {
            return match self.plan.file {
                0 => Vec::new(),
                _ => vec![Probe::DurableWrite, Probe::ReadBack],
            };
        }
        let mut probes = vec![
            Probe::SequentialRead,
            Probe::RandomRead,
            Probe::RandomReadQueued,
        ];
        if self.plan.file > 0 {
            probes.extend([Probe::DurableWrite, Probe::RandomWriteDurable]);
            if self.volatile_cache {
                probes.push(Probe::RandomWrite);
            }
            probes.push(Probe::ReadBack);
            if self.plan.stamps > 0 {
                probes.extend([Probe::Capacity, Probe::RandomWriteSpan]);
            }
            if self.plan.fill > 0 {
                probes.push(Probe::Fill);
            }
        }
        probes
    }
}

/// What the probes of one medium share.
pub struct Context<'a> {
    pub job: Job,
    /// What the read probes read: the whole disk, or the scratch file.
    pub disk: File,
    pub whole_disk: bool,
    /// Bytes that the disk claims, also where the reads are of a file.
    pub disk_bytes: u64,
    pub budget: Budget,
    pub tell: &'a mut dyn FnMut(Message),
    /// Median latency of the random read, for the depth of the queued one.
    pub random_read_median: Duration,
}

impl<'a> Context<'a> {
    fn new(job: Job, disk: File, whole_disk: bool, tell: &'a mut dyn FnMut(Message)) -> Self {
        let budget = Budget::new(&job.plan);
        Self {
            disk_bytes: job.bytes,
            job,
            disk,
            whole_disk,
            budget,
            tell,
            random_read_median: Duration::ZERO,
        }
    }

    /// See [`super::io::stop`].
    pub fn stop(&self, probe: Probe, error: &io::Error, what: &str) -> Stop {
        super::io::stop(probe, &self.job.sys, error, what)
    }

    pub fn not_measured(&mut self, probe: Probe, reason: Reason, detail: impl Into<String>) {
        let detail = detail.into();
        (self.tell)(Message::NotMeasured(NotMeasured {
            probe,
            reason,
            detail,
        }));
    }

    /// Tells how a probe ended. Figures count only if the disk's own counters moved by 90 % of
    /// the bytes that we claim: the rest may have been merged with a neighbour's or read ahead.
    fn ended(
        &mut self,
        probe: Probe,
        before: Result<Counters>,
        ended: std::result::Result<Measurement, Stop>,
    ) {
        match ended {
            Ok(measurement) if measurement.operations == 0 => {
                self.not_measured(probe, Reason::Time, "no operation ended in time");
            }
            // Flushed, or read anew after the client's pages were dropped; a server counts nothing
            // here. What its own memory gave is above no ceiling but the network's.
            Ok(measurement) if self.job.share => {
                (self.tell)(Message::Measured(Box::new(measurement)));
            }
            Ok(mut measurement) => match (before, Counters::read(&self.job.sys.join("stat"))) {
                (Ok(before), Ok(after)) => {
                    measurement.whole_disk = self.whole_disk;
                    let read = after.read.saturating_sub(before.read);
                    let written = after.written.saturating_sub(before.written);
                    measurement.counted_bytes = if probe.writes() { written } else { read };
                    measurement.foreign_bytes = foreign(&measurement, read, written);
                    if (measurement.counted_bytes as f64) < 0.9 * measurement.bytes as f64 {
                        let mut detail = format!(
                            "{} bytes of {} claimed reached the disk by its own counters",
                            measurement.counted_bytes, measurement.bytes
                        );
                        let off = std::fs::read_to_string(self.job.sys.join("queue/iostats"));
                        if off.is_ok_and(|off| off.trim() == "0") {
                            detail += ", which are turned off (queue/iostats)";
                        }
                        self.not_measured(probe, Reason::Cached, detail);
                    } else {
                        (self.tell)(Message::Measured(Box::new(measurement)));
                    }
                }
                (Err(error), _) | (_, Err(error)) => {
                    self.not_measured(probe, Reason::DeviceGone, error.to_string())
                }
            },
            // It is the server or the way to it that failed; no sector is known to be bad.
            Err(Stop::Fault(fault)) if self.job.share => {
                self.not_measured(probe, Reason::DeviceGone, fault.detail);
            }
            Err(Stop::Fault(fault)) => (self.tell)(Message::Fault(fault)),
            Err(Stop::NotMeasured(reason, detail)) => self.not_measured(probe, reason, detail),
        }
    }

    pub fn run(
        &mut self,
        probe: Probe,
        measure: impl FnOnce(&mut Self) -> std::result::Result<Measurement, Stop>,
    ) {
        if self.budget.time_is_up() {
            self.not_measured(
                probe,
                Reason::Time,
                "the time of this profile was spent before",
            );
            return;
        }
        (self.tell)(Message::Started(probe));
        let (before, waited) = (Counters::read(&self.job.sys.join("stat")), waited());
        let mut ended = measure(self);
        if let Ok(measurement) = &mut ended {
            measurement.waited = (super::io::waited() - waited).min(measurement.seconds);
        }
        self.ended(probe, before, ended);
    }
}

/// File systems write more than they are given: a full journal twice as much, btrfs 70 KiB for
/// each flushed 4 KiB. Up to so many times our own bytes are taken to be of our making.
const OWN_SEQUENTIAL: u64 = 3;
const OWN_RANDOM: u64 = 20;

/// Bytes among those that the disk counted which cannot be ours.
fn foreign(measurement: &Measurement, read: u64, written: u64) -> u64 {
    let own = measurement.bytes;
    match measurement.probe {
        Probe::DurableWrite => read + written.saturating_sub(OWN_SEQUENTIAL * own),
        probe if probe.writes() => read + written.saturating_sub(OWN_RANDOM * own),
        // A full journal goes on writing what the probes before wrote.
        Probe::ReadBack => written.saturating_sub(own) + read.saturating_sub(own),
        _ => written + read.saturating_sub(own),
    }
}

/// Runs all probes of a job, telling what they yield as they yield it.
pub fn run(job: Job, tell: &mut dyn FnMut(Message)) {
    place::clean(&job);
    if job.share && !job.only_clean {
        share(job, tell);
    } else if !job.only_clean {
        let place = place::find(&job);
        match open(&job) {
            Ok(disk) => {
                let mut context = Context::new(job, disk, true, tell);
                verify_canary(&mut context);
                let filled = go_on_filling(&mut context, place.as_ref().ok());
                read_probes(&mut context);
                ask_for_health(&mut context);
                unclean::run(&mut context);
                if context.job.plan.file > 0 {
                    let fake = write_probes(&mut context, &place);
                    fill(&mut context, place.as_ref().ok(), filled, fake);
                }
            }
            Err(stop) => match through_file(&job, &stop, &place) {
                Some((disk, made)) => {
                    let mut context = Context::new(job, disk, false, tell);
                    verify_canary(&mut context);
                    // The free space that its file takes is small: no fill could go on first.
                    let fake = probes_through_file(&mut context, made, place.as_ref().ok());
                    fill(&mut context, place.as_ref().ok(), false, fake);
                }
                None => cannot_open(&job, &stop, tell),
            },
        }
    }
    tell(Message::Done {});
}

/// Opens the whole disk, and sees that it is the one meant: a node in /dev may be old.
fn open(job: &Job) -> std::result::Result<File, Stop> {
    let what = format!("open {}", job.device.display());
    let disk = OpenOptions::new()
        .read(true)
        .custom_flags(nix::fcntl::OFlag::O_DIRECT.bits() | nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(&job.device)
        .map_err(|e| super::io::stop(Probe::SequentialRead, &job.sys, &e, &what))?;
    let number = std::fs::read_to_string(job.sys.join("dev")).unwrap_or_default();
    let rdev = disk.metadata().map_or(0, |meta| meta.rdev());
    let opened = format!("{}:{}", major(rdev), minor(rdev));
    if number.trim() != opened {
        let detail = format!("{what}: it is {opened}, the disk is {}", number.trim());
        return Err(Stop::NotMeasured(Reason::DeviceGone, detail));
    }
    Ok(disk)
}

/// Where the whole disk may not be opened (a container, a device policy) but a file on it may be
/// written, the reads are of that file: less of the disk, and the measurement says so.
fn through_file(
    job: &Job,
    stop: &Stop,
    place: &std::result::Result<Place, Refused>,
) -> Option<(File, Made)> {
    let Stop::NotMeasured(Reason::NotPermitted, _) = stop else {
        return None;
    };
    if job.plan.file == 0 {
        return None;
    }
    let made = make_scratch(job, place.as_ref().ok()?).ok()?;
    Some((made.0.file.try_clone().ok()?, made))
}

/// True where the disk proved to be a fake.
fn probes_through_file(context: &mut Context, mut made: Made, place: Option<&Place>) -> bool {
    let (scratch, bytes) = (&mut made.0, made.1);
    let proof = place.and_then(|place| begin_proof(context, place, Ok(None)));
    context.run(Probe::DurableWrite, |c| write::run(c, scratch, bytes));
    context.job.bytes = scratch.bytes();
    if scratch.blocks() > 0 {
        read_probes(context);
    }
    overwrite_probes(context, scratch);
    end_proof(context, scratch, place, proof)
}

/// A share has files only.
fn share(job: Job, tell: &mut dyn FnMut(Message)) {
    if job.plan.file == 0 {
        return;
    }
    let made = place::find(&job).and_then(|place| {
        let made = make_scratch(&job, &place)?;
        let file = made.0.file.try_clone();
        Ok((file.map_err(|e| (Reason::Other, e.to_string()))?, made))
    });
    match made {
        Ok((file, (mut scratch, bytes))) => {
            let mut context = Context::new(job, file, false, tell);
            context.run(Probe::DurableWrite, |c| write::run(c, &mut scratch, bytes));
            overwrite_probes(&mut context, &mut scratch);
        }
        Err((reason, detail)) => {
            cannot_open(&job, &Stop::NotMeasured(reason, detail), tell);
        }
    }
}

fn cannot_open(job: &Job, stop: &Stop, tell: &mut dyn FnMut(Message)) {
    let (reason, detail) = match stop {
        Stop::NotMeasured(reason, detail) => (*reason, detail),
        Stop::Fault(fault) => (Reason::Other, &fault.detail),
    };
    for probe in job.probes() {
        let detail = detail.clone();
        tell(Message::NotMeasured(NotMeasured {
            probe,
            reason,
            detail,
        }));
    }
}

/// What the last run left is read first of all, before anything of this one can hide it.
fn verify_canary(context: &mut Context) {
    if let Some(canary) = context.job.canary.clone() {
        canary::verify(context, canary);
    }
}

fn read_probes(context: &mut Context) {
    match random_read::first_operation(context) {
        Ok(time) => {
            (context.tell)(Message::FirstOperation(time.as_secs_f64() * 1e3));
            if context.whole_disk {
                // A spin-up is not for the probes to pay.
                let plan = context.job.plan.clone();
                context.budget.restart(&plan);
            }
        }
        Err(Stop::Fault(fault)) => (context.tell)(Message::Fault(fault)),
        Err(Stop::NotMeasured(..)) => {} // the probes that follow say the same
    }
    context.run(Probe::SequentialRead, sequential_read::run);
    context.run(Probe::RandomRead, random_read::run);
    context.run(Probe::RandomReadQueued, random_read::run_queued);
}

/// The disk is awake: it was just read. One that does not answer is not asked again.
fn ask_for_health(context: &mut Context) {
    let Some(way) = context.job.health else {
        return;
    };
    if let Ok(values) = crate::evidence::smart::read(&context.disk, way) {
        (context.tell)(Message::Health(values));
    }
}

/// A fill that was stopped leaves no space for anything else, so it goes first; true where it did.
fn go_on_filling(context: &mut Context, place: Option<&Place>) -> bool {
    let known = context.job.fill.as_ref();
    let stopped = known.is_some_and(|known| !known.written.is_empty());
    match place {
        Some(place) if stopped && context.job.probes().contains(&Probe::Fill) => {
            fill::files::run(context, place);
            true
        }
        _ => false,
    }
}

/// The fill of a disk that is no fake by all that is known: nobody has to write one full, and
/// what is written beyond its end may hit what lies below.
fn fill(context: &mut Context, place: Option<&Place>, filled: bool, fake: bool) {
    let Some(place) = place.filter(|_| !filled && context.job.probes().contains(&Probe::Fill))
    else {
        return;
    };
    if fake {
        let sentence = "nothing was filled: the size is proved to be wrong already".into();
        let probe = Probe::Fill;
        (context.tell)(Message::Proved(Proved { probe, sentence }));
    } else {
        fill::files::run(context, place);
    }
}

/// True where the disk proved to be a fake.
fn write_probes(context: &mut Context, place: &std::result::Result<Place, Refused>) -> bool {
    let alias = look(context, place.as_ref().ok());
    if let Ok(Some(live::Alias { real, live: true })) = alias {
        live::tell_wraps(context, real);
        let writing = |probe: &Probe| *probe >= Probe::DurableWrite && *probe != Probe::Fill;
        for probe in context.job.probes().into_iter().filter(writing) {
            let detail = "nothing is written to a disk of which the size is proved to be wrong";
            context.not_measured(probe, Reason::Other, detail);
        }
        return true;
    }
    let made = place.as_ref().map_err(Refused::clone);
    match made.and_then(|place| Ok((make_scratch(&context.job, place)?, place))) {
        Ok(((mut scratch, bytes), place)) => {
            let proof = begin_proof(context, place, alias);
            context.run(Probe::DurableWrite, |c| write::run(c, &mut scratch, bytes));
            overwrite_probes(context, &mut scratch);
            end_proof(context, &scratch, Some(place), proof)
        }
        Err((reason, detail)) => {
            if context.job.plan.stamps > 0 && !context.budget.time_is_up() {
                live::read_only(context);
            }
            let probes = context.job.probes();
            for probe in probes
                .into_iter()
                .filter(|&probe| probe >= Probe::DurableWrite)
            {
                context.not_measured(probe, reason, detail.clone());
            }
            false
        }
    }
}

/// What needs the scratch file as the durable write left it.
fn overwrite_probes(context: &mut Context, scratch: &mut Scratch) {
    for probe in context
        .job
        .probes()
        .into_iter()
        .filter(|&probe| probe > Probe::DurableWrite && probe <= Probe::ReadBack)
    {
        if scratch.blocks() == 0 {
            context.not_measured(probe, Reason::Other, "nothing was written before");
        } else if probe == Probe::ReadBack {
            context.run(probe, |c| read_back::run(c, scratch));
        } else {
            context.run(probe, |c| random_write::run(c, scratch, probe));
        }
    }
}

/// What reading alone tells of the size, where it is wanted.
fn look(
    context: &Context,
    place: Option<&Place>,
) -> std::result::Result<Option<live::Alias>, Stop> {
    match place {
        Some(place) if context.job.plan.stamps > 0 && !context.budget.time_is_up() => {
            live::look(context, place)
        }
        _ => Ok(None),
    }
}

/// The first half of the capacity's proof, where it is wanted.
fn begin_proof(
    context: &mut Context,
    place: &Place,
    alias: std::result::Result<Option<live::Alias>, Stop>,
) -> Option<live::Running> {
    if context.job.plan.stamps == 0 || context.budget.time_is_up() {
        return None;
    }
    match alias.and_then(|alias| live::begin(context, place, alias)) {
        Ok(running) => Some(running),
        Err(Stop::Fault(fault)) => {
            (context.tell)(Message::Fault(fault));
            None
        }
        Err(Stop::NotMeasured(reason, detail)) => {
            context.not_measured(Probe::Capacity, reason, detail);
            None
        }
    }
}

/// The second half; true where the disk proved to be a fake.
fn end_proof(
    context: &mut Context,
    scratch: &Scratch,
    place: Option<&Place>,
    running: Option<live::Running>,
) -> bool {
    match (running, place) {
        (Some(running), Some(place)) => live::finish(context, scratch, place, running),
        _ => false,
    }
}

/// The scratch file and how many bytes it may become.
type Made = (Scratch, u64);

/// As large as planned, or what the reserve leaves.
fn make_scratch(job: &Job, place: &Place) -> std::result::Result<Made, Refused> {
    let directory = &place.directory;
    let failed = |what: &str, error: io::Error| {
        let path = printable_path(directory);
        match super::io::stop(
            Probe::DurableWrite,
            &job.sys,
            &error,
            &format!("{what} {path}"),
        ) {
            Stop::NotMeasured(reason, detail) => (reason, detail),
            Stop::Fault(fault) => (Reason::Other, fault.detail),
        }
    };
    let free = scratch::space(directory)
        .map_err(|e| failed("ask for the free space of", e))?
        .free;
    let bytes = job.plan.file.min(free.saturating_sub(place.reserve)) >> 20 << 20;
    if bytes < 4 << 20 {
        let detail = format!(
            "{} MiB free, and {} MiB have to stay free",
            free >> 20,
            place.reserve >> 20
        );
        return Err((Reason::NoSpace, detail));
    }
    let scratch = Scratch::create(place).map_err(|e| failed("create a scratch file in", e))?;
    Ok((scratch, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_orders_that_the_bench_gives_are_complete() {
        let bench = include_str!("../../tests/bench.py");
        let plan = bench.split("PLAN = \"\"\"").nth(1).unwrap();
        let plan = plan.split("\"\"\"").next().unwrap();
        // Its values are put in later, those of text between quotes.
        let filled: String = plan
            .split('{')
            .enumerate()
            .fold(String::new(), |text, (n, part)| {
                match part.split_once('}') {
                    Some((_, rest)) if n > 0 && rest.starts_with('"') => text + "/x" + rest,
                    Some((_, rest)) if n > 0 => text + "1" + rest,
                    _ => text + part,
                }
            });
        let filled = filled.replace("seconds = 1\n", "seconds = 1.0\n");
        let job: Job = toml::from_str(&filled).unwrap();
        assert_eq!((job.device, job.plan.stamps), ("/x".into(), 0));
    }
}
