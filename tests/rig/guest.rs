//! A guest: QEMU, the agent that runs commands in it, and QEMU's monitor.

use crate::disk::{Disk, SECTOR};
use crate::spec::{self, Drive};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A boot under software emulation on a busy machine.
const BOOT: Duration = Duration::from_secs(400);
/// A command in the guest, if nothing else was said: several times what it should take.
const COMMAND: Duration = Duration::from_secs(90);

/// What is started.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Kernel, busybox and our binary.
    Bench,
    /// The same for arm64.
    BenchArm64,
    /// The same for armhf on a board with an eMMC and no bus to plug anything into: QEMU
    /// has one, but only a board's own code can create it.
    BenchArmhf,
    /// Debian with systemd, its root on an SD card.
    Systemd,
    /// The same, with a tmpfs over a read-only root.
    SystemdOverlay,
    /// The first one, with our package put into it as an image builder does.
    Installed,
    /// Samba and an NFS server, without systemd.
    Shares,
    /// A Raspberry Pi 3 with the card of an arm64 Debian, and our package put into that by
    /// an image builder on this machine. Nothing can be plugged in.
    RaspberryPi,
}

/// What a command in the guest came to.
pub struct Output {
    pub status: i32,
    pub text: String,
    /// As seen by the guest's own clock it would be less; this is what a user waits.
    pub seconds: f64,
}

struct Machine {
    qemu: Child,
    agent: BufReader<UnixStream>,
    monitor: BufReader<UnixStream>,
}

pub struct Guest {
    system: System,
    dir: PathBuf,
    drives: Vec<Drive>,
    machine: Option<Machine>,
    plugged: u32,
    /// When the command began.
    started: Instant,
    booted: Duration,
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/rig")
}

impl System {
    /// Its root is on a card.
    fn has_root(self) -> bool {
        !matches!(
            self,
            System::Bench | System::BenchArm64 | System::BenchArmhf
        )
    }

    /// The image of its root, where it has one.
    fn root(self) -> &'static str {
        match self {
            System::Shares => "shares/root.img",
            System::RaspberryPi => "raspi/card.img",
            _ => "systemd/root.img",
        }
    }

    /// Why it cannot be started here.
    pub fn lacks(self) -> Option<&'static str> {
        let lacks = self == System::RaspberryPi && !target().join(self.root()).exists();
        lacks.then_some("no card: arm64 programs do not run here (binfmt_misc)")
    }

    /// A board without buses: its devices are its own, its serial ports are what there is.
    fn is_closed(self) -> bool {
        matches!(self, System::BenchArmhf | System::RaspberryPi)
    }

    /// Debian's name of the architecture, QEMU's, and ours.
    fn arch(self) -> (&'static str, &'static str, &'static str) {
        match self {
            System::BenchArm64 | System::RaspberryPi => ("arm64", "aarch64", "aarch64"),
            System::BenchArmhf => ("armhf", "aarch64", "armv6"),
            _ => ("amd64", "x86_64", "x86_64"),
        }
    }

    /// What QEMU emulates, the console, and the port of the agent.
    fn machine(self) -> (&'static [&'static str], &'static str, &'static str) {
        match self {
            System::BenchArm64 => (
                &[
                    "-M",
                    "virt,gic-version=3",
                    "-cpu",
                    "cortex-a72",
                    "-smp",
                    "1",
                ],
                "ttyAMA0",
                "/dev/vport0p1",
            ),
            System::RaspberryPi => (&["-M", "raspi3b"], "ttyAMA0", "/dev/ttyS1"),
            // It has one serial port, and the agent needs it.
            System::BenchArmhf => (&["-M", "ast2600-evb"], "tty0", "/dev/ttyS4"),
            System::Bench => (
                &["-M", "q35", "-cpu", "max", "-smp", "1"],
                "ttyS0",
                "/dev/vport0p1",
            ),
            System::Systemd | System::Installed | System::SystemdOverlay | System::Shares => (
                &["-M", "q35", "-cpu", "max", "-smp", "2"],
                "ttyS0",
                "/dev/vport0p1",
            ),
        }
    }
}

