//! Lines for the journal with fields of their own, or for a terminal.

use super::Report;
use crate::judge::{Verdict, kind};
use crate::medium::{Medium, NoMedium};
use log::Level;
use log::kv::Value;

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

/// One summary line with the figures as fields; in the journal then a line for each finding,
/// which a terminal has in its table.
pub fn report(report: &Report) {
    let mut fields = medium_fields(report.medium);
    fields.push(("VERDICT".into(), report.verdict.word().into()));
    fields.push(("PROFILE".into(), report.profile.into()));
    fields.push(("BYTES_WRITTEN".into(), report.outcome.written.to_string()));
    if let Some(finding) = report.findings.first() {
        fields.push(("FINDING".into(), finding.code.clone()));
    }
    for measured in &report.outcome.results.measured {
        let probe = measured
            .probe
            .words()
            .replace(", ", "_")
            .replace([' ', '-'], "_")
            .to_uppercase();
        let unit = measured.probe.unit().replace('/', "_").to_uppercase();
        fields.push((
            format!("{probe}_{unit}"),
            format!("{:.2}", measured.figure()),
        ));
        fields.push((format!("{probe}_P99_US"), format!("{:.0}", measured.p99_us)));
        fields.push((format!("{probe}_MAX_US"), format!("{:.0}", measured.max_us)));
    }
    entry(level(report.verdict), &report.summary(), &fields);
    if !native() {
        return;
    }
    for finding in report.findings {
        let mut fields = medium_fields(report.medium);
        fields.push(("FINDING".into(), finding.code.clone()));
        fields.push(("SEVERITY".into(), finding.severity.word().into()));
        let to_do = kind(&finding.code).map_or("", |kind| kind.to_do);
        let word = finding.severity.word();
        let text = format!(
            "{}: {word}: {}: {}. To do: {to_do}",
            report.medium.device, finding.code, finding.sentence
        );
        entry(level(finding.severity), &text, &fields);
    }
}

/// No test in this boot.
pub fn postponed(reason: &str) {
    let fields = [
        ("VERDICT".into(), "unknown".into()),
        ("FINDING".into(), "postponed".into()),
    ];
    let to_do = kind("postponed").map_or("", |kind| kind.to_do);
    let text = format!("no test in this boot: unknown: postponed: {reason}. To do: {to_do}");
    entry(Level::Warn, &text, &fields);
}

/// A place that was asked for and is no medium.
pub fn no_medium(none: &NoMedium) {
    let fields = [
        ("VERDICT".into(), "unknown".into()),
        ("FINDING".into(), "no-medium".into()),
    ];
    entry(
        Level::Warn,
        &format!("{}: unknown: no-medium: {}", none.asked, none.reason),
        &fields,
    );
}
