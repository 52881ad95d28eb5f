//! The public cases: figures of articles and reports, turned into measurements.

use super::*;
use crate::config::Config;
use crate::evidence::board::Board;

/// The sources and units of all figures are in this file.
const ARTICLES: &str = include_str!("../tests/cases/article-figures.toml");

fn experiment(name: &str) -> toml::Table {
    let all: toml::Table = ARTICLES.parse().unwrap();
    all["experiment"][name].as_table().unwrap().clone()
}

fn number(table: &toml::Table, key: &str) -> f64 {
    let value = &table[key];
    value
        .as_float()
        .or(value.as_integer().map(|n| n as f64))
        .unwrap()
}

/// A measurement with so many operations of one size in so many seconds.
pub(crate) fn measured(probe: Probe, operations: u64, size: u64, seconds: f64) -> Measurement {
    let each = seconds * 1e6 / operations as f64;
    Measurement {
        probe,
        operations,
        bytes: operations * size,
        seconds,
        depth: 1,
        direct: true,
        whole_disk: true,
        median_us: each,
        p99_us: each,
        max_us: each,
        slowest_window: 0.0,
        stalls: 0,
        long_stalls: 0,
        counted_bytes: operations * size,
        foreign_bytes: 0,
        waited: 0.0,
        places: Vec::new(),
        histogram: Vec::new(),
    }
}

/// A measurement with a figure in the probe's unit: of 100 MB, or over 10 s.
fn figure(probe: Probe, figure: f64) -> Measurement {
    match probe.sequential() {
        // Read twice.
        true if probe == Probe::ReadBack => measured(probe, 200, 1_000_000, 200.0 / figure),
        true => measured(probe, 100, 1_000_000, 100.0 / figure),
        false => measured(probe, (figure * 10.0) as u64, 4096, 10.0),
    }
}

/// sysbench 0.4.12 `rndrw`: 4000 writes of 16 KiB lie in the whole time, so that time / 4000 is
/// the upper bound of a write (measurement.md 2.4) and 4000 / time a random-write figure that
/// is, if anything, too low by what the reads took.
fn sysbench(name: &str) -> Results {
    let seconds = experiment(name)["run_seconds"].as_array().unwrap()[0]
        .as_float()
        .unwrap();
    Results {
        wanted: vec![Probe::RandomWriteDurable],
        measured: vec![measured(Probe::RandomWriteDurable, 4000, 16384, seconds)],
        ..Results::default()
    }
}

fn usb(mbit_s: f64, ceiling_mb_s: f64) -> Option<Link> {
    Some(Link {
        description: format!("USB {mbit_s} Mbit/s"),
        ceiling_mb_s,
        usb_mbit_s: mbit_s,
    })
}

fn root_card() -> Subject {
    Subject {
        role: Role::Root,
        rotational: false,
        link: None,
    }
}

fn judged(subject: &Subject, results: &Results) -> (Verdict, Vec<String>) {
    let findings = judge(
        subject,
        results,
        &Evidence::default(),
        &Config::default().limits,
        &Before::default(),
    );
    (
        verdict(&findings),
        findings.into_iter().map(|f| f.code).collect(),
    )
}

#[test]
fn the_boot_disks_of_the_pi_3_article() {
    for (name, want, code) in [
        (
            "pi3bp_samsung_evo_plus_1",
            Verdict::Fail,
            Some("random-write-slow"),
        ),
        (
            "pi3bp_samsung_evo_plus_2",
            Verdict::Fail,
            Some("random-write-slow"),
        ),
        (
            "pi3bp_buffalo_ruf2",
            Verdict::Fail,
            Some("random-write-slow"),
        ),
        // Lower bounds, so that a warning is the most that can be said of these.
        (
            "pi3bp_sandisk_ultra_a1",
            Verdict::Warn,
            Some("random-write-slow"),
        ),
        (
            "pi3bp_sandisk_ultra_fit",
            Verdict::Warn,
            Some("random-write-slow"),
        ),
        (
            "pi3bp_cfd_ssd_novac",
            Verdict::Warn,
            Some("random-write-slow"),
        ),
    ] {
        let (verdict, codes) = judged(&root_card(), &sysbench(name));
        assert_eq!(verdict, want, "{name}: {codes:?}");
        assert_eq!(codes.first().map(String::as_str), code, "{name}");
    }
}

#[test]
fn an_average_of_228_ms_is_no_stall_but_a_slow_card() {
    let (_, codes) = judged(&root_card(), &sysbench("pi3bp_samsung_evo_plus_2"));
    assert!(!codes.contains(&"stall".to_string()), "{codes:?}");
}

