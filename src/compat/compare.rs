//! Two results side by side, with ratios: of media in the state file, or of the articles.

use super::told_of;
use crate::error::printable;
use crate::state::{Directory, State};
use crate::{USAGE, say};
use argh::FromArgs;
use std::path::PathBuf;

/// two results side by side: a medium's identity or device, with @DATE an earlier one, or article:NAME
#[derive(FromArgs)]
#[argh(subcommand, name = "compare")]
pub struct Arguments {
    /// the two
    #[argh(positional)]
    results: Vec<String>,
    /// name the articles' results
    #[argh(switch)]
    articles: bool,
    /// directory of the state file
    #[argh(option, default = "crate::run::STATE.into()")]
    state_dir: PathBuf,
}

/// What one tool or probe says of one thing.
#[derive(Clone, Debug, PartialEq)]
struct Value {
    tool: String,
    figure: f64,
    unit: String,
}

/// Runs the command; returns the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    if arguments.articles {
        article_names().iter().for_each(|line| say(line));
        return 0;
    }
    let [a, b] = &arguments.results[..] else {
        log::error!("compare wants two results, or --articles");
        return USAGE;
    };
    let state = Directory::new(&arguments.state_dir).read(false);
    let side = |name: &String| {
        values(name, &state).inspect_err(|error| log::error!("{}: {error}", printable(name)))
    };
    match (side(a), side(b)) {
        (Ok(left), Ok(right)) => {
            say(&table(a, b, &left, &right));
            0
        }
        _ => USAGE,
    }
}

const WHOLE: &[u8] = include_bytes!("../../tests/cases/article-figures.toml");
/// How the lines begin that are used here, a fifth of that file; the rest stays out of the binary.
const USED: [&[u8]; 8] = [
    b"[experiment.",
    b"tool = ",
    b"unit = ",
    b"medium = ",
    b"runs = ",
    b"per_entry_ms = ",
    b"read_quoted = ",
    b"write_quoted = ",
];

static LINES: [u8; copy_used(&mut [])] = {
    let mut lines = [0; copy_used(&mut [])];
    copy_used(&mut lines);
    lines
};

/// Copies the used lines, as far as there is room; returns how long they are.
const fn copy_used(to: &mut [u8]) -> usize {
    let (mut at, mut copied, mut used) = (0, 0, false);
    while at < WHOLE.len() {
        if at == 0 || WHOLE[at - 1] == b'\n' {
            used = is_used(at);
        }
        if used && copied < to.len() {
            to[copied] = WHOLE[at];
        }
        copied += used as usize;
        at += 1;
    }
    copied
}

const fn is_used(line: usize) -> bool {
    let mut n = 0;
    while n < USED.len() {
        let (start, mut same) = (USED[n], 0);
        while same < start.len() && line + same < WHOLE.len() && WHOLE[line + same] == start[same] {
            same += 1;
        }
        if same == start.len() {
            return true;
        }
        n += 1;
    }
    false
}

/// The articles' experiments. The file is part of the program and tests read it whole, so that an
/// empty table stands for one that cannot be parsed.
fn experiments() -> toml::Table {
    let lines = str::from_utf8(&LINES).unwrap_or_default();
    let figures: toml::Table = lines.parse().unwrap_or_default();
    match figures.get("experiment") {
        Some(toml::Value::Table(experiments)) => experiments.clone(),
        _ => toml::Table::new(),
    }
}

fn text<'a>(experiment: &'a toml::Value, key: &str) -> &'a str {
    experiment.get(key).and_then(|v| v.as_str()).unwrap_or("")
}

fn article_names() -> Vec<String> {
    let line = |(name, e): (&String, &toml::Value)| {
        format!(
            "article:{name:<34} {}, {}\n",
            text(e, "tool"),
            text(e, "medium")
        )
    };
    experiments().iter().map(line).collect()
}

fn values(name: &str, state: &State) -> Result<Vec<Value>, String> {
    if let Some(article) = name.strip_prefix("article:") {
        let experiments = experiments();
        let experiment = experiments
            .get(article)
            .ok_or("no such article's result; see --articles")?;
        return of_article(experiment).ok_or_else(|| "that article gives no figure".into());
    }
    let (medium, date) = name.split_once('@').unwrap_or((name, ""));
    let device = medium.trim_start_matches("/dev/");
    let identities: Vec<&String> = state
        .media
        .iter()
        .filter(|(identity, record)| *identity == medium || record.device == device)
        .map(|(identity, _)| identity)
        .collect();
    let is_it = |identity: &str, name: &str| {
        identity == medium || name == medium || identities.iter().any(|known| *known == identity)
    };
    let mut values: Vec<Value> = Vec::new();
    // The latest of each tool, or the latest of that date.
    let kept = state.compat.iter().rev();
    for kept in kept.filter(|k| is_it(&k.medium, &k.name) && k.when.time.starts_with(date)) {
        if !values.iter().any(|value| value.tool == kept.tool) {
            values.push(Value {
                tool: kept.tool.clone(),
                figure: super::statistics::median(&kept.runs),
                unit: kept.unit.clone(),
            });
        }
    }
    let records = state
        .media
        .iter()
        .filter(|(identity, record)| is_it(identity, &record.name));
    for (_, record) in records {
        let runs = record.runs.iter().rev();
        let dated = runs.filter(|r| r.when.time.starts_with(date) && !r.figures.is_empty());
        for (probe, &figure) in dated.take(1).flat_map(|run| &run.figures) {
            values.push(Value {
                tool: probe.words().into(),
                figure,
                unit: probe.unit().into(),
            });
        }
    }
    match values.is_empty() {
        true => Err("no result of it is known".into()),
        false => Ok(values),
    }
}

