//! The classic tools, reproduced: the very I/O of hdparm, dd, sysbench and Raspberry Pi's card
//! test, their own figure in their own unit, and beside it what they hide.

mod agnostics;
mod calls;
mod child;
mod clock;
pub mod compare;
mod dd;
mod hdparm;
mod listing;
mod statistics;
mod sysbench;
mod target;

use crate::error::{Error, Result, printable, printable_path};
use crate::judge::{Verdict, short};
pub use crate::probe::io::MIB;
use crate::probe::scratch;
use crate::state::{Directory, Kept};
use crate::{INTERNAL, USAGE, failed, say};
use argh::FromArgs;
use calls::Calls;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use statistics::Statistics;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use target::Target;

/// do the very I/O of a classic tool: hdparm, dd, sysbench, agnostics or listing
#[derive(FromArgs)]
#[argh(subcommand, name = "compat")]
pub struct Arguments {
    /// hdparm, dd, sysbench, agnostics or listing
    #[argh(positional)]
    tool: String,
    /// device that hdparm reads; without it the root medium
    #[argh(option)]
    device: Option<PathBuf>,
    /// directory that the others write in, a network share maybe; without it the present one
    #[argh(option)]
    dir: Option<PathBuf>,
    /// dd: size of the file (1GiB)
    #[argh(option)]
    size: Option<String>,
    /// dd: size of a block (1MiB or 10MiB)
    #[argh(option)]
    block: Option<String>,
    /// sysbench: the first 500 requests, on a set of 256 MiB that is kept
    #[argh(switch)]
    quick: bool,
    /// agnostics: the shapes of 2024 (default) or 2020
    #[argh(option)]
    shape: Option<u32>,
    /// listing: so many files (2000)
    #[argh(option)]
    files: Option<usize>,
    /// so many runs, with the articles' pauses between
    #[argh(option, default = "1")]
    repeat: u32,
    /// the governor performance for the time of the run
    #[argh(switch)]
    pin_clock: bool,
    /// do not ask before much is written
    #[argh(switch)]
    yes: bool,
    /// directory of the state file, which keeps the figure for compare
    #[argh(option, default = "crate::run::STATE.into()")]
    state_dir: PathBuf,
}

/// A figure with the unit that the tool gives it in.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub tool: &'static str,
    pub value: f64,
    pub unit: &'static str,
}

impl Figure {
    fn new(tool: &'static str, value: f64, unit: &'static str) -> Self {
        Self { tool, value, unit }
    }
}

/// One run of a tool.
#[derive(Debug)]
pub struct Ran {
    /// What the tool itself would have printed.
    own: String,
    figure: Figure,
    /// What it does not say.
    beside: Vec<String>,
}

/// Asked before more than this is written.
const MUCH: u64 = 64 * MIB;
/// The slowest medium that a worst case is reckoned with, bytes a second, and seconds of one
/// fsync or random operation on it: the EVO Plus of the article on SD cards took 0.23.
const SLOWEST: f64 = 2e6;
const SLOWEST_OPERATION: f64 = 0.25;

/// What is to be done, with its cost.
enum Tool {
    Hdparm,
    Dd(dd::Shape),
    Sysbench(sysbench::Shape),
    Agnostics(agnostics::Shape),
    Listing(usize),
}

