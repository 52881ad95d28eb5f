//! Lines for the journal with fields of their own, or for a terminal.

use super::Report;
use crate::judge::{Verdict, kind};
use crate::medium::{Medium, NoMedium};
use crate::probe::Probe;
use log::Level;
use log::kv::Value;

/// MESSAGE_ID of the line that sums a run up.
pub const SUMMARY_ID: &str = "40d1ad2099144085842d2595aa958bb9";

/// Whether this process is a service whose output goes to the journal.
pub fn native() -> bool {
    systemd_journal_logger::connected_to_journal()
}

/// The journal natively under systemd, lines on standard error otherwise.
pub fn install() {
    if native()
        && let Ok(journal) = systemd_journal_logger::JournalLog::new()
        && journal
            .with_syslog_identifier("storage-selftest".into())
            .install()
            .is_ok()
    {
        log::set_max_level(log::LevelFilter::Info);
        return;
    }
    let _ = simple_logger::SimpleLogger::new()
        .with_level(log::LevelFilter::Info)
        .init();
}

/// PRIORITY 3 for fail, 4 for warn and unknown, 5 for pass.
fn level(severity: Verdict) -> Level {
    match severity {
        Verdict::Fail => Level::Error,
        Verdict::Unknown | Verdict::Warn => Level::Warn,
        Verdict::Pass => Level::Info,
    }
}

fn entry(level: Level, text: &str, fields: &[(String, String)]) {
    let pairs: Vec<(&str, Value)> = fields
        .iter()
        .map(|(k, v)| (k.as_str(), Value::from(v.as_str())))
        .collect();
    log::logger().log(
        &log::Record::builder()
            .level(level)
            .target("storage-selftest")
            .args(format_args!("{text}"))
            .key_values(&pairs.as_slice())
            .build(),
    );
}

fn medium_fields(medium: &Medium) -> Vec<(String, String)> {
    vec![
        ("MEDIUM".into(), medium.identity.clone()),
        ("DEVICE".into(), medium.device.clone()),
        ("MODEL".into(), medium.name.clone()),
    ]
}

fn kind_fields(code: &str) -> Vec<(String, String)> {
    let id = kind(code).map(|kind| ("MESSAGE_ID".into(), kind.id.into()));
    let mut fields = vec![("FINDING".into(), code.into())];
    fields.extend(id);
    fields
}

/// A probe's name as the journal wants its fields.
fn field(probe: Probe) -> String {
    let words = probe.words().replace(", ", "_");
    words.replace([' ', '-'], "_").to_uppercase()
}

/// One summary line with the figures as fields; in the journal then a line for each finding and
/// for what was proved, which a terminal has in its table.
pub fn report(report: &Report) {
    let mut fields = medium_fields(report.medium);
    fields.push(("MESSAGE_ID".into(), SUMMARY_ID.into()));
    fields.push(("VERDICT".into(), report.verdict.word().into()));
    fields.push(("PROFILE".into(), report.profile.into()));
    fields.push(("BYTES_WRITTEN".into(), report.outcome.written.to_string()));
    if let Some(finding) = report.findings.first() {
        fields.push(("FINDING".into(), finding.code.clone()));
    }
    for measured in &report.outcome.results.measured {
        let (probe, figure) = (field(measured.probe), measured.figure());
        let unit = measured.probe.unit().replace('/', "_").to_uppercase();
        fields.push((format!("{probe}_{unit}"), format!("{figure:.2}")));
        fields.push((format!("{probe}_P99_US"), format!("{:.0}", measured.p99_us)));
        fields.push((format!("{probe}_MAX_US"), format!("{:.0}", measured.max_us)));
    }
    for proved in &report.outcome.results.proved {
        fields.push((field(proved.probe), proved.sentence.clone()));
    }
    entry(level(report.verdict), &report.summary(), &fields);
    if !native() {
        return;
    }
    for finding in report.findings {
        let mut fields = medium_fields(report.medium);
        fields.extend(kind_fields(&finding.code));
        fields.push(("SEVERITY".into(), finding.severity.word().into()));
        let to_do = kind(&finding.code).map_or("", |kind| kind.to_do);
        let word = finding.severity.word();
        let text = format!(
            "{}: {word}: {}: {}. To do: {to_do}",
            report.medium.device, finding.code, finding.sentence
        );
        entry(level(finding.severity), &text, &fields);
    }
    proved(report);
}

