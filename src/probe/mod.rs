//! Active measurements: each probe does I/O within a budget and yields a measurement.

pub mod budget;
pub mod canary;
pub mod capacity;
pub mod extents;
pub mod fat;
pub mod fill;
pub mod histogram;
pub mod io;
pub mod job;
pub mod pattern;
pub mod place;
pub mod random_read;
pub mod random_write;
pub mod read_back;
pub mod scratch;
pub mod sequential_read;
pub mod unclean;
pub mod write;

use serde::{Deserialize, Serialize};

/// The probes, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probe {
    /// 1 MiB reads at the start, the middle and the end of the whole disk.
    SequentialRead,
    /// 4 KiB reads across the whole disk, one at a time.
    RandomRead,
    /// The same with 32 in flight.
    RandomReadQueued,
    /// A new file in 1 MiB writes, flushed inside the timer.
    DurableWrite,
    /// 4 KiB overwrites of that file, a flush for each.
    RandomWriteDurable,
    /// The same with one flush at the end, where the disk has a volatile cache.
    RandomWrite,
    /// Everything written, read twice past every cache and compared.
    ReadBack,
    /// Is the disk as large as it claims?
    Capacity,
    /// 4 KiB overwrites across the whole disk, one at a time, flushed once at the end.
    RandomWriteSpan,
    /// Blocks that the last run left, read after a power cycle.
    Canary,
    /// All free space but the reserve, written and read back.
    Fill,
}

impl Probe {
    /// The words for a person.
    pub fn words(self) -> &'static str {
        match self {
            Probe::SequentialRead => "sequential read",
            Probe::RandomRead => "random read",
            Probe::RandomReadQueued => "random read, queued",
            Probe::DurableWrite => "durable write",
            Probe::RandomWriteDurable => "random write, durable",
            Probe::RandomWrite => "random write",
            Probe::ReadBack => "read-back",
            Probe::Capacity => "capacity",
            Probe::Canary => "canary",
            Probe::Fill => "fill",
            Probe::RandomWriteSpan => "random write, spread",
        }
    }

    /// MB/s for sequential probes, IOPS for random ones.
    pub fn unit(self) -> &'static str {
        if self.sequential() { "MB/s" } else { "IOPS" }
    }

    pub fn sequential(self) -> bool {
        matches!(
            self,
            Probe::SequentialRead | Probe::DurableWrite | Probe::ReadBack
        )
    }

    pub fn writes(self) -> bool {
        matches!(
            self,
            Probe::DurableWrite
                | Probe::RandomWrite
                | Probe::RandomWriteDurable
                | Probe::RandomWriteSpan
        )
    }
}

/// What one probe measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    pub probe: Probe,
    pub operations: u64,
    pub bytes: u64,
    /// Seconds in which an operation or the final flush was under way; our own pauses are not in it.
    pub seconds: f64,
    /// Operations in flight at a time.
    pub depth: u32,
    /// False where the file system refused direct I/O and each write was flushed instead.
    pub direct: bool,
    /// The read probes read the whole disk; false where they could only read the scratch file.
    pub whole_disk: bool,
    /// Latency of one operation in µs: half were faster.
    pub median_us: f64,
    /// 99 of 100 were faster, µs.
    pub p99_us: f64,
    pub max_us: f64,
    /// The slowest window of 4 MiB (sequential) or 32 operations (random), in the probe's unit.
    pub slowest_window: f64,
    /// Operations of 250 ms or more.
    pub stalls: u32,
    /// Operations of 1 s or more.
    pub long_stalls: u32,
    /// Bytes that the disk's own counters moved by meanwhile, whoever caused it.
    pub counted_bytes: u64,
    /// Bytes among them, or in the other direction, that others read or wrote.
    #[serde(default)]
    pub foreign_bytes: u64,
    /// Seconds in which this process was ready to run and had to wait for a processor.
    #[serde(default)]
    pub waited: f64,
    /// Rate at the start, the middle and the end of the disk, MB/s; empty for other probes.
    #[serde(default)]
    pub places: Vec<f64>,
    /// Pairs of a bucket's lower bound in µs and the operations in it; empty buckets left out.
    #[serde(default)]
    pub histogram: Vec<(f64, u32)>,
}

impl Measurement {
    /// The figure in the probe's unit: MB/s (10^6) or operations a second.
    pub fn figure(&self) -> f64 {
        if self.seconds <= 0.0 {
            0.0
        } else if self.probe.sequential() {
            self.bytes as f64 / 1e6 / self.seconds
        } else {
            self.operations as f64 / self.seconds
        }
    }

    /// The bytes of it in MB/s (10^6), whatever the probe's own unit.
    pub fn mb_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }
}

/// Why something was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The disk's own counters did not move by what we claim: it was memory.
    Cached,
    NoSpace,
    ReadOnly,
    NotMounted,
    NotPermitted,
    DeviceGone,
    /// The child gave no answer before the deadline.
    NoAnswer,
    Interrupted,
    /// The time of the profile was spent before.
    Time,
    Unsupported,
    /// Anything else; the detail says what.
    Other,
}

/// A probe that yielded nothing, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotMeasured {
    pub probe: Probe,
    pub reason: Reason,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The kernel said that a read failed.
    ReadError,
    /// The kernel said that a write or a flush failed.
    WriteError,
    /// What was written is not there: zeros, older or foreign content.
    DataLost,
    /// What was written came back with some bits changed.
    DataChanged,
    /// Something else that we wrote is there instead.
    DataOverwritten,
    /// The disk takes addresses modulo a smaller size.
    CapacityWraps,
    /// The disk keeps nothing beyond a smaller size.
    CapacityLost,
    /// What an earlier run wrote was gone after a power cycle.
    DataForgotten,
}

/// What a probe without a figure proved, and how far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proved {
    pub probe: Probe,
    pub sentence: String,
}

/// Data or sectors that proved bad.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    pub probe: Probe,
    pub kind: FaultKind,
    /// First bad sector of the disk (512 bytes), where it is known.
    pub sector: Option<u64>,
    /// Bad operations or 4 KiB blocks.
    pub count: u64,
    /// A second try showed the same.
    pub confirmed: bool,
    pub detail: String,
}

/// How a probe ended when it did not yield a measurement.
#[derive(Debug)]
pub enum Stop {
    NotMeasured(Reason, String),
    Fault(Fault),
}

/// What the child of a medium tells the parent, in this order for each probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// A probe starts.
    Started(Probe),
    Measured(Box<Measurement>),
    NotMeasured(NotMeasured),
    Fault(Fault),
    Proved(Proved),
    /// What the next run has to know of the canary; without a path there is none.
    Canary(canary::Canary),
    /// A fill begins, or goes on where an earlier run was stopped.
    Filling(fill::Fill),
    /// A part of it was written, or read back: MB/s, 0 where something in it was wrong.
    Filled {
        read: bool,
        mb_s: f64,
    },
    /// How far it is: bytes of this pass (`all` is 0 while files are removed), and MB/s of late.
    /// The deadline moves with it.
    Progress {
        read: bool,
        done: u64,
        all: u64,
        mb_s: f64,
    },
    /// Its space is given back.
    Emptied {},
    /// Bytes written so far by this run, counted before each write.
    Wrote(u64),
    /// The first operation of all, which bears a spin-up: milliseconds.
    FirstOperation(f64),
    /// What the disk counts about itself.
    Health(crate::evidence::smart::Values),
    /// File systems that were not unmounted: `sda1 (vfat), sda2 (ntfs)`.
    Unclean(String),
    /// Every probe had its turn.
    Done {},
}
