//! The tests: devices, faults, what is done in the guest, what must come of it.
//! None asserts a speed: only verdicts, findings, and that the budget is kept.

use crate::guest::{Guest, Output, System};
use crate::{Case, Group};
use std::thread;
use std::time::Duration;

const fn case(name: &'static str, run: fn(&mut Guest)) -> Case {
    Case {
        name,
        run,
        ignored: None,
    }
}

const fn later(name: &'static str, reason: &'static str, run: fn(&mut Guest)) -> Case {
    Case {
        name,
        run,
        ignored: Some(reason),
    }
}

const CAPACITY: &str = "a proof of the size that needs no full write is not built yet";

/// The one that takes longest first.
pub const GROUPS: &[Group] = &[
    Group {
        name: "systemd",
        system: System::Systemd,
        devices: "usb3=512M:ext4",
        cases: &[
            case("root_on_sd_and_its_journal", systemd_journal),
            case("dm_flakey_drops_writes", |guest| {
                dm_flakey(guest, "1 drop_writes", "fail: data-lost")
            }),
            case("dm_flakey_corrupts_writes", |guest| {
                dm_flakey(guest, "5 corrupt_bio_byte 100 w 66 0", "fail: data-changed");
            }),
            case("luks", luks),
        ],
    },
    Group {
        name: "sd",
        system: System::Bench,
        devices: "sd=4G sd=1G,served:ext4",
        cases: &[
            case("identity_is_what_qemu_says", sd_identity),
            case("left_as_it_was", |guest| {
                let part = format!("{}p1", guest.name(1));
                left_as_it_was(guest, &part, "ext4");
            }),
            case("five_iops_fails_in_time", sd_five_iops),
            case("2_4_mb_s_fails", sd_slow_bytes),
        ],
    },
    Group {
        name: "usb",
        system: System::Bench,
        devices: "usb2=256M,serial=STICK480 usb3=256M,serial=STICK5000 uas=256M,serial=DISKUAS,model=RIGDISK",
        cases: &[
            case("told_apart_by_link", usb_told_apart),
            case("behind_a_hub", usb_hub),
            case("vfat_left_as_it_was", |guest| plugged(guest, "vfat")),
            case("exfat_left_as_it_was", |guest| plugged(guest, "exfat")),
            case("ntfs3_left_as_it_was", |guest| plugged(guest, "ntfs3")),
            case("f2fs_left_as_it_was", |guest| plugged(guest, "f2fs")),
            case("ext4_left_as_it_was", |guest| plugged(guest, "ext4")),
            case("xfs_left_as_it_was", |guest| plugged(guest, "xfs")),
            case("btrfs_left_as_it_was", |guest| plugged(guest, "btrfs")),
        ],
    },
    Group {
        name: "faults",
        system: System::Bench,
        devices: "",
        cases: &[
            case("stall", stall),
            case("read_error", read_error),
            case("dropped_writes", dropped_writes),
            case("flipped_writes", flipped_writes),
            case("pulled_out", pulled_out),
            case("plugged_in_again_under_another_name", plugged_in_again),
        ],
    },
    Group {
        name: "buses",
        system: System::Bench,
        devices: "virtio=512M:ext4 nvme=512M,sector=4096 usb3=256M,sector=4096",
        cases: &[
            case("found_and_read", buses),
            later(
                "emmc",
                "QEMU 10.0 has an eMMC but lets nobody but a board plug it",
                |_| panic!("no device to test"),
            ),
        ],
    },
    Group {
        name: "power",
        system: System::Bench,
        devices: "usb3=512M:ext4",
        cases: &[case("state_survives_a_cut", state_survives_a_cut)],
    },
    Group {
        name: "arm64",
        system: System::BenchArm64,
        devices: "sd=1G:ext4 usb3=256M",
        cases: &[case("list_and_run", arm64)],
    },
    Group {
        name: "overlay",
        system: System::SystemdOverlay,
        devices: "",
        cases: &[case("root_under_a_tmpfs", overlay_root)],
    },
    Group {
        name: "fake",
        system: System::Bench,
        devices: "",
        cases: &[
            later("wraps_around", CAPACITY, |guest| fake(guest, "fake=256M")),
            later("loses_what_is_beyond", CAPACITY, |guest| {
                fake(guest, "lost=256M");
            }),
            later("with_a_small_cache", CAPACITY, |guest| {
                fake(guest, "fake=256M,cache=8M");
            }),
            later(
                "forgets_writes_when_the_power_is_cut",
                "a canary, left by one run and read back by the next after a power cycle, is not built yet",
                forgetful,
            ),
        ],
    },
    Group {
        name: "evidence",
        system: System::Bench,
        devices: "usb2=256M:ext4",
        cases: &[
            later(
                "says_that_a_slow_disk_is_on_a_slow_port",
                "evidence of the link, why a disk is slow, is not collected yet",
                |guest| {
                    let at = guest.mount("sda1", "ext4");
                    guest.test(&at).has("usb2-port");
                },
            ),
            later(
                "counts_the_kernels_io_errors",
                "evidence from the kernel log is not collected yet",
                |guest| {
                    with_fault(guest, |faults| faults.read_error = Some(100..101))
                        .has("kernel-io-error");
                },
            ),
        ],
    },
];

