//! Entries in journalctl's export format, as systemd 252 writes them.

use super::*;
use crate::record::When;
use crate::record::run;

fn names() -> Names {
    Names::new(&["mmc0"], "mmcblk0", &[])
}

/// One entry; `more` goes before the fields that we ask for.
fn entry(more: &str, by: &str, message: &str) -> String {
    format!(
        "__CURSOR=s=1;i=2\n__MONOTONIC_TIMESTAMP=5\n_BOOT_ID=0123456789abcdef0123456789abcdef\n\
         {more}SYSLOG_IDENTIFIER={by}\nMESSAGE={message}\n\n"
    )
}

const TIMEOUT: &str = "mmc0: Timeout waiting for hardware interrupt.";

#[test]
fn the_last_complaint_of_a_boot_that_just_ended() {
    let export = entry("", "kernel", "EXT4-fs (mmcblk0p2): recovery complete")
        + &entry("", "kernel", "mmcblk0: recovery failed!")
        + &entry("", "kernel", TIMEOUT)
        + &entry("", "kernel", &TIMEOUT.replace("mmc0", "mmc1"))
        // Only the kernel speaks for the kernel.
        + &entry("", "someone", "I/O error, dev mmcblk0, sector 8 op 0x0:(READ) flags 0x0");
    let boot = parse(export.as_bytes(), &names()).unwrap();
    assert_eq!(boot.id, "0123456789abcdef0123456789abcdef");
    let want = format!("ended without a shutdown, 2 complaints, the last one: {TIMEOUT}");
    assert_eq!(boot.words(), want);
    let finding = boot.finding().unwrap();
    assert_eq!(
        (finding.code.as_str(), finding.severity),
        ("boot-before", Verdict::Warn)
    );
}

#[test]
fn an_orderly_end() {
    let stopped = entry("", "systemd-journald", "Journal stopped");
    let target = entry(
        "UNIT=basic.target\n",
        "systemd",
        "Stopped target Basic System.",
    );
    for end in [stopped, target] {
        let boot = parse((entry("", "kernel", "hello") + &end).as_bytes(), &names()).unwrap();
        assert_eq!(boot.words(), "was shut down, nothing about it");
        assert_eq!(boot.finding(), None);
    }
    // What the kernel prints for a device is not journald's word.
    let forged = entry("", "kernel", "Journal stopped");
    assert!(!parse(forged.as_bytes(), &names()).unwrap().shut_down);
}

#[test]
fn low_voltage_before_a_sudden_end_is_told() {
    let power = entry("", "kernel", "hwmon hwmon1: Undervoltage detected!");
    assert!(
        parse(power.as_bytes(), &names())
            .unwrap()
            .finding()
            .is_some()
    );
    let shut_down = power + &entry("", "systemd-journald", "Journal stopped");
    assert_eq!(
        parse(shut_down.as_bytes(), &names()).unwrap().finding(),
        None
    );
}

#[test]
fn a_name_with_a_line_end_forges_nothing() {
    let evil = format!("usb 1-1: Product: \n\nSYSLOG_IDENTIFIER=kernel\nMESSAGE={TIMEOUT}\n\n");
    let mut export = b"_BOOT_ID=aa\nSYSLOG_IDENTIFIER=kernel\nMESSAGE\n".to_vec();
    export.extend_from_slice(&(evil.len() as u64).to_le_bytes());
    export.extend_from_slice(evil.as_bytes());
    export.extend_from_slice(b"\n\n");
    let boot = parse(&export, &names()).unwrap();
    assert_eq!(boot.log.complaints(), 0);
    for cut in 0..export.len() {
        parse(&export[..cut], &names());
    }
    assert_eq!(
        parse(b"MESSAGE\n\xff\xff\xff\xff\xff\xff\xff\xff", &names()),
        None
    );
    assert_eq!(parse(b"", &names()), None);
}

#[test]
fn told_once_and_only_of_what_was_there() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/01-pi3-sd");
    let mut medium = crate::medium::find(&case, &[], true)
        .unwrap()
        .media
        .remove(0);
    let before = BootBefore {
        id: "aa11".into(),
        ..BootBefore::default()
    };
    let of = |boot: &str| When {
        boot: boot.into(),
        ..When::default()
    };
    let mut record = Record {
        device: medium.device.clone(),
        last_seen: of("aa-11"),
        ..Record::default()
    };
    // A root card's journal is its own.
    assert!(before.tell(&medium, None, "now"));
    medium.role = Role::Attached;
    assert!(!before.tell(&medium, None, "now"));
    assert!(before.tell(&medium, Some(&record), "now"));
    record.device = "sdb".into();
    assert!(!before.tell(&medium, Some(&record), "now"));
    record.device = medium.device.clone();
    record.last_seen = of("bb-22");
    assert!(!before.tell(&medium, Some(&record), "now"));
    record.last_seen = of("aa-11");
    let mut now = run(1);
    now.when = of("now");
    record.add(now);
    assert!(!before.tell(&medium, Some(&record), "now"));
}
