use super::*;

/// A directory of its own for each test, removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("storage-selftest-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(n: u32) -> Run {
    Run {
        profile: "boot".into(),
        verdict: Verdict::Warn,
        complete: true,
        unfinished: None,
        seconds: f64::from(n),
        written: 1000,
        when: When {
            time: rfc3339(u64::from(n)),
            boot: "b".into(),
            uptime: 1.0,
        },
        figures: BTreeMap::from([
            (Probe::RandomRead, f64::from(n)),
            (Probe::RandomWriteDurable, 5.0),
        ]),
        findings: vec![Finding::new(
            "stall",
            Verdict::Warn,
            "one operation took 300 ms",
        )],
    }
}

fn state(media: u32, runs: u32) -> State {
    let mut state = State::default();
    for medium in 0..media {
        let mut record = Record {
            last_seen: run(medium).when,
            ..Record::default()
        };
        record
            .latency
            .insert(Probe::RandomRead, vec![(0.5, 3), (1024.0, 1)]);
        (0..runs).for_each(|n| record.add(run(n)));
        state.media.insert(format!("cid:{medium:032x}"), record);
    }
    state
}

#[test]
fn what_is_written_is_read_again_and_the_copy_before_is_kept() {
    let temporary = Temporary::new("round-trip");
    let directory = Directory::new(&temporary.0);
    let mut first = state(1, 2);
    directory.write(&mut first).unwrap();
    assert_eq!(directory.read(true), first);
    let mut second = state(2, 40);
    directory.write(&mut second).unwrap();
    assert_eq!(directory.read(true), second);
    assert_eq!(read_file(&directory.last_good()).unwrap(), Some(first));
    assert!(!temporary.0.join("state.toml.new").exists());
}

#[test]
fn a_record_keeps_32_runs_the_first_as_baseline_and_all_bytes() {
    let record = &state(1, 40).media["cid:00000000000000000000000000000000"];
    assert_eq!(record.runs.len(), 32);
    assert_eq!(record.runs[0].seconds, 8.0);
    assert_eq!(record.baseline[&Probe::RandomRead], 0.0);
    assert_eq!(record.written, 40_000);
    assert_eq!(record.before().runs.len(), 32);
}

#[test]
fn a_glance_is_no_baseline() {
    let mut record = Record::default();
    record.add(Run {
        profile: "glance".into(),
        ..run(7)
    });
    record.add(Run {
        complete: false,
        ..run(8)
    });
    assert!(record.baseline.is_empty() && record.last_full().is_none());
    record.add(run(9));
    assert_eq!(record.baseline[&Probe::RandomRead], 9.0);
}

#[test]
fn a_damaged_file_is_set_aside_and_the_last_good_one_used() {
    let temporary = Temporary::new("damaged");
    let directory = Directory::new(&temporary.0);
    directory.write(&mut state(1, 1)).unwrap();
    directory.write(&mut state(1, 2)).unwrap();
    for garbage in ["schema = 1\n[medium", "schema = 2\n", "", "\0\0\0"] {
        fs::remove_file(directory.file()).unwrap();
        fs::write(directory.file(), garbage).unwrap();
        assert_eq!(directory.read(true).media.len(), 1, "{garbage:?}");
        assert_eq!(
            fs::read_to_string(temporary.0.join("state.damaged")).unwrap(),
            garbage
        );
        directory.write(&mut state(1, 2)).unwrap();
        directory.write(&mut state(1, 2)).unwrap();
    }
}

#[test]
fn the_file_never_exceeds_256_kib() {
    let temporary = Temporary::new("large");
    let directory = Directory::new(&temporary.0);
    let mut many = state(60, 32);
    directory.write(&mut many).unwrap();
    let size = fs::metadata(directory.file()).unwrap().len() as usize;
    assert!(size <= MAX_BYTES && size > MAX_BYTES / 2, "{size}");
    let newest = format!("cid:{:032x}", 59);
    assert!(
        directory.read(true).media.contains_key(&newest),
        "the medium seen last must stay"
    );
    assert_eq!(directory.read(true), many);
}

#[test]
fn a_second_run_is_refused_while_the_first_holds_the_lock() {
    let temporary = Temporary::new("lock");
    let directory = Directory::new(&temporary.0.join("new/deep"));
    let held = directory.lock().unwrap();
    let refused = directory.lock().map(|_| ()).unwrap_err();
    assert!(
        refused.to_string().contains("another run is under way"),
        "{refused}"
    );
    drop(held);
    assert!(directory.lock().is_ok());
}

// The dates are those that `date -u -d @N` prints.
#[test]
fn seconds_become_calendar_dates() {
    assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
    assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(rfc3339(1_796_092_260), "2026-12-01T02:31:00Z");
    assert_eq!(rfc3339(4_107_542_399), "2100-02-28T23:59:59Z");
}
