//! What the end-to-end tests share: loop disks and the program itself.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Says why a test cannot run here, past the harness, which keeps what a passing test prints.
pub fn skipped(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        false => Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// A directory of its own, for state and configuration; gone on drop.
pub struct Directory(pub PathBuf);

impl Directory {
    /// In memory where that can be: a busy disk below the loop disks would decide how long a
    /// flush takes.
    pub fn new(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        match memory.is_dir() {
            true => Self::within(memory, name),
            false => Self::within(&std::env::temp_dir(), name),
        }
    }

    pub fn within(base: &Path, name: &str) -> Self {
        let path = base.join(format!(
            "storage-selftest-e2e-{}-{name}",
            std::process::id()
        ));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Something mounted; gone on drop.
pub struct Mounted(String);

impl Mounted {
    /// `mount ARGUMENTS AT`, where the directory is made.
    pub fn new(arguments: &[&str], at: &str) -> Result<Self, String> {
        fs::create_dir_all(at).map_err(|e| e.to_string())?;
        output(Command::new("mount").args(arguments).arg(at))?;
        Ok(Self(at.to_string()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = output(Command::new("umount").args(["-l", &self.0]));
    }
}

/// A loop disk, maybe with a mounted file system; gone on drop.
pub struct Disk {
    pub directory: Directory,
    /// `/dev/loopN`
    pub device: String,
    /// What is mounted: the disk, or its first partition.
    node: String,
    bytes: u64,
    mounted: Option<Mounted>,
}

impl Disk {
    /// A disk of so many bytes, made by `losetup` with `options`.
    pub fn new(name: &str, bytes: u64, options: &[&str]) -> Result<Self, String> {
        let directory = Directory::new(name);
        let image = directory.path("image");
        fs::File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .map_err(|e| e.to_string())?;
        let device = output(
            Command::new("losetup")
                .args(options)
                .args(["-f", "--show", &image]),
        )?;
        Ok(Self {
            directory,
            node: device.clone(),
            device,
            bytes,
            mounted: None,
        })
    }

    /// With a file system made by `mkfs` (words) and mounted with `options`.
    pub fn formatted(
        name: &str,
        mib: u64,
        mkfs: &str,
        losetup: &[&str],
        options: &str,
    ) -> Result<Self, String> {
        let mut disk = Self::new(name, mib << 20, losetup)?;
        let mut words = mkfs.split(' ');
        let made = Command::new(words.next().unwrap())
            .args(words)
            .arg(&disk.device)
            .output();
        // A tool that is not there is a reason to skip; one that fails is not.
        let made = made.map_err(|e| format!("{mkfs}: {e}"))?;
        assert!(made.status.success(), "{mkfs}: {made:?}");
        let mount = ["-o", options, &disk.device];
        disk.mounted = Some(Mounted::new(&mount, &disk.mount())?);
        Ok(disk)
    }

    /// With one partition from `sector` on, and ext4 on it.
    pub fn partitioned(name: &str, mib: u64, sector: u64) -> Result<Self, String> {
        let mut disk = Self::new(name, mib << 20, &["-P"])?;
        let table = disk.directory.path("table");
        fs::write(&table, format!("label: dos\nstart={sector}, type=83\n")).unwrap();
        let table = fs::File::open(&table).unwrap();
        output(
            Command::new("sfdisk")
                .args(["-q", &disk.device])
                .stdin(table),
        )?;
        // Where nobody makes nodes of partitions, the number is enough.
        let name = disk.device.trim_start_matches("/dev/");
        let number = format!("/sys/block/{name}/{name}p1/dev");
        let number = fs::read_to_string(&number).map_err(|e| format!("{number}: {e}"))?;
        let (major, minor) = number.trim().split_once(':').unwrap();
        disk.node = disk.directory.path("partition");
        output(Command::new("mknod").args([&disk.node, "b", major, minor]))?;
        output(Command::new("mkfs.ext4").args(["-q", "-m", "0", &disk.node]))?;
        disk.mounted = Some(Mounted::new(&[&disk.node], &disk.mount())?);
        Ok(disk)
    }

    /// A fresh ext4 goes on writing its own tables for a while, unless mkfs does it.
    pub fn ext4(name: &str, mib: u64) -> Result<Self, String> {
        let whole = "mkfs.ext4 -q -m 0 -E lazy_itable_init=0,lazy_journal_init=0";
        Self::formatted(name, mib, whole, &[], "defaults")
    }

    /// Mounts it anew: what is read then comes from the disk, not from the page cache.
    pub fn remount(&mut self) {
        output(Command::new("umount").arg(self.mount())).unwrap();
        self.mounted = None;
        self.mounted = Some(Mounted::new(&[&self.node], &self.mount()).unwrap());
    }

    /// What the state must know it by.
    pub fn identity(&self) -> String {
        format!("disk::loop:{}:{}", self.directory.path("image"), self.bytes)
    }

    /// Names in the root of the file system, sorted.
    pub fn listing(&self) -> Vec<String> {
        let names = fs::read_dir(self.mount()).unwrap();
        let mut names: Vec<_> = names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Writes out this file system alone: a whole `sync` waits for everyone's data.
    pub fn sync(&self) {
        output(Command::new("sync").args(["-f", &self.mount()])).unwrap();
    }

    /// Bytes that are taken on the file system, once everything is written out.
    pub fn used(&self) -> u64 {
        self.sync();
        let space = nix::sys::statvfs::statvfs(self.mount().as_str()).unwrap();
        (space.blocks() - space.blocks_free()) as u64 * space.fragment_size() as u64
    }

    pub fn mount(&self) -> String {
        self.directory.path("mnt")
    }

    pub fn state(&self) -> String {
        self.directory.path("state")
    }

    /// Field `n` (from 1) of `/sys/block/loopN/stat`.
    pub fn counter(&self, n: usize) -> u64 {
        let stat = format!(
            "/sys/block/{}/stat",
            self.device.trim_start_matches("/dev/")
        );
        let text = fs::read_to_string(stat).unwrap();
        text.split_whitespace().nth(n - 1).unwrap().parse().unwrap()
    }

    /// `run --medium MOUNT --state-dir STATE` and what else is given.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        run(&[
            &[
                "run",
                "--medium",
                &self.mount(),
                "--state-dir",
                &self.state(),
            ],
            arguments,
        ]
        .concat())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.mounted = None;
        let _ = output(Command::new("losetup").args(["-d", &self.device]));
    }
}

/// What a run of the program left.
pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into(),
            err: String::from_utf8_lossy(&output.stderr).into(),
        }
    }
}

