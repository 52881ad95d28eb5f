//! The program as users run it, on loop disks. As root.

mod common;

use common::{Directory, Disk, Ran, last_run, program, run, skipped, state};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The disk, or a line that says why there is none and the end of the test.
macro_rules! or_skip {
    ($disk:expr) => {
        match $disk {
            Ok(disk) => disk,
            Err(reason) => return skipped(concat!("end-to-end ", stringify!($disk)), &reason),
        }
    };
}

const PROBES: [&str; 6] = [
    "sequential-read",
    "random-read",
    "random-read-queued",
    "durable-write",
    "random-write-durable",
    "read-back",
];

/// A complete boot run: every figure is there, the disk counted what the run says it wrote, and
/// a user's file and the directory are as they were.
fn complete_run(disk: &Disk) {
    let file = format!("{}/a user's file", disk.mount());
    fs::write(&file, "must not change").unwrap();
    let listing = || {
        fs::read_dir(disk.mount())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect::<Vec<_>>()
    };
    let before = listing();
    let ran = disk.run(&["--profile", "boot"]);
    assert!(
        (0..=2).contains(&ran.status),
        "status {}: {}{}",
        ran.status,
        ran.err,
        ran.out
    );
    assert!(
        ran.out.lines().all(|line| line.chars().count() <= 80),
        "{}",
        ran.out
    );
    let last = last_run(&disk.state());
    for probe in PROBES {
        let figure = last["figures"]
            .get(probe)
            .unwrap_or_else(|| panic!("no {probe}: {}{}", ran.err, ran.out));
        assert!(figure.as_float().unwrap() > 0.0);
    }
    assert_eq!(
        (listing(), fs::read_to_string(&file).unwrap().as_str()),
        (before, "must not change")
    );
}

#[test]
fn ext4() {
    complete_run(&or_skip!(Disk::ext4("ext4", 512)));
}

#[test]
fn xfs() {
    complete_run(&or_skip!(Disk::formatted(
        "xfs",
        512,
        "mkfs.xfs -q",
        &[],
        "defaults"
    )));
}

#[test]
fn btrfs() {
    complete_run(&or_skip!(Disk::formatted(
        "btrfs",
        512,
        "mkfs.btrfs -q",
        &[],
        "defaults"
    )));
}

#[test]
fn sectors_of_4096_bytes() {
    complete_run(&or_skip!(Disk::formatted(
        "4k",
        512,
        "mkfs.ext4 -q -b 4096",
        &["-b", "4096"],
        "defaults"
    )));
}

#[test]
fn a_file_system_without_direct_io() {
    complete_run(&or_skip!(Disk::formatted(
        "journal",
        512,
        "mkfs.ext4 -q",
        &[],
        "data=journal"
    )));
}

#[test]
fn the_disk_counts_what_the_run_says_it_wrote() {
    // A fresh ext4 goes on writing its own tables for a while, unless mkfs does it.
    let whole = "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0";
    let disk = or_skip!(Disk::formatted("counters", 512, whole, &[], "defaults"));
    let _ = Command::new("sync").status();
    let before = disk.counter(7);
    disk.run(&["--profile", "boot"]);
    let _ = Command::new("sync").status();
    let counted = (disk.counter(7) - before) * 512;
    let said = last_run(&disk.state())["written"].as_integer().unwrap() as u64;
    assert!(counted <= 24 << 20, "{counted} bytes, more than 24 MiB");
    assert!(
        counted.abs_diff(said) * 10 <= said,
        "the disk counted {counted} bytes, the run says {said}"
    );
}

#[test]
fn ram_is_no_medium() {
    let directory = Directory::new("ram");
    let ran = run(&[
        "run",
        "--medium",
        "/dev/shm",
        "--state-dir",
        &directory.path("state"),
    ]);
    ran.says(3, "RAM");
    assert!(!Path::new(&directory.path("state")).exists());
}

