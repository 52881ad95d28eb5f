//! What an SD card or eMMC says of itself: its class, its wear, and whether that can be true.

use super::Source;
use crate::judge::{Finding, Verdict};
use crate::medium::mmc;
use crate::medium::registers::{self, Cid, Registers, Ssr};
use crate::probe::{Measurement, Probe};
use std::collections::BTreeMap;

/// Registers and wear of a card or eMMC.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    pub registers: Registers,
    /// Capacity of the disk, bytes.
    pub bytes: u64,
    /// eMMC only.
    pub wear: Option<Wear>,
    /// What the host counted, by kind, since the boot; empty where it does not.
    pub host_errors: BTreeMap<String, u64>,
    /// What these rose by during the run.
    pub during: BTreeMap<String, u64>,
}

/// JEDEC eMMC 5.0, EXT_CSD 268, 269 and 267, as the kernel shows them; each 0 where unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// Used life of type A (SLC) and B (MLC) cells, in tenths from 1 to 10; 11 is exceeded.
    pub a: u8,
    pub b: u8,
    /// 1 normal, 2 warning: 80 % of the reserved blocks are used, 3 urgent: 90 %.
    pub pre_eol: u8,
}

/// What manufacturer ids stand for, as far as several sources agree. There is no public register,
/// and the brand on a label is another thing: drivers/mmc/core/card.h, CTCaer/hekate,
/// linux-automation/usbsdmux.
const MAKERS: &[(u8, &str)] = &[
    (0x01, "Panasonic"),
    (0x02, "Toshiba/Kioxia"),
    (0x03, "SanDisk"),
    (0x09, "ATP"),
    (0x1b, "Samsung"),
    (0x1d, "ADATA"),
    (0x27, "Phison"),
    (0x31, "Silicon Power"),
    (0x41, "Kingston"),
    (0x5d, "Swissbit"),
    (0x74, "Transcend"),
    (0x76, "Patriot"),
    (0x9f, "Kingston"),
    (0xad, "Longsys/Lexar"),
];

/// The same for eMMC, drivers/mmc/core/card.h.
const EMMC_MAKERS: &[(u8, &str)] = &[
    (0x11, "Toshiba/Kioxia"),
    (0x13, "Micron"),
    (0x15, "Samsung"),
    (0x45, "SanDisk"),
    (0x70, "Kingston"),
    (0x90, "SK Hynix"),
    (0xfe, "Micron"),
];

/// `None` for what is no card. Nothing is sent to it: sysfs has what was read at its start.
pub fn card(source: &Source) -> Option<Card> {
    let registers = registers::read(source.tree, &source.medium.device)?;
    let text = |name: &str| source.tree.text(source.disk.join("device").join(name));
    let wear = text("life_time").and_then(|life| wear(&life, &text("pre_eol_info")?));
    Some(Card {
        bytes: source.medium.bytes,
        wear: wear.filter(|_| registers.emmc),
        host_errors: host_errors(source),
        during: BTreeMap::new(),
        registers,
    })
}

/// `# Data CRC Errors Occurred:\t 3` a line, drivers/mmc/core/debugfs.c, since 6.0. Requests that
/// failed are tried again, and succeed, without a word in the kernel's log: only this tells of them.
fn host_errors(source: &Source) -> BTreeMap<String, u64> {
    let stats = || {
        let host = mmc::host(&source.disk)?;
        let path = format!("/sys/kernel/debug/{host}/err_stats");
        Some(String::from_utf8_lossy(&source.tree.bytes(path).ok()?).into_owned())
    };
    let counter = |line: &str| {
        let (name, count) = line.strip_prefix('#')?.rsplit_once(':')?;
        let name = name.trim().trim_end_matches(" Occurred");
        Some((crate::error::printable(name), count.trim().parse().ok()?))
    };
    stats()
        .unwrap_or_default()
        .lines()
        .filter_map(counter)
        .collect()
}

/// `0x01 0x02` and `0x01`; older kernels print the second without `0x`. Chips before eMMC 5.0
/// have no such thing, and show zeros.
fn wear(life: &str, pre_eol: &str) -> Option<Wear> {
    let hex = |text: &str| u8::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    let (a, b) = life.trim().split_once(' ')?;
    Some(Wear {
        a: hex(a)?,
        b: hex(b)?,
        pre_eol: hex(pre_eol)?,
    })
}

/// `10 to 20 %`, the range that a life time code stands for.
fn used(code: u8) -> String {
    match code {
        1..=10 => format!("{} to {} %", (code - 1) * 10, code * 10),
        11 => "more than 100 %".into(),
        _ => "unknown".into(),
    }
}

impl Wear {
    /// One line.
    pub fn words(self) -> String {
        let reserve = match self.pre_eol {
            1 => "normal",
            2 => "80 % used",
            3 => "90 % used",
            _ => "unknown",
        };
        format!(
            "life used {} (A), {} (B), reserve {reserve}",
            used(self.a),
            used(self.b)
        )
    }

