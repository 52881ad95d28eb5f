//! A child process for each medium, of the same binary: a device that hangs, a bus error or a
//! panic ends one medium's run; the others go on, and nobody waits past the deadline.

use crate::error::{Error, Result};
use crate::judge::Results;
use crate::probe::canary::Canary;
use crate::probe::fill::{self, Fill};
use crate::probe::job::{self, Job};
use crate::probe::{Message, NotMeasured, Probe, Reason};
use crate::state::from_toml;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The hidden command by which the binary starts itself.
pub const COMMAND: &str = "probe";

/// Ends each message on the pipe; no TOML text holds one.
const END: u8 = 0;
/// A message is a page at most; a child that sends more is broken.
const MAX_MESSAGE: usize = 64 << 10;

/// A fill that makes no progress for so long does not go on: the kernel gives a command up after
/// 30 s and tries it five times (scsi_mod, sd.c: SD_TIMEOUT, SD_MAX_RETRIES).
const NO_PROGRESS: Duration = Duration::from_secs(180);

/// What a child told until it ended.
#[derive(Debug, Default)]
pub struct Outcome {
    pub results: Results,
    /// Bytes written by its own account.
    pub written: u64,
    /// Milliseconds of the very first read.
    pub first_operation_ms: Option<f64>,
    /// What the disk counts about itself.
    pub health: Option<crate::evidence::smart::Values>,
    /// File systems that were not unmounted.
    pub unclean: String,
    /// What the next run has to know of the canary, where that is new.
    pub canary: Option<Canary>,
    /// How far the fill is.
    pub fill: Option<Fill>,
    /// Why it did not come to its end.
    pub unfinished: Option<(Reason, String)>,
}

/// Runs `job` in a child and hears it out: until it is done, `deadline` is over or `interrupted`
/// is set. `progress` hears each message.
/// # Errors
/// Where no child could be started.
pub fn run(
    job: &Job,
    deadline: Duration,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(&Message),
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    outcome.results.wanted = job.probes();
    let mut child = start(job)?;
    let ended = match listen(
        &mut child,
        job.spin_up,
        deadline,
        interrupted,
        &mut outcome,
        progress,
    ) {
        // Ctrl-C reaches the child too, which may be gone before we look.
        Ended::Closed if interrupted.load(Ordering::Relaxed) => Ended::Interrupted,
        ended => ended,
    };
    let killed = !matches!(ended, Ended::Done);
    if killed {
        let _ = child.kill(); // it may have ended by itself meanwhile
    }
    let status = reap(&mut child);
    outcome.unfinished = match ended {
        Ended::Done => None,
        Ended::Deadline => {
            let seconds = match outcome.first_operation_ms {
                Some(_) => deadline.as_secs_f64(),
                None => deadline.as_secs_f64() + job.spin_up,
            };
            Some((Reason::NoAnswer, format!("no answer within {seconds:.0} s")))
        }
        Ended::Interrupted => Some((Reason::Interrupted, "stopped by a signal".into())),
        Ended::Closed => Some((
            Reason::Other,
            format!("the test process ended early ({status})"),
        )),
    };
    if let (Some((_, detail)), Some(fill)) = (&mut outcome.unfinished, &outcome.fill)
        && !fill.directory.as_os_str().is_empty()
    {
        *detail += &format!("; {}", fill.stays());
    }
    if let Some((reason, detail)) = outcome.unfinished.clone() {
        fill_up(&mut outcome.results, reason, &detail);
        // Whoever touches a disk that hangs, hangs: then the next run cleans up.
        if reason != Reason::NoAnswer {
            clean_up(job);
        }
    }
    Ok(outcome)
}

/// A child removes what the killed one left, if it can within half a second.
fn clean_up(job: &Job) {
    let job = Job {
        only_clean: true,
        keep_fill: true,
        ..job.clone()
    };
    match start(&job) {
        Ok(mut child) => {
            reap(&mut child);
            let _ = child.kill(); // it has ended, or hangs
        }
        Err(error) => log::warn!("{error}"),
    }
}

/// The outcome of a job whose child could not be started.
pub fn not_started(job: &Job, error: &Error) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.results.wanted = job.probes();
    fill_up(&mut outcome.results, Reason::Other, &error.to_string());
    outcome.unfinished = Some((Reason::Other, error.to_string()));
    outcome
}

enum Ended {
    Done,
    Deadline,
    Interrupted,
    Closed,
}

fn start(job: &Job) -> Result<Child> {
    let path = "/proc/self/exe";
    let mut child = Command::new(path)
        .arg(COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Error::new("start", path, e))?;
    let order = toml::to_string(job).map_err(|e| Error::said("encode", path, e.to_string()))?;
    // Dropping it closes the pipe, which is how the child knows that the order is whole.
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(order.as_bytes())
            .map_err(|e| Error::new("write to", path, e))?;
    }
    Ok(child)
}