impl Guest {
    /// `run` on a medium, with a state directory of its own.
    fn test(&mut self, medium: &str) -> Output {
        self.sh(&format!("rm -rf /tmp/state; {}", run(medium, "/tmp/state")))
    }

    fn mount(&mut self, part: &str, fs: &str) -> String {
        let at = format!("/mnt/{part}");
        self.must(&format!(
            "modprobe {fs}; mkdir -p {at} && mount -t {fs} /dev/{part} {at}"
        ));
        at
    }
}

impl Output {
    #[track_caller]
    fn has(&self, text: &str) -> &Self {
        assert!(self.text.contains(text), "no `{text}` in:\n{}", self.text);
        self
    }

    #[track_caller]
    fn verdict(&self, word: &str) -> &Self {
        let status = ["pass", "warn", "fail", "unknown"]
            .iter()
            .position(|verdict| *verdict == word);
        assert_eq!(
            Some(self.status),
            status.map(|status| status as i32),
            "exit status, {word} wanted:\n{}",
            self.text
        );
        self
    }

    /// It came to an answer about the medium, whichever: speed is the build machine's.
    #[track_caller]
    fn measured(&self) -> &Self {
        assert!(
            (0..=2).contains(&self.status),
            "exit status {}:\n{}",
            self.status,
            self.text
        );
        self
    }
}

fn run(medium: &str, state: &str) -> String {
    format!("storage-selftest run --profile boot --medium {medium} --state-dir {state}")
}

/// What `list` says of a device: the lines of its block.
fn block(list: &str, device: &str) -> String {
    let mut lines = list
        .lines()
        .skip_while(|line| line.split_whitespace().next() != Some(device));
    let first = lines
        .next()
        .unwrap_or_else(|| panic!("no {device} in:\n{list}"));
    let rest: Vec<&str> = lines.take_while(|line| line.starts_with(' ')).collect();
    format!("{first}\n{}", rest.join("\n"))
}

#[track_caller]
fn contains(text: &str, part: &str) {
    assert!(text.contains(part), "no `{part}` in:\n{text}");
}

/// The registers of QEMU's card are constants in its source, hw/sd/sd.c.
fn sd_identity(guest: &mut Guest) {
    let name = guest.name(0);
    let sys = |guest: &mut Guest, file: &str| {
        guest
            .must(&format!("cat /sys/block/{name}/device/{file}"))
            .trim_end()
            .to_string()
    };
    assert_eq!(sys(guest, "cid"), "aa585951454d552101deadbeef006200");
    assert_eq!(sys(guest, "csd"), "400e00325b5900001fff7f800a400000");
    assert_eq!(sys(guest, "name"), "QEMU!");
    assert_eq!(sys(guest, "serial"), "0xdeadbeef");
    guest.must(&format!(
        "echo 'media = [\"/dev/{name}\"]' >/etc/storage-selftest.toml"
    ));
    let list = guest.sh("storage-selftest list").text;
    guest.must("rm /etc/storage-selftest.toml");
    let card = block(&list, &name);
    // Its last byte is a checksum that only some hosts pass on.
    contains(&card, "cid:aa585951454d552101deadbeef0062");
    contains(&card, "SD QEMU!");
    contains(&card, "4.3 GB");
}

