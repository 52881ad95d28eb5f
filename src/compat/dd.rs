//! `dd if=/dev/zero of=FILE`: zeros into a new file, no flush, close(2) inside the timer. Beside
//! its figure: what was still in memory, and the rate with what it takes to be durable.

use super::calls::{Call, Calls, Kind, span};
use super::{Figure, MIB, Ran, significant};
use crate::sys::Buffer;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Instant;

/// What `ibs= obs= count=`, or `bs= count=`, say.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub block: u64,
    pub count: u64,
}

impl Shape {
    /// Of 1 MiB blocks the article's command has `ibs=1M obs=1M`, which makes dd copy each block
    /// from one buffer to another (GNU coreutils, C_TWOBUFS); of others `bs=`, which does not.
    fn two_buffers(self) -> bool {
        self.block == MIB
    }

    pub fn bytes(self) -> u64 {
        self.block * self.count
    }
}

pub fn run(directory: &Path, shape: Shape, calls: &mut Calls) -> io::Result<Ran> {
    let path = directory.join("dd");
    let mut zeros = File::open("/dev/zero")?;
    let open = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(&path)
    };
    let mut file = calls.make(Call::of(Kind::Open, 0), open)?;
    let mut input = Buffer::in_base_pages(shape.block as usize)?;
    let mut output = Buffer::in_base_pages(if shape.two_buffers() { input.len() } else { 0 })?;
    let start = Instant::now();
    for block in 0..shape.count {
        zeros.read_exact(&mut input)?;
        let data = match shape.two_buffers() {
            true => {
                output.copy_from_slice(&input);
                &output
            }
            false => &input,
        };
        let call = Call {
            offset: block * shape.block,
            bytes: shape.block,
            ..Call::of(Kind::Write, 0)
        };
        calls.make(call, || file.write_all(data))?;
    }
    calls.make(Call::of(Kind::Close, 0), || close(file))?;
    let seconds = start.elapsed().as_secs_f64();
    let left = dirty();
    let list = calls.list.take(); // what follows is ours, not dd's
    // Writable: the cifs client flushes nothing for who may only read.
    let again = OpenOptions::new().write(true).open(&path)?;
    calls.make(Call::of(Kind::Fsync, 0), || again.sync_data())?;
    let durable = start.elapsed().as_secs_f64();
    fs::remove_file(&path)?;
    calls.list = list;
    Ok(told(shape.bytes(), seconds, durable, left, calls))
}

/// close(2), with its error.
fn close(file: File) -> io::Result<()> {
    nix::unistd::close(file).map_err(io::Error::from)
}

/// Bytes that wait to be written, of the whole machine: Dirty and Writeback of /proc/meminfo.
fn dirty() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let waits = |line: &&str| line.starts_with("Dirty:") || line.starts_with("Writeback:");
    let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    text.lines().filter(waits).filter_map(kib).sum::<u64>() << 10
}

fn told(bytes: u64, seconds: f64, durable: f64, left: u64, calls: &Calls) -> Ran {
    let rate = bytes as f64 / seconds.max(1e-9);
    let own = format!(
        "{bytes} bytes ({}, {}) copied, {} s, {}/s",
        amount(bytes as f64, 1000.0, true),
        amount(bytes as f64, 1024.0, true),
        significant(seconds, 6),
        amount(rate, 1000.0, false)
    );
    let split = format!(
        "time: write {}, close {}, then to be durable {}",
        span(calls.seconds(Kind::Write)),
        span(calls.seconds(Kind::Close)),
        span(calls.seconds(Kind::Fsync))
    );
    Ran {
        own,
        figure: Figure::new("dd", rate / 1e6, "MB/s"),
        beside: vec![
            format!("still in memory at dd's end: {} MiB", left.min(bytes) >> 20),
            format!(
                "durable: {:.1} MB/s",
                bytes as f64 / 1e6 / durable.max(1e-9)
            ),
            split,
        ],
    }
}

/// A size as GNU's human_readable() prints it: one decimal under 10, and for a rate under 100 too
/// where the base is 1000; rounded to nearest.
fn amount(value: f64, base: f64, whole: bool) -> String {
    let units = match base as u32 {
        1000 => ["B", "kB", "MB", "GB", "TB"],
        _ => ["B", "KiB", "MiB", "GiB", "TiB"],
    };
    let mut power = 0;
    let mut scaled = value;
    while scaled >= base && power + 1 < units.len() {
        scaled /= base;
        power += 1;
    }
    let decimal = power > 0 && (scaled < 9.95 || (!whole && base == 1000.0 && scaled < 99.95));
    match decimal {
        true => format!("{scaled:.1} {}", units[power]),
        false => format!("{scaled:.0} {}", units[power]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // What GNU dd printed in the articles for these bytes and seconds (article-figures.toml).
    #[test]
    fn amounts_are_printed_as_dd_prints_them() {
        let rate = |bytes: f64, seconds: f64| amount(bytes / seconds, 1000.0, false);
        assert_eq!(rate(1_073_741_824.0, 20.0831), "53.5 MB");
        assert_eq!(rate(5_242_880_000.0, 52.0089), "101 MB");
        assert_eq!(rate(5_242_880_000.0, 63.1331), "83.0 MB");
        assert_eq!(amount(1_073_741_824.0, 1000.0, true), "1.1 GB");
        assert_eq!(amount(1_073_741_824.0, 1024.0, true), "1.0 GiB");
        assert_eq!(amount(5_242_880_000.0, 1024.0, true), "4.9 GiB");
        assert_eq!(amount(536_870_912.0, 1000.0, true), "537 MB");
    }

    // What strace shows of dd (measurement.md 1.3): each block once, in order, no flush.
    #[test]
    fn dd_writes_each_block_once_in_order_and_never_flushes() {
        for block in [MIB, 10 * MIB] {
            let mut calls = Calls::new(Default::default());
            calls.list = Some(Vec::new());
            let directory = std::env::temp_dir().join(format!("dd-{block}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            run(&directory, Shape { block, count: 3 }, &mut calls).unwrap();
            fs::remove_dir(&directory).unwrap();
            let write = |n| Call {
                offset: n * block,
                bytes: block,
                ..Call::of(Kind::Write, 0)
            };
            let (open, close) = (Call::of(Kind::Open, 0), Call::of(Kind::Close, 0));
            assert_eq!(
                calls.list.unwrap(),
                [open, write(0), write(1), write(2), close]
            );
        }
    }
}
