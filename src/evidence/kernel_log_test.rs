//! Every shape of a complaint, and harmless lines of real boots that must not count.

use super::*;

/// `KIND NAME TEXT` a line, `-` for the board; the source of each is named in the file.
const SHAPES: &str = include_str!("../../tests/cases/kernel-complaints.txt");
const HARMLESS_BOOTS: &str = include_str!("../../tests/cases/kernel-harmless.txt");

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
}

#[test]
fn every_shape_is_known_with_its_medium() {
    assert!(lines(SHAPES).count() > 60);
    for line in lines(SHAPES) {
        let mut parts = line.splitn(3, ' ');
        let (kind, name, text) = (
            parts.next().unwrap(),
            parts.next().unwrap(),
            parts.next().unwrap(),
        );
        let (seen, whose) = classify(text).unwrap_or_else(|| panic!("not seen: {text}"));
        assert_eq!(format!("{seen:?}"), kind, "{text}");
        assert_eq!(if whose.is_empty() { "-" } else { whose }, name, "{text}");
    }
}

#[test]
fn harmless_lines_are_none() {
    let count = lines(HARMLESS_BOOTS).count();
    assert!(count >= 100, "only {count}");
    // The medium of all these boots is the card in the first slot, and a disk at 2-1.
    let mut log = Log::default();
    let path = ["mmc0", "mmc0:aaaa", "2-1", "usb2", "host0", "nvme0"];
    let names = Names::new(&path, "mmcblk0", &["sda", "sda1", "nvme0n1"]);
    for line in lines(HARMLESS_BOOTS) {
        log.add(line, &names);
        assert_eq!(log.findings(), [], "{line}");
    }
}

fn names() -> Names {
    let path = [
        "platform",
        "fe340000.mmc",
        "mmc0",
        "mmc0:aaaa",
        "1-1",
        "1-1.2",
        "host0",
    ];
    Names::new(&path, "sda", &["dm-0"])
}

#[test]
fn lines_go_to_the_medium_that_they_name() {
    let names = names();
    for own in ["sda", "sda1", "dm-0", "mmc0", "1-1-port2", "1-1", "host0"] {
        assert!(names.own(own), "{own}");
    }
    for other in [
        "sdaa",
        "sdb1",
        "mmc1",
        "1-1-port3",
        "1-2",
        "sda1p",
        "dm-1",
        "usb1-port2",
    ] {
        assert!(!names.own(other), "{other}");
    }
    assert_eq!(port_child("usb1-port2").as_deref(), Some("1-2"));
    assert!(is_partition("mmcblk0", "mmcblk0p2") && !is_partition("mmcblk0", "mmcblk01"));
    assert!(!is_partition("mmcblk0", "mmcblk0boot0"));
}

#[test]
fn another_disk_of_the_same_name_starts_anew() {
    let (names, mut log) = (names(), Log::default());
    let error = "I/O error, dev sda, sector 100 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2";
    log.add(error, &names);
    log.add(&error.replace("sda", "sdb"), &names);
    assert_eq!(log.count(Kind::BlockError), 1);
    log.add("sd 0:0:0:0: [sda] Attached SCSI disk", &names);
    assert_eq!(log.count(Kind::BlockError), 0);
    log.add(error, &names);
    log.add(error, &names);
    assert_eq!(log.findings()[0].code, "kernel-io-error");
    assert!(log.findings()[0].sentence.contains("2 times"));
}

/// A card that was pulled out takes its errors with it (linux-mmc, a report on a Rockchip board).
#[test]
fn another_card_in_the_slot_starts_anew() {
    let names = Names::new(&["mmc0"], "mmcblk0", &[]);
    let mut log = Log::default();
    for line in [
        "mmcblk0: recovery failed!",
        "I/O error, dev mmcblk0, sector 2049 op 0x1:(WRITE) flags 0x100000 phys_seg 1 prio class 2",
        "mmc0: card 0001 removed",
    ] {
        log.add(line, &names);
    }
    assert_eq!(log.findings(), []);
    log.add("mmcblk0: recovery failed!", &names);
    assert_eq!(log.findings()[0].code, "card-errors");
}

#[test]
fn records() {
    assert_eq!(
        record_text("6,339,5140900,-;hello; you"),
        Some("hello; you")
    );
    assert_eq!(record_text("4,1,2,-,caller=T1;x"), Some("x"));
    // Facility 1: a user's program wrote it.
    assert_eq!(record_text("12,1,2,-;I/O error, dev sda, sector 1"), None);
    for line in [" SUBSYSTEM=block", "", "no record", ";", "x,1;y"] {
        assert_eq!(record_text(line), None, "{line}");
    }
}
