//! Where else a verdict goes: the message of the day, and what the configuration asks for.

use super::{history, metrics, motd, replace, there};
use crate::config::Outlets;
use crate::error::{Error, Result, printable_path};
use crate::judge::Verdict;
use crate::record::When;
use crate::state::State;
use std::fs;
use std::path::Path;

/// The LED's own trigger, while it blinks for us.
const LED_BEFORE: &str = "run/storage-selftest.led";

/// Tells all of them; what cannot be written is a line in the log.
pub fn update(root: &Path, outlets: &Outlets, state: &State) {
    let boot = When::now().boot;
    let mut done = vec![motd::update(root, state, &boot)];
    if let Some(path) = wanted(root, &outlets.metrics) {
        done.push(replace(
            &path,
            &path.with_extension("new"),
            &metrics::text(root, state, &boot),
        ));
    }
    if let Some(path) = wanted(root, &outlets.text) {
        done.push(replace(
            &path,
            &path.with_extension("new"),
            &text(root, state, &boot),
        ));
    }
    if !outlets.led.is_empty() {
        done.push(led(root, &outlets.led, fails(root, state, &boot)));
    }
    for error in done.into_iter().filter_map(Result::err) {
        log::warn!("{error}");
    }
}

fn wanted(root: &Path, path: &str) -> Option<std::path::PathBuf> {
    (!path.is_empty()).then(|| root.join(path.trim_start_matches('/')))
}

/// What `show` says, of the media that are there; with the line ends of the PC that will read it.
fn text(root: &Path, state: &State, boot: &str) -> String {
    let blocks = there(root, state, boot)
        .into_iter()
        .map(|(identity, record)| history::show(identity, record, true));
    let text = blocks.collect::<Vec<_>>().join("\n");
    text.lines()
        .map(|line| crate::error::printable(line) + "\r\n")
        .collect()
}

fn fails(root: &Path, state: &State, boot: &str) -> bool {
    there(root, state, boot)
        .into_iter()
        .filter_map(|(_, record)| record.runs.last())
        .any(|run| run.verdict == Verdict::Fail)
}

/// Blinks by the kernel's timer trigger, half a second on, half a second off (its default), and
/// gives the LED back to the trigger that it had.
fn led(root: &Path, name: &str, blink: bool) -> Result<()> {
    let trigger = root.join("sys/class/leds").join(name).join("trigger");
    let before = root.join(LED_BEFORE);
    let set = |word: &str| fs::write(&trigger, word).map_err(|e| Error::new("write", &trigger, e));
    match (blink, fs::read_to_string(&before)) {
        (true, Err(_)) => {
            let all = fs::read_to_string(&trigger).map_err(|e| Error::new("read", &trigger, e))?;
            // The present one is in brackets.
            let now = all.split(['[', ']']).nth(1).unwrap_or("none");
            set("timer")?;
            fs::write(&before, now).map_err(|e| Error::new("write", &before, e))
        }
        (false, Ok(word)) => {
            set(&word)?;
            log::info!("{} is as it was", printable_path(&trigger));
            fs::remove_file(&before).map_err(|e| Error::new("remove", &before, e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::state;

    #[test]
    fn files_and_led_follow_the_verdict() {
        let root = std::env::temp_dir().join(format!("outlets-{}", std::process::id()));
        let (led, metrics) = (root.join("sys/class/leds/ACT"), root.join("metrics"));
        for dir in [
            &led,
            &metrics,
            &root.join("run"),
            &root.join("boot/firmware"),
            &root.join("sys/block/mmcblk0"),
        ] {
            fs::create_dir_all(dir).unwrap();
        }
        let trigger = led.join("trigger");
        fs::write(&trigger, "none timer [mmc0] heartbeat\n").unwrap();
        let outlets = Outlets {
            metrics: "/metrics/storage_selftest.prom".into(),
            text: "/boot/firmware/storage-selftest.txt".into(),
            led: "ACT".into(),
        };
        let mut failed = state(Verdict::Fail);
        let seen = &mut failed.media.get_mut("cid:03").unwrap().last_seen;
        *seen = When::now();
        update(&root, &outlets, &failed);
        assert_eq!(fs::read_to_string(&trigger).unwrap(), "timer");
        let text = fs::read_to_string(root.join("boot/firmware/storage-selftest.txt")).unwrap();
        assert!(
            text.contains("data-lost") && text.ends_with("\r\n"),
            "{text}"
        );
        let files: Vec<_> = fs::read_dir(&metrics)
            .unwrap()
            .map(|f| f.unwrap().file_name())
            .collect();
        assert_eq!(
            files,
            ["storage_selftest.prom"],
            "no temporary file is left"
        );
        // Still failing: the trigger to go back to is the first one.
        update(&root, &outlets, &failed);
        failed
            .media
            .get_mut("cid:03")
            .unwrap()
            .runs
            .last_mut()
            .unwrap()
            .verdict = Verdict::Pass;
        update(&root, &outlets, &failed);
        assert_eq!(fs::read_to_string(&trigger).unwrap(), "mmc0");
        fs::remove_dir_all(root).unwrap();
    }
}