/// hdparm prints MiB/s (2^20), dd MB/s (10^6): the medians of ten runs.
fn rock64(read: &str, write: &str) -> Results {
    let read = number(&experiment(read), "median") * f64::from(1 << 20) / 1e6;
    let write = number(&experiment(write), "median");
    Results {
        wanted: vec![Probe::SequentialRead, Probe::DurableWrite],
        measured: vec![
            figure(Probe::SequentialRead, read),
            figure(Probe::DurableWrite, write),
        ],
        ..Results::default()
    }
}

#[test]
fn the_rock64_disk_reads_slower_than_it_writes_on_both_ports() {
    let disk = |link| Subject {
        role: Role::Attached,
        rotational: true,
        link,
    };
    let results = rock64("rock64_usb3_hdparm_t", "rock64_usb3_dd_write");
    let (verdict, codes) = judged(&disk(usb(5000.0, 500.0)), &results);
    assert_eq!(verdict, Verdict::Warn);
    // 33.4 MB/s on USB 3 is also less than USB 2 gives.
    assert_eq!(codes, ["sequential-read-slow", "read-slower-than-write"]);
    let results = rock64("rock64_usb2_hdparm_t", "rock64_usb2_dd_write");
    let (_, codes) = judged(&disk(usb(480.0, 53.248)), &results);
    assert!(
        codes.contains(&"read-slower-than-write".to_string()),
        "{codes:?}"
    );
}

#[test]
fn the_disks_of_the_third_article_pass_on_their_links() {
    for (read, link) in [
        ("admantium_toshiba_usb3_hdparm_t", usb(5000.0, 500.0)),
        ("admantium_wd_usb3_hdparm_t", usb(5000.0, 500.0)),
        ("admantium_wd_usb2_hdparm_t", usb(480.0, 53.248)),
    ] {
        let subject = Subject {
            role: Role::Attached,
            rotational: true,
            link,
        };
        let mb_s = number(&experiment(read), "mean_mb_1e6");
        let results = Results {
            wanted: vec![Probe::SequentialRead],
            measured: vec![figure(Probe::SequentialRead, mb_s)],
            ..Results::default()
        };
        assert_eq!(
            judged(&subject, &results),
            (Verdict::Pass, vec![]),
            "{read}"
        );
    }
}

/// A card just above every limit.
fn good() -> Results {
    let figures = [
        (Probe::SequentialRead, 22.0),
        (Probe::RandomRead, 1600.0),
        (Probe::DurableWrite, 12.0),
        (Probe::RandomWriteDurable, 600.0),
        (Probe::ReadBack, 22.0),
    ];
    Results {
        wanted: figures.iter().map(|f| f.0).collect(),
        measured: figures
            .iter()
            .map(|&(probe, value)| figure(probe, value))
            .collect(),
        ..Results::default()
    }
}

fn with(probe: Probe, value: f64) -> Results {
    let mut results = good();
    results.measured.retain(|m| m.probe != probe);
    results.measured.push(figure(probe, value));
    results
}

#[test]
fn each_limit_has_its_two_sides() {
    assert_eq!(judged(&root_card(), &good()), (Verdict::Pass, vec![]));
    for (probe, value, want, code) in [
        (Probe::RandomRead, 1499.0, Verdict::Warn, "random-read-slow"),
        (Probe::RandomRead, 174.0, Verdict::Fail, "random-read-slow"),
        (
            Probe::RandomWriteDurable,
            499.0,
            Verdict::Warn,
            "random-write-slow",
        ),
        (
            Probe::RandomWriteDurable,
            99.0,
            Verdict::Fail,
            "random-write-slow",
        ),
        (
            Probe::DurableWrite,
            9.9,
            Verdict::Warn,
            "durable-write-slow",
        ),
        (
            Probe::DurableWrite,
            33.5,
            Verdict::Warn,
            "read-slower-than-write",
        ),
    ] {
        let (verdict, codes) = judged(&root_card(), &with(probe, value));
        assert_eq!(
            (verdict, codes),
            (want, vec![code.to_string()]),
            "{probe:?} {value}"
        );
    }
}

#[test]
fn a_card_of_2_4_mb_s_fails() {
    // BlueOS#2405. At this speed 1 MiB takes 437 ms, which is a stall as well.
    let (verdict, codes) = judged(&root_card(), &with(Probe::DurableWrite, 2.4));
    assert_eq!(
        (verdict, codes[0].as_str()),
        (Verdict::Fail, "durable-write-slow")
    );
}

