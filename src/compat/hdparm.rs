//! `hdparm -t` and `hdparm -T` (9.65): buffered reads of 2 MiB from the start of a device for
//! 3 s, and the same 2 MiB from the page cache for 2 s. Beside the figure what an average hides:
//! the longest read, and whether the disk was read at all.

use super::calls::{Call, Calls, Kind, span};
use super::{Figure, MIB, Ran};
use crate::probe::io::Counters;
use crate::sys::{self, Buffer};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a read (TIMING_BUF_MB of hdparm.c).
pub const READ: u64 = 2 * MIB;
/// Seconds of `-t` and of `-T`.
const BUFFERED: Duration = Duration::from_secs(3);
const CACHED: Duration = Duration::from_secs(2);

/// What hdparm does around its loops: settle before, drop the caches of the device after.
pub struct Device {
    file: File,
    bytes: u64,
    buffer: Buffer,
    /// `/sys/class/block/D/stat`, where there is one.
    stat: Option<std::path::PathBuf>,
    /// Seconds that hdparm sleeps after sync(2) for the disk to settle.
    settle: f64,
}

impl Device {
    /// # Errors
    /// Where the device cannot be opened or its size is not known.
    pub fn open(path: &Path, settle: f64) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(path)?;
        let bytes = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let mut buffer = Buffer::in_base_pages(READ as usize)?;
        buffer.fill(0); // each page is there before the clock runs
        sys::lock_memory(&buffer)?;
        let node = path.canonicalize()?;
        let name = node.file_name().unwrap_or_default();
        let stat = Path::new("/sys/class/block").join(name).join("stat");
        Ok(Self {
            file,
            bytes,
            buffer,
            stat: stat.exists().then_some(stat),
            settle,
        })
    }

    fn counted(&self) -> Option<u64> {
        Counters::read(self.stat.as_ref()?)
            .ok()
            .map(|counters| counters.read)
    }

    /// `flush_buffer_cache` of hdparm.c, without its ioctl to the drive, which only IDE knew.
    fn flush(&self, calls: &mut Calls) -> io::Result<()> {
        calls.make(Call::of(Kind::Sync, 0), sync)?;
        calls.make(Call::of(Kind::Fsync, 0), || ignored(self.file.sync_all()))?;
        calls.make(Call::of(Kind::Fsync, 0), || ignored(self.file.sync_data()))?;
        calls.make(Call::of(Kind::Sync, 0), sync)?;
        calls.make(Call::of(Kind::FlushBuffers, 0), || {
            ignored(sys::flush_buffers(&self.file))
        })?;
        calls.make(Call::of(Kind::Sync, 0), sync)
    }

    fn read(&mut self, offset: u64, calls: &mut Calls) -> io::Result<usize> {
        let call = Call {
            offset,
            bytes: READ,
            ..Call::of(Kind::Read, 0)
        };
        let (file, buffer) = (&mut self.file, &mut self.buffer[..]);
        let got = calls.make(call, || file.read(buffer))?;
        // hdparm touches each sector, so that the data reaches the processor.
        let touched: u8 = buffer.iter().step_by(512).fold(0, |sum, byte| sum ^ byte);
        std::hint::black_box(touched);
        Ok(got)
    }
}

fn sync() -> io::Result<()> {
    nix::unistd::sync();
    Ok(())
}

/// hdparm takes no notice of what fsync answers, and goes on where the cache cannot be dropped.
fn ignored(_: io::Result<()>) -> io::Result<()> {
    Ok(())
}

/// `hdparm -t`. Nothing is dropped from the cache before: after `-T`, which does, it is cold.
/// # Errors
/// Those of the calls.
pub fn buffered(device: &mut Device, calls: &mut Calls) -> io::Result<Ran> {
    calls.make(Call::of(Kind::Sync, 0), sync)?;
    calls.sleep(device.settle)?;
    // A smaller one has not even a first read, which is an error and no figure.
    let most = (device.bytes / READ).max(1);
    let before = device.counted();
    let mut reads = 0;
    let start = Instant::now();
    let mut seconds = 0.0;
    device.file.seek(SeekFrom::Start(0))?;
    while reads < most && seconds < BUFFERED.as_secs_f64() {
        if device.read(reads * READ, calls)? < READ as usize {
            return Err(io::Error::other("read(2097152) returned less"));
        }
        reads += 1;
        seconds = start.elapsed().as_secs_f64();
    }
    let after = device.counted();
    let mut beside = vec![format!(
        "{:.2} MB/s",
        (reads * READ) as f64 / 1e6 / seconds.max(1e-9)
    )];
    beside.extend(calls.latency(Kind::Read, "one read of 2 MiB"));
    beside.extend(stall(calls));
    beside.extend(overshoot(seconds));
    beside.push(warm(before, after, reads * READ));
    device.flush(calls)?;
    let own = format!("Timing buffered disk reads: {}", printed(reads, seconds));
    let rate = (reads * READ) as f64 / MIB as f64 / seconds.max(1e-9);
    Ok(Ran {
        own,
        figure: Figure::new("hdparm -t", rate, "MiB/s"),
        beside,
    })
}