impl Tool {
    fn from(arguments: &Arguments) -> std::result::Result<Self, String> {
        let tool = match arguments.tool.as_str() {
            "hdparm" => Tool::Hdparm,
            "dd" => Tool::Dd(dd_shape(arguments)?),
            "sysbench" if arguments.quick => Tool::Sysbench(sysbench::QUICK),
            "sysbench" => Tool::Sysbench(sysbench::WHOLE),
            "agnostics" => Tool::Agnostics(match arguments.shape {
                None | Some(2024) => agnostics::OF_2024,
                Some(2020) => agnostics::OF_2020,
                Some(other) => return Err(format!("--shape {other}: is neither 2024 nor 2020")),
            }),
            "listing" => match arguments.files.unwrap_or(listing::FILES) {
                files @ 1..=100_000 => Tool::Listing(files),
                other => return Err(format!("--files {other}: wants 1 to 100000")),
            },
            other => {
                let other = printable(other);
                return Err(format!(
                    "{other}: is none of hdparm, dd, sysbench, agnostics, listing"
                ));
            }
        };
        for (option, given, belongs) in [
            (
                "--device",
                arguments.device.is_some(),
                matches!(tool, Tool::Hdparm),
            ),
            (
                "--dir",
                arguments.dir.is_some(),
                !matches!(tool, Tool::Hdparm),
            ),
            (
                "--size",
                arguments.size.is_some(),
                matches!(tool, Tool::Dd(_)),
            ),
            (
                "--block",
                arguments.block.is_some(),
                matches!(tool, Tool::Dd(_)),
            ),
            (
                "--quick",
                arguments.quick,
                matches!(tool, Tool::Sysbench(_)),
            ),
            (
                "--shape",
                arguments.shape.is_some(),
                matches!(tool, Tool::Agnostics(_)),
            ),
            (
                "--files",
                arguments.files.is_some(),
                matches!(tool, Tool::Listing(_)),
            ),
        ] {
            if given && !belongs {
                return Err(format!("{option} is not for {}", arguments.tool));
            }
        }
        match arguments.repeat {
            1..=100 => Ok(tool),
            other => Err(format!("--repeat {other}: wants 1 to 100")),
        }
    }

    /// Bytes that are there at the same time.
    fn space(&self) -> u64 {
        match self {
            Tool::Sysbench(shape) => shape.total,
            Tool::Agnostics(shape) => shape.size,
            _ => self.written(),
        }
    }

    /// Bytes that one run writes.
    fn written(&self) -> u64 {
        match self {
            Tool::Hdparm => 0,
            Tool::Dd(shape) => shape.bytes(),
            // The set, and 4 of 10 requests; the file system's own is not reckoned.
            Tool::Sysbench(shape) => shape.total + shape.requests * 4 / 10 * (16 << 10),
            Tool::Agnostics(shape) => 3 * shape.size * if shape.newer { 3 } else { 2 },
            // A directory's entry and an inode each.
            Tool::Listing(files) => (*files as u64 * 512).next_multiple_of(MIB),
        }
    }

    /// Seconds of one run on a very slow medium.
    fn worst(&self) -> f64 {
        let written = self.written() as f64 / SLOWEST;
        let operations = match self {
            // 17 s of its own: settling twice, reading for 3 s and 2 s, and what it subtracts.
            Tool::Hdparm => 40.0 + 17.0 / SLOWEST_OPERATION,
            Tool::Dd(_) => 0.0,
            // On such a card one fsync of 128 files flushes what 40 of them have.
            Tool::Sysbench(shape) => shape.requests as f64 * 0.4,
            Tool::Agnostics(_) => 240.0,
            Tool::Listing(files) => 4.0 * *files as f64,
        };
        written + operations * SLOWEST_OPERATION
    }

    /// Seconds between two runs, as in the article on the ROCK64.
    fn pause(&self) -> f64 {
        match self {
            Tool::Hdparm => 5.0,
            _ => 10.0,
        }
    }
}

fn dd_shape(arguments: &Arguments) -> std::result::Result<dd::Shape, String> {
    let size = |name: &str, given: &Option<String>, default: u64| match given {
        None => Ok(default),
        Some(text) => bytes(text)
            .ok_or_else(|| format!("{name} {}: wants a size as 64MiB or 1GiB", printable(text))),
    };
    let block = size("--block", &arguments.block, MIB)?;
    let total = size("--size", &arguments.size, 1024 * MIB)?;
    if !(512..=64 * MIB).contains(&block) || total < block || total > 1 << 40 {
        return Err("--block wants 512 to 64MiB, --size one block to 1024GiB".into());
    }
    if !total.is_multiple_of(block) {
        return Err("--size wants a multiple of --block".into());
    }
    let count = total / block;
    Ok(dd::Shape { block, count })
}