fn sd_five_iops(guest: &mut Guest) {
    let part = format!("{}p1", guest.name(1));
    let at = guest.mount(&part, "ext4");
    guest.disk(1).set(|faults| faults.iops = Some(5));
    let output = guest.test(&at);
    guest.disk(1).set(|faults| faults.iops = None);
    guest.must(&format!("umount {at}"));
    output.verdict("fail").has("random-read-slow");
    // 30 s by design, and what it takes a busy build machine to start and end it.
    assert!(output.seconds < 40.0, "{} s", output.seconds);
}

fn sd_slow_bytes(guest: &mut Guest) {
    let part = format!("{}p1", guest.name(1));
    let at = guest.mount(&part, "ext4");
    guest.disk(1).set(|faults| faults.bps = Some(2_400_000));
    let output = guest.test(&at);
    guest.disk(1).set(|faults| faults.bps = None);
    guest.must(&format!("umount {at}"));
    output.verdict("fail").has("durable-write-slow");
}

fn usb_told_apart(guest: &mut Guest) {
    let list = guest.sh("storage-selftest list").text;
    let with = |serial: &str| {
        let blocks: Vec<String> = ["sda", "sdb", "sdc"]
            .iter()
            .map(|device| block(&list, device))
            .collect();
        blocks
            .into_iter()
            .find(|block| block.contains(serial))
            .unwrap_or_else(|| panic!("no {serial} in:\n{list}"))
    };
    let (slow, fast, uas) = (with("STICK480"), with("STICK5000"), with("DISKUAS"));
    contains(&slow, "480 Mbit/s, usb-storage");
    contains(&fast, "5000 Mbit/s, usb-storage");
    contains(&uas, "5000 Mbit/s, uas");
    contains(&uas, "RIGDISK");
}

fn usb_hub(guest: &mut Guest) {
    let (n, disk) = guest.plug("hub=64M,serial=BEHIND");
    let list = guest.sh("storage-selftest list").text;
    guest.unplug(n);
    let disk = block(&list, &disk);
    contains(&disk, "BEHIND");
    contains(&disk, " 12 Mbit/s");
}

/// User files with a known sum, as seen from the disk, not from memory.
fn listing(guest: &mut Guest, part: &str, fs: &str) -> String {
    let at = guest.mount(part, fs);
    let text = guest.must(&format!(
        "cd {at} && ls -lAR . && find . -type f | sort | while read -r f; do sha256sum \"$f\"; done"
    ));
    guest.must(&format!("umount {at}"));
    text
}

fn left_as_it_was(guest: &mut Guest, part: &str, fs: &str) {
    let at = guest.mount(part, fs);
    guest.must(&format!(
        "cd {at} && mkdir -p DCIM/100 'My files' && echo small >note.txt && dd if=/dev/urandom of=DCIM/100/photo.jpg bs=64k count=40 && \
         dd if=/dev/urandom of='My files/a b.bin' bs=1000 count=33 && : >empty && umount {at} 2>/dev/null || {{ cd /; umount {at}; }}"
    ));
    let before = listing(guest, part, fs);
    contains(&before, "note.txt");
    let at = guest.mount(part, fs);
    let output = guest.test(&at);
    guest.must(&format!("umount {at}"));
    assert_eq!(
        before,
        listing(guest, part, fs),
        "the user's files, after:\n{}",
        output.text
    );
    output.measured().has("read-back").has("written");
    guest.must("[ -s /tmp/state/state.toml ]");
}

fn plugged(guest: &mut Guest, fs: &str) {
    let (n, disk) = guest.plug(&format!("usb3=512M:{fs}"));
    left_as_it_was(guest, &format!("{disk}1"), fs);
    guest.unplug(n);
}

/// A served USB disk with ext4, mounted; something is done to it, the medium tested.
fn with_fault(guest: &mut Guest, fault: impl FnOnce(&mut crate::disk::Faults)) -> Output {
    let (n, disk) = guest.plug("usb3=512M:ext4");
    let at = guest.mount(&format!("{disk}1"), "ext4");
    guest.must("sync");
    guest.disk(n).set(fault);
    let output = guest.test(&at);
    guest
        .disk(n)
        .set(|faults| *faults = crate::disk::Faults::default());
    guest.sh(&format!("umount -l {at}"));
    guest.unplug(n);
    output
}

