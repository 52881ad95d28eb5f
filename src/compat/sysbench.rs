//! sysbench 0.4.12 `--test=fileio --file-test-mode=rndrw`: prepare, run and cleanup, with the
//! identical requests in the identical order. Beside its figure the time split into read, write
//! and fsync, which sysbench cannot tell.

use super::calls::{Call, Calls, Kind, span};
use super::{Figure, MIB, Ran, significant};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Files of a set (`--file-num`), and bytes of a request (`--file-block-size`).
pub const FILES: usize = 128;
const BLOCK: u64 = 16 << 10;
/// Every so many requests all files are flushed (`--file-fsync-freq`).
const FSYNC_EVERY: u64 = 100;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of all files together: 2 GiB.
    pub total: u64,
    /// 10,000.
    pub requests: u64,
}

pub const WHOLE: Shape = Shape {
    total: 2 << 30,
    requests: 10_000,
};
pub const QUICK: Shape = Shape {
    total: 256 << 20,
    requests: 500,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub write: bool,
    pub file: usize,
    pub offset: u64,
}

/// lrand48(3) as sysbench leaves it, unseeded: X = 0, X' = (0x5DEECE66D X + 0xB) mod 2^48.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xb) & ((1 << 48) - 1);
        self.0 >> 17
    }
}

/// SB_MAX_RND of sysbench 0.4: the largest random number.
const MAX_RANDOM: u64 = 0x3fff_ffff;

/// The requests of one run: 3 reads for 2 writes, each at a random block of all files.
pub fn requests(shape: Shape) -> impl Iterator<Item = Request> {
    let (mut reads, mut writes) = (0_u64, 0_u64);
    let mut random = Random(0);
    let per_file = shape.total / FILES as u64;
    (0..shape.requests).map(move |_| {
        let write = (reads + 1) as f64 / (writes + 1) as f64 >= 1.5;
        *(if write { &mut writes } else { &mut reads }) += 1;
        let share = (random.next() % MAX_RANDOM) as f64 / MAX_RANDOM as f64;
        let position = (share * shape.total as f64) as u64 / BLOCK * BLOCK;
        Request {
            write,
            file: (position / per_file) as usize,
            offset: position % per_file,
        }
    })
}

fn path(directory: &Path, file: usize) -> PathBuf {
    directory.join(format!("test_file.{file}"))
}

/// Writes the set: each file new, in blocks of zeros, flushed at its end. Not timed by sysbench.
/// # Errors
/// Those of the calls.
pub fn prepare(directory: &Path, shape: Shape, calls: &mut Calls) -> io::Result<()> {
    let zeros = vec![0; BLOCK as usize];
    for n in 0..FILES {
        let path = path(directory, n);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true);
        let mut file = calls.make(Call::of(Kind::Open, n), || options.open(&path))?;
        for block in 0..shape.total / FILES as u64 / BLOCK {
            let call = Call {
                offset: block * BLOCK,
                bytes: BLOCK,
                ..Call::of(Kind::Write, n)
            };
            calls.make(call, || file.write_all(&zeros))?;
        }
        calls.make(Call::of(Kind::Fsync, n), || file.sync_all())?;
    }
    Ok(())
}

/// Whether the whole set is there, as [`prepare`] makes it.
pub fn prepared(directory: &Path, shape: Shape) -> bool {
    (0..FILES).all(|n| {
        // No link of somebody's is followed.
        let meta = fs::symlink_metadata(path(directory, n));
        meta.is_ok_and(|meta| meta.is_file() && meta.len() == shape.total / FILES as u64)
    })
}

/// All requests, one at a time.
/// # Errors
/// Those of the calls.
pub fn run(directory: &Path, shape: Shape, calls: &mut Calls) -> io::Result<Ran> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let files = (0..FILES).map(|n| options.open(path(directory, n)));
    let files: Vec<File> = files.collect::<io::Result<_>>()?;
    let mut buffer = vec![0; BLOCK as usize];
    let start = Instant::now();
    let mut dirty = false;
    for (n, request) in (1..).zip(requests(shape)) {
        let file = &files[request.file];
        let call = Call {
            kind: if request.write {
                Kind::Write
            } else {
                Kind::Read
            },
            file: request.file,
            offset: request.offset,
            bytes: BLOCK,
        };
        calls.make(call, || match request.write {
            true => file.write_all_at(&buffer, request.offset),
            false => file.read_exact_at(&mut buffer, request.offset),
        })?;
        dirty |= request.write;
        // The flush at the end (`--file-fsync-end`) is this one: 10,000 is a multiple of 100.
        if dirty && (n % FSYNC_EVERY == 0 || n == shape.requests) {
            for (n, file) in files.iter().enumerate() {
                calls.make(Call::of(Kind::Fsync, n), || file.sync_all())?;
            }
            dirty = false;
        }
    }
    Ok(told(start.elapsed().as_secs_f64(), calls))
}

