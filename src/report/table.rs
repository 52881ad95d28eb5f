//! The table on a terminal: 80 columns, a block for each medium.

use super::{Report, gigabytes, role};
use crate::judge::{kind, short};
use std::fmt::Write;

/// Columns of a terminal.
const WIDTH: usize = 80;

/// The whole block of one medium.
pub fn block(report: &Report) -> String {
    let medium = report.medium;
    let mut text = String::new();
    let who = format!(
        "{}  {}  {}  {}",
        medium.device,
        medium.name,
        gigabytes(medium.bytes),
        role(medium.role)
    );
    let verdict = report.verdict.word().to_uppercase();
    let _ = writeln!(text, "{}", two_sides(&who, &verdict));
    if let Some(link) = &medium.link {
        let _ = writeln!(text, "{}", cut(&format!("  {}", link.description)));
    }
    if !report.outcome.results.measured.is_empty() {
        let _ = writeln!(
            text,
            "  {:<22}{:>14}{:>14}{:>9}{:>9}{:>9}",
            "", "figure", "slowest", "median", "99 %", "max"
        );
    }
    for measured in &report.outcome.results.measured {
        let unit = measured.probe.unit();
        let _ = writeln!(
            text,
            "  {:<22}{:>9} {unit}{:>9} {unit}{:>9}{:>9}{:>9}",
            measured.probe.words(),
            short(measured.figure()),
            short(measured.slowest_window),
            latency(measured.median_us),
            latency(measured.p99_us),
            latency(measured.max_us)
        );
    }
    if report
        .outcome
        .results
        .measured
        .iter()
        .any(|m| !m.whole_disk)
    {
        wrap(
            &mut text,
            "The whole disk could not be opened: reads are of the scratch file only.",
        );
    }
    if let Some(fill) = &report.outcome.fill {
        for (word, rates) in [("fill, written", &fill.written), ("fill, read", &fill.read)] {
            if !rates.is_empty() {
                let _ = writeln!(text, "  {word:<15}{}", strip(rates, WIDTH - 17));
            }
        }
    }
    let first = report
        .outcome
        .first_operation_ms
        .map_or(String::new(), |ms| format!(", first read {} ms", short(ms)));
    let written = report.outcome.written as f64 / f64::from(1 << 20);
    let _ = writeln!(
        text,
        "  {} run, {:.1} s, {written:.1} MiB written{first}",
        report.profile, report.seconds
    );
    let _ = writeln!(text, "{}", cut(&format!("  {}", report.board.state())));
    if !report.outcome.unclean.is_empty() {
        let names = &report.outcome.unclean;
        wrap(&mut text, &format!("not unmounted when last used: {names}"));
    }
    if let Some(written) = &report.written {
        wrap(&mut text, &format!("written to it: {written}"));
    }
    for proved in &report.outcome.results.proved {
        let line = format!("{}: {}", proved.probe.words(), proved.sentence);
        wrap(&mut text, &line);
    }
    for finding in report.findings {
        let to_do = kind(&finding.code).map_or("", |kind| kind.to_do);
        let line = format!(
            "{}: {}: {}. To do: {to_do}",
            finding.severity.word(),
            finding.code,
            finding.sentence
        );
        wrap(&mut text, &line);
    }
    text
}

/// A latency in µs, ms or s.
fn latency(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{} ms", short(us / 1e3).trim_end_matches(".0")),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// A block for each rate, as high as its share of the fastest; × where data was wrong. Where they
/// are more than `columns`, the slowest of its neighbours stands for each.
fn strip(rates: &[f64], columns: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let fastest = rates.iter().copied().fold(1e-9, f64::max);
    let columns = columns.min(rates.len());
    let of = |n: usize| n * rates.len() / columns;
    let slowest = (0..columns).map(|n| {
        let here = &rates[of(n)..of(n + 1)];
        here.iter().copied().fold(f64::INFINITY, f64::min)
    });
    slowest
        .map(|rate| match rate > 0.0 {
            true => BLOCKS[((rate / fastest * 8.0).ceil() as usize).clamp(1, 8) - 1],
            false => '×',
        })
        .collect()
}

fn two_sides(left: &str, right: &str) -> String {
    let room = WIDTH.saturating_sub(right.len() + 1);
    let left: String = left.chars().take(room).collect();
    format!("{left:<room$} {right}")
}

fn cut(line: &str) -> String {
    line.chars().take(WIDTH).collect()
}

/// Breaks a sentence at blanks; what follows is indented.
pub fn wrap(text: &mut String, line: &str) {
    let mut column = 2;
    text.push_str("  ");
    for word in line.split(' ') {
        let length = word.chars().count();
        if column + length + 1 > WIDTH && column > 4 {
            text.push_str("\n    ");
            column = 4;
        } else if column > 4 || !text.ends_with("  ") {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let mut text = String::new();
        wrap(&mut text, &"word and another ".repeat(20));
        assert!(text.lines().count() > 3);
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert_eq!(strip(&[20.0; 1000], WIDTH).chars().count(), WIDTH);
        assert_eq!(two_sides(&"x".repeat(100), "PASS").len(), WIDTH);
        assert_eq!(latency(228_000.0), "228 ms");
    }

    #[test]
    fn a_slow_spot_is_low_and_not_hidden_by_its_neighbours() {
        assert_eq!(strip(&[20.0, 10.0, 2.0, 0.0, 16.0], 60), "█▄▁×▇");
        // A thousand in ten columns: the one slow one is seen.
        let mut rates = [20.0; 1000];
        (rates[250], rates[999]) = (5.0, 0.0);
        assert_eq!(strip(&rates, 10), "██▂██████×");
    }
}
