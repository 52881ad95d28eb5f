//! What the machine writes to a medium, and for how long that medium bears it.

use super::card::Wear;
use super::file_system::FileSystem;
use super::{Evidence, Source};
use crate::medium::Medium;
use crate::record::{Run, When};
use crate::report::gigabytes;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

const SECTOR: f64 = 512.0;
const DAY: f64 = 86400.0;
const MONTH: f64 = 30.4; // days
/// Less than this tells nothing of a day, seconds.
const AT_LEAST: f64 = 3600.0;
/// A gap of more is a clock that was not set, seconds: ten years.
const AT_MOST: f64 = 3650.0 * DAY;
/// How often cheap flash can be rewritten, in order of magnitude: makers name 300 to 1000 for TLC.
const REWRITES: f64 = 500.0;

/// Bytes that the file systems of a medium count over their life, and seconds since 1970 then.
pub type Counter = BTreeMap<String, u64>;

/// Now. Empty where no file system on the medium counts.
pub fn counter(file_systems: &[FileSystem]) -> Counter {
    let mut counted: Vec<(&str, u64)> = file_systems
        .iter()
        .filter_map(|system| Some((system.block.as_str(), system.written?)))
        .collect();
    counted.sort();
    counted.dedup_by_key(|(block, _)| *block); // mounted in two places
    if counted.is_empty() {
        return Counter::new();
    }
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    [
        ("bytes".into(), counted.iter().map(|(_, bytes)| bytes).sum()),
        ("seconds".into(), epoch.unwrap_or_default().as_secs()),
    ]
    .into()
}

/// Bytes a day from the beginning of the run `last` until now, without its own. Within a boot its
/// uptime measures the time, for boards without a clock battery.
pub fn since(now: &Counter, when: &When, before: &Counter, last: &Run) -> Option<f64> {
    let seconds = match when.boot == last.when.boot {
        true => when.uptime - (last.when.uptime - last.seconds),
        false => *now.get("seconds")? as f64 - *before.get("seconds")? as f64,
    };
    let bytes = now.get("bytes")?.checked_sub(*before.get("bytes")?)?;
    let bytes = bytes.saturating_sub(last.written);
    (AT_LEAST..AT_MOST)
        .contains(&seconds)
        .then(|| bytes as f64 / seconds * DAY)
}

/// Bytes a day that the machine wrote to the medium since the boot, after an hour at least.
pub fn since_boot(source: &Source) -> Option<f64> {
    let stat = source.tree.text(source.disk.join("stat"))?;
    let sectors: f64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    let uptime = source.tree.text("/proc/uptime")?;
    let seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    (seconds >= AT_LEAST).then(|| sectors * SECTOR / seconds * DAY)
}

/// What so much a day means for the medium; `since` says when it was counted.
pub fn words(medium: &Medium, known: &Evidence, a_day: f64, since: &str) -> String {
    if a_day < 1e6 {
        return format!("less than 1 MB a day since {since}");
    }
    let days = medium.bytes as f64 / a_day;
    let once = format!(
        "{} a day since {since}, all of it once in {days:.0} days",
        gigabytes(a_day as u64)
    );
    let months = days * REWRITES / MONTH;
    let wear = known.card.as_ref().and_then(|card| card.wear);
    match wear.and_then(Wear::left) {
        _ if medium.rotational => once,
        Some((least, most)) => format!(
            "{once}; if it bears {REWRITES:.0} times, of which {:.0} to {:.0} % are left, {:.0} to {:.0} months",
            least * 100.0,
            most * 100.0,
            months * least,
            months * most
        ),
        None => format!("{once}; if it bears {REWRITES:.0} times, {months:.0} months"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot: &str, seconds: u64, uptime: f64, bytes: u64) -> (Counter, When) {
        let counter = [("bytes".into(), bytes), ("seconds".into(), seconds)].into();
        let when = When {
            boot: boot.into(),
            uptime,
            ..When::default()
        };
        (counter, when)
    }

    #[test]
    fn a_rate_between_two_runs() {
        // It took 20 s and wrote 20 MB.
        let (first, mut last) = (
            at("a", 1_000_000, 0.0, 5_000_000_000).0,
            crate::record::run(20),
        );
        last.when = at("a", 0, 140.0, 0).1;
        last.written = 20_000_000;
        let since = |now: (Counter, When)| since(&now.0, &now.1, &first, &last).map(f64::round);
        // A day later, in another boot.
        let next = at("b", 1_086_400, 120.0, 6_000_000_000);
        assert_eq!(since(next), Some(980_000_000.0));
        // The clock was set in between: the uptime knows better.
        let same = at("a", 1_700_000_000, 120.0 + 43200.0, 5_520_000_000);
        assert_eq!(since(same), Some(1_000_000_000.0));
        // In another boot nothing does.
        assert_eq!(since(at("b", 1_700_000_000, 120.0, 5_500_000_000)), None);
        assert_eq!(since(at("b", 999_000, 120.0, 5_500_000_000)), None);
        // Made anew, or half an hour later.
        assert_eq!(since(at("b", 1_086_400, 9.0, 1000)), None);
        assert_eq!(since(at("b", 1_001_800, 9.0, 6_000_000_000)), None);
        assert_eq!(since((Counter::new(), When::default())), None);
    }

    /// 16 GB at 1.6 GB a day is one rewrite in ten days, 500 in 5000 days: 164.5 months of 30.4.
    #[test]
    fn months_that_are_left() {
        let case = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/cases/board-rockchip-emmc-worn");
        let found = crate::medium::find(&case, &[], true).unwrap();
        let mut medium = found.media.into_iter().next().unwrap();
        medium.bytes = 16_000_000_000;
        let mut known = super::super::collect(&case, &medium);
        let said = |known: &Evidence| words(&medium, known, 1.6e9, "the boot");
        let once = "1.6 GB a day since the boot, all of it once in 10 days; if it bears 500 times";
        // Type B has used 90 to 100 % of its life.
        let left = format!("{once}, of which 0 to 10 % are left, 0 to 16 months");
        assert_eq!(said(&known), left);
        known.card = None;
        assert_eq!(said(&known), format!("{once}, 164 months"));
    }

    #[test]
    fn a_file_system_mounted_twice_counts_once() {
        let system = |block: &str, written| FileSystem {
            block: block.into(),
            written,
            ..FileSystem::default()
        };
        let systems = [
            system("sda1", Some(1000)),
            system("sda2", Some(30)),
            system("sda1", Some(1000)),
            system("sda3", None),
        ];
        assert_eq!(counter(&systems)["bytes"], 1030);
        assert!(counter(&systems[3..]).is_empty());
    }
}
