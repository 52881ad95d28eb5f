//! What the child of one medium is told to do, and how it does it: each probe in its turn,
//! checked against the disk's own counters.

use super::budget::{Budget, Plan};
use super::io::Counters;
use super::scratch::{self, Scratch};
use super::{
    Measurement, Message, NotMeasured, Probe, Reason, Stop, random_read, random_write, read_back,
    sequential_read, write,
};
use crate::error::{Result, printable_path};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// The orders for the child of one medium.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The whole disk's node, opened read-only.
    pub device: PathBuf,
    /// Its directory `/sys/block/D`.
    pub sys: PathBuf,
    pub bytes: u64,
    pub logical_block: u32,
    /// A write is durable only after a flush.
    pub volatile_cache: bool,
    /// Where the scratch file goes; none where nothing can be written.
    pub directory: Option<PathBuf>,
    /// Device number of that directory: another one means that the medium was unmounted meanwhile.
    pub directory_dev: u64,
    /// Why there is no directory.
    pub no_directory: Option<(Reason, String)>,
    pub fs_type: String,
    /// Bytes that stay free on that file system.
    pub reserve: u64,
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
    pub budget: Budget,
    pub tell: &'a mut dyn FnMut(Message),
    /// Median latency of the random read, for the depth of the queued one.
    pub random_read_median: Duration,
}

