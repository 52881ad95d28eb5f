//! The tests: devices, faults, what is done in the guest, what must come of it.
//! None asserts a speed: only verdicts, findings, and that the budget is kept.

use crate::disk::SECTOR;
use crate::guest::{Guest, Output, System};
use crate::{Case, Group, image};
use std::thread;
use std::time::Duration;

pub const fn case(name: &'static str, run: fn(&mut Guest)) -> Case {
    Case {
        name,
        run,
        ignored: None,
    }
}

/// A case that cannot pass yet.
#[allow(dead_code)] // there is none at present
const fn later(name: &'static str, reason: &'static str, run: fn(&mut Guest)) -> Case {
    Case {
        name,
        run,
        ignored: Some(reason),
    }
}

/// The one that takes longest first.
pub const GROUPS: &[Group] = &[
    Group {
        name: "image",
        system: System::Installed,
        devices: "",
        cases: image::CASES,
    },
    Group {
        name: "raspi",
        system: System::RaspberryPi,
        devices: "",
        cases: &[case("first_boot", image::raspberry_pi)],
    },
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
            case("dm_flakey_fails_reads", |guest| {
                dm_flakey(guest, "1 error_reads", "fail: read-error");
            }),
            case("dm_error_fails_writes", dm_error),
            case("dm_delay_stalls", dm_delay),
            case("luks", luks),
            case("root_that_turned_read_only", turned_read_only),
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
            case("host_errors_become_zeros", sd_zeros),
        ],
    },
    Group {
        name: "usb",
        system: System::Bench,
        devices: "usb2=256M,serial=STICK480,model=RIGSTICK usb3=256M,serial=STICK5000 uas2=256M,serial=UAS480 uas=256M,serial=UAS5000,model=RIGDISK",
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
            case("throttled_while_it_runs", throttled),
            case("read_error", read_error),
            case("blkdebug_read_error", blkdebug),
            case("write_error", write_error),
            case("scsi_debug_medium_error", medium_error),
            case("dropped_writes", dropped_writes),
            case("flipped_writes", flipped_writes),
            case("one_bit_in_a_million_is_flipped", |guest| {
                with_fault(guest, |faults| faults.flips = 1000).is_damaged("data-changed");
            }),
            case("readings_differ", |guest| {
                with_fault(guest, |faults| faults.unsteady = 10_000).is_damaged("data-changed");
            }),
            case("one_block_in_a_thousand_is_corrupt", corrupt_blocks),
            case("pulled_out", pulled_out),
            case("plugged_in_again_under_another_name", plugged_in_again),
            case("unclean_after_it_was_pulled_out", unclean),
        ],
    },
    Group {
        name: "buses",
        system: System::Bench,
        devices: "virtio=512M:ext4 virtio=128M,sector=4096 nvme=384M:ext4 nvme=256M,sector=4096 usb3=192M,sector=4096 sata=320M",
        cases: &[
            case("found_and_read", buses),
            case("virtio_left_as_it_was", |guest| {
                left_as_it_was(guest, "vda1", "ext4");
            }),
            case("nvme_left_as_it_was", |guest| {
                let part = format!("{}p1", guest.name(2));
                left_as_it_was(guest, &part, "ext4");
            }),
            case("nvme_smart", nvme_smart),
            case("sata_smart", sata_smart),
        ],
    },
    Group {
        name: "power",
        system: System::Bench,
        devices: "usb3=512M:ext4 usb3=256M:vfat",
        cases: &[
            case("cut_at_a_random_moment", cut_at_a_random_moment),
            case("named_scratch_file_goes_at_the_next_run", cut_on_vfat),
        ],
    },
    Group {
        name: "arm64",
        system: System::BenchArm64,
        devices: "sd=1G:ext4 usb3=256M",
        cases: &[case("list_and_run", arm64)],
    },
    Group {
        name: "emmc",
        system: System::BenchArmhf,
        devices: "emmc=1G:ext4",
        cases: &[
            case("identity_is_what_qemu_says", emmc_identity),
            case("left_as_it_was", |guest| {
                left_as_it_was(guest, "mmcblk0p1", "ext4");
            }),
        ],
    },
    Group {
        name: "overlay",
        system: System::SystemdOverlay,
        devices: "",
        cases: &[
            case("first_boot_by_the_timer", image::overlay),
            case("root_under_a_tmpfs", overlay_root),
        ],
    },
    Group {
        name: "fake",
        system: System::Bench,
        devices: "",
        cases: &[
            case("fakes_are_fakes", fakes_are_fakes),
            case("scsi_debug_wraps", scsi_debug_wraps),
            case("wraps_around", |guest| {
                fake(guest, "fake=256M", "capacity-wraps")
            }),
            case("wraps_at_no_power_of_two", |guest| {
                fake(guest, "fake=300M", "capacity-wraps")
            }),
            case("loses_what_is_beyond", |guest| {
                fake(guest, "lost=256M", "capacity-lost")
            }),
            case("shows_noise_beyond", |guest| {
                fake(guest, "lost=256M,shows=noise", "capacity-lost");
            }),
            case("with_a_small_cache", |guest| {
                fake(guest, "fake=256M,cache=1M", "capacity-wraps")
            }),
            case("wraps_under_vfat_and_exfat", |guest| {
                fake_stick(guest, "vfat");
                fake_stick(guest, "exfat");
            }),
            case("stamps_under_exfat", exfat_stamps),
        ],
    },
    Group {
        name: "forgets",
        system: System::Bench,
        devices: "usb3=512M,forget:ext4 usb3=384M,served:ext4",
        cases: &[
            case("writes_when_the_power_is_cut", forgetful),
            case("what_it_once_kept", turned_forgetful),
        ],
    },
    Group {
        name: "full",
        system: System::Bench,
        devices: "usb3=512M:ext4",
        cases: &[
            case("goes_on_after_a_power_cut", full_goes_on),
            case("gives_back_after_a_power_cut", full_gives_back),
            case("finds_what_a_memory_hides", full_memory),
            case("finds_a_sector_that_cannot_be_read", full_read_error),
            case("finds_a_sector_that_cannot_be_written", full_write_error),
            case("pulled_out", full_pulled_out),
            case("fills_vfat_and_btrfs", full_others),
        ],
    },
    Group {
        name: "evidence",
        system: System::Bench,
        devices: "usb2=256M:ext4",
        cases: &[
            case(
                "says_that_a_fast_disk_is_on_a_slow_port",
                fast_disk_on_a_slow_port,
            ),
            case("counts_the_kernels_io_errors", |guest| {
                with_fault(guest, |faults| faults.read_error = Some(100..101))
                    .has("kernel-io-error");
            }),
            case("sees_a_file_systems_error_counter", error_counter),
        ],
    },
    Group {
        name: "compat",
        system: System::Bench,
        devices: "usb3=512M:ext4",
        cases: &[case("dd_on_a_disk", |guest| {
            let at = guest.mount("sda1", "ext4");
            let output = guest.sh(&format!(
                "storage-selftest compat dd --yes --dir {at} --size 64MiB"
            ));
            guest.must(&format!("umount {at}"));
            output
                .verdict("pass")
                .has("67108864 bytes (67 MB, 64 MiB) copied");
        })],
    },
    Group {
        name: "shares",
        system: System::Shares,
        devices: "virtio=1G:ext4",
        cases: &[
            case("cifs", |guest| share_works(guest, &CIFS)),
            case("nfs", |guest| share_works(guest, &NFS)),
            case("configured", configured_shares),
            case("servers_that_stop", servers_stop),
        ],
    },
];