#[test]
fn a_rotating_attached_disk_has_no_iops_floor() {
    let mut results = with(Probe::RandomRead, 80.0);
    results
        .measured
        .retain(|m| m.probe != Probe::RandomWriteDurable);
    results
        .measured
        .push(figure(Probe::RandomWriteDurable, 60.0));
    let disk = Subject {
        role: Role::Attached,
        rotational: true,
        link: usb(480.0, 53.248),
    };
    assert_eq!(judged(&disk, &results), (Verdict::Pass, vec![]));
    assert_eq!(
        judged(
            &Subject {
                rotational: false,
                ..disk
            },
            &results
        )
        .0,
        Verdict::Fail
    );
}

#[test]
fn with_a_volatile_cache_the_floor_is_for_the_figure_without_flushes() {
    let mut results = with(Probe::RandomWriteDurable, 130.0);
    results.measured.push(figure(Probe::RandomWrite, 900.0));
    assert_eq!(judged(&root_card(), &results), (Verdict::Pass, vec![]));
    let mut results = with(Probe::RandomWriteDurable, 50.0);
    results.measured.push(figure(Probe::RandomWrite, 900.0));
    assert_eq!(judged(&root_card(), &results).0, Verdict::Fail);
}

#[test]
fn what_is_missing_empty_or_nonsense_is_unknown_and_never_a_pass() {
    let nothing = Results {
        wanted: good().wanted,
        ..Results::default()
    };
    assert_eq!(judged(&root_card(), &nothing).0, Verdict::Unknown);
    let mut empty = good();
    empty.measured[1].operations = 0;
    assert_eq!(judged(&root_card(), &empty).0, Verdict::Unknown);
    let mut no_time = good();
    no_time.measured[1].seconds = 0.0;
    assert_eq!(judged(&root_card(), &no_time).0, Verdict::Unknown);
    let mut half = good();
    half.measured[4].bytes = 1_000_000;
    assert_eq!(
        judged(&root_card(), &half),
        (Verdict::Unknown, vec!["read-back-incomplete".into()])
    );
    let mut gone = good();
    gone.measured.pop();
    let detail = "it is away".into();
    gone.not_measured.push(NotMeasured {
        probe: Probe::ReadBack,
        reason: Reason::DeviceGone,
        detail,
    });
    assert_eq!(
        judged(&root_card(), &gone),
        (Verdict::Unknown, vec!["device-gone".into()])
    );
}

#[test]
fn a_figure_above_the_link_is_a_cache() {
    // raspberrypi/linux#4498: 60 MB/s is not USB 2, whose bulk payload ends at 53.248 MB/s.
    let subject = Subject {
        link: usb(480.0, 53.248),
        ..root_card()
    };
    let (verdict, codes) = judged(&subject, &with(Probe::SequentialRead, 60.0));
    assert_eq!(
        (verdict, codes),
        (Verdict::Unknown, vec!["cached".to_string()])
    );
}

#[test]
fn stalls_warn_and_long_ones_fail_when_they_repeat() {
    let stalled = |ms: f64, stalls: u32, long_stalls: u32| {
        let mut results = good();
        results.measured[2].max_us = ms * 1e3;
        (results.measured[2].stalls, results.measured[2].long_stalls) = (stalls, long_stalls);
        judged(&root_card(), &results)
    };
    assert_eq!(stalled(249.0, 0, 0).0, Verdict::Pass);
    assert_eq!(stalled(250.0, 1, 0), (Verdict::Warn, vec!["stall".into()]));
    // measurement.md 2.2: the ROCK64's single read of 0.93 s and more.
    assert_eq!(stalled(930.0, 1, 0).0, Verdict::Warn);
    assert_eq!(stalled(1500.0, 1, 1).0, Verdict::Warn);
    assert_eq!(stalled(1500.0, 2, 2).0, Verdict::Fail);
}

// A MiB at 3 MB/s takes 350 ms, as durable-write-slow says; that is no stall.
#[test]
fn an_operation_as_long_as_its_like_is_no_stall() {
    let results = with(Probe::DurableWrite, 3.0);
    assert_eq!(judged(&root_card(), &results).1, ["durable-write-slow"]);
}