impl<'a> Context<'a> {
    fn new(job: Job, disk: File, whole_disk: bool, tell: &'a mut dyn FnMut(Message)) -> Self {
        let budget = Budget::new(&job.plan);
        Self {
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

    fn not_measured(&mut self, probe: Probe, reason: Reason, detail: impl Into<String>) {
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
            Ok(mut measurement) => match (before, Counters::read(&self.job.sys.join("stat"))) {
                (Ok(before), Ok(after)) => {
                    measurement.whole_disk = self.whole_disk;
                    measurement.counted_bytes = match probe.writes() {
                        true => after.written.saturating_sub(before.written),
                        false => after.read.saturating_sub(before.read),
                    };
                    if (measurement.counted_bytes as f64) < 0.9 * measurement.bytes as f64 {
                        let detail = format!(
                            "{} bytes of {} claimed reached the disk by its own counters",
                            measurement.counted_bytes, measurement.bytes
                        );
                        self.not_measured(probe, Reason::Cached, detail);
                    } else {
                        (self.tell)(Message::Measured(Box::new(measurement)));
                    }
                }
                (Err(error), _) | (_, Err(error)) => {
                    self.not_measured(probe, Reason::DeviceGone, error.to_string())
                }
            },
            Err(Stop::Fault(fault)) => (self.tell)(Message::Fault(fault)),
            Err(Stop::NotMeasured(reason, detail)) => self.not_measured(probe, reason, detail),
        }
    }

    fn run(
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
        let before = Counters::read(&self.job.sys.join("stat"));
        let ended = measure(self);
        self.ended(probe, before, ended);
    }
}

/// Runs all probes of a job, telling what they yield as they yield it.
pub fn run(job: Job, tell: &mut dyn FnMut(Message)) {
    let disk = OpenOptions::new()
        .read(true)
        .custom_flags(nix::fcntl::OFlag::O_DIRECT.bits() | nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(&job.device);
    match disk {
        Ok(disk) => {
            let mut context = Context::new(job, disk, true, tell);
            read_probes(&mut context);
            if context.job.plan.file > 0 {
                write_probes(&mut context);
            }
        }
        Err(error) => match through_file(&job, &error) {
            Some((disk, made)) => {
                let mut context = Context::new(job, disk, false, tell);
                probes_through_file(&mut context, made);
            }
            None => cannot_open(&job, &error, tell),
        },
    }
    tell(Message::Done {});
}

/// Where the whole disk may not be opened (a container, a device policy) but a file on it may be
/// written, the reads are of that file: less of the disk, and the measurement says so.
fn through_file(job: &Job, error: &io::Error) -> Option<(File, Made)> {
    if error.kind() != io::ErrorKind::PermissionDenied || job.plan.file == 0 {
        return None;
    }
    let made = make_scratch(job).ok()?;
    Some((made.0.file.try_clone().ok()?, made))
}

fn probes_through_file(context: &mut Context, mut made: Made) {
    let (scratch, bytes) = (&mut made.0, made.1);
    context.run(Probe::DurableWrite, |c| write::run(c, scratch, bytes));
    context.job.bytes = scratch.bytes();
    if scratch.blocks() > 0 {
        read_probes(context);
    }
    overwrite_probes(context, scratch);
}

fn cannot_open(job: &Job, error: &io::Error, tell: &mut dyn FnMut(Message)) {
    let what = format!("open {}", job.device.display());
    for probe in job.probes() {
        let (reason, detail) = match super::io::stop(probe, &job.sys, error, &what) {
            Stop::NotMeasured(reason, detail) => (reason, detail),
            Stop::Fault(fault) => (Reason::Other, fault.detail),
        };
        tell(Message::NotMeasured(NotMeasured {
            probe,
            reason,
            detail,
        }));
    }
    tell(Message::Done {});
}

fn read_probes(context: &mut Context) {
    match random_read::first_operation(context) {
        Ok(time) => (context.tell)(Message::FirstOperation(time.as_secs_f64() * 1e3)),
        Err(Stop::Fault(fault)) => (context.tell)(Message::Fault(fault)),
        Err(Stop::NotMeasured(..)) => {} // the probes that follow say the same
    }
    context.run(Probe::SequentialRead, sequential_read::run);
    context.run(Probe::RandomRead, random_read::run);
    context.run(Probe::RandomReadQueued, random_read::run_queued);
}

fn write_probes(context: &mut Context) {
    match make_scratch(&context.job) {
        Ok((mut scratch, bytes)) => {
            context.run(Probe::DurableWrite, |c| write::run(c, &mut scratch, bytes));
            overwrite_probes(context, &mut scratch);
        }
        Err((reason, detail)) => {
            for probe in context
                .job
                .probes()
                .into_iter()
                .filter(|&probe| probe >= Probe::DurableWrite)
            {
                context.not_measured(probe, reason, detail.clone());
            }
        }
    }
}

/// What needs the scratch file as the durable write left it.
fn overwrite_probes(context: &mut Context, scratch: &mut Scratch) {
    for probe in context
        .job
        .probes()
        .into_iter()
        .filter(|&probe| probe > Probe::DurableWrite)
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

/// The scratch file and how many bytes it may become.
type Made = (Scratch, u64);

/// As large as planned, or what the reserve leaves.
fn make_scratch(job: &Job) -> std::result::Result<Made, (Reason, String)> {
    let Some(directory) = &job.directory else {
        return Err(job
            .no_directory
            .clone()
            .unwrap_or((Reason::NotMounted, "no file system".into())));
    };
    let failed = |what: &str, error: io::Error| match super::io::stop(
        Probe::DurableWrite,
        &job.sys,
        &error,
        what,
    ) {
        Stop::NotMeasured(reason, detail) => (reason, detail),
        Stop::Fault(fault) => (Reason::Other, fault.detail),
    };
    let free = scratch::space(directory)
        .map_err(|e| failed("ask for the free space", e))?
        .free;
    let bytes = job.plan.file.min(free.saturating_sub(job.reserve)) >> 20 << 20;
    if bytes < 4 << 20 {
        let detail = format!(
            "{} MiB free, of which {} MiB stay free",
            free >> 20,
            job.reserve >> 20
        );
        return Err((Reason::NoSpace, detail));
    }
    let scratch = Scratch::create(directory, &job.fs_type, job.directory_dev).map_err(|e| {
        failed(
            &format!("create a scratch file in {}", printable_path(directory)),
            e,
        )
    })?;
    Ok((scratch, bytes))
}
