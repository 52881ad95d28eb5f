//! Recorded trees in `tests/cases/` with an `evidence.toml`: what `list` must say of each medium,
//! and what is found without any measurement. A new case is a folder and no code.

use super::*;
use crate::config::Config;
use crate::judge::{Before, Results, Subject, judge};
use crate::medium::find;
use serde::Deserialize;
use std::fs;

/// `evidence.toml` of a case; its comment names the public source of the facts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// What the configuration names.
    #[serde(default)]
    configured: Vec<String>,
    medium: Vec<Wanted>,
    /// What `list` must say besides.
    #[serde(default)]
    list: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    device: String,
    /// Parts of the lines that `list` must have in the medium's block.
    list: Vec<String>,
    /// `warn: usb2-port`: all of them, as they must be ordered.
    findings: Vec<String>,
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let entries = fs::read_dir(folder).unwrap();
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.join("evidence.toml").exists());
    cases.sort();
    cases
}

/// What is found where nothing was measured.
fn found(evidence: &Evidence, medium: &Medium) -> Vec<String> {
    let subject = Subject {
        role: medium.role,
        rotational: medium.rotational,
        link: medium.link.clone(),
    };
    let limits = Config::default().limits;
    let findings = judge(
        &subject,
        &Results::default(),
        evidence,
        &limits,
        &Before::default(),
    );
    findings
        .iter()
        .map(|finding| format!("{}: {}", finding.severity.word(), finding.code))
        .collect()
}

#[test]
fn what_is_known_is_said_and_judged() {
    let cases = cases();
    assert!(cases.len() >= 60, "only {} cases", cases.len());
    for case in &cases {
        let place = case.display();
        let text = fs::read_to_string(case.join("evidence.toml")).unwrap();
        let wanted: Expected = toml::from_str(&text).unwrap_or_else(|e| panic!("{place}: {e}"));
        let all = find(case, &wanted.configured, true).unwrap();
        let list = crate::report::list::list(&all, |medium| collect(case, medium));
        for part in &wanted.list {
            assert!(list.contains(part), "{place}: no `{part}` in\n{list}");
        }
        for wanted in &wanted.medium {
            let medium = all.media.iter().find(|m| m.device == wanted.device);
            let medium = medium.unwrap_or_else(|| panic!("{place}: no {}", wanted.device));
            let start = format!("{}  ", wanted.device);
            let block: Vec<&str> = list
                .lines()
                .skip_while(|line| !line.starts_with(&start))
                .enumerate()
                .take_while(|(at, line)| *at == 0 || line.starts_with("  "))
                .map(|(_, line)| line)
                .collect();
            // One screen for each medium: 24 lines of 80 columns.
            let rows = |line: &&str| line.chars().count().max(1).div_ceil(80);
            let rows: usize = block.iter().map(rows).sum();
            assert!(rows <= 24, "{place}: {block:#?}");
            let block = block.join("\n");
            for part in &wanted.list {
                assert!(block.contains(part), "{place}: no `{part}` in\n{block}");
            }
            let evidence = collect(case, medium);
            assert_eq!(found(&evidence, medium), wanted.findings, "{place} {block}");
        }
    }
}

/// Of each card and eMMC whose registers are published there is a tree.
#[test]
fn each_published_card_is_a_case() {
    let registers: toml::Table =
        toml::from_str(include_str!("../../tests/cases/sd-registers.toml")).unwrap();
    let of = |kind: &str| registers[kind].as_array().unwrap().clone();
    let cards: Vec<toml::Value> = [of("card"), of("emmc")].concat();
    assert_eq!(cards.len(), 35);
    for card in cards {
        let id = card["id"].as_str().unwrap();
        let case = |case: &PathBuf| case.ends_with(format!("reg-{id}"));
        assert!(cases().iter().any(case), "no tests/cases/reg-{id}");
    }
}
