use super::*;
use crate::probe::Probe;
use crate::record::run;

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
    let go_on = AtomicBool::new(false);
    let held = directory.lock(Duration::ZERO, &go_on).unwrap();
    let refused = directory
        .lock(Duration::ZERO, &go_on)
        .map(|_| ())
        .unwrap_err();
    assert!(
        refused.to_string().contains("another run is under way"),
        "{refused}"
    );
    drop(held);
    assert!(directory.lock(Duration::ZERO, &go_on).is_ok());
}