fn stall(guest: &mut Guest) {
    let output = with_fault(guest, |faults| {
        faults.stalls = vec![Duration::from_millis(1500); 6].into()
    });
    output.measured().has("stall");
}

fn read_error(guest: &mut Guest) {
    // In front of the first partition: only a look at the whole disk can find it.
    let output = with_fault(guest, |faults| faults.read_error = Some(100..101));
    output
        .verdict("fail")
        .has("fail: read-error")
        .has("sector 100");
}

fn dropped_writes(guest: &mut Guest) {
    with_fault(guest, |faults| faults.drops_writes = true)
        .verdict("fail")
        .has("fail: data-lost");
}

fn flipped_writes(guest: &mut Guest) {
    with_fault(guest, |faults| faults.flips_writes = true)
        .verdict("fail")
        .has("fail: data-changed");
}

fn pulled_out(guest: &mut Guest) {
    let (n, disk) = guest.plug("usb3=512M:ext4");
    let at = guest.mount(&format!("{disk}1"), "ext4");
    guest.start(&run(&at, "/tmp/state"));
    thread::sleep(Duration::from_secs(4));
    guest.pull(n);
    let output = guest.finish();
    guest.sh(&format!("umount -l {at}"));
    output.has("device-gone");
    assert!(
        output.status >= 2,
        "exit status {}:\n{}",
        output.status,
        output.text
    );
}

fn plugged_in_again(guest: &mut Guest) {
    let (n, disk) = guest.plug("usb3=512M,serial=WANDERER:ext4");
    let at = guest.mount(&format!("{disk}1"), "ext4");
    guest.test(&at).measured();
    guest.unplug(n);
    // The dead disk is still mounted: its name stays taken.
    let again = guest.replug(n);
    assert_ne!(disk, again);
    guest.sh(&format!("umount -l {at}"));
    let at = guest.mount(&format!("{again}1"), "ext4");
    let output = guest.sh(&run(&at, "/tmp/state"));
    guest.must(&format!("umount {at}"));
    guest.unplug(n);
    output.measured();
    let state = guest.must("cat /tmp/state/state.toml");
    assert_eq!(
        (
            state.matches("first_seen]").count(),
            state.matches(".run]]").count()
        ),
        (1, 2),
        "media and runs:\n{state}"
    );
}

fn buses(guest: &mut Guest) {
    guest.must("echo 'media = [\"/dev/vda\", \"/dev/nvme0n1\"]' >/etc/storage-selftest.toml");
    let list = guest.sh("storage-selftest list").text;
    guest.must("rm /etc/storage-selftest.toml");
    contains(&block(&list, "nvme0n1"), "RIG-D1");
    contains(&block(&list, "sda"), "RIG-D2");
    block(&list, "vda");
    for disk in ["nvme0n1", "sda"] {
        contains(
            &guest.must(&format!("cat /sys/block/{disk}/queue/logical_block_size")),
            "4096",
        );
        guest
            .test(&format!("/dev/{disk}"))
            .has("sequential read")
            .has("random read");
    }
    left_as_it_was(guest, "vda1", "ext4");
}

fn state_survives_a_cut(guest: &mut Guest) {
    let at = guest.mount("sda1", "ext4");
    let state = format!("{at}/state");
    guest.sh(&run(&at, &state)).measured();
    guest.start(&run(&at, &state));
    // In the midst of the second run.
    thread::sleep(Duration::from_secs(3));
    guest.power_cycle();
    let at = guest.mount("sda1", "ext4");
    guest.must(&format!("storage-selftest show --state-dir {at}/state"));
    let output = guest.sh(&run(&at, &format!("{at}/state")));
    output.measured();
    contains(&guest.must(&format!("cat {at}/state/state.toml")), "RIG-D0");
}

