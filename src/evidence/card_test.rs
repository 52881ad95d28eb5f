//! Register suspicions against two public collections, wear against the values of JEDEC.

use super::*;
use crate::medium::registers::{Crc, Register, sd_cid};

const LOW_SERIALS: &str = include_str!("../../tests/cases/low-serial-cards.csv");
const DUMPS: &str = include_str!("../../tests/cases/sd-registers.toml");

fn hex(text: &str) -> u32 {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// A row of `serial,capacity,unit,name,manfid,oemid,date,hwrev,fwrev`.
fn row(line: &str) -> (Cid, u64) {
    let field: Vec<&str> = line.split(',').collect();
    let (month, year) = field[6].split_once('/').unwrap();
    let mut product = field[3].as_bytes().to_vec();
    product.resize(5, b' ');
    let cid = Cid {
        manfid: hex(field[4]) as u8,
        oemid: hex(field[5]) as u16,
        product,
        revision: 0,
        serial: hex(field[0]),
        month: month.parse().unwrap(),
        year: year.parse().unwrap(),
        crc: Crc::NotReported,
    };
    assert_eq!(field[2], "GiB");
    let gib: f64 = field[1].parse().unwrap();
    (cid, (gib * f64::from(1 << 30)) as u64)
}

/// What a person decides of each group of the list: manufacturer, OEM, name (`*` for any), the
/// sizes in GiB, and the rule; `-` is no suspicion.
const DECIDED: &[(u8, u16, &str, std::ops::Range<f64>, &str)] = &[
    // peers.md (d) 10: these must not be flagged.
    (0x27, 0x5048, "*", 0.0..999.0, "-"),
    // Genuine makers' ids and names of the right size.
    (0x9f, 0x5449, "00000", 0.0..999.0, "-"),
    (0x9f, 0x5449, "SD32G", 29.0..30.0, "-"),
    (0x41, 0x3432, "SD16G", 14.0..15.1, "-"),
    (0x41, 0x3432, "SD08G", 7.0..8.0, "-"),
    (0x31, 0x5350, "SPCC", 0.0..999.0, "-"),
    (0x1d, 0x4144, "*", 0.0..999.0, "-"),
    (0x28, 0x4245, "00000", 0.0..999.0, "-"),
    (0x19, 0x4459, "00000", 0.0..999.0, "-"),
    (0x82, 0x4a54, "NCard", 0.0..999.0, "-"),
    (0x11, 0x534b, "SDMMC", 0.0..999.0, "-"),
    (0x74, 0x4a60, "SD32G", 29.0..30.0, "-"),
    (0x74, 0x4a60, "00000", 0.0..999.0, "-"),
    (0x74, 0x4a45, "SD", 0.0..999.0, "-"),
    // peers.md (d) 10: these are fakes.
    (0x6f, 0x0013, "SMI", 29.1..29.2, "no-serial"),
    (0xfe, 0x3432, "SD16G", 29.1..29.2, "wrong-size"),
    (0x41, 0x3432, "SD16G", 29.5..29.6, "wrong-size"),
    (0x03, 0x5344, "AS", 7.44..7.45, "wrong-name"),
    // The rest, by rule.
    (0x00, 0xffff, "*", 0.0..999.0, "no-maker"),
    (0x12, 0x3456, "*", 0.0..999.0, "placeholder"),
    (0xfe, 0x3456, "*", 0.0..999.0, "placeholder"),
    (0x12, 0x5678, "*", 0.0..999.0, "placeholder"),
    (0x41, 0x3432, "ASTC", 0.0..999.0, "nobodys-name"),
    (0x03, 0x5344, "ASTC", 0.0..999.0, "nobodys-name"),
    (0x9f, 0x5449, "ASTC", 0.0..999.0, "nobodys-name"),
    (0x74, 0x4a60, "ASTC", 0.0..999.0, "nobodys-name"),
    (0x03, 0x5344, "AS", 0.0..999.0, "wrong-name"),
    (0x41, 0x3432, "SD16G", 0.0..9.0, "wrong-size"),
    (0x41, 0x3432, "SD16G", 20.0..999.0, "wrong-size"),
    (0xfe, 0x3432, "SD16G", 0.0..9.0, "wrong-size"),
    (0xfe, 0x3432, "SD16G", 20.0..999.0, "wrong-size"),
    (0xff, 0x3432, "SD16G", 7.0..8.0, "wrong-size"),
    (0xff, 0x0000, "SD16G", 3.0..4.0, "wrong-size"),
    (0xfe, 0x3432, "SD16G", 14.0..15.0, "foreign-id"),
    (0xfe, 0x3432, "SD", 0.0..999.0, "foreign-id"),
    (0xff, 0x3432, "SD08G", 7.0..8.0, "foreign-id"),
    (0x45, 0x2d42, "TO", 0.0..999.0, "foreign-id"),
    (0x45, 0x2d42, "TEAT", 0.0..999.0, "foreign-id"),
    (0xff, 0x0000, "SD08G", 7.0..8.0, "no-oem"),
    (0xdf, 0x2009, "SD", 0.0..999.0, "no-oem"),
    (0xdf, 0x2011, "SD", 0.0..999.0, "no-oem"),
    (0xdf, 0x2012, "SD", 0.0..999.0, "no-oem"),
    (0xdf, 0x3428, "SD", 0.0..999.0, "no-oem"),
];

fn decided(cid: &Cid, bytes: u64) -> &'static str {
    let gib = bytes as f64 / f64::from(1 << 30) + 0.001;
    let name = product(cid);
    let group = DECIDED.iter().find(|(manfid, oemid, own, sizes, _)| {
        cid.manfid == *manfid
            && (*manfid == 0 || cid.oemid == *oemid)
            && (*own == "*" || name == *own)
            && sizes.contains(&gib)
    });
    match group {
        Some(group) => group.4,
        // What no group has: a serial number of 0, or a SMI card with a low one and no OEM.
        None if cid.serial == 0 => "no-serial",
        None if cid.manfid == 0x6f => "no-oem",
        None => panic!("nobody decided about {cid:?} {gib:.1} GiB"),
    }
}

