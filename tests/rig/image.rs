//! The package in an image: its first boots, its timers, a disk plugged in, and its removal.
//! The cases follow each other as the days of one board do.

use crate::Case;
use crate::cases::{case, contains};
use crate::guest::Guest;
use std::thread;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    case("first_boot_by_the_timer", first_boot),
    case("second_boot_repeats_the_verdict", second_boot),
    case("the_unit_sees_what_root_sees", sees),
    case("the_image_moves_to_another_card", moved),
    case("reboot_pending_for_a_resize", reboot_pending),
    case("the_clock_reaches_the_routine_run", routine),
    case("a_disk_is_plugged_in", plugged_in),
    case("a_fake_is_plugged_in", fake),
    case("a_fake_stick_is_plugged_in", fake_stick),
    case("a_fast_disk_on_usb_2_is_plugged_in", usb2),
    case("a_failure_is_seen_everywhere", failure),
    case("a_good_card_is_seen_as_such", good),
    case("removed_purged_and_installed_again", package),
    case("nothing_at_boot_waits_for_us", nothing_waits),
];

/// The summary lines of this boot, once there is one that has `part` in its JSON.
fn summary(guest: &mut Guest, part: &str) -> String {
    let end = Instant::now() + Duration::from_secs(420);
    while Instant::now() < end {
        let journal = guest.must(
            "journalctl --sync; journalctl -b -o json MESSAGE_ID=40d1ad2099144085842d2595aa958bb9 + FINDING=postponed",
        );
        if let Some(line) = journal.lines().find(|line| line.contains(part)) {
            return line.into();
        }
        thread::sleep(Duration::from_secs(5));
    }
    let text = guest.sh("journalctl -b -t storage-selftest -t systemd --no-pager | tail -40; systemctl status --no-pager 'storage-selftest*'").text;
    panic!("no summary with {part}:\n{text}");
}

/// A property of a unit in µs since boot.
fn moment(guest: &mut Guest, unit: &str, property: &str) -> u64 {
    let text = guest.must(&format!("systemctl show --value -p {property} {unit}"));
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("{unit} {property}: {text}"))
}

/// Waits until no test runs.
fn quiet(guest: &mut Guest) {
    guest.must("n=0; while systemctl is-active -q 'storage-selftest*.service'; do sleep 1; n=$((n+1)); [ $n -lt 400 ]; done");
}