#[test]
fn an_overlay_over_ram_is_no_medium() {
    let base = format!("/dev/shm/storage-selftest-e2e-{}", std::process::id());
    for part in ["lower", "upper", "work", "mnt"] {
        fs::create_dir_all(format!("{base}/{part}")).unwrap();
    }
    let options = format!("lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work");
    let mount = Command::new("mount")
        .args([
            "-t",
            "overlay",
            "-o",
            &options,
            "overlay",
            &format!("{base}/mnt"),
        ])
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        let _ = fs::remove_dir_all(&base);
        return skipped("end-to-end overlay", "no overlay over tmpfs can be mounted");
    }
    let ran = run(&[
        "run",
        "--medium",
        &format!("{base}/mnt"),
        "--state-dir",
        &format!("{base}/state"),
    ]);
    let left = fs::read_dir(format!("{base}/upper")).unwrap().count();
    let _ = Command::new("umount").arg(format!("{base}/mnt")).status();
    let _ = fs::remove_dir_all(&base);
    ran.says(3, "RAM");
    assert_eq!(left, 0);
}

fn start(disk: &Disk, profile: &str) -> Child {
    program(&[
        "run",
        "--medium",
        &disk.mount(),
        "--state-dir",
        &disk.state(),
        "--profile",
        profile,
    ])
    .stdout(Stdio::null())
    .stderr(Stdio::null())
    .spawn()
    .unwrap()
}

/// Processes of the program whose parent is gone or whose command is the child's.
fn children_left() -> usize {
    let own = env!("CARGO_BIN_EXE_storage-selftest");
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| {
        let is_ours =
            fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == Path::new(own));
        let orphan = fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| {
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.split(' ').nth(1) == Some("1"))
        });
        is_ours && orphan
    })
    .count()
}

#[test]
fn fifty_kills_leave_a_whole_state_and_no_scratch_file() {
    let disk = or_skip!(Disk::ext4("kill", 512));
    disk.run(&["--profile", "glance"]);
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..50 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let mut child = start(&disk, "routine");
        sleep(Duration::from_millis(seed % 1500));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(state(&disk.state())["schema"].as_integer(), Some(1));
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while children_left() > 0 {
        assert!(Instant::now() < deadline, "a child outlives its parent");
        sleep(Duration::from_millis(50));
    }
    // What a file system without nameless files would have left.
    let scratch = format!("{}/.storage-selftest.scratch", disk.mount());
    fs::write(&scratch, "left").unwrap();
    disk.run(&["--profile", "glance"]);
    let left: Vec<_> = fs::read_dir(disk.mount())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lost+found"]);
}

#[test]
fn a_link_of_the_scratch_files_name_is_not_followed() {
    let disk = or_skip!(Disk::ext4("link", 512));
    let target = disk.directory.path("precious");
    fs::write(&target, "precious").unwrap();
    symlink(
        &target,
        format!("{}/.storage-selftest.scratch", disk.mount()),
    )
    .unwrap();
    disk.run(&["--profile", "routine"]);
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
}

fn signalled(name: &str, signal: &str) {
    let disk = match Disk::ext4(name, 512) {
        Ok(disk) => disk,
        Err(reason) => return skipped(&format!("end-to-end {signal}"), &reason),
    };
    let mut child = start(&disk, "boot");
    sleep(Duration::from_millis(1500));
    let sent = Instant::now();
    let _ = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    let status = child.wait().unwrap();
    // The issue's own bound.
    assert!(
        sent.elapsed() < Duration::from_secs(1),
        "{:?}",
        sent.elapsed()
    );
    assert_eq!(status.code(), Some(3));
    let last = last_run(&disk.state());
    assert_eq!(last["complete"].as_bool(), Some(false));
    assert_eq!(last["findings"][0]["code"].as_str(), Some("interrupted"));
    disk.run(&["--dry-run"]).says(0, "boot run");
}

#[test]
fn sigterm_ends_a_run_within_a_second() {
    signalled("term", "-TERM");
}

#[test]
fn sigint_ends_a_run_within_a_second() {
    signalled("int", "-INT");
}

#[test]
fn thirty_two_reads_are_really_in_flight() {
    let disk = or_skip!(Disk::ext4("inflight", 512));
    let path = format!(
        "/sys/block/{}/inflight",
        disk.device.trim_start_matches("/dev/")
    );
    let mut child = start(&disk, "boot");
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&path).unwrap();
        most = most.max(
            text.split_whitespace()
                .next()
                .and_then(|n| n.parse::<u32>().ok())
                .unwrap_or(0),
        );
    }
    assert!(most >= 32, "{most} reads in flight");
}