/// `4096`, `1MiB`, `1M`, `1GiB`: powers of two, as dd has them.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Runs the command; returns the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    let tool = match Tool::from(arguments) {
        Ok(tool) => tool,
        Err(wrong) => {
            log::error!("{wrong}");
            return USAGE;
        }
    };
    let pinned = match arguments
        .pin_clock
        .then(|| clock::Pinned::new(Path::new("/")))
    {
        Some(Err(error)) => return failed(&error, INTERNAL),
        Some(Ok(pinned)) => Some(pinned),
        None => None,
    };
    let place = arguments.dir.as_ref().or(arguments.device.as_ref());
    let place = place.map_or(Path::new("."), PathBuf::as_path);
    let child = child::run(place, pinned, |pulse, interrupted| {
        let mut calls = Calls::new(interrupted);
        calls.pulse = Some(pulse);
        asked(arguments, &tool, &mut calls)
    });
    child.unwrap_or_else(|error| failed(&error, INTERNAL))
}

/// Says what will be done and what it costs, and does it unless the answer is no.
fn asked(arguments: &Arguments, tool: &Tool, calls: &mut Calls) -> u8 {
    calls.beat(Instant::now(), child::USUAL);
    let target = match Target::find(arguments.device.as_deref(), arguments.dir.as_deref(), tool) {
        Ok(target) => target,
        Err(error) => {
            log::error!("{error}");
            return Verdict::Unknown.exit_status();
        }
    };
    let runs = u64::from(arguments.repeat);
    say(&format!(
        "compat {}: {}\n  {} run{}, {} MiB written, at most {} on a very slow medium\n",
        arguments.tool,
        target.words,
        runs,
        if runs == 1 { "" } else { "s" },
        (tool.written() * runs) >> 20,
        minutes(tool.worst() * runs as f64 + tool.pause() * (runs - 1) as f64)
    ));
    if tool.written() * runs > MUCH && !arguments.yes && !agreed(calls) {
        return Verdict::Unknown.exit_status();
    }
    match measure(arguments, tool, &target, calls) {
        Ok(kept) => {
            calls.beat(Instant::now(), 2 * child::USUAL);
            keep(arguments, kept)
        }
        Err(error) if error.cause.kind() == io::ErrorKind::Interrupted => {
            log::warn!("stopped by a signal");
            Verdict::Unknown.exit_status()
        }
        Err(error) => failed(&error, INTERNAL),
    }
}

fn minutes(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

/// Asks on a terminal; elsewhere the command itself was the answer.
fn agreed(calls: &mut Calls) -> bool {
    let input = io::stdin();
    if !input.is_terminal() {
        return true;
    }
    say("Go on? [y/N] ");
    let _ = io::stdout().flush(); // a terminal that is gone answers nothing either
    calls.beat(Instant::now(), child::FOREVER);
    // A signal ends the wait, which it would not that of a read.
    if poll(
        &mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)],
        PollTimeout::NONE,
    ) != Ok(1)
    {
        return false;
    }
    let mut answer = String::new();
    let read = input.lock().read_line(&mut answer);
    read.is_ok() && answer.trim().eq_ignore_ascii_case("y")
}

/// All runs, with what is to be kept of them.
fn measure(
    arguments: &Arguments,
    tool: &Tool,
    target: &Target,
    calls: &mut Calls,
) -> Result<Vec<Kept>> {
    calls
        .go_on()
        .map_err(|e| Error::new("start", &target.path, e))?;
    // What there is to remove, before or after, may be thousands of files.
    calls.beat(Instant::now(), 10 * child::USUAL);
    let work = Work::new(tool, target)?;
    let figures = all_runs(arguments, tool, &work, calls);
    calls.beat(Instant::now(), 10 * child::USUAL);
    drop(work);
    let kept = figures?.into_iter();
    Ok(kept
        .map(|(figure, runs)| target.kept(&figure, runs))
        .collect())
}