fn first_boot(guest: &mut Guest) {
    contains(
        &guest.must("systemctl is-enabled storage-selftest.timer storage-selftest-routine.timer"),
        "enabled\nenabled",
    );
    let line = summary(guest, r#""PROFILE":"boot""#);
    contains(&line, r#""_SYSTEMD_UNIT":"storage-selftest.service""#);
    contains(&line, r#""DEVICE":"mmcblk0""#);
    quiet(guest);
    let target = moment(guest, "multi-user.target", "ActiveEnterTimestampMonotonic");
    let started = moment(
        guest,
        "storage-selftest.service",
        "ExecMainStartTimestampMonotonic",
    );
    let login = moment(guest, "getty.target", "ActiveEnterTimestampMonotonic");
    assert!(
        target > 0 && target < started && login > 0 && login < started,
        "login first: {target}, {login}, {started}"
    );
    let chain = guest.must("systemd-analyze --no-pager critical-chain");
    assert!(!chain.contains("storage-selftest.service"), "{chain}");
    println!(
        "{chain}{}",
        guest.must("journalctl -b -u storage-selftest --no-pager")
    );
    println!("{}", guest.must("systemctl status --no-pager storage-selftest.service; systemctl list-timers --no-pager 'storage*'; true"));
    contains(
        &guest.must("cat /var/lib/storage-selftest/state.toml"),
        "cid:aa585951454d552101deadbeef0062",
    );
    // The whole disk was read, through DeviceAllow=, and what was written was read back.
    assert!(!line.contains("not-permitted"), "{line}");
    contains(&line, "READ_BACK_MB_S");
    // Proved, or on a starved machine not measured: it is said.
    contains(
        &guest.must("journalctl -b -u storage-selftest --no-pager"),
        " capacity: ",
    );
}

fn second_boot(guest: &mut Guest) {
    println!("boot with us:\n{}", boot(guest));
    let line = summary(guest, r#""VERDICT""#);
    // Unknown is tested again, and so whole.
    if !line.contains(r#""PROFILE":"boot""#) {
        contains(&line, r#""PROFILE":"glance""#);
        contains(&line, "last full test: ");
    }
    quiet(guest);
}

/// The evidence, within the unit's sandbox and without it; of the boot before as well, whose journal
/// is kept here.
fn sees(guest: &mut Guest) {
    guest.must("mkdir -p /var/log/journal && journalctl --flush && journalctl --sync");
    boot(guest);
    quiet(guest);
    let dir = "/run/systemd/system/storage-selftest.service.d";
    guest.must(&format!("mkdir -p {dir} && printf '[Service]\\nExecStart=\\nExecStart=/usr/bin/storage-selftest list\\nStandardOutput=file:/run/listed\\n' >{dir}/list.conf && systemctl daemon-reload"));
    guest.must("systemctl start storage-selftest.service");
    quiet(guest);
    let within = guest.must("cat /run/listed");
    let without = guest.must("storage-selftest list");
    guest.must(&format!(
        "rm -r {dir} /var/log/journal && systemctl daemon-reload && systemctl restart systemd-journald"
    ));
    contains(&within, "ended without a shutdown");
    for line in without.lines() {
        // What moves by itself between the two.
        if line.starts_with("board: ") || line.starts_with("  written") {
            continue;
        }
        match line.rsplit_once(", ") {
            Some((rest, free)) if free.ends_with("% free") => contains(&within, rest),
            _ => contains(&within, line),
        }
    }
}

/// As a clone of the first card would find itself: the state knows a card that this one is not.
/// QEMU's cards all have one CID, so it is the state that is changed.
fn moved(guest: &mut Guest) {
    let (state, before) = (
        "/var/lib/storage-selftest/state.toml",
        "cid:03534453433136478033f4d5a70128",
    );
    quiet(guest);
    guest.must(&format!(
        "[ -e {state} ] || systemctl start storage-selftest.service"
    ));
    quiet(guest);
    guest.must(&format!(
        "sed -i 's/cid:aa585951454d552101deadbeef0062/{before}/' {state} && cp {state} /root/known"
    ));
    guest.must("systemctl restart storage-selftest.service");
    quiet(guest);
    let line = guest.must(
        "journalctl --sync; journalctl -b -o json -n 1 MESSAGE_ID=40d1ad2099144085842d2595aa958bb9",
    );
    contains(&line, r#""PROFILE":"boot""#);
    contains(&line, "cid:aa585951454d552101deadbeef0062");
    let now = guest.must(&format!("cat {state}"));
    // What is known of the first one stays.
    contains(&now, before);
    contains(&now, "cid:aa585951454d552101deadbeef0062");
    assert!(
        !line.contains("data-forgotten"),
        "its canary is no proof: {line}"
    );
}

/// Another architecture, another SD host, and partitions. The emulated host is slow, so the verdict
/// is not asserted.
pub fn raspberry_pi(guest: &mut Guest) {
    contains(&guest.must("uname -m"), "aarch64");
    contains(
        &guest.must("systemctl is-enabled storage-selftest.timer storage-selftest-routine.timer"),
        "enabled\nenabled",
    );
    let line = summary(guest, r#""PROFILE":"boot""#);
    println!(
        "{}",
        guest.must("systemd-analyze; journalctl -b -u storage-selftest --no-pager")
    );
    contains(&line, r#""_SYSTEMD_UNIT":"storage-selftest.service""#);
    contains(&line, r#""DEVICE":"mmcblk0""#);
    contains(&line, "SEQUENTIAL_READ_MB_S");
    assert!(!line.contains("not-permitted"), "{line}");
    contains(
        &guest.must("cat /var/lib/storage-selftest/state.toml"),
        "cid:aa585951454d552101deadbeef0062",
    );
    // Debian's device tree of it.
    contains(
        &guest.must("storage-selftest list"),
        "Raspberry Pi 3 Model B",
    );
}

/// The package under a tmpfs: the card is found beneath it, is read, and is not written.
pub fn overlay(guest: &mut Guest) {
    contains(&guest.must("grep ' / ' /proc/mounts"), "overlay");
    let line = summary(guest, r#""PROFILE":"boot""#);
    contains(&line, r#""_SYSTEMD_UNIT":"storage-selftest.service""#);
    contains(&line, r#""DEVICE":"mmcblk0""#);
    contains(&line, "SEQUENTIAL_READ_MB_S");
    contains(&line, r#""BYTES_WRITTEN":"0""#);
    println!(
        "{}",
        guest.must("journalctl -b -u storage-selftest --no-pager")
    );
}

fn reboot_pending(guest: &mut Guest) {
    guest.must("touch /run/resize2fs-reboot; systemctl start storage-selftest.service");
    let line = summary(guest, "postponed");
    contains(&line, "a reboot is pending that ends the resize");
    quiet(guest);
    guest.must("rm /run/resize2fs-reboot; ! systemctl is-failed storage-selftest.service");
}

fn routine(guest: &mut Guest) {
    // Its spread would apply to the catching up as well.
    let dir = "/run/systemd/system/storage-selftest-routine.timer.d";
    guest.must(&format!("mkdir -p {dir} && printf '[Timer]\\nRandomizedDelaySec=0\\n' >{dir}/now.conf && systemctl daemon-reload"));
    guest.must("date -s '+40 days'");
    summary(guest, r#""PROFILE":"routine""#);
    quiet(guest);
}

fn plugged_in(guest: &mut Guest) {
    // Before the boot's own run it would be that one's.
    summary(guest, r#""_SYSTEMD_UNIT":"storage-selftest.service""#);
    quiet(guest);
    let (n, disk) = guest.plug("usb3=512M,serial=PLUGGED:ext4");
    let at = format!("/mnt/{disk}1");
    guest.must(&format!(
        "modprobe ext4; mkdir -p {at} && mount /dev/{disk}1 {at}"
    ));
    let line = summary(guest, "PLUGGED");
    contains(
        &line,
        &format!(r#""_SYSTEMD_UNIT":"storage-selftest@{disk}.service""#),
    );
    contains(&line, r#""PROFILE":"boot""#);
    contains(&line, "READ_BACK_MB_S");
    quiet(guest);
    guest.must(&format!("umount {at}"));
    guest.unplug(n);
}

/// Claims 1 GiB and has a quarter of that. What a person and a fleet see of it is printed.
fn fake(guest: &mut Guest) {
    guest.must(
        "printf '[report]\\nmetrics = \"/run/selftest.prom\"\\n' >/etc/storage-selftest.toml",
    );
    let (n, disk) = guest.plug("usb3=1G,fake=256M,serial=FAKE:ext4-nojournal");
    let at = format!("/mnt/{disk}1");
    guest.must(&format!(
        "modprobe ext4; mkdir -p {at} && mount /dev/{disk}1 {at}"
    ));
    let line = summary(guest, "capacity-wraps");
    contains(&line, r#""VERDICT":"fail""#);
    contains(&line, "real size 256 MiB of 1024 MiB");
    quiet(guest);
    let unit = format!("storage-selftest@{disk}.service");
    contains(&guest.must("systemctl --failed --no-pager"), &unit);
    let motd = guest.must("cat /run/motd.d/storage-selftest");
    contains(&motd, "256 MiB of 1024 MiB");
    let metrics = guest.must("grep -E '_(verdict|finding)' /run/selftest.prom");
    contains(&metrics, r#"code="capacity-wraps",severity="fail"} 1"#);
    println!("{}", views(guest, &unit));
    guest.sh(&format!("umount -l {at}"));
    guest.must("rm /etc/storage-selftest.toml; systemctl reset-failed");
    guest.unplug(n);
    // udev tells that it is gone, and what is said at a login follows.
    guest.must("n=0; while grep '256 MiB of 1024' /run/motd.d/storage-selftest 2>/dev/null; do sleep 1; n=$((n+1)); [ $n -lt 60 ] || exit 1; done");
}

/// What a person and a fleet see of a unit's run: for the README.
fn views(guest: &mut Guest, unit: &str) -> String {
    guest.must(&format!(
        "journalctl --sync; echo '# journalctl -b -u {unit}'; journalctl -b --no-pager -u {unit} | tail -12; \
         echo '# journalctl -b -x -u {unit}'; journalctl -b -x --no-pager -u {unit} | tail -30; \
         echo '# systemctl status {unit}'; systemctl status --no-pager {unit}; \
         echo '# cat /run/motd.d/storage-selftest'; cat /run/motd.d/storage-selftest; \
         echo '# metrics'; grep -E '_(verdict|finding|per_second)' /run/selftest.prom; true"
    ))
}

/// By hand, since the unit may not ask the disk itself what it could do; see
/// [`crate::cases`] on its version.
fn usb2(guest: &mut Guest) {
    guest.must(
        "printf '[report]\\nmetrics = \"/run/selftest.prom\"\\n' >/etc/storage-selftest.toml",
    );
    let (n, disk) = guest.plug("usb2=512M,serial=SLOWPORT:ext4");
    let at = format!("/mnt/{disk}1");
    guest.must(&format!(
        "modprobe ext4; mkdir -p {at} && mount /dev/{disk}1 {at}"
    ));
    summary(guest, "SLOWPORT");
    quiet(guest);
    let version = format!("$(realpath /sys/block/{disk}/device/../../../..)/version");
    guest.must(&format!(
        "echo ' 2.10' >/run/version && mount --bind /run/version {version}"
    ));
    guest.must(&format!(
        "systemd-run --quiet --wait --unit=by-hand -p SuccessExitStatus='1 2 3' storage-selftest run --profile boot --medium {at}"
    ));
    let seen = views(guest, "by-hand.service");
    guest.must(&format!(
        "umount {version}; umount {at}; rm /etc/storage-selftest.toml"
    ));
    guest.unplug(n);
    println!("{seen}");
    contains(&seen, "warn: usb2-port: ");
    contains(&seen, r#"code="usb2-port",severity="warn"} 1"#);
}

/// Where nothing is too slow. The boot's unit says so again.
fn good(guest: &mut Guest) {
    guest.must("printf '[report]\\nmetrics = \"/run/selftest.prom\"\\n' >>/etc/storage-selftest.toml; systemctl restart storage-selftest.service");
    quiet(guest);
    let seen = views(guest, "storage-selftest.service");
    println!("{seen}");
    contains(&seen, "last full test: ");
}

/// Nothing but an image of our own data shows its modulus, and FIBMAP tells the unit nothing.
fn fake_stick(guest: &mut Guest) {
    let (n, disk) = guest.plug("usb3=1G,fake=300M,serial=STICK:vfat");
    let at = format!("/mnt/{disk}1");
    guest.must(&format!(
        "modprobe vfat; mkdir -p {at} && mount /dev/{disk}1 {at}"
    ));
    let line = summary(guest, "STICK");
    quiet(guest);
    guest.sh(&format!("umount -l {at}"));
    guest.must("systemctl reset-failed");
    guest.unplug(n);
    contains(&line, "real size 300 MiB of 1024 MiB");
}

/// Limits that nothing reaches, then limits that everything does.
fn failure(guest: &mut Guest) {
    guest.must("printf '[limits]\\nrandom_read_iops_warn = 1000000\\nrandom_read_iops_fail = 1000000\\n[report]\\nmetrics = \"/run/selftest.prom\"\\ntext = \"/run/selftest.txt\"\\n[profile.glance]\\nseconds = 60\\n' >/etc/storage-selftest.toml");
    quiet(guest);
    guest.must("systemctl start storage-selftest.service");
    let line = summary(guest, "at least 1000000 wanted");
    contains(&line, r#""VERDICT":"fail""#);
    quiet(guest);
    contains(
        &guest.must("systemctl --failed --no-pager"),
        "storage-selftest.service",
    );
    contains(
        &guest.must("cat /run/motd.d/storage-selftest"),
        "fail: random read",
    );
    contains(
        &guest.must("cat /run/selftest.prom"),
        r#"verdict="fail"} 1"#,
    );
    contains(&guest.must("cat /run/selftest.txt"), "random-read-slow");
    let explained = guest.must("journalctl -b -x --no-pager FINDING=random-read-slow");
    contains(&explained, "To do: use a card of class A1 or better");
    println!("{}{}", guest.must("systemctl status --no-pager storage-selftest.service; true"), guest.must("cat /run/motd.d/storage-selftest /run/selftest.prom; journalctl -b -x --no-pager -u storage-selftest | tail -30"));
    guest.must("systemctl reset-failed; printf '[limits]\\nrandom_read_iops_warn = 0\\nrandom_read_iops_fail = 0\\nrandom_write_iops_warn = 0\\nrandom_write_iops_fail = 0\\ndurable_write_mb_s_warn = 0\\ndurable_write_mb_s_fail = 0\\nstall_ms = 60000\\nwrite_over_read = 100\\nslower_than_before = 0\\n' >/etc/storage-selftest.toml");
    // A starved guest may need another try.
    let again = "storage-selftest run --profile boot --medium /";
    let mut output = guest.sh(again);
    for _ in 0..2 {
        if output.status == 3 {
            output = guest.sh(again);
        }
    }
    assert_eq!(output.status, 0, "{}", output.text);
    guest.must("! [ -e /run/motd.d/storage-selftest ]");
}

fn package(guest: &mut Guest) {
    guest.must("dpkg --force-confold -i /root/storage-selftest_*.deb"); // an upgrade
    contains(
        &guest.must("systemctl is-active storage-selftest-routine.timer"),
        "active",
    );
    guest.must("mkdir -p /var/lib/storage-selftest && touch /var/lib/storage-selftest/state.toml");
    guest.must("dpkg -r storage-selftest");
    guest.must("! [ -e /usr/lib/systemd/system/storage-selftest.service ] && [ -e /etc/storage-selftest.toml ] && [ -e /var/lib/storage-selftest/state.toml ]");
    contains(
        &guest
            .sh("systemctl is-active storage-selftest-routine.timer")
            .text,
        "inactive",
    );
    guest.must("dpkg -P storage-selftest");
    let left = guest.must("find / -xdev -path /root -prune -o -path /lib/modules -prune -o -name '*storage-selftest*' -print");
    assert_eq!(left.trim(), "", "left behind");
    guest.must("dpkg -i /root/storage-selftest_*.deb");
    contains(
        &guest.must(
            "systemctl is-active storage-selftest.timer storage-selftest-routine.timer; true",
        ),
        "active\nactive",
    );
}

/// Switches off and on; what took how long, for a person.
fn boot(guest: &mut Guest) -> String {
    guest.must("sync");
    guest.power_cycle();
    guest.must("systemctl is-system-running --wait; systemd-analyze; systemd-analyze --no-pager critical-chain multi-user.target; systemd-analyze blame --no-pager | head -5")
}

fn nothing_waits(guest: &mut Guest) {
    let all = "graphical.target multi-user.target basic.target sysinit.target getty.target";
    let waits = guest.must(&format!(
        "systemctl list-dependencies --plain --after {all}"
    ));
    assert!(!waits.contains("storage-selftest.service"), "{waits}");
    // In turn, so that a busy build machine slows both; how long is for a person to compare.
    let timers = "storage-selftest.timer storage-selftest-routine.timer";
    for _ in 0..2 {
        println!("boot with us:\n{}", boot(guest));
        guest.must(&format!("systemctl -q mask {timers}"));
        println!("boot without us:\n{}", boot(guest));
        guest.must(&format!("systemctl -q unmask {timers}"));
    }
}
