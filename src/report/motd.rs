//! The message of the day: one line while a verdict is not pass, nothing else.

use super::{replace, there};
use crate::error::{Error, Result, printable};
use crate::evidence::rank;
use crate::judge::{Verdict, kind};
use crate::state::State;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// pam_motd(8) shows each file in here after a login.
const PAM: &str = "run/motd.d/storage-selftest";
/// Armbian prints what the scripts in /etc/update-motd.d say; ours shows this file. pam_motd would
/// show the line a second time.
const ARMBIAN: &str = "run/storage-selftest.motd";
/// Where Armbian is told which of its scripts are not to run.
const ARMBIAN_SETTINGS: &str = "etc/default/armbian-motd";
/// A login is no place for more.
const MAX_CHARS: usize = 300;

/// Shows the worst verdict of the media that are there, or takes the line away.
/// # Errors
/// Where the file cannot be written or removed.
pub fn update(root: &Path, state: &State, boot: &str) -> Result<()> {
    let armbian = root.join(ARMBIAN_SETTINGS).exists();
    let path: PathBuf = root.join(if armbian { ARMBIAN } else { PAM });
    match line(root, state, boot) {
        // A half-written file in its directory would be shown as well.
        Some(line) => replace(&path, &root.join("run/.storage-selftest.motd"), &line),
        None => match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::new("remove", path, error))
            }
            _ => Ok(()),
        },
    }
}

fn line(root: &Path, state: &State, boot: &str) -> Option<String> {
    let mut bad: Vec<_> = there(root, state, boot)
        .into_iter()
        .filter_map(|(_, record)| Some((record, record.runs.last()?)))
        .filter(|(_, run)| run.verdict != Verdict::Pass)
        .collect();
    // Of two that fail, the one whose data is at risk before the one that is merely slow.
    bad.sort_by_key(|(_, run)| {
        let worst = run.findings.iter().filter(|f| f.severity == run.verdict);
        let rank = worst.map(|finding| rank(&finding.code)).min();
        (std::cmp::Reverse(run.verdict), rank.unwrap_or(usize::MAX))
    });
    let (record, run) = bad.first()?;
    let (device, name, verdict) = (&record.device, &record.name, run.verdict.word());
    let what = run.findings.first().map_or(String::new(), |finding| {
        let to_do = kind(&finding.code).map_or("", |kind| kind.to_do);
        format!(": {}. To do: {to_do}", finding.sentence)
    });
    let more = match bad.len() - 1 {
        0 => String::new(),
        n => format!("; {n} more"),
    };
    // The state file may be anyone's.
    let text = printable(&format!("Storage {device} {name}: {verdict}{what}"));
    let text: String = text.chars().take(MAX_CHARS).collect();
    Some(format!("{text} (storage-selftest show{more})\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::state;

    fn root(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("motd-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("run")).unwrap();
        fs::create_dir_all(root.join("sys/block/mmcblk0")).unwrap();
        root
    }

    #[test]
    fn the_line_goes_when_its_cause_is_gone() {
        let root = root("pam");
        update(&root, &state(Verdict::Fail), "this-boot").unwrap();
        let text = fs::read_to_string(root.join(PAM)).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.starts_with("Storage mmcblk0 SD SC32G: fail: "),
            "{text}"
        );
        assert!(text.contains("To do: do not trust this medium"), "{text}");
        update(&root, &state(Verdict::Pass), "this-boot").unwrap();
        assert!(!root.join(PAM).exists());
        // Once more, with nothing to remove.
        update(&root, &state(Verdict::Pass), "this-boot").unwrap();
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_medium_of_an_earlier_boot_is_not_there_now() {
        let root = root("earlier");
        update(&root, &state(Verdict::Fail), "another-boot").unwrap();
        assert!(!root.join(PAM).exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_disk_that_was_pulled_out_is_not_there_now() {
        let root = root("pulled");
        let mut state = state(Verdict::Fail);
        update(&root, &state, "this-boot").unwrap();
        fs::rename(root.join("sys/block/mmcblk0"), root.join("sys/block/sda")).unwrap();
        update(&root, &state, "this-boot").unwrap();
        assert!(!root.join(PAM).exists());
        // A share is no disk of this machine, and is there.
        let record = state.media["cid:03"].clone();
        state.media.insert("share:cifs://nas/share".into(), record);
        update(&root, &state, "this-boot").unwrap();
        assert!(root.join(PAM).exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn data_at_risk_comes_before_a_slow_medium() {
        let root = root("two");
        fs::create_dir_all(root.join("sys/block/sda")).unwrap();
        let mut state = state(Verdict::Fail);
        let mut fake = state.media["cid:03"].clone();
        for (record, device, code) in [
            (
                state.media.get_mut("cid:03").unwrap(),
                "mmcblk0",
                "random-read-slow",
            ),
            (&mut fake, "sda", "capacity-wraps"),
        ] {
            record.device = device.into();
            let run = record.runs.last_mut().unwrap();
            run.findings.truncate(1);
            run.findings[0].code = code.into();
        }
        state.media.insert("disk:zz".into(), fake);
        update(&root, &state, "this-boot").unwrap();
        let text = fs::read_to_string(root.join(PAM)).unwrap();
        assert!(text.starts_with("Storage sda "), "{text}");
        assert!(text.contains("; 1 more)"), "{text}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn another_card_in_its_place() {
        let root = root("swapped");
        let mut state = state(Verdict::Fail);
        let mut other = crate::report::tests::state(Verdict::Pass).media["cid:03"].clone();
        other.last_seen.uptime += 60.0;
        state.media.insert("cid:04".into(), other);
        update(&root, &state, "this-boot").unwrap();
        assert!(!root.join(PAM).exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn armbian_prints_it_by_its_own_means() {
        let root = root("armbian");
        fs::create_dir_all(root.join("etc/default")).unwrap();
        fs::write(root.join(ARMBIAN_SETTINGS), "MOTD_DISABLE=\"\"\n").unwrap();
        update(&root, &state(Verdict::Warn), "this-boot").unwrap();
        assert!(!root.join(PAM).exists());
        let text = fs::read_to_string(root.join(ARMBIAN)).unwrap();
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/image/60-storage-selftest.motd"
        );
        let run = |disable: &str| {
            fs::write(
                root.join(ARMBIAN_SETTINGS),
                format!("MOTD_DISABLE=\"{disable}\"\n"),
            )
            .unwrap();
            let mut sh = std::process::Command::new("sh");
            let output = sh.arg(script).env("ROOT", &root).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(run("").trim(), text.trim());
        assert_eq!(run("header storage-selftest tips"), "");
        fs::remove_dir_all(root).unwrap();
    }
}