fn all_runs(
    arguments: &Arguments,
    tool: &Tool,
    work: &Work,
    calls: &mut Calls,
) -> Result<Vec<(Figure, Vec<f64>)>> {
    let mut figures: Vec<(Figure, Vec<f64>)> = Vec::new();
    for n in 1..=arguments.repeat {
        let failed = |e| Error::new("run the calls of the tool on", &work.path, e);
        if n > 1 {
            calls.sleep(tool.pause()).map_err(failed)?;
        }
        for ran in once(tool, work, calls).map_err(failed)? {
            say(&told(&ran));
            let value = ran.figure.value;
            match figures.iter_mut().find(|(f, _)| f.tool == ran.figure.tool) {
                Some((_, values)) => values.push(value),
                None => figures.push((ran.figure, vec![value])),
            }
        }
    }
    if arguments.repeat > 1 {
        figures.iter().for_each(|(f, runs)| say(&summary(f, runs)));
    }
    Ok(figures)
}

fn once(tool: &Tool, work: &Work, calls: &mut Calls) -> io::Result<Vec<Ran>> {
    calls.restart();
    match *tool {
        Tool::Hdparm => {
            // As `hdparm -tT` does, which makes -t start cold.
            let mut device = hdparm::Device::open(&work.path, 3.0)?;
            let cached = hdparm::cached(&mut device, calls)?;
            calls.restart();
            Ok(vec![cached, hdparm::buffered(&mut device, calls)?])
        }
        Tool::Dd(shape) => Ok(vec![dd::run(&work.path, shape, calls)?]),
        Tool::Sysbench(shape) => {
            if !(work.keep.is_some() && sysbench::prepared(&work.path, shape)) {
                sysbench::prepare(&work.path, shape, calls)?;
                calls.restart();
            }
            Ok(vec![sysbench::run(&work.path, shape, calls)?])
        }
        Tool::Agnostics(shape) => Ok(vec![agnostics::run(&work.path, shape, calls)?]),
        Tool::Listing(files) => Ok(vec![listing::run(&work.path, files, calls)?]),
    }
}

fn told(ran: &Ran) -> String {
    let beside: String = ran
        .beside
        .iter()
        .map(|line| format!("    {line}\n"))
        .collect();
    format!("{}\n{beside}", ran.own)
}

/// A figure for a person; a listing's on a fast disk has its digits far behind the point.
fn told_of(figure: f64) -> String {
    match figure {
        f if f < 0.1 => significant(f, 3),
        f => short(f),
    }
}

/// Every run, the first apart, mean, median, spread.
fn summary(figure: &Figure, runs: &[f64]) -> String {
    let Some(all) = Statistics::of(runs) else {
        return String::new();
    };
    let list: Vec<String> = runs.iter().map(|&run| told_of(run)).collect();
    let mut text = format!(
        "{} of {} runs, {}: {}\n  mean {}, median {}, standard deviation {}\n",
        figure.tool,
        all.runs,
        figure.unit,
        list.join(" "),
        told_of(all.mean),
        told_of(all.median),
        told_of(all.deviation)
    );
    if let (Some((mean, deviation)), Some(ratio)) = (all.rest, all.first_over_rest()) {
        text += &format!(
            "  without the first: mean {}, standard deviation {}; the first is {:.1} % of that{}\n",
            told_of(mean),
            told_of(deviation),
            100.0 * ratio,
            if all.first_is_apart() {
                ": cold, or a spin-up"
            } else {
                ""
            }
        );
    }
    text
}

/// Keeps the figures for `compare`; that it cannot is no reason to have measured nothing.
fn keep(arguments: &Arguments, kept: Vec<Kept>) -> u8 {
    let directory = Directory::new(&arguments.state_dir);
    let written = directory
        .lock(Duration::from_secs(60), &AtomicBool::new(false))
        .and_then(|_lock| {
            let mut state = directory.read(true);
            kept.into_iter().for_each(|kept| state.keep(kept));
            directory.write(&mut state)
        });
    if let Err(error) = written {
        log::warn!("{error}; the figure is not kept for compare");
    }
    0
}

/// A directory of our own in the one that was asked for, gone at the end; hdparm's device.
struct Work {
    path: PathBuf,
    directory: bool,
    /// Where a whole set of it stays for the next time.
    keep: Option<sysbench::Shape>,
}

