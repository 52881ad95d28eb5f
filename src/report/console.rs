//! Stops a board whose root medium is a fake, where the configuration asks for it.

use super::Report;
use crate::error::{Error, Result};
use crate::judge::{Finding, Verdict};
use crate::medium::Role;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// What stands on the console when the root medium loses data or has not its size; `None` for all
/// other media and findings.
pub fn reason(report: &Report) -> Option<String> {
    let fake = |finding: &&Finding| {
        let size = finding.code.starts_with("capacity");
        finding.severity == Verdict::Fail && (size || finding.code == "data-lost")
    };
    let finding = report.findings.iter().find(fake)?;
    let medium = report.medium;
    (medium.role == Role::Root).then(|| {
        format!(
            "\r\n\r\n*** storage-selftest stops this board. ***\r\n{} {}: {}: {}\r\nReplace the \
             medium, or set stop_on_fake = false in /etc/storage-selftest.toml.\r\n\r\n",
            medium.device, medium.name, finding.code, finding.sentence
        )
    })
}

/// Says why on the console under `root`, and has `systemctl` end all but the emergency shell.
/// # Errors
/// Where either cannot be done; the other one is done all the same.
pub fn stop(root: &Path, systemctl: &str, reason: &str) -> Result<()> {
    let console = root.join("dev/console");
    let said = File::options()
        .write(true)
        .open(&console)
        .and_then(|mut file| file.write_all(reason.as_bytes()))
        .map_err(|e| Error::new("write", &console, e));
    let isolate = ["--no-block", "isolate", "emergency.target"];
    let status = Command::new(systemctl)
        .args(isolate)
        .status()
        .map_err(|e| Error::new("start", systemctl, e))?;
    match status.success() {
        true => said,
        false => Err(Error::said("run", systemctl, status.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::Outcome;
    use std::fs;

    #[test]
    fn only_a_fake_root_medium_stops_the_board() {
        let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/01-pi3-sd");
        let mut medium = crate::medium::find(&case, &[], true)
            .unwrap()
            .media
            .remove(0);
        let (outcome, board) = (Outcome::default(), Default::default());
        let said = |medium: &crate::medium::Medium, code, severity| {
            let findings = [Finding::new(code, severity, "512 of 1024 stamps are gone")];
            reason(&Report {
                medium,
                profile: "boot",
                outcome: &outcome,
                board: &board,
                findings: &findings,
                verdict: severity,
                seconds: 9.0,
                written: None,
                last_full: None,
            })
        };
        let text = said(&medium, "data-lost", Verdict::Fail).unwrap();
        assert!(
            text.contains("mmcblk0") && text.contains("512 of 1024"),
            "{text}"
        );
        assert_eq!(said(&medium, "data-lost", Verdict::Warn), None);
        assert_eq!(said(&medium, "random-read-slow", Verdict::Fail), None);
        medium.role = Role::Attached;
        assert_eq!(said(&medium, "data-lost", Verdict::Fail), None);
    }

    #[test]
    fn the_console_is_told_before_all_ends() {
        let root = std::env::temp_dir().join(format!("console-{}", std::process::id()));
        fs::create_dir_all(root.join("dev")).unwrap();
        fs::write(root.join("dev/console"), "").unwrap();
        stop(&root, "true", "fake").unwrap();
        assert_eq!(
            fs::read_to_string(root.join("dev/console")).unwrap(),
            "fake"
        );
        assert!(stop(&root, "false", "fake").is_err());
        fs::remove_dir_all(root).unwrap();
    }
}