#[test]
fn low_serials_by_rule() {
    let mut count = std::collections::BTreeMap::new();
    for line in LOW_SERIALS.lines().skip(2) {
        let (cid, bytes) = row(line);
        let seen = suspicion(&cid, bytes).map_or("-", |(rule, _)| rule);
        // A serial number of 0 is found before the size.
        let wanted = match decided(&cid, bytes) {
            "foreign-id" | "wrong-size" | "no-oem" if cid.serial == 0 => "no-serial",
            wanted => wanted,
        };
        assert_eq!(seen, wanted, "{line}");
        *count.entry(seen).or_insert(0) += 1;
    }
    // Counted by grep.
    assert_eq!(count["no-maker"], 39);
    let phison = LOW_SERIALS
        .lines()
        .filter(|line| line.contains("0x000027,0x5048"));
    assert_eq!(phison.count(), 36);
}

#[test]
fn genuine_cards_are_left_in_peace() {
    let all: toml::Table = DUMPS.parse().unwrap();
    let mut suspects = Vec::new();
    for card in all["card"].as_array().unwrap() {
        let text = card["cid"].as_str().unwrap();
        let cid = sd_cid(&Register::from_hex(text).unwrap());
        let bytes = card["derived"].get("capacity_bytes");
        // Where no CSD is known, the size that the name means.
        let bytes = bytes
            .map(|bytes| bytes.as_integer().unwrap() as u64)
            .unwrap_or_else(|| (size_in_name(&product(&cid)).unwrap_or(2.0) * 1e9) as u64);
        if let Some((rule, _)) = suspicion(&cid, bytes) {
            suspects.push((card["id"].as_str().unwrap(), rule));
        }
    }
    // `status` of the collection: one suspect, and an odd one that is not enough.
    assert_eq!(suspects, [("unbranded-ms-2g", "placeholder")]);
}

