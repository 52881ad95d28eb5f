//! The state as metrics, for the textfile collector of Prometheus' node_exporter.

use super::there;
use crate::judge::Verdict;
use crate::probe::Probe;
use crate::record::{Record, Run};
use crate::state::State;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The media that are there; each has run, or is not in it. How old the file is the collector
/// says by itself (`node_textfile_mtime_seconds`).
pub fn text(root: &Path, state: &State, boot: &str) -> String {
    let media: Vec<(&String, &Record, &Run)> = there(root, state, boot)
        .into_iter()
        .filter_map(|(identity, record)| Some((identity, record, record.runs.last()?)))
        .collect();
    let mut text = String::new();
    family(
        &mut text,
        "verdict",
        "gauge",
        "1 for the verdict of the last run, 0 for the other verdicts",
    );
    for (identity, record, run) in &media {
        for verdict in [
            Verdict::Pass,
            Verdict::Warn,
            Verdict::Unknown,
            Verdict::Fail,
        ] {
            let labels = format!(
                "{},device={},model={},verdict={}",
                medium(identity),
                quoted(&record.device),
                quoted(&record.name),
                quoted(verdict.word())
            );
            sample(
                &mut text,
                "verdict",
                &labels,
                f64::from(u8::from(run.verdict == verdict)),
            );
        }
    }
    family(
        &mut text,
        "finding",
        "gauge",
        "1 for each finding of the last run",
    );
    for (identity, _, run) in &media {
        let mut findings: Vec<_> = run
            .findings
            .iter()
            .map(|f| (f.code.as_str(), f.severity))
            .collect();
        findings.sort();
        // Two findings of one kind are one sample: the worse one.
        findings.reverse();
        findings.dedup_by_key(|(code, _)| *code);
        for (code, severity) in findings {
            let (code, severity) = (quoted(code), quoted(severity.word()));
            let labels = format!("{},code={code},severity={severity}", medium(identity));
            sample(&mut text, "finding", &labels, 1.0);
        }
    }
    figures(&mut text, &media);
    family(
        &mut text,
        "written_bytes_total",
        "counter",
        "bytes that the tests ever wrote to the medium",
    );
    for (identity, record, _) in &media {
        sample(
            &mut text,
            "written_bytes_total",
            &medium(identity),
            record.written as f64,
        );
    }
    text
}

/// The last run that has a figure tells it: a glance has few.
fn figures(text: &mut String, media: &[(&String, &Record, &Run)]) {
    for (unit, name, factor, help) in [
        (
            "MB/s",
            "bytes_per_second",
            1e6,
            "throughput when it was last measured",
        ),
        (
            "IOPS",
            "operations_per_second",
            1.0,
            "operations of 4 KiB a second when last measured",
        ),
    ] {
        family(text, name, "gauge", help);
        for (identity, record, _) in media {
            let mut latest: BTreeMap<Probe, f64> = BTreeMap::new();
            record
                .runs
                .iter()
                .for_each(|run| latest.extend(&run.figures));
            for (probe, figure) in latest.into_iter().filter(|(probe, _)| probe.unit() == unit) {
                let labels = format!("{},probe={}", medium(identity), quoted(probe.words()));
                sample(text, name, &labels, figure * factor);
            }
        }
    }
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP storage_selftest_{name} {help}");
    let _ = writeln!(text, "# TYPE storage_selftest_{name} {kind}");
}

fn sample(text: &mut String, name: &str, labels: &str, value: f64) {
    let _ = writeln!(text, "storage_selftest_{name}{{{labels}}} {value}");
}

fn medium(identity: &str) -> String {
    format!("medium={}", quoted(identity))
}

/// A label's value: the format escapes these three.
fn quoted(value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::state;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    /// A tree in which the card of the state is plugged in.
    fn root(name: &str) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("metrics-{}-{name}", std::process::id()));
        std::fs::create_dir_all(root.join("sys/block/mmcblk0")).unwrap();
        root
    }

    #[test]
    fn a_failing_card_is_a_sample_of_its_own() {
        let root = root("fail");
        let text = text(&root, &state(Verdict::Fail), "this-boot");
        for line in [
            "storage_selftest_verdict{medium=\"cid:03\",device=\"mmcblk0\",model=\"SD SC32G\",verdict=\"fail\"} 1",
            "storage_selftest_verdict{medium=\"cid:03\",device=\"mmcblk0\",model=\"SD SC32G\",verdict=\"pass\"} 0",
            "storage_selftest_finding{medium=\"cid:03\",code=\"data-lost\",severity=\"fail\"} 1",
            "storage_selftest_bytes_per_second{medium=\"cid:03\",probe=\"sequential read\"} 43500000",
            "storage_selftest_written_bytes_total{medium=\"cid:03\"} 20971520",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(!super::text(&root, &state(Verdict::Fail), "later").contains("cid:03"));
        assert_eq!(quoted("a\"b\\c\nd"), r#""a\"b\\c\nd""#);
        std::fs::remove_dir_all(root).unwrap();
    }

    /// By Prometheus' own checker: the metrics, and the alert rules with what they should fire on.
    #[test]
    fn promtool_finds_nothing_wrong() {
        let Ok(mut promtool) = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                b"SKIPPED promtool: not installed (Debian: prometheus)\n",
            );
            return;
        };
        let root = root("promtool");
        let text = text(&root, &state(Verdict::Fail), "this-boot");
        std::fs::remove_dir_all(root).unwrap();
        promtool
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let output = promtool.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}\n{text}");
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/alerts_test.yaml");
        let output = Command::new("promtool")
            .args(["test", "rules", rules])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}
