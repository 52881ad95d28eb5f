//! What the probes share: timing each operation, leaving room for others, the disk's own
//! counters, and finding the sector behind an error.

use super::histogram::{Histogram, Windows};
use super::{Fault, FaultKind, Measurement, Probe, Reason, Stop};
use crate::error::{Error, Result, cause_text};
use nix::errno::Errno;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of one sequential operation.
pub const MIB: u64 = 1 << 20;

/// The longest time that we keep a disk busy without a pause, and the pause: PID 1 of
/// Raspberry Pi OS must get its turn well within a minute, and people notice half a second.
const BURST: Duration = Duration::from_millis(400);
const PAUSE: Duration = Duration::from_millis(20);

/// Leaves room for others between bursts.
pub struct Pace {
    burst: Duration,
}

impl Pace {
    pub fn new() -> Self {
        Self {
            burst: Duration::ZERO,
        }
    }

    /// `busy` more was spent on the disk; true where a pause is due.
    pub fn due(&mut self, busy: Duration) -> bool {
        self.burst += busy;
        self.burst >= BURST
    }

    pub fn pause(&mut self) {
        self.burst = Duration::ZERO;
        std::thread::sleep(PAUSE);
    }
}

/// Times operations and makes a measurement of them.
pub struct Meter {
    probe: Probe,
    histogram: Histogram,
    windows: Windows,
    busy: Duration,
    bytes: u64,
    pace: Pace,
}

impl Meter {
    pub fn new(probe: Probe) -> Self {
        Self {
            probe,
            histogram: Histogram::new(),
            windows: Windows::new(if probe.sequential() { 4 } else { 32 }),
            busy: Duration::ZERO,
            bytes: 0,
            pace: Pace::new(),
        }
    }

    /// Times one operation of `bytes` bytes; a failed one is not counted. Pauses where it is due.
    pub fn time(
        &mut self,
        bytes: u64,
        operation: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let start = Instant::now();
        operation()?;
        let latency = start.elapsed();
        self.latency(latency, bytes);
        self.worked(1, latency);
        if self.pace.due(latency) {
            self.pace.pause();
        }
        Ok(())
    }

    /// One operation ended after `latency`; operations overlap where several are in flight.
    pub fn latency(&mut self, latency: Duration, bytes: u64) {
        self.histogram.add(latency);
        self.bytes += bytes;
    }

    /// `operations` ended in `busy` seconds of work on the disk.
    pub fn worked(&mut self, operations: u64, busy: Duration) {
        self.windows.add(operations, busy);
        self.busy += busy;
    }

    /// A flush that belongs to the figure but is no operation of its own.
    pub fn flush(&mut self, flush: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let start = Instant::now();
        flush()?;
        self.busy += start.elapsed();
        Ok(())
    }

    pub fn busy(&self) -> Duration {
        self.busy
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn median(&self) -> Duration {
        Duration::from_secs_f64(self.histogram.percentile_us(0.5) / 1e6)
    }

    pub fn measurement(&self, depth: u32, direct: bool) -> Measurement {
        let operations = self.histogram.operations;
        // The final flush is in no window, so that the whole may be slower than each of them.
        let mean = operations as f64 / self.busy.as_secs_f64().max(1e-9);
        let rate = self.windows.slowest_rate().min(mean);
        let size = self.bytes as f64 / operations.max(1) as f64;
        Measurement {
            probe: self.probe,
            operations,
            bytes: self.bytes,
            seconds: self.busy.as_secs_f64(),
            depth,
            direct,
            whole_disk: true,
            median_us: self.histogram.percentile_us(0.5),
            p99_us: self.histogram.percentile_us(0.99),
            max_us: self.histogram.max.as_secs_f64() * 1e6,
            slowest_window: if self.probe.sequential() {
                rate * size / 1e6
            } else {
                rate
            },
            stalls: self.histogram.stalls,
            long_stalls: self.histogram.long_stalls,
            counted_bytes: 0,
            foreign_bytes: 0,
            waited: 0.0,
            places: Vec::new(),
            histogram: self.histogram.octaves(),
        }
    }
}

/// Reads exactly `buffer.len()` bytes at `offset`.
pub fn read_exact(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the device ends here",
                ));
            }
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The disk's own counters: sectors of 512 bytes read and written (`/sys/block/D/stat`,
/// fields 3 and 7 of Documentation/block/stat.rst), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    pub read: u64,
    pub written: u64,
}