#[test]
fn a_dry_run_touches_nothing() {
    let disk = or_skip!(Disk::ext4("dry", 512));
    let _ = Command::new("sync").status();
    sleep(Duration::from_millis(500));
    let before = (disk.counter(3), disk.counter(7));
    disk.run(&["--dry-run", "--profile", "full"])
        .says(0, "at most 300 s and 383.0 MiB written");
    assert_eq!((disk.counter(3), disk.counter(7)), before);
    assert!(!Path::new(&disk.state()).exists());
}

#[test]
fn a_glance_writes_nothing_and_carries_the_last_complete_run() {
    let disk = or_skip!(Disk::ext4("glance", 512));
    disk.run(&["--profile", "glance"])
        .says(3, "no complete run");
    let full = disk.run(&["--profile", "routine"]);
    let glance = disk.run(&[]);
    let last = last_run(&disk.state());
    assert_eq!(
        (last["profile"].as_str(), last["written"].as_integer()),
        (Some("glance"), Some(0))
    );
    // On a loaded machine the routine run may see a stall, which the glance has to repeat.
    assert!(
        glance.status >= full.status || full.status == 1,
        "{} after {}",
        glance.status,
        full.status
    );
}

#[test]
fn show_and_its_history() {
    let disk = or_skip!(Disk::ext4("show", 512));
    disk.run(&["--profile", "routine"]);
    let shown = run(&[
        "show",
        "--history",
        "--medium",
        &disk.device,
        "--state-dir",
        &disk.state(),
    ]);
    shown.says(0, "history, oldest first");
    shown.says(0, "█");
    run(&["show", "--medium", "sdz", "--state-dir", &disk.state()])
        .says(3, "no medium was tested yet");
}

#[test]
fn a_medium_without_room() {
    let disk = or_skip!(Disk::ext4("full", 80));
    let ran = disk.run(&["--profile", "routine"]);
    ran.says(3, "no-space");
    ran.says(3, "64 MiB stay free");
}

#[test]
fn a_medium_of_8_mib_is_read_and_not_written() {
    let disk = or_skip!(Disk::ext4("tiny", 8));
    disk.run(&["--profile", "routine"]).says(3, "no-space");
    assert!(
        last_run(&disk.state())["figures"]
            .get("random-read")
            .is_some()
    );
}

#[test]
fn a_read_only_file_system() {
    let disk = or_skip!(Disk::formatted("ro", 128, "mkfs.ext4 -q", &[], "ro"));
    disk.run(&["--profile", "routine"]).says(3, "read-only");
}

#[test]
fn a_disk_without_a_file_system_is_only_read() {
    let disk = or_skip!(Disk::new("bare", 64 << 20, &[]));
    let state = disk.state();
    let before = disk.counter(7); // a loop device's counters outlive its disks
    let ran = run(&[
        "run",
        "--medium",
        &disk.device,
        "--state-dir",
        &state,
        "--profile",
        "routine",
    ]);
    ran.says(3, "not-mounted");
    assert_eq!(
        disk.counter(7),
        before,
        "sectors were written to a disk without a file system"
    );
}

#[test]
fn what_is_not_there_or_no_disk() {
    let directory = Directory::new("nothing");
    let state = directory.path("state");
    let ask = |medium: &str| -> Ran { run(&["run", "--medium", medium, "--state-dir", &state]) };
    ask("/dev/nope").says(3, "/dev/nope");
    ask("/dev/null").says(3, "/dev/null");
    ask("/proc").says(3, "/proc");
    let disk = or_skip!(Disk::new("zero", 0, &[]));
    run(&["run", "--medium", &disk.device, "--state-dir", &state]).says(3, "no-medium");
}