/// `hdparm -T`: the same 2 MiB from memory, less what the loop itself takes.
/// # Errors
/// Those of the calls.
pub fn cached(device: &mut Device, calls: &mut Calls) -> io::Result<Ran> {
    calls.make(Call::of(Kind::Sync, 0), sync)?;
    calls.sleep(device.settle)?;
    device.file.seek(SeekFrom::Start(0))?;
    device.read(0, calls)?;
    device.flush(calls)?;
    calls.sleep(device.settle.min(1.0))?;
    let mut reads = 0;
    let start = Instant::now();
    while start.elapsed() < CACHED {
        device.file.seek(SeekFrom::Start(0))?;
        device.read(0, calls)?;
        reads += 1;
    }
    let whole = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for _ in 0..reads {
        device.file.seek(SeekFrom::Start(0))?;
        std::hint::black_box(Instant::now());
    }
    let seconds = (whole - start.elapsed().as_secs_f64()).max(1e-9);
    device.flush(calls)?;
    calls.sleep(device.settle.min(1.0))?;
    let rate = (reads * READ) as f64 / MIB as f64 / seconds;
    Ok(Ran {
        own: format!("Timing cached reads:   {}", printed(reads, seconds)),
        figure: Figure::new("hdparm -T", rate, "MiB/s"),
        beside: vec!["that is memory, not the disk".into()],
    })
}

/// hdparm's `MB` are 2^20 bytes, its `kB` 2^10.
fn printed(reads: u64, seconds: f64) -> String {
    let mib = reads * READ / MIB;
    let rate = mib as f64 / seconds.max(1e-9);
    match rate {
        r if r > 1.0 => format!("{mib:3} MB in {seconds:5.2} seconds = {r:6.2} MB/sec"),
        r => format!(
            "{mib:3} MB in {seconds:5.2} seconds = {:6.2} kB/sec",
            r * 1024.0
        ),
    }
}

/// The average of 3 s hides one long read in it.
fn stall(calls: &Calls) -> Option<String> {
    match calls.stalls(Kind::Read) {
        0 => None,
        n => Some(format!(
            "{n} reads took 250 ms or more, which the average hides"
        )),
    }
}

/// hdparm does not say whether it read the disk or the cache of an earlier reader.
fn warm(before: Option<u64>, after: Option<u64>, bytes: u64) -> String {
    let (Some(before), Some(after)) = (before, after) else {
        return "whether the disk was read is not known: it has no counters".into();
    };
    match after.saturating_sub(before) as f64 / bytes.max(1) as f64 {
        share if share >= 0.9 => "cold: all of it came from the disk".into(),
        share => format!(
            "warm: {:.0} % came from memory, not from the disk",
            100.0 * (1.0 - share)
        ),
    }
}

/// A read that ended so long after the 3 s took at least that long.
pub fn overshoot(seconds: f64) -> Option<String> {
    let over = seconds - BUFFERED.as_secs_f64();
    (over >= 0.25).then(|| format!("the last read took {} at least", span(over)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // article-figures.toml: rock64_usb3_hdparm_t, second run, and pi3bp-like kB.
    #[test]
    fn rates_are_printed_as_hdparm_prints_them() {
        assert_eq!(printed(63, 3.96), "126 MB in  3.96 seconds =  31.82 MB/sec");
        assert_eq!(
            printed(795, 1.9991),
            "1590 MB in  2.00 seconds = 795.36 MB/sec"
        );
        assert_eq!(printed(1, 4.0), "  2 MB in  4.00 seconds = 512.00 kB/sec");
    }

    // Eighteen of the ROCK64's twenty runs on USB 3 ran 0.93 to 0.98 s over: one read each
    // (article-figures.toml, overshoot_seconds).
    #[test]
    fn the_stall_that_hid_in_eighteen_of_twenty_runs() {
        let figures: toml::Table = include_str!("../../tests/cases/article-figures.toml")
            .parse()
            .unwrap();
        let mut found = 0;
        for name in ["rock64_usb3_hdparm_t", "rock64_usb3_usbnic_hdparm_t"] {
            let seconds = figures["experiment"][name]["run_seconds"]
                .as_array()
                .unwrap();
            let over = |v: &toml::Value| overshoot(v.as_float().unwrap());
            found += seconds
                .iter()
                .filter_map(over)
                .filter(|o| o.contains("9"))
                .count();
        }
        assert_eq!(found, 18);
    }

    fn traced(name: &str, of: fn(&mut Device, &mut Calls) -> io::Result<Ran>) -> Vec<Call> {
        let path = std::env::temp_dir().join(format!("hdparm-{name}-{}", std::process::id()));
        std::fs::write(&path, vec![1; 3 * READ as usize]).unwrap();
        let mut device = Device::open(&path, 0.0).unwrap();
        let mut calls = Calls::new(Default::default());
        calls.list = Some(Vec::new());
        of(&mut device, &mut calls).unwrap();
        std::fs::remove_file(&path).unwrap();
        calls.list.unwrap()
    }

    fn read(offset: u64) -> Call {
        Call {
            offset,
            bytes: 2_097_152,
            ..Call::of(Kind::Read, 0)
        }
    }

    // measurement.md 1.1: what strace shows of hdparm 9.65 after its loop.
    fn flushed() -> [Call; 6] {
        [
            Kind::Sync,
            Kind::Fsync,
            Kind::Fsync,
            Kind::Sync,
            Kind::FlushBuffers,
            Kind::Sync,
        ]
        .map(|kind| Call::of(kind, 0))
    }

    #[test]
    fn hdparm_t_reads_from_the_start_in_order_and_flushes_after() {
        let list = traced("t", buffered);
        let mut want = vec![Call::of(Kind::Sync, 0)];
        want.extend([0, 2_097_152, 4_194_304].map(read));
        want.extend(flushed());
        assert_eq!(list, want);
    }

    // measurement.md 1.2.
    #[test]
    fn hdparm_t_of_memory_reads_the_same_2_mib_again_and_again() {
        let list = traced("T", cached);
        let mut want = vec![Call::of(Kind::Sync, 0), read(0)];
        want.extend(flushed());
        assert_eq!(list[..8], want);
        let (again, after) = list[8..].split_at(list.len() - 8 - 6);
        assert!(again.len() > 1 && again.iter().all(|call| *call == read(0)));
        assert_eq!(after, flushed());
    }
}
