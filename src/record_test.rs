use super::*;

/// A run that others test with too.
pub fn run(n: u32) -> Run {
    Run {
        capacity: String::new(),
        profile: "boot".into(),
        verdict: Verdict::Warn,
        complete: true,
        unfinished: None,
        seconds: f64::from(n),
        written: 1000,
        when: When {
            time: rfc3339(u64::from(n)),
            boot: "b".into(),
            uptime: 1.0,
        },
        link: "USB 480 Mbit/s".into(),
        figures: BTreeMap::from([
            (Probe::RandomRead, f64::from(n)),
            (Probe::RandomWriteDurable, 5.0),
        ]),
        findings: vec![Finding::new(
            "stall",
            Verdict::Warn,
            "one operation took 300 ms",
        )],
    }
}

fn glance(n: u32, findings: Vec<Finding>) -> Run {
    Run {
        profile: "glance".into(),
        findings,
        ..run(n)
    }
}

#[test]
fn a_record_keeps_32_runs_the_first_as_baseline_and_all_bytes() {
    let mut record = Record::default();
    (0..40).for_each(|n| record.add(run(n)));
    assert_eq!(record.runs.len(), 32);
    assert_eq!(record.runs[0].seconds, 8.0);
    assert_eq!(record.baseline[&Probe::RandomRead], 0.0);
    assert_eq!(record.written, 40_000);
    assert_eq!(record.before("USB 480 Mbit/s").runs.len(), 32);
}

#[test]
fn a_glance_is_no_baseline() {
    let mut record = Record::default();
    record.add(Run {
        profile: "glance".into(),
        ..run(7)
    });
    record.add(Run {
        complete: false,
        ..run(8)
    });
    assert!(record.baseline.is_empty() && record.last_full().is_none());
    record.add(run(9));
    assert_eq!(record.baseline[&Probe::RandomRead], 9.0);
}

#[test]
fn another_link_has_a_baseline_of_its_own() {
    let mut record = Record::default();
    record.add(run(100));
    assert!(record.before("USB 5000 Mbit/s").baseline.is_empty());
    record.add(Run {
        link: "USB 5000 Mbit/s".into(),
        ..run(400)
    });
    let before = record.before("USB 5000 Mbit/s");
    assert!(before.baseline.contains(&(Probe::RandomRead, 400.0)));
    assert_eq!(before.runs.len(), 1);
}

#[test]
fn a_glance_carries_what_failed_since_the_last_complete_run() {
    let fail = |code| Finding::new(code, Verdict::Fail, "it is so");
    let mut record = Record::default();
    record.add(Run {
        findings: vec![
            fail("random-read-slow"),
            Finding::new("stall", Verdict::Warn, "one took 300 ms"),
        ],
        ..run(0)
    });
    record.add(glance(1, vec![fail("read-error")]));
    let carried = record.carried(&[]);
    let told: Vec<(&str, &str)> = carried
        .iter()
        .map(|f| (f.code.as_str(), f.sentence.as_str()))
        .collect();
    let want = [
        ("stall", "on 1970-01-01T00:00:00Z: one took 300 ms"),
        ("read-error", "on 1970-01-01T00:00:01Z: it is so"),
    ];
    assert_eq!(told, want);
    // Carried again it keeps its date, and is not there twice; found anew only the new one stands.
    record.add(glance(2, carried));
    assert_eq!(record.carried(&[]).len(), 2);
    assert_eq!(record.carried(&[fail("stall")])[0].code, "read-error");
    record.add(run(3));
    assert_eq!(record.carried(&[]).len(), 1);
}

/// A board that is on for minutes a day has a glance each time: its test is not to begin anew.
#[test]
fn the_last_complete_run_outlives_any_number_of_glances() {
    let mut record = Record::default();
    record.add(run(1));
    for n in 2..100 {
        record.add(glance(n, Vec::new()));
    }
    assert_eq!(record.runs.len(), 32);
    assert!(record.runs[0].is_full());
    record.add(run(100));
    record.add(run(101));
    assert_eq!(record.runs.iter().filter(|run| run.is_full()).count(), 2);
}

#[test]
fn a_routine_run_is_no_proof_of_the_capacity() {
    let mut record = Record::default();
    record.add(Run {
        profile: "routine".into(),
        ..run(1)
    });
    assert!(!record.whole);
    record.add(run(2));
    assert!(record.whole);
}

// The dates are those that `date -u -d @N` prints.
#[test]
fn seconds_become_calendar_dates() {
    assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
    assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(rfc3339(1_796_092_260), "2026-12-01T02:31:00Z");
    assert_eq!(rfc3339(4_107_542_399), "2100-02-28T23:59:59Z");
}
