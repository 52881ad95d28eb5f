//! Tests on the emulated board: `tests/rig/run` and `tests/rig/shell` start it.
//!
//!     rig [NAME-PART]... [--list] [--ignored | --include-ignored]
//!     rig shell DEVICE...

mod cases;
mod disk;
mod guest;
mod image;
mod spec;

use guest::{Guest, System};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// One test. Those of a group share a guest and leave it as they found it.
pub struct Case {
    pub name: &'static str,
    pub run: fn(&mut Guest),
    /// Why it cannot pass yet.
    pub ignored: Option<&'static str>,
}

/// Tests that run one after the other in the same guest.
pub struct Group {
    pub name: &'static str,
    pub system: System,
    /// What it has from the start, in the words of `spec.rs`.
    pub devices: &'static str,
    pub cases: &'static [Case],
}

/// One guest for each core of the smallest machine that runs this.
const GUESTS: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "shell") {
        return shell(&arguments[1..].join(" "));
    }
    if arguments.first().is_some_and(|first| first == "disk") {
        return disk(&arguments[1..]);
    }
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let parts: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let only_ignored = has("--ignored");
    let all = only_ignored || has("--include-ignored");
    let wanted = |group: &Group, case: &Case| {
        let name = format!("{}::{}", group.name, case.name);
        (parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str())))
            && (!only_ignored || case.ignored.is_some())
    };
    if has("--list") {
        for group in cases::GROUPS {
            for case in group.cases.iter().filter(|case| wanted(group, case)) {
                println!("{}::{}: test", group.name, case.name);
            }
        }
        return ExitCode::SUCCESS;
    }

    let (passed, failed, ignored) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let failures = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    // A panic is a failed test; its text is shown with the test.
    panic::set_hook(Box::new(|_| ()));
    thread::scope(|scope| {
        for _ in 0..GUESTS {
            scope.spawn(|| {
                while let Some(group) = cases::GROUPS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut guest = None;
                    for case in group.cases.iter().filter(|case| wanted(group, case)) {
                        let name = format!("{}::{}", group.name, case.name);
                        if let Some(reason) = case.ignored.filter(|_| !all).or(group.system.lacks())
                        {
                            println!("test {name} ... ignored, {reason}");
                            ignored.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        match one(group, case, &mut guest) {
                            Ok(seconds) => {
                                println!("test {name} ... ok ({seconds:.1} s)");
                                passed.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(why) => {
                                println!("test {name} ... FAILED\n{why}");
                                failed.fetch_add(1, Ordering::Relaxed);
                                failures.lock().expect("no test panics here").push(name);
                            }
                        }
                    }
                }
            });
        }
    });
    let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
    let failures = failures.into_inner().expect("no test panics here");
    if !failures.is_empty() {
        println!("\nfailures:\n    {}", failures.join("\n    "));
    }
    println!(
        "\ntest result: {}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        if failures.is_empty() { "ok" } else { "FAILED" },
        count(&passed),
        count(&failed),
        count(&ignored),
        start.elapsed().as_secs_f64()
    );
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// One test, in a guest that is started if there is none; seconds, or what went wrong.
fn one(group: &Group, case: &Case, slot: &mut Option<Guest>) -> Result<f64, String> {
    let text = |panic: Box<dyn std::any::Any + Send>| {
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
            .unwrap_or_default()
    };
    if slot.as_mut().is_none_or(|guest| !guest.alive()) {
        *slot = None;
        let guest =
            panic::catch_unwind(|| Guest::boot(group.system, group.devices)).map_err(text)?;
        println!(
            "guest {} ready in {:.1} s",
            group.name,
            guest.boot_seconds()
        );
        *slot = Some(guest);
    }
    let guest = slot.as_mut().expect("started above");
    let start = Instant::now();
    let result = panic::catch_unwind(AssertUnwindSafe(|| (case.run)(guest))).map_err(text);
    if result.is_err() {
        // What it leaves behind is no basis for the next one.
        *slot = None;
    }
    result.map(|()| start.elapsed().as_secs_f64())
}

/// `disk DIRECTORY WORDS`: serves such a disk over NBD, without a guest, until its input ends.
fn disk(arguments: &[String]) -> ExitCode {
    let [directory, words] = arguments else {
        eprintln!("usage: disk DIRECTORY WORDS");
        return ExitCode::from(64);
    };
    match spec::drive(words, "d", Path::new(directory)) {
        Ok(_drive) => {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(64)
        }
    }
}

fn shell(devices: &str) -> ExitCode {
    if devices.is_empty() {
        eprintln!(
            "usage: make rig-shell DEVICES=\"sd=8G,fake=2G usb3=4G:vfat\"\n\nKIND=SIZE[,OPTION[=VALUE]]...[:FILE-SYSTEM]"
        );
        eprintln!("file systems: ext4 f2fs btrfs xfs vfat exfat ntfs3; kinds:");
        for (name, what) in spec::KINDS {
            eprintln!("  {name:<20} {what}");
        }
        eprintln!("options:");
        for (name, value, what) in spec::OPTIONS {
            eprintln!("  {name:<12} {value:<7} {what}");
        }
        return ExitCode::from(64);
    }
    // A wrong word needs no backtrace.
    panic::set_hook(Box::new(|what| {
        match what.payload().downcast_ref::<String>() {
            Some(text) => eprintln!("{text}"),
            None => eprintln!("{what}"),
        }
    }));
    match Guest::new(System::Bench, devices).shell() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