/// What was proved, as a line of its own.
fn proved(report: &Report) {
    for proved in &report.outcome.results.proved {
        let (device, probe) = (&report.medium.device, proved.probe.words());
        let text = format!("{device}: {probe}: {}", proved.sentence);
        entry(Level::Info, &text, &medium_fields(report.medium));
    }
}

/// No test in this boot.
pub fn postponed(reason: &str) {
    let mut fields = vec![("VERDICT".into(), "unknown".into())];
    fields.extend(kind_fields("postponed"));
    let to_do = kind("postponed").map_or("", |kind| kind.to_do);
    let text = format!("no test in this boot: unknown: postponed: {reason}. To do: {to_do}");
    entry(Level::Warn, &text, &fields);
}

/// A place that was asked for and is no medium.
pub fn no_medium(none: &NoMedium) {
    let mut fields = vec![("VERDICT".into(), "unknown".into())];
    fields.extend(kind_fields("no-medium"));
    entry(
        Level::Warn,
        &format!("{}: unknown: no-medium: {}", none.asked, none.reason),
        &fields,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::KINDS;
    use crate::probe::Probe::*;

    fn catalog_entry(id: &str, subject: &str, text: &str) -> String {
        format!(
            "\n-- {id}\nSubject: {subject}\nDefined-By: storage-selftest\n\
             Documentation: man:storage-selftest(8)\n\n{text}\n"
        )
    }

    /// systemd's format: systemd.io/CATALOG. No @FIELD@: not every entry has one.
    fn catalog() -> String {
        let mut text = String::from(
            "# What `journalctl -x` says below each finding. A test compares it with the table of\n\
             # findings, and writes it anew with BLESS=1 cargo test catalog.\n",
        );
        text += &catalog_entry(
            SUMMARY_ID,
            "Verdict of a test of a storage medium",
            "The verdict is that of the worst finding: pass, warn, unknown (something that must be\n\
             measured was not) or fail. Each finding has a line of its own below.\n\n\
             `storage-selftest show --history` has what earlier runs found.",
        );
        for kind in KINDS {
            let subject = format!("Storage medium: {}", kind.code);
            let body = format!(
                "What was found: {}.\n\nTo do: {}.",
                kind.meaning, kind.to_do
            );
            text += &catalog_entry(kind.id, &subject, &body);
        }
        text
    }

    #[test]
    fn the_catalog_tells_of_each_kind_of_finding() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/systemd/storage-selftest.catalog"
        );
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, catalog()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(
            written == catalog(),
            "out of date: BLESS=1 cargo test catalog"
        );
        let mut ids: Vec<&str> = KINDS
            .iter()
            .map(|kind| kind.id)
            .chain([SUMMARY_ID])
            .collect();
        assert!(
            ids.iter()
                .all(|id| id.len() == 32 && u128::from_str_radix(id, 16).is_ok())
        );
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), KINDS.len() + 1, "an id twice");
    }

    #[test]
    fn the_readme_names_every_field_of_a_figure() {
        let readme = include_str!("../../README.md");
        let all = [SequentialRead, RandomRead, RandomReadQueued, DurableWrite];
        for probe in
            all.into_iter()
                .chain([RandomWriteDurable, RandomWrite, RandomWriteSpan, ReadBack])
        {
            let unit = probe.unit().replace('/', "_").to_uppercase();
            let name = format!("`{}_{unit}`", field(probe));
            assert!(readme.contains(&name), "{name}");
        }
    }
}