/// A share, served by the guest to itself.
struct Share {
    at: &'static str,
    /// What starts the server, which then comes when it comes; what makes it hang; what ends that.
    start: &'static str,
    hang: &'static str,
    go_on: &'static str,
    mount: &'static str,
    /// As it is told: client and server's path.
    name: &'static str,
}

const CIFS: Share = Share {
    at: "/mnt/cifs",
    start: "modprobe cifs; pidof smbd >/dev/null || smbd -D",
    hang: "killall -STOP smbd",
    go_on: "killall -CONT smbd",
    mount: "mount -i -t cifs -o ip=127.0.0.1,sec=none,vers=3.1.1 //127.0.0.1/share/cifs",
    name: "cifs //127.0.0.1/share/cifs",
};

// A hard mount, as it is where nothing else is said: it waits for its server for ever. 10 s is
// the shortest grace time of a server (fs/nfsd/nfsctl.c).
const NFS: Share = Share {
    at: "/mnt/nfs",
    start: "grep -q nfsd /proc/mounts || { modprobe nfsd; modprobe nfsv4; mount -t nfsd nfsd /proc/fs/nfsd; \
        echo 10 >/proc/fs/nfsd/nfsv4leasetime; echo 10 >/proc/fs/nfsd/nfsv4gracetime; \
        exportfs -o rw,fsid=0,no_root_squash,no_subtree_check,insecure 127.0.0.1:/srv/nfs; rpc.mountd -N 3; rpc.nfsd -N 3 2; }",
    hang: "rpc.nfsd 0",
    go_on: "rpc.nfsd -N 3 2",
    mount: "mount -i -t nfs4 -o addr=127.0.0.1,clientaddr=127.0.0.1 127.0.0.1:/",
    name: "nfs4 127.0.0.1:/",
};

impl Share {
    fn mount(&self, guest: &mut Guest) {
        guest.must("modprobe ext4; grep -q ' /srv ' /proc/mounts || mount -t ext4 /dev/vda1 /srv; mkdir -p /srv/cifs /srv/nfs");
        let Share {
            at, start, mount, ..
        } = self;
        let tries = format!(
            "for n in $(seq 30); do {mount} {at} && exit; sleep 1; done; dmesg | tail; exit 1"
        );
        guest.must(&format!("mkdir -p {at}; {start}; {tries}"));
    }
}

fn share_works(guest: &mut Guest, share: &Share) {
    share.mount(guest);
    let at = share.at;
    let place = format!("--dir {at} --state-dir /tmp/state --yes");
    let dd = guest.sh(&format!("storage-selftest compat dd --size 16MiB {place}"));
    dd.verdict("pass")
        .has(&format!("{at} on {}", share.name))
        .has("16777216 bytes (17 MB, 16 MiB) copied")
        .has("time: write ")
        .has(", close ")
        .has(", then to be durable ");
    // A round trip each, which takes its time here.
    let listing = guest.sh(&format!(
        "storage-selftest compat listing --files 200 {place}"
    ));
    listing.verdict("pass").has("ms an entry by name");
    assert_eq!(guest.must(&format!("ls -A {at}")), "");
    guest.must(&format!("umount {at}"));
}

fn configured_shares(guest: &mut Guest) {
    for share in [&CIFS, &NFS] {
        share.mount(guest);
    }
    guest.must("echo 'media = [\"/mnt/cifs\", \"/mnt/nfs\"]' >/tmp/shares.toml");
    let run = guest
        .sh("storage-selftest run --config /tmp/shares.toml --profile boot --state-dir /tmp/state");
    let of = |from: &str| {
        run.text
            .split("\nshare")
            .find(|part| part.starts_with(from))
    };
    for share in ["0  //127.0.0.1/share/cifs", "1  127.0.0.1:/"] {
        let told = of(share).unwrap_or_else(|| panic!("no share{share} in:\n{}", run.text));
        assert!(
            told.contains("durable write") && told.contains("read-back"),
            "{told}"
        );
    }
    assert_eq!(guest.must("ls -A /mnt/cifs /mnt/nfs | grep self || :"), "");
    guest.must("umount /mnt/cifs /mnt/nfs");
}

