//! `show`: what the state file knows of each medium.

use super::gigabytes;
use super::table::wrap;
use crate::judge::{kind, short};
use crate::probe::Probe;
use crate::record::Record;
use std::fmt::Write;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What the last run said; with `history` each figure's course and the last latencies.
pub fn show(identity: &str, record: &Record, history: bool) -> String {
    let mut text = String::new();
    let verdict = record
        .runs
        .last()
        .map_or("not tested", |run| run.verdict.word());
    let _ = writeln!(
        text,
        "{}  {}  {}: {verdict}",
        record.device,
        record.name,
        gigabytes(record.bytes)
    );
    let _ = writeln!(text, "  identity    {identity}");
    let _ = writeln!(text, "  first seen  {}", record.first_seen.time);
    let written = record.written as f64 / f64::from(1 << 20);
    let _ = writeln!(
        text,
        "  runs        {}, {written:.1} MiB written in all",
        record.runs.len()
    );
    if let Some(reason) = &record.unfinished {
        let _ = writeln!(text, "  unfinished  {reason}");
    }
    if let Some(run) = record.runs.last() {
        let state = if run.complete {
            "complete"
        } else {
            "not complete"
        };
        let _ = writeln!(
            text,
            "  last run    {}, {}, {state}, {:.1} s",
            run.when.time, run.profile, run.seconds
        );
        if let Some(reason) = &run.unfinished {
            wrap(&mut text, reason);
        }
        for (probe, figure) in &run.figures {
            let _ = writeln!(
                text,
                "  {:<22}{:>9} {}",
                probe.words(),
                short(*figure),
                probe.unit()
            );
        }
        for finding in &run.findings {
            let (word, sentence) = (finding.severity.word(), &finding.sentence);
            wrap(&mut text, &format!("{word}: {}: {sentence}", finding.code));
            if let Some(kind) = kind(&finding.code) {
                wrap(
                    &mut text,
                    &format!("  that is: {}. To do: {}", kind.meaning, kind.to_do),
                );
            }
        }
    }
    if history {
        courses(&mut text, record);
        latencies(&mut text, record);
    }
    text
}

fn courses(text: &mut String, record: &Record) {
    let _ = writeln!(text, "  history, oldest first, and the range");
    for probe in figures_of(record) {
        let course: Vec<f64> = record
            .runs
            .iter()
            .filter_map(|run| run.figures.get(&probe).copied())
            .collect();
        let low = course.iter().copied().fold(f64::INFINITY, f64::min);
        let high = course.iter().copied().fold(0.0, f64::max);
        let line = sparkline(&course);
        let _ = writeln!(
            text,
            "  {:<22}{line}  {} to {} {}",
            probe.words(),
            short(low),
            short(high),
            probe.unit()
        );
    }
}

fn figures_of(record: &Record) -> std::collections::BTreeSet<Probe> {
    record
        .runs
        .iter()
        .flat_map(|run| run.figures.keys().copied())
        .collect()
}

/// A character for each value, from nothing to the largest.
fn sparkline(values: &[f64]) -> String {
    let high = values
        .iter()
        .copied()
        .fold(0.0, f64::max)
        .max(f64::MIN_POSITIVE);
    values
        .iter()
        .map(|value| BLOCKS[((value / high * 8.0).ceil() as usize).clamp(1, 8) - 1])
        .collect()
}

fn latencies(text: &mut String, record: &Record) {
    for (probe, buckets) in &record.latency {
        let Some((first, last)) = buckets.first().zip(buckets.last()) else {
            continue;
        };
        let counts: Vec<f64> = buckets
            .iter()
            .map(|&(_, count)| f64::from(count).ln_1p())
            .collect();
        let line = sparkline(&counts);
        let (from, to) = (short(first.0 / 1e3), short(last.0 * 2.0 / 1e3));
        let _ = writeln!(
            text,
            "  {:<22}{line}  latency {from} to {to} ms, doubling",
            probe.words()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_largest_full_and_zero_lowest() {
        assert_eq!(sparkline(&[0.0, 50.0, 100.0]), "▁▄█");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[0.0]), "▁");
    }
}
