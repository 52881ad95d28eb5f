//! The aarch64 and armv6 binaries, run under user emulation on a real file system.
//!
//! They are started by their own path, not through the emulator: the program
//! starts itself again for each medium, and that works only where the kernel
//! knows the emulator (binfmt_misc). QEMU_CPU picks the processor, for the
//! children too. User emulation has no Linux AIO, so nothing is said here about
//! 32 in flight.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Says why nothing was tested, past the harness, which keeps what a passing
/// test prints to itself.
fn skipped(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// A directory with an ext4 file system on a loop device, gone on drop.
struct Disk(PathBuf);

fn succeeds(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

impl Disk {
    fn new(name: &str) -> Result<Disk, String> {
        let dir =
            std::env::temp_dir().join(format!("storage-selftest-{name}-{}", std::process::id()));
        let disk = Disk(dir.clone());
        fs::create_dir_all(dir.join("mnt")).map_err(|e| e.to_string())?;
        fs::File::create(dir.join("image"))
            .and_then(|f| f.set_len(512 << 20))
            .map_err(|e| e.to_string())?;
        succeeds(Command::new("mkfs.ext4").arg("-q").arg(dir.join("image")))?;
        succeeds(
            Command::new("mount")
                .args(["-o", "loop"])
                .arg(dir.join("image"))
                .arg(disk.mount()),
        )?;
        Ok(disk)
    }

    fn mount(&self) -> PathBuf {
        self.0.join("mnt")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = succeeds(Command::new("umount").arg(self.mount()));
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Board {
    binary: PathBuf,
    cpu: &'static str,
}

impl Board {
    fn new(arch: &str, cpu: &'static str) -> Board {
        let binary =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("dist/{arch}/storage-selftest"));
        Board { binary, cpu }
    }

    fn call<S: AsRef<OsStr>>(&self, arguments: &[S]) -> std::io::Result<Output> {
        Command::new(&self.binary)
            .env("QEMU_CPU", self.cpu)
            .args(arguments)
            .output()
    }

    /// Output of a call that must end with a status up to `worst`.
    fn says<S: AsRef<OsStr>>(&self, arguments: &[S], worst: i32) -> String {
        let output = self.call(arguments).unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        assert!(
            status.code().is_some_and(|code| code <= worst),
            "{status}\n{stdout}\n{stderr}"
        );
        stdout
    }
}

fn round_trip(arch: &str, cpu: &'static str) {
    let board = Board::new(arch, cpu);
    if !board.binary.exists() {
        return skipped(arch, "its binary is not built");
    }
    match board.call(&["--version"]) {
        Ok(_) => {}
        Err(e) => return skipped(arch, &format!("the kernel cannot start it: {e}")),
    }
    let version = board.says(&["--version"], 0);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    board.says(&["list"], 0);

    let disk = match Disk::new(arch) {
        Ok(disk) => disk,
        Err(e) => return skipped(arch, &format!("no loop device: {e}")),
    };
    let state = disk.0.join("state");
    let state = state.to_str().unwrap();
    let mount = disk.mount();
    let mount = mount.to_str().unwrap();
    let device = loop_device(mount);
    board.says(
        &[
            "run",
            "--medium",
            mount,
            "--profile",
            "boot",
            "--state-dir",
            state,
        ],
        3,
    );
    let shown = board.says(&["show", "--state-dir", state], 3);
    assert!(
        shown.contains(&device),
        "show does not name {device}:\n{shown}"
    );
}

/// "loop3" for what is mounted there.
fn loop_device(mount: &str) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let source = mounts
        .lines()
        .find_map(|line| line.split_once(&format!(" {mount} ")))
        .expect("not mounted")
        .0;
    source.trim_start_matches("/dev/").to_owned()
}

#[test]
fn aarch64() {
    round_trip("aarch64", "cortex-a53");
}

/// A Pi 1 or a Zero.
#[test]
fn armv6() {
    round_trip("armv6", "arm1176");
}