/// The servers hang in the middle of a tool's work, and of a run.
fn servers_stop(guest: &mut Guest) {
    for share in [&CIFS, &NFS] {
        share.mount(guest);
        let at = share.at;
        guest.must(&format!("(storage-selftest compat dd --size 16MiB --repeat 100 --yes --dir {at} --state-dir /tmp/state >/tmp/{0} 2>&1; echo status $? >>/tmp/{0}) & :", &at[5..]));
    }
    guest.must("sleep 15");
    for share in [&CIFS, &NFS] {
        guest.must(share.hang);
    }
    let run = guest.sh("storage-selftest run --medium /mnt/cifs --medium /mnt/nfs --profile boot --state-dir /tmp/state-run");
    let none = run
        .text
        .matches("unknown: no-answer: durable write")
        .count();
    assert!(none >= 2, "{}", run.text);
    // The bound of one call of such a size is a minute and some.
    for (share, output) in [(&CIFS, "/tmp/cifs"), (&NFS, "/tmp/nfs")] {
        let ended = guest.sh(&format!(
            "for n in $(seq 80); do grep -q status {output} && break; sleep 1; done; cat {output}"
        ));
        let said = format!("{}: no answer within 6", share.at);
        ended.has("status 70").has(&said);
    }
    for share in [&CIFS, &NFS] {
        guest.must(share.go_on);
        guest.must(&format!("umount -l {}", share.at));
    }
}

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
    pub fn has(&self, text: &str) -> &Self {
        assert!(self.text.contains(text), "no `{text}` in:\n{}", self.text);
        self
    }

    /// It was halved towards, as far as there was time: at most 64 sectors before the bad one.
    #[track_caller]
    fn at_sector(&self, bad: u64) -> &Self {
        let words = self.text.split("at sector ").skip(1);
        let number = |text: &str| {
            let digits = text
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len());
            text[..digits].parse::<u64>().ok()
        };
        let near = |said: u64| said <= bad && bad - said < 64;
        assert!(
            words.filter_map(number).any(near),
            "not at sector {bad}:\n{}",
            self.text
        );
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

    /// Bad data, and no fake.
    #[track_caller]
    fn is_damaged(&self, finding: &str) -> &Self {
        assert!(!self.text.contains("capacity-"), "{}", self.text);
        self.verdict("fail").has(&format!("fail: {finding}"))
    }

    /// It came to an answer about the medium, whichever: speed is the build machine's, and so is
    /// whether anybody else left it time.
    #[track_caller]
    fn measured(&self) -> &Self {
        let only_busy =
            self.text.contains(" unknown: busy: ") && !self.text.contains("not-measured:");
        assert!(
            (0..=2).contains(&self.status) || self.status == 3 && only_busy,
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
pub fn contains(text: &str, part: &str) {
    assert!(text.contains(part), "no `{part}` in:\n{text}");
}

/// The registers of QEMU's card are constants in its source, hw/sd/sd.c; the last byte of
/// both is a checksum, which an SDHCI host keeps for itself (SD Host Controller
/// Specification, response R2), so the kernel shows zeros there.
fn is_qemus_card(guest: &mut Guest, name: &str, csd: &str) {
    for (file, wanted) in [
        ("cid", "aa585951454d552101deadbeef006200"),
        ("csd", csd),
        ("name", "QEMU!"),
        ("serial", "0xdeadbeef"),
    ] {
        let text = guest.must(&format!("cat /sys/block/{name}/device/{file}"));
        assert_eq!(text.trim_end(), wanted, "{file}");
    }
}

fn sd_identity(guest: &mut Guest) {
    let name = guest.name(0);
    // Of 4 GiB: version 2, size field 4 GiB / 512 KiB - 1.
    is_qemus_card(guest, &name, "400e00325b5900001fff7f800a400000");
    let small = guest.name(1);
    // Of 1 GiB: version 1, 4096 times 512 blocks of 512.
    is_qemus_card(guest, &small, "002600325f59e3ffffffdfff92600000");
    guest.must(&format!(
        "echo 'media = [\"/dev/{name}\"]' >/etc/storage-selftest.toml"
    ));
    let list = guest.sh("storage-selftest list").text;
    guest.must("rm /etc/storage-selftest.toml");
    let card = block(&list, &name);
    contains(&card, "cid:aa585951454d552101deadbeef006200");
    contains(&card, "SD QEMU!");
    contains(&card, "4.3 GB");
    // What its CID says, and SSR: hw/sd/sd.c.
    contains(&card, "unknown maker (id 0xaa), QEMU!");
}

/// Constants of hw/sd/sd.c, too: maker AA, name "QEMU!!", made in February 2006.
fn emmc_identity(guest: &mut Guest) {
    let cid = "aa015851454d55212101deadbeef2900";
    let device = "/sys/block/mmcblk0/device";
    assert_eq!(
        guest.must(&format!("cd {device} && cat cid type name date serial")),
        format!("{cid}\nMMC\nQEMU!!\n02/2006\n0xdeadbeef\n")
    );
    guest.must("echo 'media = [\"/dev/mmcblk0\"]' >/etc/storage-selftest.toml");
    let list = guest.sh("storage-selftest list").text;
    guest.must("rm /etc/storage-selftest.toml");
    let chip = block(&list, "mmcblk0");
    contains(&chip, &format!("cid:{cid}"));
    contains(&chip, "MMC QEMU!!");
}

/// Read errors that its host turns into zeros, said to be good: silent corruption.
fn sd_zeros(guest: &mut Guest) {
    let part = format!("{}p1", guest.name(1));
    let at = guest.mount(&part, "ext4");
    guest.must(&format!("touch {at}/warm && rm {at}/warm && sync"));
    // Behind the tables of ext4 and in front of all its data.
    guest
        .disk(1)
        .set(|faults| faults.read_error = Some((24 << 20) / SECTOR..u64::MAX));
    let output = guest.test(&at);
    guest.disk(1).set(|faults| faults.read_error = None);
    guest.must(&format!("umount {at}"));
    output.verdict("fail").has("fail: data-lost");
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
        ["sda", "sdb", "sdc", "sdd"]
            .iter()
            .map(|device| block(&list, device))
            .find(|block| block.contains(serial))
            .unwrap_or_else(|| panic!("no {serial} in:\n{list}"))
    };
    contains(&with("STICK480"), "USB 480 Mbit/s, usb-storage");
    contains(&with("STICK480"), "RIGSTICK");
    contains(&with("STICK5000"), "USB 5000 Mbit/s, usb-storage");
    contains(&with("UAS480"), "USB 480 Mbit/s, uas");
    contains(&with("UAS5000"), "USB 5000 Mbit/s, uas");
    contains(&with("UAS5000"), "RIGDISK");
    contains(&with("UAS5000"), "SuperSpeed, as it should be");
    contains(&with("STICK480"), "a USB 2 disk");
}

/// QEMU's stick says bcdUSB 2.00 on a port of 480 Mbit/s, as no real one that can do more does;
/// with 2.10 there instead, its own BOS descriptor, read from the device, tells what it can do.
fn fast_disk_on_a_slow_port(guest: &mut Guest) {
    let at = guest.mount("sda1", "ext4");
    guest.must(
        "usb=$(realpath /sys/block/sda/device/../../../..); [ -e $usb/idVendor ] && \
         echo ' 2.10' >/tmp/version && mount --bind /tmp/version $usb/version",
    );
    let list = guest.must("storage-selftest list");
    let output = guest.test(&at);
    guest.must(&format!(
        "umount $(realpath /sys/block/sda/device/../../../..)/version; umount {at}"
    ));
    contains(&block(&list, "sda"), "a SuperSpeed disk on a USB 2 link");
    // The first line is the summary: the cause leads.
    output.has("usb2-port").has("the link is 480 Mbit/s");
}

/// The kernel's own way to try what comes of an error: Documentation/ABI/testing/sysfs-fs-ext4.
fn error_counter(guest: &mut Guest) {
    let at = guest.mount("sda1", "ext4");
    guest.must("echo the rig >/sys/fs/ext4/sda1/trigger_fs_error");
    let list = guest.must("storage-selftest list");
    let output = guest.test(&at);
    guest.must(&format!("umount {at}"));
    contains(&block(&list, "sda"), "1 error,");
    output.has("warn: file-system-error");
}

/// QEMU's disk counts what we read of it.
fn nvme_smart(guest: &mut Guest) {
    guest.must("echo 'media = [\"/dev/nvme0n1\"]' >/etc/storage-selftest.toml");
    let list = guest.must("storage-selftest list");
    guest.must("rm /etc/storage-selftest.toml");
    let disk = block(&list, "nvme0n1");
    contains(&disk, "0 critical");
    contains(&disk, "0 media-errors");
    guest.test("/dev/nvme0n1");
    contains(&guest.must("cat /tmp/state/state.toml"), "used-percent = 0");
}

/// By ATA commands in SCSI ones. QEMU's table (hw/ide/core.c, smart_attributes) has one hour
/// and no block reallocated.
fn sata_smart(guest: &mut Guest) {
    let disk = guest.name(5);
    guest.must(&format!(
        "echo 'media = [\"/dev/{disk}\"]' >/etc/storage-selftest.toml"
    ));
    let list = guest.must("storage-selftest list");
    guest.must("rm /etc/storage-selftest.toml");
    let shown = block(&list, &disk);
    contains(&shown, "0 reallocated");
    contains(&shown, "1 hours");
    guest.test(&format!("/dev/{disk}"));
    contains(&guest.must("cat /tmp/state/state.toml"), "reallocated = 0");
}

/// As the kernel does after an error, by SysRq: what is open for writing does not hold it up.
fn turned_read_only(guest: &mut Guest) {
    // The agent keeps what a command says in /tmp.
    guest.must("cp -a /tmp /run/tmp && mount --bind /run/tmp /tmp");
    guest.must("echo u >/proc/sysrq-trigger; sleep 2; grep -q ' / ext4 ro' /proc/mounts");
    let list = guest.must("storage-selftest list");
    let output = guest.sh("storage-selftest run --profile boot --medium / --state-dir /run/st");
    guest.power_cycle();
    contains(&block(&list, "mmcblk0"), "not as /etc/fstab wants it");
    output.has("turned-read-only");
}

fn usb_hub(guest: &mut Guest) {
    let (n, disk) = guest.plug("hub=64M,serial=BEHIND");
    let list = guest.sh("storage-selftest list").text;
    let output = guest.test(&format!("/dev/{disk}"));
    guest.unplug(n);
    output.has("usb1-link");
    let disk = block(&list, &disk);
    contains(&disk, "BEHIND");
    contains(&disk, " 12 Mbit/s");
}

/// What a test leaves on purpose, 64 blocks of 4 KiB. See the README, "Capacity".
const CANARY: &str = ".storage-selftest.canary";

/// User files with a known sum, as seen from the disk, not from memory.
fn listing(guest: &mut Guest, part: &str, fs: &str) -> String {
    let at = guest.mount(part, fs);
    let text = guest.must(&format!(
        "cd {at} && find . -mindepth 1 ! -name {CANARY} | sort | while read -r f; do \
         [ -d \"$f\" ] || sum=$(sha256sum <\"$f\"); stat -c '%A %u %g %s %Y %n' \"$f\"; echo \"$sum\"; sum=; done"
    ));
    guest.must(&format!("umount {at}"));
    text
}

fn left_as_it_was(guest: &mut Guest, part: &str, fs: &str) -> Output {
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
    let at = guest.mount(part, fs);
    let canary = guest.must(&format!(
        "[ ! -e {at}/{CANARY} ] || stat -c '%A %s' {at}/{CANARY}; umount {at}"
    ));
    assert!(
        ["", "-rw------- 262144\n"].contains(&canary.as_str()),
        "the canary: {canary}"
    );
    output
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

/// Slow for three seconds in the midst of a run, then as before.
fn throttled(guest: &mut Guest) {
    let (n, disk) = guest.plug("usb3=512M:ext4");
    let at = guest.mount(&format!("{disk}1"), "ext4");
    guest.start(&format!("rm -rf /tmp/state; {}", run(&at, "/tmp/state")));
    thread::sleep(Duration::from_secs(3));
    guest.disk(n).set(|faults| {
        faults.iops = Some(1);
        faults.bps = Some(1_000_000);
    });
    thread::sleep(Duration::from_secs(3));
    guest.disk(n).set(|faults| {
        faults.iops = None;
        faults.bps = None;
    });
    let output = guest.finish();
    guest.must(&format!("umount {at}"));
    guest.unplug(n);
    output.measured().has("stall");
}

/// The same as [`read_error`], made by QEMU itself.
fn blkdebug(guest: &mut Guest) {
    let (n, disk) = guest.plug("usb3=512M,blkdebug=100:ext4");
    let at = guest.mount(&format!("{disk}1"), "ext4");
    let output = guest.test(&at);
    guest.must(&format!("umount {at}"));
    guest.unplug(n);
    output
        .verdict("fail")
        .has("fail: read-error")
        .at_sector(100);
}

fn write_error(guest: &mut Guest) {
    // vfat has its tables in front, so all that fails is the content of files.
    let (n, disk) = guest.plug("usb3=512M:vfat");
    let at = guest.mount(&format!("{disk}1"), "vfat");
    guest.must("sync");
    guest
        .disk(n)
        .set(|faults| faults.write_error = Some((4 << 20) / SECTOR..u64::MAX));
    let output = guest.test(&at);
    guest.disk(n).set(|faults| faults.write_error = None);
    guest.sh(&format!("umount -l {at}"));
    guest.unplug(n);
    output.verdict("fail").has("fail: write-error");
}

/// A disk of the kernel's own scsi_debug, gone again after `f`.
fn scsi_debug(guest: &mut Guest, options: &str, f: impl FnOnce(&mut Guest, &str)) {
    let before = guest.must("ls /sys/block");
    guest.must(&format!("modprobe scsi_debug dev_size_mb=64 {options}"));
    let now = guest.must(
        "n=0; until ls -d /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block/*; do sleep 0.1; n=$((n+1)); [ $n -lt 300 ]; done >/dev/null 2>&1; ls /sys/block",
    );
    let name = now
        .lines()
        .find(|line| !before.lines().any(|old| old == *line))
        .unwrap_or_else(|| panic!("no disk of scsi_debug in {now}"));
    f(guest, name);
    guest.must("for n in 1 2 3 4 5; do rmmod scsi_debug && exit; sleep 1; done; exit 1");
}

/// Sector 4660 is its own choice of a bad one, with nine more after it.
fn medium_error(guest: &mut Guest) {
    scsi_debug(guest, "opts=2", |guest, disk| {
        guest
            .test(&format!("/dev/{disk}"))
            .verdict("fail")
            .has("fail: read-error")
            .at_sector(4660);
    });
}

fn read_error(guest: &mut Guest) {
    // In front of the first partition: only a look at the whole disk can find it.
    let output = with_fault(guest, |faults| faults.read_error = Some(100..101));
    output
        .verdict("fail")
        .has("fail: read-error")
        .at_sector(100);
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

/// A sample of a thousand blocks may miss them; all of the free space cannot.
fn corrupt_blocks(guest: &mut Guest) {
    let (n, disk) = guest.plug("usb3=1G,damaged=1:ext4");
    let at = guest.mount(&format!("{disk}1"), "ext4");
    let output = guest.sh(&full(&at, "/tmp/state"));
    guest.must(&format!("umount {at}"));
    guest.unplug(n);
    output.is_damaged("data-lost");
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

/// exFAT's driver clears its flag at each sync, so there is none.
fn unclean(guest: &mut Guest) {
    for fs in ["vfat", "exfat"] {
        let (n, disk) = guest.plug(&format!("usb3=256M:{fs}"));
        let at = guest.mount(&format!("{disk}1"), fs);
        guest.must(&format!("echo I am still here >{at}/file"));
        guest.unplug(n);
        guest.sh(&format!("umount -l {at}"));
        let again = guest.replug(n);
        let output = guest.test(&format!("/dev/{again}"));
        guest.unplug(n);
        output.has(&format!("not unmounted when last used: {again}1 ({fs})"));
    }
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
    let names: Vec<String> = (0..5).map(|n| guest.name(n)).collect();
    let media: Vec<String> = names
        .iter()
        .map(|name| format!("\"/dev/{name}\""))
        .collect();
    guest.must(&format!(
        "echo 'media = [{}]' >/etc/storage-selftest.toml",
        media.join(",")
    ));
    let list = guest.sh("storage-selftest list").text;
    guest.must("rm /etc/storage-selftest.toml");
    contains(&block(&list, &names[0]), "disk:virtio::RIG-D0:536870912");
    contains(&block(&list, &names[1]), "disk:virtio::RIG-D1:134217728");
    let nvme = block(&list, &names[2]);
    contains(&nvme, "disk:nvme:QEMU_NVMe_Ctrl:RIG-D2:402653184");
    contains(&nvme, "PCIe 2.5 GT/s x1");
    contains(&block(&list, &names[3]), "disk:nvme:QEMU_NVMe_Ctrl:RIG-D3:");
    contains(&block(&list, &names[4]), "RIG-D4");
    for (name, sector) in names.iter().zip([512, 4096, 512, 4096, 4096]) {
        let file = format!("/sys/block/{name}/queue/logical_block_size");
        assert_eq!(
            guest.must(&format!("cat {file}")).trim_end(),
            sector.to_string(),
            "{file}"
        );
        if sector == 4096 {
            guest
                .test(&format!("/dev/{name}"))
                .has("sequential read")
                .has("random read");
        }
    }
}

/// Some moment in the `round`th part of a run.
fn moment(round: u32, rounds: u32) -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let within = now.map_or(0, |now| now.subsec_micros() % 1000);
    Duration::from_millis(u64::from(12_000 / rounds * round + 12 * within / rounds))
}

/// Cut in the midst of a run, with the state on the same disk: what it had not flushed is lost.
/// By hand more often than twice: `RIG_ROUNDS=30 tests/rig/run cut_at_a_random`.
fn cut_at_a_random_moment(guest: &mut Guest) {
    let disk = guest.name(0);
    let at = guest.mount(&format!("{disk}1"), "ext4");
    let state = format!("{at}/state");
    guest.sh(&run(&at, &state)).measured();
    let rounds = std::env::var("RIG_ROUNDS").map_or(2, |n| n.parse().expect("a number"));
    for round in 0..rounds {
        let when = moment(round, rounds);
        println!("power cut {round}: {} ms into the run", when.as_millis());
        guest.start(&run(&at, &state));
        thread::sleep(when);
        guest.power_cycle();
        let disk = guest.name(0);
        // Mounted, the journal is played; then nothing may be wrong.
        guest.mount(&format!("{disk}1"), "ext4");
        let kept = guest.must(&format!("storage-selftest show --state-dir {state}"));
        contains(&kept, "RIG-D0");
        assert_eq!(
            guest.must(&format!("ls -A {at}")),
            "lost+found\nstate\n",
            "files on the disk"
        );
        guest.must(&format!("umount {at} && sync"));
        guest.fsck_ext4(0);
        guest.mount(&format!("{disk}1"), "ext4");
    }
    guest.sh(&run(&at, &state)).measured();
    guest.must(&format!("umount {at}"));
}

/// Where a scratch file must have a name, a cut leaves it behind until the next run.
fn cut_on_vfat(guest: &mut Guest) {
    let disk = guest.name(1);
    let at = guest.mount(&format!("{disk}1"), "vfat");
    guest.start(&run(&at, "/tmp/state"));
    let file = "/.storage-selftest.scratch";
    thread::sleep(Duration::from_secs(9));
    guest.power_cycle();
    let disk = guest.name(1);
    let at = guest.mount(&format!("{disk}1"), "vfat");
    // It may be there or not, by the moment; a file left by hand stands for it.
    guest.must(&format!("[ -e {at}{file} ] || echo left >{at}{file}"));
    guest.test(&at).measured();
    assert_eq!(guest.must(&format!("ls -A {at}")), "", "files on the disk");
    guest.must(&format!("umount {at}"));
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
    contains(&card, "cid:aa585951454d552101deadbeef006200");
    // Of 2 GiB: version 1, as of 1 GiB but in blocks of 1024.
    is_qemus_card(guest, "mmcblk0", "002600325f5ae3ffffffdfff92a00000");
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

/// Faults by device mapper, below a file system: the disk under it is the medium.
fn dm_flakey(guest: &mut Guest, feature: &str, finding: &str) {
    guest.must("modprobe dm_flakey");
    let table = format!(r"0 $size flakey /dev/sda1 0 0 600 {feature}\n");
    mapped(guest, &table, "mkfs.ext4 -qF")
        .verdict("fail")
        .has(finding)
        .has("sda");
}

/// A mapping over the stick's whole partition, with `table` (of `$size` sectors) in place of a
/// healthy one from the moment that a file system is there.
fn mapped(guest: &mut Guest, table: &str, mkfs: &str) -> Output {
    guest.must("size=$(blockdev --getsz /dev/sda1) && dmsetup create rig --table \"0 $size linear /dev/sda1 0\"");
    guest.must(&format!("{mkfs} /dev/mapper/rig && mkdir -p /mnt/rig && mount /dev/mapper/rig /mnt/rig && touch /mnt/rig/warm && rm /mnt/rig/warm && sync"));
    guest.must(&format!("size=$(blockdev --getsz /dev/sda1) && printf \"{table}\" | dmsetup load rig && dmsetup resume --noflush --nolockfs rig"));
    let output = guest.test("/mnt/rig");
    guest.must(
        "umount -l /mnt/rig; for n in 1 2 3 4 5; do dmsetup remove rig && break; sleep 1; done",
    );
    output
}

/// From 4 MiB on nothing can be written: few inodes and no journal keep the file system's own
/// tables in front of that.
fn dm_error(guest: &mut Guest) {
    mapped(
        guest,
        r"0 8192 linear /dev/sda1 0\n8192 $((size - 8192)) error\n",
        "mkfs.ext4 -qF -O ^has_journal -N 1024",
    )
    .verdict("fail")
    .has("fail: write-error")
    .has("sda");
}

/// Each write takes 0.4 s longer than the disk.
fn dm_delay(guest: &mut Guest) {
    guest.must("modprobe dm_delay");
    mapped(
        guest,
        r"0 $size delay /dev/sda1 0 0 /dev/sda1 0 400\n",
        "mkfs.ext4 -qF",
    )
    .measured()
    .has("stall");
}

fn luks(guest: &mut Guest) {
    guest.must("modprobe dm_crypt && echo secret >/tmp/key && cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 /dev/sda1 /tmp/key");
    guest.must(
        "cryptsetup open --key-file /tmp/key /dev/sda1 safe && mkfs.ext4 -qF /dev/mapper/safe",
    );
    let output = left_as_it_was(guest, "mapper/safe", "ext4");
    guest.must("cryptsetup close safe");
    output.has("sda");
}

/// The lower layer, on the card, is what a user means by the root medium.
fn overlay_root(guest: &mut Guest) {
    contains(&guest.must("grep ' / ' /proc/mounts"), "overlay");
    let list = guest.must("storage-selftest list");
    contains(&block(&list, "mmcblk0"), "root");
    let sums = "cd /media/root-ro && find etc home root -type f | sort | while read -r f; do sha256sum \"$f\"; done";
    let before = guest.must(sums);
    contains(&before, "etc/fstab");
    let output = guest.test("/");
    output.has("mmcblk0").has("sequential read");
    assert_eq!(
        before,
        guest.must(sums),
        "the user's files, after:\n{}",
        output.text
    );
}

/// What a fake does to blocks that carry their own address, as f3's emulated drive would.
fn fakes_are_fakes(guest: &mut Guest) {
    // Block `at` of 1 MiB: its first 16 bytes.
    let put = |guest: &mut Guest, disk: &str, at: u32, text: &str| {
        guest.must(&format!("printf '%-4096s' {text} | dd of=/dev/{disk} bs=4096 seek={} conv=notrunc,fsync 2>/dev/null; echo 3 >/proc/sys/vm/drop_caches", at * 256));
    };
    let get = |guest: &mut Guest, disk: &str, at: u32| {
        let text = guest.must(&format!(
            "dd if=/dev/{disk} bs=4096 skip={} count=1 2>/dev/null | head -c 16 | tr -d '\\0'",
            at * 256
        ));
        text.trim_end().to_string()
    };
    for (words, beyond, below) in [
        // Beyond 64 MiB lies what is at the beginning,
        ("usb3=256M,fake=64M", "HIGH", "HIGH"),
        // or nothing;
        ("usb3=256M,lost=64M", "", "LOW"),
    ] {
        let (n, disk) = guest.plug(words);
        put(guest, &disk, 1, "LOW");
        put(guest, &disk, 65, "HIGH");
        assert_eq!(
            (get(guest, &disk, 65), get(guest, &disk, 1)),
            (beyond.to_string(), below.to_string()),
            "{words}"
        );
        guest.unplug(n);
    }
    // a memory in front tells what is not there, until other writes push it out.
    let (n, disk) = guest.plug("usb3=256M,lost=64M,cache=64K");
    put(guest, &disk, 65, "HIGH");
    assert_eq!(get(guest, &disk, 65), "HIGH");
    for at in 100..116 {
        put(guest, &disk, at, "OTHER");
    }
    assert_eq!(get(guest, &disk, 65), "");
    guest.unplug(n);
}

/// Claims 1 GiB, has 64 MiB, and takes addresses modulo that.
fn scsi_debug_wraps(guest: &mut Guest) {
    scsi_debug(guest, "virtual_gb=1", |guest, disk| {
        assert_eq!(
            guest
                .must(&format!("cat /sys/block/{disk}/size"))
                .trim_end(),
            "2097152"
        );
        guest.must(&format!("echo here I am | dd of=/dev/{disk} bs=4096 seek=100 conv=sync,fsync 2>/dev/null; echo 3 >/proc/sys/vm/drop_caches"));
        let text = guest.must(&format!(
            "dd if=/dev/{disk} bs=4096 skip=$((100 + 16384)) count=1 2>/dev/null | strings"
        ));
        assert_eq!(text, "here I am\n");
        guest.test(&format!("/dev/{disk}")).has("sequential read");
    });
}

/// Without a journal: that lies in the middle of the disk, and what a fake does to it is told by
/// the mount already.
fn fake(guest: &mut Guest, words: &str, finding: &str) {
    let (n, disk) = guest.plug(&format!("usb3=1G,{words}:ext4-nojournal"));
    let at = guest.mount(&format!("{disk}1"), "ext4");
    let output = guest.test(&at);
    guest.sh(&format!("umount -l {at}"));
    guest.unplug(n);
    output.verdict("fail").has(finding);
}

/// As a stick comes from the shop. At a modulus that is no usual size only an image of our own data
/// shows it, and where that data lies is known by the file system's tables alone.
fn fake_stick(guest: &mut Guest, fs: &str) {
    let (n, disk) = guest.plug(&format!("usb3=1G,fake=300M:{fs}"));
    let at = guest.mount(&format!("{disk}1"), fs);
    let output = guest.test(&at);
    guest.sh(&format!("umount -l {at}"));
    guest.unplug(n);
    output
        .verdict("fail")
        .has("capacity-wraps")
        .has("real size 300 MiB of 1024 MiB");
}

/// A good disk, with what a killed run left on it; then one that ends at a quarter.
fn exfat_stamps(guest: &mut Guest) {
    let (n, disk) = guest.plug("usb3=1G:exfat");
    let at = guest.mount(&format!("{disk}1"), "exfat");
    guest.must(&format!(
        "mkdir {at}/.storage-selftest.claim && echo left >{at}/.storage-selftest.claim/0001"
    ));
    let output = guest.test(&at);
    let left = guest.must(&format!("find {at} -mindepth 1; df -k {at} | tail -1"));
    guest.must(&format!("umount {at}"));
    guest.unplug(n);
    output.has(" stamps across 0.9 of 1.0 GiB read back twice");
    assert!(!left.contains("storage-selftest"), "{left}");
    let (n, disk) = guest.plug("usb3=1G,lost=256M:exfat");
    let at = guest.mount(&format!("{disk}1"), "exfat");
    let output = guest.test(&at);
    guest.sh(&format!("umount -l {at}"));
    guest.unplug(n);
    output.verdict("fail").has("capacity-lost");
}

/// A disk that never kept anything: not even the canary's file is there after a power cut.
fn forgetful(guest: &mut Guest) {
    let at = mount(guest, 0);
    guest.test(&at).measured();
    after_a_power_cut(guest, 0, &at);
}

/// One that was good, and now takes writes and keeps what it had, as worn cards do.
fn turned_forgetful(guest: &mut Guest) {
    let at = mount(guest, 1);
    guest.test(&at).measured();
    guest.must("sync");
    guest.disk(1).set(|faults| faults.lies_about_flush = true);
    guest
        .sh(&glance(&at))
        .has("64 blocks of an earlier run of this boot are as they were");
    after_a_power_cut(guest, 1, &at);
}

fn mount(guest: &mut Guest, n: usize) -> String {
    let disk = guest.name(n);
    guest.mount(&format!("{disk}1"), "ext4")
}

/// The state lies on another medium, and remembers.
fn after_a_power_cut(guest: &mut Guest, n: usize, at: &str) {
    let state = guest.must("base64 /tmp/state/state.toml | tr -d '\\n'");
    guest.must(&format!("umount {at}"));
    guest.power_cycle();
    guest.must(&format!(
        "mkdir -p /tmp/state && echo {} | base64 -d >/tmp/state/state.toml",
        state.trim()
    ));
    let at = mount(guest, n);
    let output = guest.sh(&glance(&at));
    guest.must(&format!("umount {at}"));
    output.verdict("fail").has("data-forgotten");
}

/// A run as the timer starts it, of a medium that is known.
fn glance(medium: &str) -> String {
    format!("storage-selftest run --medium {medium} --state-dir /tmp/state")
}

/// A full run whose other probes are short, so that it comes to its fill soon.
fn full(medium: &str, state: &str) -> String {
    format!(
        "printf '[profile.full]\\nseconds = 20\\nwritten_mib = 24\\n' >/tmp/full.toml; storage-selftest run --profile full --config /tmp/full.toml --medium {medium} --state-dir {state}"
    )
}

const FILL: &str = ".storage-selftest.fill";

/// Starts `command` and waits for a file of its fill.
fn full_until(guest: &mut Guest, command: &str, file: &str) {
    guest.must(&format!(
        "({command}) >/tmp/out 2>&1 & n=0; until [ -e {file} ]; do sleep 0.2; n=$((n+1)); [ $n -lt 900 ] || exit 1; done"
    ));
}

/// Starts a full run with its state on the disk itself, and cuts the power once there are so
/// many parts; where it is mounted then.
fn full_cut(guest: &mut Guest, parts: usize) -> String {
    let disk = guest.name(0);
    let at = guest.mount(&format!("{disk}1"), "ext4");
    let wanted = format!("{at}/state/{FILL}/{parts:04}");
    full_until(guest, &full(&at, &format!("{at}/state")), &wanted);
    guest.power_cycle();
    let disk = guest.name(0);
    let at = guest.mount(&format!("{disk}1"), "ext4");
    let left = guest.must(&format!("ls {at}/state/{FILL} | wc -l"));
    assert!(left.trim().parse::<usize>().unwrap() >= parts, "{left}");
    at
}

fn full_after(guest: &mut Guest, at: &str) {
    let left = guest.must(&format!("ls -A {at} {at}/state"));
    assert!(!left.contains(FILL), "{left}");
    guest.must(&format!("umount {at} && sync"));
    guest.fsck_ext4(0);
}

/// What was durable before the cut is not written again, and is there.
fn full_goes_on(guest: &mut Guest) {
    let at = full_cut(guest, 5);
    let output = guest.sh(&full(&at, &format!("{at}/state")));
    output
        .has("written and read back, 5 of ")
        .has("parts by earlier runs");
    assert!(!output.text.contains("data-"), "{}", output.text);
    full_after(guest, &at);
}

fn full_gives_back(guest: &mut Guest) {
    let at = full_cut(guest, 3);
    guest
        .sh(&format!(
            "storage-selftest run --profile glance --medium {at} --state-dir {at}/state"
        ))
        .has("that a stopped run had filled");
    full_after(guest, &at);
}

/// All that a boot run writes stays in the memory in front of this fake.
fn full_memory(guest: &mut Guest) {
    let (n, disk) = guest.plug("usb3=1G,lost=512M,cache=32M:ext4-nojournal");
    let at = guest.mount(&format!("{disk}1"), "ext4");
    let boot = guest.test(&at);
    let output = guest.sh(&full(&at, "/tmp/state"));
    guest.sh(&format!("umount -l {at}"));
    guest.unplug(n);
    assert!(!boot.text.contains("capacity-lost"), "{}", boot.text);
    output.verdict("fail").has("capacity-lost: fill at sector");
}

fn full_with(guest: &mut Guest, fault: impl FnOnce(&mut crate::disk::Faults)) -> Output {
    let (n, disk) = guest.plug("usb3=512M:ext4");
    let at = guest.mount(&format!("{disk}1"), "ext4");
    guest.disk(n).set(fault);
    let output = guest.sh(&full(&at, "/tmp/state"));
    guest.sh(&format!("umount -l {at}"));
    guest.unplug(n);
    output
}

/// In the last third of the disk, where no tables lie; more than a fill leaves free, so it meets it.
const BAD: std::ops::Range<u64> = 700_000..950_000;

fn full_read_error(guest: &mut Guest) {
    full_with(guest, |faults| faults.read_error = Some(BAD))
        .verdict("fail")
        .has("read-error: fill at sector ");
}

fn full_write_error(guest: &mut Guest) {
    full_with(guest, |faults| faults.write_error = Some(BAD))
        .verdict("fail")
        .has("write-error: fill: ");
}

fn full_pulled_out(guest: &mut Guest) {
    let (n, disk) = guest.plug("usb3=512M:ext4");
    let at = guest.mount(&format!("{disk}1"), "ext4");
    full_until(
        guest,
        &full(&at, "/tmp/state"),
        &format!("{at}/{FILL}/0002"),
    );
    guest.pull(n);
    let text = guest.must("n=0; until grep -q ' run, ' /tmp/out; do sleep 1; n=$((n+1)); [ $n -lt 120 ] || exit 1; done; cat /tmp/out");
    guest.sh(&format!("umount -l {at}"));
    contains(&text, "device-gone: fill");
}

/// No direct writes on the one, no addresses on the other.
fn full_others(guest: &mut Guest) {
    for fs in ["vfat", "btrfs", "f2fs", "exfat"] {
        let (n, disk) = guest.plug(&format!("usb3=384M:{fs}"));
        let at = guest.mount(&format!("{disk}1"), fs);
        let output = guest.sh(&format!("{} --fill 128MiB", full(&at, "/tmp/state")));
        let left = guest.must(&format!("ls -A {at} | grep -v canary || true"));
        guest.must(&format!("umount {at}"));
        guest.unplug(n);
        output.has("0.1 of 0.4 GiB written and read back; slowest part");
        assert_eq!(left, "", "files on {fs}");
    }
}
