//! Recorded trees in `tests/cases/`: each a little root, with what must be found in it.

use super::{Found, Medium, NoMedium, find, find_only};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// `expected.toml` of a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// What the configuration names.
    #[serde(default)]
    configured: Vec<String>,
    #[serde(default)]
    media: Vec<Medium>,
    #[serde(default)]
    none: Vec<NoMedium>,
    /// Further questions to the same tree, as `run --medium` asks them.
    #[serde(default)]
    only: Vec<Only>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Only {
    asked: String,
    /// The devices that are found, or else the reason why there is none.
    #[serde(default)]
    devices: Vec<String>,
    #[serde(default)]
    reason: String,
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut cases: Vec<PathBuf> = entries
        .filter(|path| path.join("expected.toml").exists())
        .collect();
    cases.sort();
    cases
}

fn expected(case: &Path) -> Expected {
    let text = fs::read_to_string(case.join("expected.toml"))
        .unwrap_or_else(|cause| panic!("{case:?}: {cause}"));
    toml::from_str(&text).unwrap_or_else(|cause| panic!("{case:?}: {cause}"))
}

#[test]
fn media_are_found() {
    let cases = cases();
    assert!(cases.len() > 10, "only {} cases", cases.len());
    for case in &cases {
        let wanted = expected(case);
        let Found { media, none } = find(case, &wanted.configured, true).unwrap();
        assert_eq!(media, wanted.media, "{}", case.display());
        assert_eq!(none, wanted.none, "{}", case.display());
    }
}

#[test]
fn single_questions_are_answered() {
    let mut questions = 0;
    for case in &cases() {
        let wanted = expected(case);
        for only in wanted.only {
            let found = find_only(case, std::slice::from_ref(&only.asked)).unwrap();
            let devices: Vec<&String> = found.media.iter().map(|medium| &medium.device).collect();
            let reason = found
                .none
                .iter()
                .map(|none| none.reason.as_str())
                .collect::<String>();
            let place = format!("{} {}", case.display(), only.asked);
            assert_eq!(devices, only.devices.iter().collect::<Vec<_>>(), "{place}");
            assert_eq!(reason, only.reason, "{place}");
            for medium in &found.media {
                let same = wanted.media.iter().find(|one| one.device == medium.device);
                assert!(same.is_none_or(|one| one == medium), "{place} {medium:?}");
            }
            questions += 1;
        }
    }
    assert!(questions > 10, "only {questions} questions");
}

#[test]
fn a_root_without_proc_is_an_error() {
    let nowhere = Path::new("/nonexistent-root");
    let error = find(nowhere, &[], true).unwrap_err().to_string();
    assert_eq!(
        error,
        "read /nonexistent-root/proc/self/mountinfo: No such file or directory"
    );
}

#[test]
fn usb_disks_can_be_left_to_those_that_are_named() {
    let case = cases()
        .into_iter()
        .find(|c| c.ends_with("13-same-bogus-serial"));
    let case = case.unwrap();
    let attached = |usb_disks, named: &[String]| {
        let found = find(&case, named, usb_disks).unwrap().media;
        found
            .into_iter()
            .filter(|m| m.role != super::Role::Root)
            .map(|m| m.device)
            .collect::<Vec<_>>()
    };
    let all = attached(true, &[]);
    assert!(!all.is_empty());
    assert!(attached(false, &[]).is_empty());
    assert_eq!(attached(false, &[format!("/dev/{}", all[0])]), all[..1]);
}