#[test]
fn what_others_moved_counts_in_a_mediums_favour() {
    let busy = |probe, value, foreign: u64| {
        let mut results = with(probe, value);
        results.measured.last_mut().unwrap().foreign_bytes = foreign;
        let (verdict, codes) = judged(&root_card(), &results);
        (verdict, codes.join(" "))
    };
    // 100 IOPS for 10 s are 1000 operations of 4 KiB; others read twice, then 16 times as much.
    let fail = (Verdict::Fail, "random-read-slow".to_string());
    assert_eq!(busy(Probe::RandomRead, 100.0, 0), fail);
    assert_eq!(busy(Probe::RandomRead, 100.0, 400 << 10), fail);
    let warn = (Verdict::Warn, "random-read-slow".to_string());
    assert_eq!(busy(Probe::RandomRead, 100.0, 8 << 20), warn);
    let unknown = (Verdict::Unknown, "busy".to_string());
    assert_eq!(busy(Probe::RandomRead, 100.0, 64 << 20), unknown);
    // Good in spite of others is good.
    assert_eq!(busy(Probe::RandomRead, 1600.0, 64 << 20).0, Verdict::Pass);
}

#[test]
fn a_processor_that_others_have_is_no_fault_of_the_medium() {
    let starved = |share: f64| {
        let mut results = with(Probe::RandomRead, 110.0);
        let read = results.measured.last_mut().unwrap();
        read.waited = share * read.seconds;
        judged(&root_card(), &results)
    };
    // 110 IOPS in a third of the time are 330, in a thirteenth 1430, in less more than 1500.
    assert_eq!(starved(0.0).0, Verdict::Fail);
    let warn = (Verdict::Warn, vec!["random-read-slow".to_string()]);
    assert_eq!(starved(2.0 / 3.0), warn);
    assert_eq!(starved(12.0 / 13.0), warn);
    assert_eq!(starved(0.94), (Verdict::Unknown, vec!["busy".to_string()]));
}

#[test]
fn a_stall_is_excused_where_others_kept_the_disk_busy_for_as_long() {
    let stalled = |foreign: u64, waited: f64| {
        let mut results = good();
        let write = &mut results.measured[3];
        (write.max_us, write.stalls, write.long_stalls) = (1.2e6, 3, 2);
        (write.foreign_bytes, write.waited) = (foreign, waited);
        judged(&root_card(), &results).0
    };
    // Two of 1 s and one of 0.25 s: at 2.5 MB/s, the slowest that does not fail, 5.6 MB.
    assert_eq!(stalled(5_600_000, 0.0), Verdict::Fail);
    assert_eq!(stalled(5_630_000, 0.0), Verdict::Unknown);
    assert_eq!(stalled(0, 2.24), Verdict::Fail);
    assert_eq!(stalled(0, 2.25), Verdict::Unknown);
    assert_eq!(stalled(2_500_000, 1.25), Verdict::Unknown);
}

#[test]
fn one_excused_stall_does_not_excuse_another() {
    let mut results = good();
    let read = &mut results.measured[1];
    (read.max_us, read.stalls, read.waited) = (4e5, 1, 0.5);
    let write = &mut results.measured[3];
    (write.max_us, write.stalls) = (3e5, 1);
    let (verdict, codes) = judged(&root_card(), &results);
    assert!(codes.contains(&"stall".to_string()), "{codes:?}");
    assert_eq!(verdict, Verdict::Warn);
}

#[test]
fn a_figure_that_others_disturbed_is_kept_for_no_comparison() {
    let mut results = with(Probe::RandomRead, 1600.0);
    let bytes = results.measured.last().unwrap().bytes;
    let kept = |results: &Results| comparable(&None, results).len();
    assert_eq!(kept(&results), 5);
    results.measured.last_mut().unwrap().foreign_bytes = bytes / 4;
    assert_eq!(kept(&results), 4);
    // And none above what the link can carry: 22 MB/s twice, on a link for 15.
    assert_eq!(comparable(&usb(12.0, 15.0), &results).len(), 2);
}

#[test]
fn only_what_a_second_try_confirmed_fails_as_unreadable() {
    let faulty = |kind, confirmed| {
        let mut results = good();
        let (sector, detail) = (Some(65536), "Input/output error".into());
        results.faults.push(Fault {
            probe: Probe::SequentialRead,
            kind,
            sector,
            count: 1,
            confirmed,
            detail,
        });
        let findings = judge(
            &root_card(),
            &results,
            &Evidence::default(),
            &Config::default().limits,
            &Before::default(),
        );
        (
            findings[0].code.clone(),
            findings[0].severity,
            findings[0].sentence.clone(),
        )
    };
    let (code, severity, sentence) = faulty(FaultKind::ReadError, true);
    assert_eq!((code.as_str(), severity), ("read-error", Verdict::Fail));
    assert!(sentence.contains("sector 65536"), "{sentence}");
    assert_eq!(faulty(FaultKind::ReadError, false).1, Verdict::Warn);
    assert_eq!(faulty(FaultKind::WriteError, false).1, Verdict::Fail);
    assert_eq!(faulty(FaultKind::DataLost, true).1, Verdict::Fail);
}