/// The names of our directories; nothing else has them.
const DIRECTORY: &str = ".storage-selftest.compat";
const KEPT: &str = ".storage-selftest.sysbench";

impl Work {
    fn new(tool: &Tool, target: &Target) -> Result<Self> {
        if let Tool::Hdparm = tool {
            return Ok(Self {
                path: target.path.clone(),
                directory: false,
                keep: None,
            });
        }
        let keep = match *tool {
            Tool::Sysbench(shape) => Some(shape).filter(|s| s.total == sysbench::QUICK.total),
            _ => None,
        };
        let path = target
            .path
            .join(if keep.is_some() { KEPT } else { DIRECTORY });
        if path.is_dir() && !keep.is_some_and(|shape| sysbench::prepared(&path, shape)) {
            log::info!(
                "removing {}, which an earlier run left",
                printable_path(&path)
            );
            fs::remove_dir_all(&path).map_err(|e| Error::new("remove", &path, e))?;
        }
        let there = path.is_dir();
        enough_space(&target.path, if there { 0 } else { tool.space() })?;
        if !there {
            fs::create_dir(&path).map_err(|e| Error::new("create", &path, e))?;
        }
        Ok(Self {
            path,
            directory: true,
            keep,
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self
            .keep
            .is_some_and(|shape| sysbench::prepared(&self.path, shape))
        {
            say(&format!(
                "the files stay for the next time: remove {} when you are done\n",
                printable_path(&self.path)
            ));
        } else if self.directory
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            log::error!("{}", Error::new("remove", &self.path, error));
        }
    }
}

/// The reserve of every file system stays free: the larger of 5 % and 256 MiB.
fn enough_space(directory: &Path, bytes: u64) -> Result<()> {
    let space = scratch::space(directory)
        .map_err(|e| Error::new("ask for the free space of", directory, e))?;
    let reserve = (space.size / 20).max(256 * MIB);
    match space.free.checked_sub(reserve) {
        Some(usable) if usable >= bytes => Ok(()),
        _ => Err(Error::said(
            "write to",
            directory,
            format!(
                "{} MiB free, {} MiB wanted, and {} MiB have to stay free",
                space.free >> 20,
                bytes >> 20,
                reserve >> 20
            ),
        )),
    }
}

/// A number as C's `%.Ng` has it: so many significant digits, no zeros at the end.
fn significant(value: f64, digits: usize) -> String {
    let (mut rest, mut power) = (value.abs().max(1e-6), 0);
    while rest >= 10.0 {
        (rest, power) = (rest / 10.0, power + 1);
    }
    while rest < 1.0 {
        (rest, power) = (rest * 10.0, power - 1);
    }
    let decimals = (digits as i32 - 1 - power).max(0) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // What printf of coreutils 9.1 prints for %.6g and %.5g.
    #[test]
    fn numbers_have_significant_digits_as_in_c() {
        assert_eq!(significant(0.025_942_8, 6), "0.0259428");
        assert_eq!(significant(18.653_712, 6), "18.6537");
        assert_eq!(significant(1200.0, 5), "1200");
        assert_eq!(significant(0.5, 6), "0.5");
    }

    #[test]
    fn sizes_are_powers_of_two_as_dd_has_them() {
        assert_eq!(bytes("1GiB"), Some(1 << 30));
        assert_eq!(bytes("10M"), Some(10 << 20));
        assert_eq!(bytes("4096"), Some(4096));
        for wrong in ["", "MiB", "1MB", "-1M", "99999999999G", "1 MiB"] {
            assert_eq!(bytes(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_series_is_summed_up_with_its_first_run_apart() {
        // rock64_usb3_dd_write of article-figures.toml.
        let runs = [53.5, 57.6, 57.7, 57.4, 57.5, 57.4, 57.3, 57.1, 57.1, 57.9];
        let text = summary(&Figure::new("dd", 0.0, "MB/s"), &runs);
        assert!(text.contains("mean 57.0, median 57.4"), "{text}");
        assert!(
            text.contains("without the first: mean 57.4, standard deviation 0.27"),
            "{text}"
        );
        assert!(text.contains("the first is 93.1 % of that: cold"), "{text}");
    }
}