/// sysbench's lines; its `Mb` are 2^20 bytes and its `Kb` 2^10.
fn told(seconds: f64, calls: &Calls) -> Ran {
    let mib = |kind| calls.bytes(kind) as f64 / MIB as f64;
    let (read, written) = (mib(Kind::Read), mib(Kind::Write));
    let rate = (read + written) / seconds.max(1e-9);
    let requests = calls.count(Kind::Read) + calls.count(Kind::Write);
    let own = format!(
        "Read {read}Mb  Written {written}Mb  Total transferred {}Mb  ({})\n{:>8.2} Requests/sec executed",
        read + written,
        printed(rate),
        requests as f64 / seconds.max(1e-9)
    );
    let part = |kind, words: &str| {
        let each = calls.seconds(kind) / calls.count(kind).max(1) as f64;
        format!(
            "{words} {} ({} of {})",
            span(calls.seconds(kind)),
            calls.count(kind),
            span(each)
        )
    };
    let split = format!(
        "{}, {}, {}",
        part(Kind::Read, "time: read"),
        part(Kind::Write, "write"),
        part(Kind::Fsync, "fsync")
    );
    let mut beside = vec![split];
    beside.extend(calls.latency(Kind::Fsync, "one fsync"));
    beside.push("most reads come from memory: the files were written just before".into());
    Ran {
        own,
        figure: Figure::new("sysbench 0.4.12", rate, "MiB/s"),
        beside,
    }
}

/// A rate as sb_print_value_size() has it: five significant digits, K, M and G of 1024.
fn printed(mib_s: f64) -> String {
    let (value, unit) = match mib_s {
        rate if rate < 1.0 => (rate * 1024.0, "Kb"),
        rate if rate >= 1024.0 => (rate / 1024.0, "Gb"),
        rate => (rate, "Mb"),
    };
    format!("{}{unit}/sec", significant(value, 5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    // 156.25 MiB in the seconds of article-figures.toml (mean_exact), and %.5g of 8.0.
    #[test]
    fn rates_are_printed_as_sysbench_prints_them() {
        assert_eq!(printed(156.25 / 16.4), "9.5274Mb/sec");
        assert_eq!(printed(156.25 / 720.7), "222.01Kb/sec");
        assert_eq!(printed(156.25 / 913.5), "175.15Kb/sec");
        assert_eq!(printed(8.0), "8Mb/sec");
        assert_eq!(printed(138.7), "138.7Mb/sec");
        assert_eq!(printed(1032.8), "1.0086Gb/sec"); // seen of 0.4.12 on a disk in memory
    }

    fn digest(text: &str) -> String {
        let mut sum = Command::new("sha256sum")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = sum.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        let output = sum.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout[..64]).into()
    }

    /// In memory where that can be: 12,800 flushes take their time on a disk.
    fn directory(name: &str) -> PathBuf {
        let memory = Path::new("/dev/shm");
        let base = match memory.is_dir() {
            true => memory.into(),
            false => std::env::temp_dir(),
        };
        let directory = base.join(format!("sysbench-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    // measurement.md 1.4: the list checked against strace of sysbench 0.4.12, from our own trace.
    #[test]
    fn the_calls_of_a_run_are_those_of_sysbench_0_4_12() {
        let directory = directory("run");
        for n in 0..FILES {
            // Of holes: what is read does not matter here.
            let file = File::create(path(&directory, n)).unwrap();
            file.set_len(16 << 20).unwrap();
        }
        let mut calls = Calls::new(Default::default());
        calls.list = Some(Vec::new());
        run(&directory, WHOLE, &mut calls).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        let mut list = calls.list.unwrap();
        // 128 flushes, of each file in turn, after each hundred requests: 12,800.
        let flushes: Vec<Call> = (0..128).map(|n| Call::of(Kind::Fsync, n)).collect();
        for cycle in 1..=100 {
            let rest = list.split_off(cycle * 100);
            assert_eq!(rest[..128], flushes, "cycle {cycle}");
            list.extend_from_slice(&rest[128..]);
        }
        assert!(list.iter().all(|call| call.bytes == 16384));
        let line = |call: &Call| {
            let kind = if call.kind == Kind::Write { "W" } else { "R" };
            format!("{kind} {} {}\n", call.file, call.offset)
        };
        let text: String = list.iter().map(line).collect();
        let first = "R 0 0\nW 0 4227072\nR 10 11026432\nW 45 3686400\nR 93 5668864\n\
                     R 23 6373376\nW 23 10534912\nR 124 12206080\nW 6 14221312\nR 116 5603328\n";
        assert!(text.starts_with(first), "{}", &text[..200]);
        assert!(text.ends_with("W 93 6881280\nR 80 9207808\n"));
        assert_eq!((text.matches('R').count(), list.len()), (6000, 10_000));
        let want = "7a686aeab1f6f0d14e29ad24591d775b601795a887e178f0fd0617ba644cb7fb";
        assert_eq!(digest(&text), want);
    }

    // measurement.md 1.4, on files of a 64th: 16 writes of 16 KiB in order, then a flush.
    #[test]
    fn each_file_is_written_in_order_and_flushed() {
        let directory = directory("prepare");
        let shape = Shape {
            total: 32 << 20,
            requests: 0,
        };
        let mut calls = Calls::new(Default::default());
        calls.list = Some(Vec::new());
        prepare(&directory, shape, &mut calls).unwrap();
        assert!(prepared(&directory, shape));
        fs::remove_dir_all(&directory).unwrap();
        let file = |n| {
            let write = move |block: u64| Call {
                offset: block * 16384,
                bytes: 16384,
                ..Call::of(Kind::Write, n)
            };
            let open = [Call::of(Kind::Open, n)];
            open.into_iter()
                .chain((0..16).map(write))
                .chain([Call::of(Kind::Fsync, n)])
        };
        assert_eq!(
            calls.list.unwrap(),
            (0..128).flat_map(file).collect::<Vec<_>>()
        );
    }
}