#[test]
fn slower_than_before_needs_three_runs_below_half() {
    let before = |runs: &[f64]| Before {
        baseline: vec![(Probe::SequentialRead, 50.0)],
        runs: runs
            .iter()
            .map(|&figure| vec![(Probe::SequentialRead, figure)])
            .collect(),
    };
    let limits = Config::default().limits;
    let codes = |runs: &[f64], now: f64| {
        let results = with(Probe::SequentialRead, now);
        judge(
            &root_card(),
            &results,
            &Evidence::default(),
            &limits,
            &before(runs),
        )
        .into_iter()
        .map(|f| f.code)
        .collect::<Vec<_>>()
    };
    assert_eq!(codes(&[50.0, 20.0, 20.0], 20.0), ["slower-than-before"]);
    assert_eq!(codes(&[50.0, 20.0], 20.0), ["slower-than-before"]);
    assert!(
        codes(&[50.0, 50.0], 20.0).is_empty(),
        "one slow run is an accident"
    );
    assert!(
        codes(&[50.0, 25.1], 25.1).is_empty(),
        "more than half is not worse by half"
    );
    assert!(
        codes(&[20.0], 20.0).is_empty(),
        "two runs have no median of three"
    );
}

#[test]
fn figures_that_fell_together_are_one_finding() {
    let figures = |read, random| vec![(Probe::SequentialRead, read), (Probe::RandomRead, random)];
    let before = Before {
        baseline: figures(50.0, 8000.0),
        runs: vec![figures(20.0, 1600.0), figures(20.0, 1600.0)],
    };
    let mut results = with(Probe::SequentialRead, 20.0);
    results.measured.retain(|m| m.probe != Probe::RandomRead);
    results.measured.push(figure(Probe::RandomRead, 1600.0));
    let findings = judge(
        &root_card(),
        &results,
        &Evidence::default(),
        &Config::default().limits,
        &before,
    );
    assert_eq!(findings.len(), 1);
    let want = "random read 1600 IOPS (median of three), at first 8000, and 1 more fell";
    assert_eq!(findings[0].sentence, want);
}

/// What was measured at a clock held down is the supply's figure, not the medium's.
#[test]
fn a_figure_under_bad_power_or_heat_is_marked_so() {
    let with_board = |board: Board| {
        let evidence = Evidence {
            board,
            ..Evidence::default()
        };
        let limits = Config::default().limits;
        let slow = with(Probe::RandomRead, 100.0);
        judge(&root_card(), &slow, &evidence, &limits, &Before::default())
    };
    let start = Board {
        throttled: Some(0x1), // under-voltage at the start, gone at the end
        ..Board::default()
    };
    let mut end = Board {
        throttled: Some(0x10000),
        ..Board::default()
    };
    end.since(&start, false);
    assert!(!end.figures_stand());
    let findings = with_board(end);
    let codes: Vec<&str> = findings.iter().map(|f| f.code.as_str()).collect();
    assert_eq!(codes, ["under-voltage", "random-read-slow"]);
    let marked = "while the figures were taken: none of them is the medium's";
    assert!(findings[0].sentence.ends_with(marked), "{findings:?}");
    let mut hot = Board {
        cooled: true,
        celsius: Some(84.6),
        ..Board::default()
    };
    hot.since(&Board::default(), false);
    assert!(!hot.figures_stand());
    let findings = with_board(hot);
    assert_eq!(findings[0].code, "throttled");
    assert!(findings[0].sentence.contains("at 85 °C"), "{findings:?}");
}

#[test]
fn every_code_is_in_the_table_once_and_in_the_readme() {
    let readme = include_str!("../README.md");
    for (n, kind) in KINDS.iter().enumerate() {
        assert!(
            KINDS[..n].iter().all(|other| other.code != kind.code),
            "{} twice",
            kind.code
        );
        let row = format!("| `{}` | {} | {} |", kind.code, kind.meaning, kind.to_do);
        assert!(readme.contains(&row), "README has no row: {row}");
    }
    let source =
        include_str!("judge.rs").to_string() + include_str!("run.rs") + include_str!("record.rs");
    for code in source
        .split("Finding::new(\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
    {
        assert!(kind(code).is_some(), "{code} is not in the table");
    }
}