#[test]
fn public_suspects() {
    let judged = |cid: &str, gb: f64| {
        suspicion(
            &sd_cid(&Register::from_hex(cid).unwrap()),
            (gb * 1e9) as u64,
        )
        .map(|s| s.0)
    };
    // greiman/SdFat#430: a real card with an odd date, 3/2034.
    assert_eq!(judged("9f5449535043432031314800470223ff", 15.556), None);
    // OpenIPC/majestic-webui#546: Kingston's OEM id and name under another maker's, low serial.
    assert_eq!(
        judged("f13432534431364720000012340143ff", 15.5),
        Some("foreign-id")
    );
    // Month 13, and an SDHC card of 2002, with a good maker's ids.
    assert_eq!(
        judged("1d4144534420202010ab0256db00cd01", 8.0),
        Some("impossible-date")
    );
    assert_eq!(
        judged("1d4144534420202010ab0256db002401", 30.0),
        Some("impossible-date")
    );
}

#[test]
fn wear_is_a_range() {
    // As an ODROID's and a Rock's kernel print it, with and without 0x.
    let new = wear("0x01 0x01", "0x01").unwrap();
    assert_eq!(
        new.words(),
        "life used 0 to 10 % (A), 0 to 10 % (B), reserve normal"
    );
    assert_eq!(new.finding(), None);
    let old = wear("0x00 0x00\n", "00").unwrap();
    assert_eq!(
        old.words(),
        "life used unknown (A), unknown (B), reserve unknown"
    );
    assert_eq!(old.finding(), None, "before eMMC 5.0");
    let severity = |life, eol| wear(life, eol).unwrap().finding().map(|f| f.severity);
    // home-assistant/supervisor#6064 warns from 90 % on.
    assert_eq!(severity("0x09 0x09", "01"), None);
    assert_eq!(severity("0x02 0x0a", "01"), Some(Verdict::Warn));
    assert_eq!(severity("0x0b 0x01", "01"), Some(Verdict::Warn));
    assert_eq!(severity("0x01 0x01", "02"), Some(Verdict::Warn));
    assert_eq!(severity("0x01 0x01", "03"), Some(Verdict::Fail));
    assert_eq!(severity("0xff 0xff", "ff"), None, "nonsense");
    assert_eq!(wear("garbage", "01"), None);
    // Codes of the JEDEC table: 0x01 is 0 to 10 % used, 0x0a 90 to 100 %, 0x0b more.
    let left = |life| wear(life, "01").unwrap().left();
    assert_eq!(left("0x01 0x01"), Some((0.9, 1.0)));
    assert_eq!(left("0x02 0x0a"), Some((0.0, 0.1)));
    assert_eq!(left("0x0b 0x0b"), Some((0.0, 0.0)));
    assert_eq!(left("0x00 0x00"), None);
}

fn measured(probe: Probe, figure: f64) -> Measurement {
    let (operations, size) = match probe.sequential() {
        true => (16, (figure * 1e6 / 16.0) as u64),
        false => (figure as u64, 4096),
    };
    crate::judge::tests::measured(probe, operations, size, 1.0)
}

#[test]
fn a_class_is_held_against_the_figures_and_the_bus() {
    let ssr = Ssr {
        speed_class: 10,
        uhs_grade: 3,
        video_class: 30,
        app_class: 2,
        au_code: 9,
        uhs_au_code: 10,
        discard: false,
    };
    let code = |ceiling, list: &[(Probe, f64)]| {
        let list: Vec<Measurement> = list.iter().map(|&(p, f)| measured(p, f)).collect();
        below_class(&ssr, ceiling, &list).map(|finding| finding.sentence)
    };
    let slow = [(Probe::DurableWrite, 12.0)];
    // 50 MHz, 4 bit: no V30 there.
    assert_eq!(code(Some(25.0), &slow), None);
    assert!(code(Some(104.0), &slow).unwrap().contains("C10 U3 V30 A2"));
    assert_eq!(code(Some(104.0), &[(Probe::DurableWrite, 25.0)]), None);
    assert!(code(None, &[(Probe::RandomRead, 600.0)]).is_some());
    // An A2 card is asked for what A1 promises.
    assert_eq!(
        code(
            None,
            &[
                (Probe::RandomRead, 1600.0),
                (Probe::RandomWriteDurable, 400.0)
            ]
        ),
        None
    );
}