fn arm64(guest: &mut Guest) {
    contains(&guest.must("uname -m"), "aarch64");
    let list = guest.sh("storage-selftest list").text;
    contains(&block(&list, "sda"), "5000 Mbit/s");
    left_as_it_was(guest, "mmcblk0p1", "ext4");
}

/// As a unit would be: what it says goes to the journal by itself.
fn systemd_journal(guest: &mut Guest) {
    let card = block(&guest.must("storage-selftest list"), "mmcblk0");
    contains(&card, "root");
    contains(&card, "cid:aa585951454d552101deadbeef0062");
    let output = guest.sh("systemd-run --quiet --wait -p StateDirectory=storage-selftest -p SuccessExitStatus='1 2' storage-selftest run --profile boot --medium /");
    output.verdict("pass"); // of systemd-run: it came to an answer
    let journal = guest.must("journalctl --sync && journalctl -o json -t storage-selftest");
    for line in journal.lines() {
        assert!(
            line.starts_with('{') && line.ends_with('}'),
            "not JSON: {line}"
        );
    }
    contains(&journal, r#""DEVICE":"mmcblk0""#);
    contains(&journal, r#""SYSLOG_IDENTIFIER":"storage-selftest""#);
    let state = guest.must("cat /var/lib/storage-selftest/state.toml");
    contains(&state, "cid:aa585951454d552101deadbeef0062");
}

/// Writes dropped by device mapper, below a file system: the disk under it is the medium.
fn dm_flakey(guest: &mut Guest, feature: &str, finding: &str) {
    guest.must("modprobe dm_flakey && size=$(blockdev --getsz /dev/sda1) && dmsetup create flaky --table \"0 $size linear /dev/sda1 0\"");
    guest.must("mkfs.ext4 -qF /dev/mapper/flaky && mkdir -p /mnt/flaky && mount /dev/mapper/flaky /mnt/flaky && sync");
    guest.must(&format!("size=$(blockdev --getsz /dev/sda1) && dmsetup load flaky --table \"0 $size flakey /dev/sda1 0 0 600 {feature}\" && dmsetup resume --noflush --nolockfs flaky"));
    let output = guest.test("/mnt/flaky");
    guest.must(
        "umount -l /mnt/flaky; for n in 1 2 3 4 5; do dmsetup remove flaky && break; sleep 1; done",
    );
    output.verdict("fail").has(finding).has("sda");
}

fn luks(guest: &mut Guest) {
    guest.must("modprobe dm_crypt && echo secret >/tmp/key && cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 /dev/sda1 /tmp/key");
    guest.must("cryptsetup open --key-file /tmp/key /dev/sda1 safe && mkfs.ext4 -qF /dev/mapper/safe && mkdir -p /mnt/safe && mount /dev/mapper/safe /mnt/safe");
    let output = guest.test("/mnt/safe");
    guest.must("umount /mnt/safe && cryptsetup close safe");
    output.measured().has("sda").has("read-back");
}

/// The lower layer, on the card, is what a user means by the root medium.
fn overlay_root(guest: &mut Guest) {
    contains(&guest.must("grep ' / ' /proc/mounts"), "overlay");
    let list = guest.must("storage-selftest list");
    contains(&block(&list, "mmcblk0"), "root");
}

fn fake(guest: &mut Guest, words: &str) {
    let (n, disk) = guest.plug(&format!("usb3=4G,{words}:ext4"));
    let at = guest.mount(&format!("{disk}1"), "ext4");
    let output = guest.test(&at);
    guest.sh(&format!("umount -l {at}"));
    guest.unplug(n);
    output.verdict("fail").has("capacity");
}

fn forgetful(guest: &mut Guest) {
    let (n, disk) = guest.plug("usb3=512M,forget,serial=FORGETS:ext4");
    let at = guest.mount(&format!("{disk}1"), "ext4");
    guest.test(&at).measured();
    guest.must(&format!(
        "cp /tmp/state/state.toml {at}/kept.toml; umount {at}"
    ));
    // The file system, too, is as before: only the canary's absence tells.
    guest.power_cycle();
    let name = guest.name(n);
    let at = guest.mount(&format!("{name}1"), "ext4");
    guest
        .sh(&run(&at, "/tmp/state"))
        .verdict("fail")
        .has("data-lost");
}