impl Guest {
    /// A guest with these devices (see `spec.rs`), not yet started.
    pub fn new(system: System, devices: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Not under target/: a socket's path must be short.
        let dir = std::env::temp_dir().join(format!("rig-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory for the guest");
        let mut drives = Vec::new();
        if system.has_root() {
            let mut root = spec::drive("sd=2G", "root", &dir).expect("the root's card");
            let copied = Command::new("cp")
                .args(["--sparse=always", "--reflink=auto"])
                .arg(target().join(system.root()))
                .arg(&root.image)
                .status();
            assert!(
                copied.is_ok_and(|status| status.success()),
                "cannot copy the root"
            );
            match system {
                System::Installed | System::SystemdOverlay => {
                    install(&root.image, "amd64");
                    keep_package(&root.image, &dir.join("mnt"));
                }
                System::RaspberryPi => {
                    let said = install(&root.image, "arm64");
                    assert!(said.contains("installed by dpkg; enabled"), "{said}");
                    root.on_board("if=sd,cache=unsafe");
                }
                _ => (),
            }
            root.kind = "root".into();
            drives.push(root);
        }
        for (n, words) in devices.split_whitespace().enumerate() {
            drives.push(
                spec::drive(words, &format!("d{n}"), &dir)
                    .unwrap_or_else(|error| panic!("{error}")),
            );
        }
        Self {
            system,
            dir,
            drives,
            machine: None,
            plugged: 0,
            started: Instant::now(),
            booted: Duration::ZERO,
        }
    }

    /// Started, and ready for commands.
    pub fn boot(system: System, devices: &str) -> Self {
        let mut guest = Self::new(system, devices);
        guest.power_on();
        guest
    }

    fn command(&self, append: &str) -> Command {
        let (arch, emulated, ours) = self.system.arch();
        let bench = target().join(format!("bench-{arch}"));
        // The initramfs is made once; our binary comes as a second archive behind it.
        let initrd = self.dir.join("initrd.gz");
        if !initrd.exists() {
            let mut all =
                fs::read(bench.join("initrd.gz")).expect("the guest: tests/rig/run builds it");
            // Where the kernel looks for the next archive.
            all.resize(all.len().next_multiple_of(4), 0);
            all.extend(archive("bin/storage-selftest", &binary(ours)));
            fs::write(&initrd, all).expect("the initramfs");
        }
        // Whoever is gone takes the guest along.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", &format!("qemu-system-{emulated}")]);
        let (machine, console, _) = self.system.machine();
        let memory = if self.system.has_root() {
            "1024"
        } else {
            "512"
        };
        let root = match self.system {
            System::Systemd | System::Installed => {
                "rig.root=/dev/mmcblk0 systemd.firstboot=off systemd.default_device_timeout_sec=300"
            }
            System::Shares => "rig.root=/dev/mmcblk0",
            // Its other cores never come up under Debian's kernel.
            System::RaspberryPi => {
                "rig.root=/dev/mmcblk0p2 maxcpus=1 systemd.firstboot=off systemd.default_device_timeout_sec=300"
            }
            System::SystemdOverlay => {
                "rig.root=/dev/mmcblk0 rig.overlay systemd.firstboot=off systemd.default_device_timeout_sec=300"
            }
            _ => "",
        };
        command
            .args(machine)
            .args(["-accel", "tcg,thread=multi", "-m", memory])
            .args(["-display", "none", "-no-reboot"])
            .arg("-kernel")
            .arg(bench.join("vmlinuz"))
            .arg("-initrd")
            .arg(initrd)
            .arg("-append")
            .arg(format!(
                "console={console} quiet panic=-1 mitigations=off rig.disks={} {root} {append}",
                self.drives.len()
            ));
        if self.system.is_closed() {
            // Its eMMC, its SD host are among the defaults.
            command.arg("-dtb").arg(bench.join("board.dtb"));
            command.args(["-monitor", "none", "-net", "none"]);
        } else {
            command.arg("-nodefaults");
            command.args(["-device", "qemu-xhci,id=xhci,p2=8,p3=8"]);
            command.args(["-device", "usb-ehci,id=ehci"]);
        }
        for drive in &self.drives {
            for json in &drive.blockdevs {
                command.arg("-blockdev").arg(json);
            }
            for json in &drive.devices {
                command.arg("-device").arg(json);
            }
            if let Some(board) = &drive.board {
                command.arg("-drive").arg(board);
            }
        }
        command
    }

    fn power_on(&mut self) {
        self.started = Instant::now();
        let listen = |name: &str| {
            let path = self.dir.join(name);
            let _ = fs::remove_file(&path);
            UnixListener::bind(path).expect("a socket for the guest")
        };
        let (agent, monitor) = (listen("agent"), listen("monitor"));
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("console"))
            .expect("the console's log");
        let (_, _, port) = self.system.machine();
        let mut command = self.command(&format!("rig.agent={port}"));
        command
            .arg("-chardev")
            .arg(format!("socket,id=agent,path={}/agent", self.dir.display()));
        if self.system == System::RaspberryPi {
            command.args(["-serial", "stdio", "-serial", "chardev:agent"]);
        } else if self.system.is_closed() {
            command.args(["-serial", "chardev:agent"]);
        } else {
            command.args(["-device", "virtio-serial-pci"]);
            command.args(["-device", "virtserialport,chardev=agent,name=rig"]);
            command.args(["-serial", "stdio"]);
        }
        let mut qemu = command
            .arg("-qmp")
            .arg(format!("unix:{}/monitor", self.dir.display()))
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("the console's log"))
            .stdout(log)
            .spawn()
            .expect("qemu");
        let monitor = accept(&monitor, &mut qemu);
        let agent = accept(&agent, &mut qemu);
        let (Some(agent), Some(monitor)) = (agent, monitor) else {
            panic!("QEMU did not start:\n{}", self.console());
        };
        self.machine = Some(Machine {
            qemu,
            agent,
            monitor,
        });
        self.qmp("qmp_capabilities", "{}");
        self.machine()
            .agent
            .get_ref()
            .set_read_timeout(Some(BOOT))
            .expect("a time limit");
        assert_eq!(self.answer().text, "", "not what an agent says first");
        self.booted = self.started.elapsed();
    }

    fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("the guest is off")
    }

    /// Seconds from power-on to the first command.
    pub fn boot_seconds(&self) -> f64 {
        self.booted.as_secs_f64()
    }

    /// Whether the guest still answers.
    pub fn alive(&mut self) -> bool {
        self.machine
            .as_mut()
            .is_some_and(|machine| matches!(machine.qemu.try_wait(), Ok(None)))
    }

    /// The last lines that the console showed.
    pub fn console(&self) -> String {
        let all = fs::read(self.dir.join("console")).unwrap_or_default();
        let text = String::from_utf8_lossy(&all);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    /// Runs a command line of the shell to its end.
    pub fn sh(&mut self, command: &str) -> Output {
        self.start(command);
        self.finish()
    }

    /// The same for what must succeed: its output.
    pub fn must(&mut self, command: &str) -> String {
        let output = self.sh(command);
        assert_eq!(output.status, 0, "{command}:\n{}", output.text);
        output.text
    }

    /// Starts a command and comes back, to break something meanwhile.
    pub fn start(&mut self, command: &str) {
        assert!(!command.contains('\n'), "one line: {command}");
        self.started = Instant::now();
        let machine = self.machine();
        machine
            .agent
            .get_ref()
            .set_read_timeout(Some(COMMAND))
            .expect("a time limit");
        writeln!(machine.agent.get_mut(), "{command}").expect("the guest's agent");
    }

    /// Waits for the command that was started.
    pub fn finish(&mut self) -> Output {
        self.answer()
    }

    fn answer(&mut self) -> Output {
        let started = self.started;
        let read = |machine: &mut Machine| -> std::io::Result<Output> {
            let mut line = String::new();
            machine.agent.read_line(&mut line)?;
            let (status, length) = line
                .trim_end()
                .split_once(' ')
                .ok_or(std::io::ErrorKind::InvalidData)?;
            let mut text = vec![
                0;
                length
                    .trim()
                    .parse()
                    .map_err(|_| std::io::ErrorKind::InvalidData)?
            ];
            machine.agent.read_exact(&mut text)?;
            Ok(Output {
                status: status.parse().unwrap_or(0),
                text: String::from_utf8_lossy(&text).into_owned(),
                seconds: started.elapsed().as_secs_f64(),
            })
        };
        match read(self.machine()) {
            Ok(output) => output,
            Err(error) => {
                // What comes later would answer another question.
                self.power_off();
                panic!(
                    "the guest gave no answer: {error}; its console:\n{}",
                    self.console()
                );
            }
        }
    }

    /// Asks QEMU's monitor; panics when it refuses.
    pub fn qmp(&mut self, command: &str, arguments: &str) -> String {
        let ask = |machine: &mut Machine| -> std::io::Result<String> {
            writeln!(
                machine.monitor.get_mut(),
                r#"{{"execute":"{command}","arguments":{arguments}}}"#
            )?;
            loop {
                let mut line = String::new();
                if machine.monitor.read_line(&mut line)? == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                // Between them come the greeting and events.
                if line.starts_with(r#"{"return""#) || line.starts_with(r#"{"error""#) {
                    return Ok(line);
                }
            }
        };
        match ask(self.machine()) {
            Ok(line) if line.starts_with(r#"{"return""#) => line,
            Ok(line) => panic!("{command}: {line}"),
            Err(error) => panic!("QEMU at {command}: {error}\n{}", self.console()),
        }
    }

    /// The list begins after the root's card.
    fn index(&self, n: usize) -> usize {
        n + usize::from(self.drives[0].kind == "root")
    }

    /// The disk of ours behind the `n`th device of the list.
    pub fn disk(&self, n: usize) -> Arc<Disk> {
        let n = self.index(n);
        self.drives[n]
            .disk
            .clone()
            .expect("a served disk: say `served` in its options")
    }

    /// What the guest calls the `n`th device of the list. Cards are found in no fixed
    /// order and QEMU's all have one serial number: told by size.
    pub fn name(&mut self, n: usize) -> String {
        let n = self.index(n);
        let sectors = fs::metadata(&self.drives[n].image)
            .expect("the image")
            .len()
            / SECTOR;
        let found = self.must(&format!("cd /sys/block && grep -lx {sectors} */size"));
        // An NVMe path, nvme0c0n1, is no disk.
        let disk = found
            .lines()
            .find(|line| !(line.starts_with("nvme") && line.contains('c')));
        disk.unwrap_or_default().trim_end_matches("/size").into()
    }

    /// Plugs a USB disk in; returns its number for [`Self::unplug`] and its name in the guest.
    pub fn plug(&mut self, words: &str) -> (usize, String) {
        self.plugged += 1;
        let drive = spec::drive(words, &format!("p{}", self.plugged), &self.dir)
            .unwrap_or_else(|error| panic!("{error}"));
        self.drives.push(drive);
        let n = self.drives.len() - 1;
        for json in self.drives[n].blockdevs.clone() {
            self.qmp("blockdev-add", &json);
        }
        let name = self.attach(n);
        (n - self.index(0), name)
    }

    fn attach(&mut self, n: usize) -> String {
        let before = self.must("ls /sys/block");
        let mut bridge = None;
        for json in self.drives[n].devices.clone() {
            self.qmp("device_add", &json);
            // This bridge waits for its disk, and for a word that all is there.
            if let Some(id) = json
                .contains(r#""usb-bot""#)
                .then(|| id_of(&json).to_string())
            {
                bridge = Some(id);
            }
        }
        if let Some(id) = bridge {
            self.qmp(
                "qom-set",
                &format!(
                    r#"{{"path":"/machine/peripheral/{id}","property":"attached","value":true}}"#
                ),
            );
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            let now = self.must("ls /sys/block");
            if let Some(new) = now
                .lines()
                .find(|line| !before.lines().any(|old| old == *line))
            {
                // The partition comes a moment after the disk.
                let name = new.to_string();
                let last = if self.drives[n].fs.is_some() {
                    format!("{name}1")
                } else {
                    name.clone()
                };
                self.drives[n].name.clone_from(&name);
                self.must(&format!(
                    "n=0; until [ -b /dev/{last} ]; do sleep 0.1; n=$((n+1)); [ $n -lt 300 ]; done"
                ));
                return name;
            }
            thread::sleep(Duration::from_millis(200));
        }
        panic!("the guest never saw the disk");
    }

    /// Pulls a disk out, also while a command works on it.
    pub fn pull(&mut self, n: usize) {
        let n = self.index(n);
        let devices = self.drives[n].devices.clone();
        // A disk goes with its bridge.
        let plugs = devices.iter().filter(|json| !json.contains("scsi-hd"));
        for json in plugs.rev() {
            self.qmp("device_del", &format!(r#"{{"id":"{}"}}"#, id_of(json)));
        }
    }

    /// The same, and waits until it is gone. Its image stays, for [`Self::replug`].
    pub fn unplug(&mut self, n: usize) {
        self.pull(n);
        // Its name may go to the next one only when it is free.
        let n = self.index(n);
        let name = self.drives[n].name.clone();
        self.must(&format!(
            "n=0; while [ -e /sys/block/{name} ]; do sleep 0.1; n=$((n+1)); [ $n -lt 300 ]; done"
        ));
    }

    /// Puts it back; returns its name in the guest now.
    pub fn replug(&mut self, n: usize) -> String {
        let n = self.index(n);
        thread::sleep(Duration::from_secs(1));
        self.attach(n)
    }

    fn power_off(&mut self) {
        if let Some(mut machine) = self.machine.take() {
            let _ = machine.qemu.kill();
            let _ = machine.qemu.wait();
        }
    }

    /// Cuts the power, loses what no served disk had flushed, and boots again.
    pub fn power_cycle(&mut self) {
        self.power_off();
        for disk in self.drives.iter().filter_map(|drive| drive.disk.as_ref()) {
            disk.cut_power().expect("the image");
        }
        self.power_on();
    }

    /// Panics unless the ext4 on the `n`th device, which must not be mounted, is sound.
    pub fn fsck_ext4(&self, n: usize) {
        let image = &self.drives[self.index(n)].image;
        let checked = Command::new("e2fsck")
            .arg("-fn")
            .arg(format!("{}?offset={}", image.display(), spec::PART_START))
            .output()
            .expect("e2fsck");
        assert!(
            checked.status.success(),
            "{}",
            String::from_utf8_lossy(&checked.stdout)
        );
    }

    /// A person's guest: the console on this terminal, until it is switched off.
    pub fn shell(&mut self) -> i32 {
        let fs: Vec<&str> = self
            .drives
            .iter()
            .filter_map(|drive| drive.fs.as_deref())
            .collect();
        let mount = format!("rig.mount={}", fs.join(","));
        let status = self.command(&mount).args(["-serial", "mon:stdio"]).status();
        status.map_or(1, |status| status.code().unwrap_or(1))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.power_off();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The id in a device's description.
fn id_of(json: &str) -> &str {
    json.split(r#""id":""#)
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("a device has an id")
}

/// Puts our package into an image as an image builder does; what the script says.
fn install(image: &Path, arch: &str) -> String {
    shell(
        "set -e; image/deb.sh $0 >/dev/null; image/install.sh $1",
        [OsStr::new(arch), image.as_os_str()],
    )
}

/// Leaves the package in /root too, for tests of its scripts.
fn keep_package(image: &Path, at: &Path) {
    let script = "set -e; mkdir -p $1; mount -o loop $0 $1; trap 'umount $1' EXIT; \
        cp dist/storage-selftest_*_amd64.deb $1/root/";
    shell(script, [image, at]);
}

/// On this machine; what it says.
fn shell<T: AsRef<OsStr>>(script: &str, arguments: [T; 2]) -> String {
    let output = Command::new("sh")
        .args(["-c", script])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("sh");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the package cannot be installed: {text}"
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits for QEMU to call, unless it ended before.
fn accept(listener: &UnixListener, qemu: &mut Child) -> Option<BufReader<UnixStream>> {
    listener.set_nonblocking(true).ok()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).ok()?;
            return Some(BufReader::new(stream));
        }
        if !matches!(qemu.try_wait(), Ok(None)) {
            return None;
        }
        thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Our static binary for that architecture, as `make dist` leaves it.
fn binary(arch: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("dist/{arch}/storage-selftest"));
    fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; tests/rig/run builds it", path.display()))
}

/// A cpio archive ("newc") with one program in it; the kernel unpacks it over the first one.
fn archive(name: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, mode, content) in [(name, 0o100_755, content), ("TRAILER!!!", 0, &[][..])] {
        let fields = [
            0,
            mode,
            0,
            0,
            1,
            0,
            content.len(),
            0,
            0,
            0,
            0,
            name.len() + 1,
            0,
        ];
        bytes.extend(b"070701");
        for field in fields {
            bytes.extend(format!("{field:08x}").bytes());
        }
        bytes.extend(name.bytes());
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}
