//! The articles' own series, recomputed with our statistics. Source of every value:
//! tests/cases/article-figures.toml, where the raw lists are and who checked them.

use super::*;

fn figures() -> toml::Table {
    include_str!("../../tests/cases/article-figures.toml")
        .parse()
        .unwrap()
}

fn numbers(value: &toml::Value) -> Vec<f64> {
    let number = |v: &toml::Value| v.as_float().or(v.as_integer().map(|n| n as f64)).unwrap();
    value.as_array().unwrap().iter().map(number).collect()
}

fn near(name: &str, got: f64, want: &toml::Value, tolerance: f64) {
    let want = want
        .as_float()
        .or(want.as_integer().map(|n| n as f64))
        .unwrap();
    assert!((got - want).abs() <= tolerance, "{name}: {got}, not {want}");
}

#[test]
fn every_series_of_the_articles_has_the_mean_that_was_recomputed() {
    let figures = figures();
    let mut series = 0;
    for (name, experiment) in figures["experiment"].as_table().unwrap() {
        let Some(runs) = experiment
            .get("stdev_ex1")
            .map(|_| numbers(&experiment["runs"]))
        else {
            continue;
        };
        let statistics = Statistics::of(&runs).unwrap();
        let (rest, deviation) = statistics.rest.unwrap();
        near(name, statistics.mean, &experiment["mean"], 1e-4);
        // As the article quotes it: two decimals, of one series one.
        let quoted = experiment["quoted_mean"].as_float().unwrap();
        let digits = if quoted == 10.5 { 0.05 } else { 0.005 };
        assert!(agrees(quoted, statistics.mean, digits + 1e-9), "{name}");
        near(name, statistics.median, &experiment["median"], 1e-3);
        near(name, statistics.deviation, &experiment["stdev"], 5e-4);
        near(name, rest, &experiment["mean_ex1"], 5e-5);
        near(name, deviation, &experiment["stdev_ex1"], 5e-4);
        let over = statistics.first_over_rest().unwrap();
        near(name, over, &experiment["run1_over_rest"], 5e-4);
        let cold = experiment["cold_first"].as_bool().unwrap();
        assert_eq!(statistics.first_is_apart(), cold, "{name}");
        series += 1;
    }
    assert_eq!(series, 6, "the ROCK64's six series of ten");
}

/// What a figure was said to be, what it is, and how far apart that is allowed to be.
fn agrees(said: f64, is: f64, digits: f64) -> bool {
    (said - is).abs() <= digits
}

#[test]
fn the_rates_of_the_third_article_follow_from_its_times() {
    let figures = figures();
    let experiment = &figures["experiment"];
    // sysbench moves 156.25 MiB, whatever the disk (measurement.md 1.4).
    let rate = |name: &str| {
        let e = &experiment[name];
        let per_second = 156.25 / numbers(&e["run_seconds"])[0];
        let kib = e["unit"].as_str() == Some("KiB/s");
        let said = numbers(&e["runs"])[0];
        (said, if kib { per_second * 1024.0 } else { per_second })
    };
    for (name, digits) in [
        ("pi3bp_sandisk_ultra_a1", 0.05),
        ("pi3bp_samsung_evo_plus_1", 0.5),
        ("pi3bp_samsung_evo_plus_2", 0.1),
        ("pi3bp_sandisk_ultra_fit", 0.05),
        ("pi3bp_cfd_ssd_novac", 0.05),
    ] {
        let (said, is) = rate(name);
        assert!(agrees(said, is, digits), "{name}: {said} is {is}");
    }
    // One is wrong: 359 for 363.14 KiB/s.
    let (said, is) = rate("pi3bp_buffalo_ruf2");
    assert!(!agrees(said, is, 0.5) && agrees(363.14, is, 0.005), "{is}");
}

#[test]
fn the_claims_of_the_second_article_that_do_not_hold() {
    let figures = figures();
    let mb_s = |name: &str| {
        let e = &figures["experiment"][name];
        e["bytes"].as_integer().unwrap() as f64 / 1e6 / numbers(&e["run_seconds"])[0]
    };
    // What dd printed follows from its bytes and seconds.
    for (disk, digits) in [("toshiba_usb3", 0.5), ("wd_usb3", 0.05), ("wd_usb2", 0.05)] {
        for place in ["local", "smb"] {
            let name = format!("admantium_{disk}_dd_{place}");
            let said = numbers(&figures["experiment"][&name]["runs"])[0];
            assert!(
                agrees(said, mb_s(&name), digits),
                "{name}: {said} is {}",
                mb_s(&name)
            );
        }
    }
    let (toshiba, wd) = ("admantium_toshiba_usb3_dd", "admantium_wd_usb3_dd");
    let more = |where_: &str| {
        100.0 * (mb_s(&format!("{toshiba}_{where_}")) / mb_s(&format!("{wd}_{where_}")) - 1.0)
    };
    // Local 21 % holds, remote 55 % is 58.2 %.
    assert!(agrees(21.39, more("local"), 0.01));
    assert!(!agrees(55.0, more("smb"), 1.0) && agrees(58.20, more("smb"), 0.01));
    // "About 33 % less over the network" holds for one of three disks.
    let less =
        |disk: &str| 100.0 * (1.0 - mb_s(&format!("{disk}_smb")) / mb_s(&format!("{disk}_local")));
    assert!(agrees(33.0, less(toshiba), 0.5));
    assert!(agrees(48.81, less(wd), 0.01));
    assert!(agrees(0.45, less("admantium_wd_usb2_dd"), 0.01));
    // 924 is the link in Mbit/s: as MB/s it is 115.5.
    let iperf = numbers(&figures["experiment"]["admantium_iperf3"]["runs"])[0];
    assert!(agrees(115.5, iperf / 8.0, 0.01));
    // The "clear winner" reads 1.6 % slower than the other.
    let read = |name: &str| numbers(&figures["experiment"][name]["runs"])[0];
    let ratio = read("admantium_toshiba_usb3_hdparm_t") / read("admantium_wd_usb3_hdparm_t");
    assert!(agrees(0.984, ratio, 0.0005));
}