    /// Shares of its life that are left at least and at most; `None` where it does not say.
    pub fn left(self) -> Option<(f64, f64)> {
        let code = self.a.max(self.b);
        let tenths = |used: u8| f64::from(10_u8.saturating_sub(used)) / 10.0;
        (1..=11)
            .contains(&code)
            .then(|| (tenths(code), tenths(code - 1)))
    }

    fn finding(self) -> Option<Finding> {
        let exhausted = [self.a, self.b].iter().any(|code| (10..=11).contains(code));
        let severity = match self.pre_eol {
            3 => Verdict::Fail,
            2 => Verdict::Warn,
            _ if exhausted => Verdict::Warn,
            _ => return None,
        };
        Some(Finding::new(
            "worn",
            severity,
            format!("eMMC: {}", self.words()),
        ))
    }
}

/// What a class promises: sequential writes in MB/s, and IOPS of A1. (A2 promises more, to hosts
/// with command queueing and cache; without both such cards are often slower than A1 cards.)
/// SD Physical Layer Simplified Specification, 4.13 and 4.16.
const A1_READ: f64 = 1500.0;
const A1_WRITE: f64 = 500.0;
/// A promise holds under conditions that a live system does not give: only half of it is asked for.
const PROMISE: f64 = 0.5;

fn promised_mb_s(ssr: &Ssr) -> u8 {
    let uhs = match ssr.uhs_grade {
        1 => 10,
        3 => 30,
        _ => 0,
    };
    ssr.speed_class.max(uhs).max(ssr.video_class)
}

/// `C10 U1 V30 A1`.
fn classes(ssr: &Ssr) -> String {
    let of = |letter: &str, value: u8| match value {
        0 => String::new(),
        value => format!(" {letter}{value}"),
    };
    let text = of("C", ssr.speed_class)
        + &of("U", ssr.uhs_grade)
        + &of("V", ssr.video_class)
        + &of("A", ssr.app_class);
    match text.trim() {
        "" => "no class".into(),
        classes => classes.into(),
    }
}

impl Card {
    /// One line: who made it, what it is called, since when, and its class.
    pub fn words(&self) -> String {
        let Some(cid) = &self.registers.cid else {
            return "unknown".into();
        };
        let makers = if self.registers.emmc {
            EMMC_MAKERS
        } else {
            MAKERS
        };
        let maker = makers
            .iter()
            .find(|(id, _)| *id == cid.manfid)
            .map_or("unknown maker", |(_, name)| name);
        let mut text = format!("{maker} (id 0x{:02x}), {}", cid.manfid, product(cid));
        if !self.registers.emmc {
            let (hardware, firmware) = (cid.revision >> 4, cid.revision & 15);
            text += &format!(" {hardware}.{firmware}, made {}/{}", cid.month, cid.year);
            text += &match &self.registers.ssr {
                Some(ssr) => format!(", {}", classes(ssr)),
                None => ", class unknown".into(),
            };
        }
        text
    }

    /// Reads the host's counters again, after a run.
    pub fn count_errors(&mut self, source: &Source) {
        let now = host_errors(source);
        let risen = now.into_iter().filter_map(|(name, count)| {
            let rise = count.saturating_sub(*self.host_errors.get(&name)?);
            (rise > 0).then_some((name, rise))
        });
        self.during = risen.collect();
    }

    /// Findings of registers, wear and class.
    pub fn judge(
        &self,
        ceiling_mb_s: Option<f64>,
        measured: &[Measurement],
        findings: &mut Vec<Finding>,
    ) {
        findings.extend(self.wear.and_then(Wear::finding));
        if !self.during.is_empty() {
            let parts = self
                .during
                .iter()
                .map(|(name, rise)| format!("{rise} {name}"));
            let parts = parts.collect::<Vec<_>>().join(", ");
            let sentence = format!("its host counted while it was tested: {parts}");
            findings.push(Finding::new("card-errors", Verdict::Warn, sentence));
        }
        let warn = |code, sentence: String| Finding::new(code, Verdict::Warn, sentence);
        if self.registers.csd.is_some_and(|csd| csd.write_protected) {
            let sentence = "the card says in its CSD that it is write-protected".into();
            findings.push(warn("write-protected", sentence));
        }
        let cid = self.registers.cid.as_ref().filter(|_| !self.registers.emmc);
        if let Some((_, reason)) = cid.and_then(|cid| suspicion(cid, self.bytes)) {
            let sentence =
                format!("{reason}; that proves nothing, only data that is read back does");
            findings.push(warn("identity-suspicious", sentence));
        }
        if let Some(ssr) = &self.registers.ssr {
            findings.extend(below_class(ssr, ceiling_mb_s, measured));
        }
    }
}

fn product(cid: &Cid) -> String {
    let text = String::from_utf8_lossy(&cid.product);
    crate::error::printable(text.trim_matches([' ', '\0']))
}