fn listen(
    child: &mut Child,
    spin_up: f64,
    deadline: Duration,
    interrupted: &AtomicBool,
    outcome: &mut Outcome,
    progress: &mut dyn FnMut(&Message),
) -> Ended {
    let Some(mut pipe) = child.stdout.take() else {
        return Ended::Closed;
    };
    if fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_err() {
        return Ended::Closed;
    }
    let mut end = Instant::now() + deadline + Duration::from_secs_f64(spin_up);
    let mut pending = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return Ended::Interrupted;
        }
        if Instant::now() >= end {
            return Ended::Deadline;
        }
        match pipe.read(&mut chunk) {
            Ok(0) => return Ended::Closed,
            Ok(n) => pending.extend_from_slice(&chunk[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // A signal ends the wait at once; otherwise the flag and the deadline are looked at often.
                let _ = poll(
                    &mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)],
                    PollTimeout::from(100u8),
                );
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ended::Closed,
        }
        while let Some(length) = pending.iter().position(|&byte| byte == END) {
            let message: Vec<u8> = pending.drain(..=length).take(length).collect();
            let Some(message) = decode(&message) else {
                return Ended::Closed;
            };
            progress(&message);
            match message {
                Message::FirstOperation(_) => end = end.min(Instant::now() + deadline),
                // A fill takes as long as it takes, while it goes on.
                Message::Progress { .. } => {
                    end = end.max(Instant::now() + deadline.max(NO_PROGRESS));
                }
                _ => {}
            }
            if outcome.take(message) {
                return Ended::Done;
            }
        }
        if pending.len() > MAX_MESSAGE {
            return Ended::Closed;
        }
    }
}

fn decode(bytes: &[u8]) -> Option<Message> {
    from_toml(std::str::from_utf8(bytes).ok()?).ok()
}

impl Outcome {
    /// Takes one message in; true where it was the last.
    fn take(&mut self, message: Message) -> bool {
        fill::hear(&mut self.fill, &message);
        match message {
            Message::Started(_) | Message::Progress { .. } => {}
            Message::Filling(_) | Message::Filled { .. } | Message::Emptied {} => {}
            Message::Measured(measurement) => self.results.measured.push(*measurement),
            Message::NotMeasured(not) => self.results.not_measured.push(not),
            Message::Fault(fault) => self.results.faults.push(fault),
            Message::Canary(canary) => self.canary = Some(canary),
            Message::Proved(proved) => self.results.proved.push(proved),
            Message::Wrote(bytes) => self.written = bytes,
            Message::FirstOperation(milliseconds) => self.first_operation_ms = Some(milliseconds),
            Message::Health(values) => self.health = Some(values),
            Message::Unclean(names) => self.unclean = names,
            Message::Done {} => return true,
        }
        false
    }
}

/// Gives every probe without an answer the reason why the run ended.
fn fill_up(results: &mut Results, reason: Reason, detail: &str) {
    let answered = |probe: Probe| {
        results.measured.iter().any(|m| m.probe == probe)
            || results.not_measured.iter().any(|n| n.probe == probe)
    };
    let open: Vec<Probe> = results
        .wanted
        .iter()
        .copied()
        .filter(|&probe| !answered(probe))
        .collect();
    for probe in open {
        let detail = detail.to_string();
        results.not_measured.push(NotMeasured {
            probe,
            reason,
            detail,
        });
    }
}

/// Waits half a second for a child that ended or was killed. One that hangs in the kernel
/// cannot be waited for; it is left alone.
pub fn reap(child: &mut Child) -> String {
    for _ in 0..50 {
        match child.try_wait() {
            Ok(Some(status)) => return status.to_string(),
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => return error.to_string(),
        }
    }
    "it hangs in the kernel".into()
}

/// The child's side: reads its job from standard input, tells on standard output.
/// # Errors
/// Where the job cannot be read.
pub fn child() -> Result<()> {
    // A killed parent must not leave a child that goes on writing.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
        .map_err(|e| Error::new("set the death signal of", "/proc/self", e.into()))?;
    let mut order = String::new();
    io::stdin()
        .take(MAX_MESSAGE as u64)
        .read_to_string(&mut order)
        .map_err(|e| Error::new("read", "standard input", e))?;
    let job: Job =
        from_toml(&order).map_err(|e| Error::said("parse", "standard input", e.message()))?;
    // Honoured by bfq and mq-deadline; where it is not, our own pauses have to do.
    let _ = crate::sys::lowest_io_priority();
    let mut output = io::stdout();
    job::run(job, &mut |message| {
        // Without a reader there is nobody left to test for.
        let text = toml::to_string(&message).unwrap_or_default();
        if output
            .write_all(text.as_bytes())
            .and_then(|()| output.write_all(&[END]))
            .and_then(|()| output.flush())
            .is_err()
        {
            std::process::exit(70);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Fault, FaultKind};

    #[test]
    fn a_message_survives_the_pipe() {
        let fault = Message::Fault(Fault {
            probe: Probe::ReadBack,
            kind: FaultKind::DataLost,
            sector: Some(65536),
            count: 3,
            confirmed: true,
            detail: "zeros".into(),
        });
        for message in [
            fault,
            Message::Started(Probe::RandomRead),
            Message::Wrote(1 << 40),
            Message::Done {},
        ] {
            let text = toml::to_string(&message).unwrap();
            assert!(!text.as_bytes().contains(&END));
            assert_eq!(decode(text.as_bytes()), Some(message));
        }
        assert_eq!(decode(b"\xff"), None);
    }

    #[test]
    fn a_run_that_ends_early_leaves_no_probe_without_an_answer() {
        let mut results = Results {
            wanted: vec![Probe::RandomRead, Probe::ReadBack],
            ..Results::default()
        };
        fill_up(&mut results, Reason::NoAnswer, "no answer within 30 s");
        let reasons: Vec<_> = results
            .not_measured
            .iter()
            .map(|n| (n.probe, n.reason))
            .collect();
        assert_eq!(
            reasons,
            [
                (Probe::RandomRead, Reason::NoAnswer),
                (Probe::ReadBack, Reason::NoAnswer)
            ]
        );
    }
}