#[test]
fn usage_and_configuration_errors_touch_nothing() {
    let directory = Directory::new("errors");
    let (state, config) = (directory.path("state"), directory.path("config.toml"));
    run(&["run", "--no-such-option"]).says(64, "");
    run(&["run", "--profile", "fast", "--state-dir", &state])
        .says(64, "boot, glance, routine, full");
    run(&[
        "run",
        "--config",
        &directory.path(""),
        "--state-dir",
        &state,
    ])
    .says(78, "Is a directory");
    fs::write(&config, "[limits]\nrandom_reed = 3\n").unwrap();
    run(&["run", "--config", &config, "--state-dir", &state])
        .says(78, "config.toml:2: limits.random_reed: no such key");
    run(&["check-config", "--config", &config]).says(78, ":2:");
    assert!(!Path::new(&state).exists());
    run(&["--version"]).says(0, env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_gibibyte_of_garbage_as_state_is_set_aside() {
    let disk = or_skip!(Disk::ext4("garbage", 512));
    fs::create_dir(disk.state()).unwrap();
    let path = format!("{}/state.toml", disk.state());
    fs::File::create(&path)
        .and_then(|file| file.set_len(1 << 30))
        .unwrap();
    let ran = disk.run(&["--profile", "routine"]);
    assert!(
        ran.err.contains("was set aside as") && ran.err.contains("state.damaged"),
        "{}",
        ran.err
    );
    assert_eq!(
        fs::metadata(format!("{}/state.damaged", disk.state()))
            .unwrap()
            .len(),
        1 << 30
    );
    assert_eq!(last_run(&disk.state())["profile"].as_str(), Some("routine"));
}

#[test]
fn a_state_directory_that_cannot_be_made_does_not_hide_the_result() {
    let disk = or_skip!(Disk::ext4("state", 512));
    let ran = run(&[
        "run",
        "--profile",
        "routine",
        "--medium",
        &disk.mount(),
        "--state-dir",
        "/proc/nope",
    ]);
    assert!((0..=2).contains(&ran.status), "{}", ran.err);
    assert!(
        ran.err.contains("/proc/nope") && ran.err.contains("will not be kept"),
        "{}",
        ran.err
    );
}

#[test]
fn two_runs_at_once() {
    let disk = or_skip!(Disk::ext4("twice", 512));
    let mut first = start(&disk, "boot");
    sleep(Duration::from_millis(700));
    disk.run(&[]).says(70, "another run is under way");
    let _ = first.kill();
    let _ = first.wait();
}

#[test]
fn without_permission() {
    let disk = or_skip!(Disk::ext4("permission", 512));
    let directory = Directory::new("unprivileged");
    // A copy that everyone may run, since the build directory may be root's alone.
    let copy = directory.path("storage-selftest");
    fs::copy(env!("CARGO_BIN_EXE_storage-selftest"), &copy).unwrap();
    let medium = disk.mount();
    let options = [
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        &copy,
        "run",
        "--profile",
        "routine",
    ];
    let ran: Ran = match Command::new("setpriv")
        .args(options)
        .args(["--medium", &medium])
        .output()
    {
        Ok(output) => output.into(),
        Err(error) => return skipped("end-to-end without permission", &error.to_string()),
    };
    ran.says(3, "not-permitted");
    ran.says(3, "Permission denied");
}

#[test]
fn list_reads_every_recorded_tree() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let trees: Vec<_> = fs::read_dir(cases)
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.is_dir())
        .collect();
    assert!(trees.len() > 10, "{} trees", trees.len());
    for tree in trees {
        let expected: toml::Table = fs::read_to_string(tree.join("expected.toml"))
            .unwrap()
            .parse()
            .unwrap();
        let listed = run(&["list", "--root", tree.to_str().unwrap()]);
        assert_eq!(listed.status, 0, "{}: {}", tree.display(), listed.err);
        for medium in expected
            .get("media")
            .and_then(|m| m.as_array())
            .into_iter()
            .flatten()
        {
            if medium["role"].as_str() == Some("configured") {
                continue; // only a configuration or --medium brings these in
            }
            let identity = medium["identity"].as_str().unwrap();
            assert!(
                listed.out.contains(identity),
                "{}: no {identity} in\n{}",
                tree.display(),
                listed.out
            );
        }
    }
}