fn below_class(ssr: &Ssr, ceiling_mb_s: Option<f64>, measured: &[Measurement]) -> Option<Finding> {
    let figure = |probe: Probe| {
        let own = measured.iter().find(|m| m.probe == probe && m.direct)?;
        Some(own.figure())
    };
    let mut parts = Vec::new();
    let mut check = |figure: Option<f64>, promised: f64, what: &str| {
        if let Some(figure) = figure.filter(|figure| *figure < PROMISE * promised) {
            parts.push(format!(
                "{} of {promised} {what}",
                crate::judge::short(figure)
            ));
        }
    };
    let promised = f64::from(promised_mb_s(ssr));
    // A slow bus keeps no promise of a fast card, and is not the card's fault.
    // Where it is not known, it carries at least what class 10 promises.
    if promised < ceiling_mb_s.map_or(12.0, |ceiling| 0.8 * ceiling) {
        check(figure(Probe::DurableWrite), promised, "MB/s written");
    }
    if ssr.app_class > 0 {
        let written = figure(Probe::RandomWrite).or(figure(Probe::RandomWriteDurable));
        check(figure(Probe::RandomRead), A1_READ, "reads a second");
        check(written, A1_WRITE, "writes a second");
    }
    (!parts.is_empty()).then(|| {
        let sentence = format!(
            "{} by its registers, but {}",
            classes(ssr),
            parts.join(", ")
        );
        Finding::new("below-class", Verdict::Warn, sentence)
    })
}

/// Serial numbers below this stand in the list of suspects of ThomasKaiser/sbc-bench; alone they
/// say nothing (good Phison cards are among them).
const LOW_SERIAL: u32 = 0x1_0000;
const SDHC_SINCE: u16 = 2006;

/// A sign that the registers were made up: the rule and its reason. A good card may show one, so
/// that it is a warning at most. Known good and not touched: `00000` of Samsung and Kingston,
/// Phison's low serial numbers, blank names, names like `USD` or `N/A`.
pub fn suspicion(cid: &Cid, bytes: u64) -> Option<(&'static str, String)> {
    let name = product(cid);
    let (manfid, oemid) = (cid.manfid, cid.oemid);
    let low = cid.serial < LOW_SERIAL;
    let gb = bytes as f64 / 1e9;
    if manfid == 0 {
        return Some(("no-maker", "manufacturer id 0x00".into()));
    }
    if oemid == 0x3456 || (manfid, oemid) == (0x12, 0x5678) {
        return Some((
            "placeholder",
            format!("maker and OEM ids {manfid:02x} {oemid:04x} are a counting pattern"),
        ));
    }
    if cid.serial == 0 {
        return Some(("no-serial", "serial number 0".into()));
    }
    // Seen under the ids of eight makers, so that it is none's.
    if name == "ASTC" {
        return Some((
            "nobodys-name",
            "a product name, ASTC, that stands on no maker's card alone".into(),
        ));
    }
    if imitates(manfid, oemid, &name) {
        return Some((
            "wrong-name",
            format!("the ids of a known maker with a product name it does not use, {name}"),
        ));
    }
    if let Some(named) = size_in_name(&name).filter(|named| !(0.8..1.15).contains(&(gb / named))) {
        return Some((
            "wrong-size",
            format!("its name {name} means {named:.0} GB, it claims {gb:.1} GB"),
        ));
    }
    // Kingston's OEM id; 0x45 is SanDisk's for eMMC.
    if low && ((oemid == 0x3432 && manfid != 0x41) || manfid == 0x45) {
        return Some((
            "foreign-id",
            format!(
                "ids of two makers, {manfid:02x} and {oemid:04x}, and the serial number {}",
                cid.serial
            ),
        ));
    }
    let text = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'`';
    if cid.serial < 0x1000 && !oemid.to_be_bytes().into_iter().all(text) {
        return Some((
            "no-oem",
            format!(
                "OEM id 0x{oemid:04x} is no text, and the serial number {}",
                cid.serial
            ),
        ));
    }
    let sdhc = bytes > 4 << 30;
    if !(1..=12).contains(&cid.month) || (sdhc && cid.year < SDHC_SINCE) {
        return Some((
            "impossible-date",
            format!("made {}/{}", cid.month, cid.year),
        ));
    }
    None
}

/// SanDisk's names have five characters (`SC16G`, `SD128`; `WD32G` and `ACLCD` under the same id
/// since Western Digital owns it), those of Kingston's old ids are `SD` and digits: Aaru's,
/// hekate's and goughlui.com's collections of genuine cards. Shorter ones were seen on fakes.
fn imitates(manfid: u8, oemid: u16, name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count() >= 2;
    match (manfid, oemid) {
        (0x03, 0x5344) => name.len() < 5,
        (0x41, 0x3432) => !name.starts_with("SD") || !digits,
        _ => false,
    }
}

/// GB that a name means: `SC16G`, `SD128`. In names of three digits that may be MB of an old card.
fn size_in_name(name: &str) -> Option<f64> {
    let number = name.get(2..)?;
    let letters = name.bytes().take(2).all(|c| c.is_ascii_uppercase());
    match (letters, number.strip_suffix('G'), number.len()) {
        (true, Some(gb), 3) => gb.parse().ok(),
        (true, None, 3) if !number.starts_with('0') => number.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
#[path = "card_test.rs"]
mod tests;