impl Counters {
    /// # Errors
    /// Where the file cannot be read or is not 11 numbers or more.
    pub fn read(stat: &Path) -> Result<Self> {
        let text = fs::read_to_string(stat).map_err(|e| Error::new("read", stat, e))?;
        Self::parse(&text)
            .ok_or_else(|| Error::said("read", stat, "not the counters of a block device"))
    }

    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        if fields.len() < 11 {
            return None;
        }
        Some(Self {
            read: fields[2].wrapping_mul(512),
            written: fields[6].wrapping_mul(512),
        })
    }
}

/// Seconds that this process ever waited for a processor: the second field, nanoseconds, of
/// `/proc/self/schedstat` (Documentation/scheduler/sched-stats.rst); 0 where the kernel has none.
pub fn waited() -> f64 {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let field = text.split_whitespace().nth(1);
    field.and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Names a failed operation: a fault of the medium, or a reason why nothing was measured.
pub fn stop(probe: Probe, sys: &Path, error: &io::Error, what: &str) -> Stop {
    let detail = format!("{what}: {}", cause_text(error));
    // A disk that was pulled out answers EIO or ENODEV; its directory in /sys is gone then.
    if !sys.exists() {
        return Stop::NotMeasured(Reason::DeviceGone, detail);
    }
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENODEV | Errno::ENXIO | Errno::ENOMEDIUM) => {
            Stop::NotMeasured(Reason::DeviceGone, detail)
        }
        Some(Errno::ENOSPC | Errno::EDQUOT) => Stop::NotMeasured(Reason::NoSpace, detail),
        Some(Errno::EROFS) => Stop::NotMeasured(Reason::ReadOnly, detail),
        Some(Errno::EACCES | Errno::EPERM) => Stop::NotMeasured(Reason::NotPermitted, detail),
        Some(Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EINVAL) => {
            Stop::NotMeasured(Reason::Unsupported, detail)
        }
        Some(Errno::EIO | Errno::EREMOTEIO | Errno::EILSEQ | Errno::ENODATA | Errno::ETIMEDOUT) => {
            Stop::Fault(Fault {
                probe,
                kind: if probe.writes() {
                    FaultKind::WriteError
                } else {
                    FaultKind::ReadError
                },
                sector: None,
                count: 1,
                confirmed: false,
                detail,
            })
        }
        _ => Stop::NotMeasured(Reason::Other, detail),
    }
}

/// Finds the first sector (512 bytes) behind a failed read of `buffer.len()` bytes at `offset`
/// by halving: some ten reads, since each may take the kernel's time-out. None where a second
/// read of the whole works, or the time is up.
pub fn first_bad_sector(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
    block: usize,
    end: Instant,
) -> Option<u64> {
    read_exact(file, buffer, offset).err()?;
    let (mut low, mut len) = (0, buffer.len());
    while len > block {
        if Instant::now() >= end {
            return Some((offset + low as u64) / 512);
        }
        let half = (len / 2).next_multiple_of(block);
        if read_exact(file, &mut buffer[low..low + half], offset + low as u64).is_err() {
            len = half;
        } else {
            low += half;
            len -= half;
        }
    }
    Some((offset + low as u64) / 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    // hardware.md section 5.2: 17 fields since 5.5, 11 before 4.18, sectors are always 512 bytes.
    #[test]
    fn counters_are_read_from_old_and_new_kernels() {
        let new = "  139 0 4824 21 40 3 33000 17 0 24 38 0 0 0 0 2 0\n";
        let want = Counters {
            read: 4824 * 512,
            written: 33000 * 512,
        };
        assert_eq!(Counters::parse(new), Some(want));
        assert_eq!(
            Counters::parse("139 0 4824 21 40 3 33000 17 0 24 38"),
            Some(want)
        );
    }

    #[test]
    fn counters_that_are_none_are_refused() {
        for text in ["", "1 2 3", "1 2 x 4 5 6 7 8 9 10 11"] {
            assert_eq!(Counters::parse(text), None, "{text:?}");
        }
    }
}
