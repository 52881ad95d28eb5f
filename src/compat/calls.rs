//! The system calls of a classic tool, each timed, and listed for tests: what is the same as the
//! tool's is what is in the list.

use super::SLOWEST;
use super::child::{Patience, Pulse, USUAL};
use crate::probe::histogram::Histogram;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Open,
    Read,
    Write,
    Fsync,
    Close,
    /// sync(2): all file systems.
    Sync,
    /// The ioctl BLKFLSBUF: the cache of a block device.
    FlushBuffers,
    Stat,
    Unlink,
}

const KINDS: usize = Kind::Unlink as usize + 1;

/// One call; `file` tells files apart by their number in the tool's own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub kind: Kind,
    pub file: usize,
    pub offset: u64,
    pub bytes: u64,
}

impl Call {
    /// A call without an offset.
    pub fn of(kind: Kind, file: usize) -> Self {
        Self {
            kind,
            file,
            offset: 0,
            bytes: 0,
        }
    }
}

/// Times calls, and stops before the next one once a signal came.
pub struct Calls {
    times: [Duration; KINDS],
    counts: [u64; KINDS],
    bytes: [u64; KINDS],
    latencies: [Option<Box<Histogram>>; KINDS],
    interrupted: Arc<AtomicBool>,
    /// Tells the parent that we go on; none in tests.
    pub pulse: Option<Pulse>,
    /// In order, where a test wants them.
    pub list: Option<Vec<Call>>,
}

impl Calls {
    pub fn new(interrupted: Arc<AtomicBool>) -> Self {
        Self {
            times: Default::default(),
            counts: Default::default(),
            bytes: Default::default(),
            latencies: Default::default(),
            interrupted,
            pulse: None,
            list: None,
        }
    }

    /// Forgets what was timed: the next run of a tool starts here.
    pub fn restart(&mut self) {
        *self = Self {
            list: self.list.take(),
            pulse: self.pulse.take(),
            ..Self::new(self.interrupted.clone())
        };
    }

    /// Makes one call.
    /// # Errors
    /// Those of the call, and `Interrupted` where a signal asked for the end.
    pub fn make<T>(&mut self, call: Call, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let start = self.begin(call.kind)?;
        let made = make()?;
        self.made(call, start.elapsed());
        Ok(made)
    }

    // Not once for each kind of call that `make` is made for.
    #[inline(never)]
    fn begin(&mut self, kind: Kind) -> io::Result<Instant> {
        self.check()?;
        let start = Instant::now();
        self.beat(start, self.patience(kind));
        Ok(start)
    }

    /// Counts a call that took so long.
    #[inline(never)]
    pub fn made(&mut self, call: Call, time: Duration) {
        let kind = call.kind as usize;
        self.times[kind] += time;
        self.counts[kind] += 1;
        self.bytes[kind] += call.bytes;
        self.latencies[kind]
            .get_or_insert_with(|| Box::new(Histogram::new()))
            .add(time);
        if let Some(list) = &mut self.list {
            list.push(call);
        }
    }

    /// Seconds that such a call may take: a flush those of all that was written, on the slowest
    /// medium; sync(2) is of everybody's.
    fn patience(&self, kind: Kind) -> Patience {
        match kind {
            Kind::Fsync | Kind::Close => {
                let all = self.bytes(Kind::Write) / SLOWEST as u64;
                USUAL.saturating_add(Patience::try_from(all).unwrap_or(Patience::MAX))
            }
            Kind::Sync | Kind::FlushBuffers => 10 * USUAL,
            _ => USUAL,
        }
    }

    /// Tells the parent that the next step may take so long.
    pub fn beat(&mut self, now: Instant, patience: Patience) {
        if let Some(pulse) = &mut self.pulse {
            pulse.beat(now, patience);
        }
    }

    /// # Errors
    /// `Interrupted` where a signal asked for the end.
    pub fn go_on(&mut self) -> io::Result<()> {
        self.beat(Instant::now(), USUAL);
        self.check()
    }

    fn check(&self) -> io::Result<()> {
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "stopped by a signal",
            )),
            false => Ok(()),
        }
    }

    /// Sleeps, but not past a signal.
    /// # Errors
    /// As [`Calls::go_on`].
    pub fn sleep(&mut self, seconds: f64) -> io::Result<()> {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            self.go_on()?;
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        Ok(())
    }

    pub fn seconds(&self, kind: Kind) -> f64 {
        self.times[kind as usize].as_secs_f64()
    }

    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    pub fn bytes(&self, kind: Kind) -> u64 {
        self.bytes[kind as usize]
    }

    /// `read median 60.1 ms, 99 % 61 ms, longest 0.95 s`; nothing where there was no such call.
    pub fn latency(&self, kind: Kind, words: &str) -> Option<String> {
        let histogram = self.latencies[kind as usize].as_ref()?;
        Some(format!(
            "{words}: median {}, 99 % {}, longest {}",
            span(histogram.percentile_us(0.5) / 1e6),
            span(histogram.percentile_us(0.99) / 1e6),
            span(histogram.max.as_secs_f64())
        ))
    }

    /// Calls of 250 ms or more.
    pub fn stalls(&self, kind: Kind) -> u32 {
        self.latencies[kind as usize]
            .as_ref()
            .map_or(0, |h| h.stalls)
    }
}

/// Seconds as a person says them.
pub fn span(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{} ms", crate::judge::short(s * 1e3)),
        s => format!("{s:.2} s"),
    }
}
