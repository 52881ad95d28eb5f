//! Every published register dump that we know, with the values worked out by hand.

use super::registers::*;
use toml::Value;

const DUMPS: &str = include_str!("../../tests/cases/sd-registers.toml");

fn dumps(kind: &str) -> Vec<Value> {
    let all: toml::Table = DUMPS.parse().unwrap();
    all[kind].as_array().unwrap().clone()
}

fn register<const N: usize>(card: &Value, name: &str) -> Option<Register<N>> {
    let text = card.get(name)?.as_str()?;
    Some(Register::from_hex(text).unwrap_or_else(|| panic!("{name} {text}")))
}

/// Compares with `derived.key` where it is there.
fn check(card: &Value, key: &str, seen: impl Into<Value>) {
    if let Some(wanted) = card["derived"].get(key) {
        assert_eq!(*wanted, seen.into(), "{} {key}", card["id"]);
    }
}

fn check_cid(card: &Value, cid: &Cid) {
    let product = String::from_utf8_lossy(&cid.product);
    check(card, "manfid", i64::from(cid.manfid));
    check(card, "product", product.trim_end_matches('\0'));
    check(card, "serial", i64::from(cid.serial));
    check(card, "year", i64::from(cid.year));
    check(card, "month", i64::from(cid.month));
    let crc = ["ok", "stripped", "wrong"][cid.crc as usize];
    check(card, "crc7", crc);
}

#[test]
fn sd_cards() {
    let cards = dumps("card");
    assert!(cards.len() > 30);
    for card in &cards {
        let cid = sd_cid(&register(card, "cid").unwrap());
        check_cid(card, &cid);
        check(
            card,
            "revision",
            format!("{}.{}", cid.revision >> 4, cid.revision & 15),
        );
        let oemid: String = cid
            .oemid
            .to_be_bytes()
            .iter()
            .map(|&byte| printed(byte))
            .collect();
        check(card, "oemid_text", oemid);
        if let Some(csd) = register(card, "csd") {
            let csd = sd_csd(&csd).unwrap();
            check(card, "csd_version", format!("{}.0", csd.version));
            check(card, "capacity_bytes", csd.bytes as i64);
        }
        if let Some(ssr) = register(card, "ssr") {
            let ssr = sd_ssr(&ssr).unwrap();
            check(card, "ssr_speed_class", i64::from(ssr.speed_class));
            check(card, "ssr_uhs_grade", i64::from(ssr.uhs_grade));
            check(card, "ssr_video_class", i64::from(ssr.video_class));
            check(card, "ssr_app_class", i64::from(ssr.app_class));
            check(card, "ssr_au_code", i64::from(ssr.au_code));
            check(card, "ssr_uhs_au_code", i64::from(ssr.uhs_au_code));
            check(card, "ssr_discard", i64::from(ssr.discard));
        }
    }
}

fn printed(byte: u8) -> String {
    if byte.is_ascii_graphic() {
        char::from(byte).to_string()
    } else {
        format!("\\x{byte:02x}")
    }
}

#[test]
fn emmc() {
    let chips = dumps("emmc");
    assert!(chips.len() > 2);
    for chip in &chips {
        let cid = emmc_cid(&register(chip, "cid").unwrap());
        check_cid(chip, &cid);
        check(chip, "cbx", i64::from(cid.oemid >> 8));
        check(chip, "oid", i64::from(cid.oemid & 0xff));
        check(chip, "prv", i64::from(cid.revision));
        check(chip, "mdt_month", i64::from(cid.month));
        check(chip, "mdt_year_code", i64::from(cid.year));
    }
}

#[test]
fn garbage_is_no_register() {
    for text in [
        "",
        "0",
        "zz",
        "035344534331364780ecf4c851011b8",
        "035344534331364780ecf4c851011b8é",
    ] {
        assert_eq!(Register::<16>::from_hex(text), None, "{text}");
    }
    assert_eq!(sd_csd(&Register::from_hex(&"f".repeat(32)).unwrap()), None);
    assert_eq!(sd_ssr(&Register::from_hex(&"0".repeat(128)).unwrap()), None);
}

#[test]
fn sd_spec_versions() {
    let spec = |hex| sd_spec(&Register::from_hex(hex).unwrap());
    // SanDisk SC16G, Samsung EC2QT, and a card of 2003.
    assert_eq!(spec("0235804300000000"), 5);
    assert_eq!(spec("02c5800300000000"), 3);
    assert_eq!(spec("00a5000008070302"), 1);
}