/// None where the article gives no figure.
fn of_article(experiment: &toml::Value) -> Option<Vec<Value>> {
    let number = |v: &toml::Value| v.as_float().or(v.as_integer().map(|n| n as f64));
    let numbers = |key| -> Vec<f64> {
        let list = experiment.get(key).and_then(|v| v.as_array());
        list.into_iter().flatten().filter_map(number).collect()
    };
    let (tool, unit) = (text(experiment, "tool"), text(experiment, "unit"));
    let value = |tool: &str, figure, unit: &str| Value {
        tool: tool.into(),
        figure,
        unit: unit.into(),
    };
    let runs = numbers("runs");
    let mut values: Vec<Value> = Vec::new();
    // Two boards, not two runs.
    for each in numbers("per_entry_ms") {
        values.push(value("listing", each, "ms an entry"));
    }
    for (key, words) in [
        ("read_quoted", "share, read"),
        ("write_quoted", "share, write"),
    ] {
        let quoted = experiment.get(key).and_then(number);
        values.extend(quoted.map(|quoted| value(words, quoted, unit)));
    }
    if values.is_empty() && !runs.is_empty() {
        let tool = if tool.starts_with("dd") { "dd" } else { tool };
        values.push(value(tool, super::statistics::median(&runs), unit));
    }
    Some(values).filter(|values| !values.is_empty())
}

/// In the unit of `like`, where both are rates.
fn in_unit_of(value: &Value, like: &str) -> Option<f64> {
    let bytes = |unit: &str| match unit {
        "MB/s" => Some(1e6),
        "MiB/s" => Some(f64::from(1 << 20)),
        "KiB/s" => Some(1024.0),
        _ => None,
    };
    match value.unit == like {
        true => Some(value.figure),
        false => Some(value.figure * bytes(&value.unit)? / bytes(like)?),
    }
}

fn table(a: &str, b: &str, left: &[Value], right: &[Value]) -> String {
    let mut text = format!("  {:<22}{:>18}{:>18}{:>12}\n", "", "A", "B", "A / B");
    let mut rows = 0;
    let pairs = left
        .iter()
        .flat_map(|value| right.iter().map(move |other| (value, other)));
    for (value, other) in pairs.filter(|(value, other)| value.tool == other.tool) {
        let Some(other) = in_unit_of(other, &value.unit) else {
            continue;
        };
        let cell = |figure: f64| format!("{} {}", told_of(figure), value.unit);
        text += &format!(
            "  {:<22}{:>18}{:>18}{:>12.3}\n",
            value.tool,
            cell(value.figure),
            cell(other),
            value.figure / other
        );
        rows += 1;
    }
    if rows == 0 {
        text += "  no tool measured both\n";
    }
    format!("A: {}\nB: {}\n{text}", printable(a), printable(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The third article's table (article-figures.toml): the A1 card against the EVO Plus, 44
    // times (measurement.md 2.4), in different units.
    #[test]
    fn the_cards_of_the_third_article_side_by_side() {
        let state = State::default();
        let (a, b) = (
            "article:pi3bp_sandisk_ultra_a1",
            "article:pi3bp_samsung_evo_plus_1",
        );
        let sides = [a, b].map(|name| values(name, &state).unwrap());
        let text = table(a, b, &sides[0], &sides[1]);
        assert!(text.contains("sysbench 0.4.12"), "{text}");
        let ratio: f64 = text.split_whitespace().last().unwrap().parse().unwrap();
        assert!((ratio - 9.5 * 1024.0 / 222.0).abs() < 0.001, "{text}");
    }

    #[test]
    fn every_article_with_a_figure_can_be_compared() {
        let with_runs = experiments()
            .iter()
            .filter(|(_, e)| of_article(e).is_some())
            .count();
        // The one without had its figures in pictures that are lost.
        assert_eq!((experiments().len(), with_runs), (28, 27));
        // 40 s and 10 s for 2,000 files.
        let listings = values("article:dirlist_2000", &State::default()).unwrap();
        let each = |v: &Value| (v.tool.clone(), v.figure, v.unit.clone());
        let want = |ms| ("listing".into(), ms, "ms an entry".into());
        assert_eq!(
            listings.iter().map(each).collect::<Vec<_>>(),
            [want(20.0), want(5.0)]
        );
        assert!(values("article:none", &State::default()).is_err());
        assert!(values("cid:00", &State::default()).is_err());
    }
}