impl Ran {
    /// Asserts the exit status and that the messages hold `part`.
    #[track_caller]
    pub fn says(&self, status: i32, part: &str) {
        let all = format!("{}{}", self.err, self.out);
        assert!(
            self.status == status && all.contains(part),
            "status {}, wanted {status} and {part:?} in:\n{all}",
            self.status
        );
    }
}

pub fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storage-selftest"));
    command.args(arguments).stdin(Stdio::null());
    command
}

pub fn run(arguments: &[&str]) -> Ran {
    program(arguments).output().unwrap().into()
}

/// The state file as a table.
#[track_caller]
pub fn state(directory: &str) -> toml::Table {
    let path = Path::new(directory).join("state.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.parse()
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Identity and record of the only medium in the state file.
#[track_caller]
pub fn record(directory: &str) -> (String, toml::Table) {
    let state = state(directory);
    let media = state["medium"].as_table().unwrap();
    assert_eq!(media.len(), 1, "{media:?}");
    let (identity, record) = media.iter().next().unwrap();
    (identity.clone(), record.as_table().unwrap().clone())
}

/// How many runs of it are kept.
#[track_caller]
pub fn runs(directory: &str) -> usize {
    let (_, record) = record(directory);
    record
        .get("run")
        .map_or(0, |runs| runs.as_array().unwrap().len())
}

/// The last run of the only medium in the state file.
#[track_caller]
pub fn last_run(directory: &str) -> toml::Table {
    let (_, record) = record(directory);
    let last = record["run"].as_array().unwrap().last().unwrap();
    last.as_table().unwrap().clone()
}

/// Processes that a test started with [`MARK`] set to `mark`, and theirs.
pub fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|&byte| byte == 0)
                .any(|one| one == wanted.as_bytes())
        })
        .collect()
}

/// The environment variable by which a test knows its own processes.
pub const MARK: &str = "STORAGE_SELFTEST_MARK";
