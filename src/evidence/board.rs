//! The board: what it is, and whether its power and heat let anything be measured.

use super::kernel_log::{Kind, Log};
use super::{RECORDED, Source};
use crate::judge::{Finding, Verdict};
use crate::medium::tree::Tree;

/// The board as it is at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Board {
    pub model: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// KiB; 16 on a Raspberry Pi 5.
    pub page_kib: Option<u32>,
    pub governor: Option<String>,
    /// MHz now, at the start of the run, and at most.
    pub clock_mhz: Option<u32>,
    pub clock_at_start_mhz: Option<u32>,
    pub clock_max_mhz: Option<u32>,
    /// °C of the hottest zone.
    pub celsius: Option<f64>,
    /// Under-voltage within the last seconds, by the sensor of a Raspberry Pi.
    pub under_voltage: Option<bool>,
    /// The firmware's word, see [`throttled_now`].
    pub throttled: Option<u32>,
    /// A cooling device holds the clock down.
    pub cooled: bool,
    /// Under-voltage, or a clock held down, at the start, at the end or in between.
    pub under_voltage_during: bool,
    pub throttled_during: bool,
}

/// Bits of `vcgencmd get_throttled`: 0 under-voltage, 1 to 3 clock held down, 16 to 19 the same
/// since the boot. Which of 17 and 18 is which, texts disagree on; they are not told apart.
const UNDER_VOLTAGE: u32 = 1;
const HELD_DOWN: u32 = 0b1110;

/// Reads it.
pub fn board(source: &Source) -> Board {
    let tree = source.tree;
    let policy = "/sys/devices/system/cpu/cpufreq/policy0";
    let mhz = |name: &str| {
        let khz: Option<u32> = tree.number(format!("{policy}/{name}"));
        khz.map(|khz| khz / 1000)
    };
    Board {
        model: model(tree),
        kernel: tree.text("/proc/sys/kernel/osrelease"),
        page_kib: page_kib(tree),
        governor: tree.text(format!("{policy}/scaling_governor")),
        clock_mhz: mhz("scaling_cur_freq"),
        clock_max_mhz: mhz("cpuinfo_max_freq"),
        celsius: celsius(tree),
        under_voltage: under_voltage(tree),
        throttled: throttled(tree),
        cooled: cooled(tree),
        ..Board::default()
    }
}

/// The device tree's model; a PC has its product name instead.
fn model(tree: &Tree) -> Option<String> {
    tree.text("/proc/device-tree/model")
        .or_else(|| tree.text("/sys/class/dmi/id/product_name"))
        .filter(|model| !model.trim().is_empty())
}

fn page_kib(tree: &Tree) -> Option<u32> {
    let maps = tree.text("/proc/self/smaps")?;
    let (_, rest) = maps.split_once("KernelPageSize:")?;
    rest.split_whitespace().next()?.parse().ok()
}

fn celsius(tree: &Tree) -> Option<f64> {
    let zones = tree.list("/sys/class/thermal");
    zones
        .iter()
        .filter(|name| name.starts_with("thermal_zone"))
        .filter_map(|name| tree.number::<f64>(format!("/sys/class/thermal/{name}/temp")))
        .map(|milli| milli / 1000.0)
        .filter(|celsius| (-40.0..200.0).contains(celsius))
        .reduce(f64::max)
}

/// drivers/hwmon/raspberrypi-hwmon.c. It reads what the driver polled, the firmware is not asked.
/// (The older file soc:firmware/get_throttled puts a warning into the kernel log: never read it.)
fn under_voltage(tree: &Tree) -> Option<bool> {
    let sensors = tree.list("/sys/class/hwmon");
    let sensor = sensors
        .iter()
        .map(|name| format!("/sys/class/hwmon/{name}"))
        .find(|dir| tree.text(format!("{dir}/name")).as_deref() == Some("rpi_volt"))?;
    let alarm: u32 = tree.number(format!("{sensor}/in0_lcrit_alarm"))?;
    Some(alarm != 0)
}

/// `throttled=0x50005`, from the firmware of a Raspberry Pi.
pub fn throttled(tree: &Tree) -> Option<u32> {
    let text = match tree.is_machine() {
        true => crate::sys::videocore("get_throttled").ok()?,
        false => tree.text(format!("{RECORDED}/throttled"))?,
    };
    let digits = text.trim().strip_prefix("throttled=0x")?;
    u32::from_str_radix(digits, 16).ok()
}

/// A thermal governor that holds the CPU's clock down: drivers/thermal/cpufreq_cooling.c.
fn cooled(tree: &Tree) -> bool {
    let devices = tree.list("/sys/class/thermal");
    devices
        .iter()
        .filter(|name| name.starts_with("cooling_device"))
        .map(|name| format!("/sys/class/thermal/{name}"))
        .filter(|dir| {
            let kind = tree.text(format!("{dir}/type")).unwrap_or_default();
            kind.contains("cpufreq")
        })
        .any(|dir| tree.number::<u32>(format!("{dir}/cur_state")).unwrap_or(0) > 0)
}

impl Board {
    fn under_voltage_now(&self) -> bool {
        self.under_voltage == Some(true) || self.throttled.unwrap_or(0) & UNDER_VOLTAGE != 0
    }

    /// Whether the clock is held down now.
    pub fn throttled_now(&self) -> bool {
        self.cooled || self.throttled.unwrap_or(0) & HELD_DOWN != 0
    }

    /// What happened between `start` and now.
    pub fn since(&mut self, start: &Board, log_rose: bool) {
        self.clock_at_start_mhz = start.clock_mhz;
        self.under_voltage_during =
            log_rose || self.under_voltage_now() || start.under_voltage_now();
        self.throttled_during = self.throttled_now() || start.throttled_now();
        // What the firmware remembers of meanwhile: bits 16 to 19 are 0 to 3 since the boot.
        let remembered = |board: &Board| board.throttled.unwrap_or(0) >> 16;
        let new = remembered(self) & !remembered(start);
        self.under_voltage_during |= new & UNDER_VOLTAGE != 0;
        self.throttled_during |= new & HELD_DOWN != 0;
    }

    /// Whether what was measured is the medium's own.
    pub fn figures_stand(&self) -> bool {
        !self.under_voltage_during && !self.throttled_during
    }

    /// Findings; both mean that the figures of a run are not the medium's.
    pub fn judge(&self, log: &Log, findings: &mut Vec<Finding>) {
        let since_boot = self.throttled.is_some_and(|bits| bits >> 16 & 1 != 0);
        let lines = log.count(Kind::UnderVoltage);
        let sentence = if self.under_voltage_during || self.under_voltage_now() {
            Some("the supply voltage was too low while the figures were taken: none of them is the medium's".into())
        } else if since_boot || lines > 0 {
            let word = self
                .throttled
                .map_or(String::new(), |bits| format!(", throttled=0x{bits:x}"));
            Some(format!(
                "the supply voltage was too low at some time since the boot ({lines} lines in the kernel log{word})"
            ))
        } else {
            None
        };
        let warn = |code, sentence: String| Finding::new(code, Verdict::Warn, sentence);
        findings.extend(sentence.map(|sentence| warn("under-voltage", sentence)));
        if self.throttled_during {
            let heat = match self.celsius {
                Some(celsius) => format!(" at {celsius:.0} °C"),
                None => String::new(),
            };
            findings.push(warn(
                "throttled",
                format!("the clock was held down{heat} while the figures were taken: none of them is the medium's"),
            ));
        }
    }

    /// One line: model, kernel, page size.
    pub fn who(&self) -> String {
        let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
        let pages = self
            .page_kib
            .map_or(String::new(), |kib| format!(", {kib} KiB pages"));
        format!(
            "{}, Linux {}{pages}",
            or_unknown(&self.model),
            or_unknown(&self.kernel)
        )
    }

    /// One line: clock (at the start of a run and now), temperature, power.
    pub fn state(&self) -> String {
        let mut parts = Vec::new();
        if let Some(mhz) = self.clock_mhz {
            let mhz = match self.clock_at_start_mhz {
                Some(start) if start != mhz => format!("{start} to {mhz}"),
                _ => mhz.to_string(),
            };
            let governor = self.governor.as_deref().unwrap_or("unknown governor");
            let most = self
                .clock_max_mhz
                .map_or(String::new(), |most| format!(" of {most}"));
            parts.push(format!("{mhz}{most} MHz, {governor}"));
        }
        if let Some(celsius) = self.celsius {
            parts.push(format!("{celsius:.0} °C"));
        }
        parts.push(match (self.under_voltage, self.throttled) {
            _ if self.under_voltage_now() => "under-voltage now".into(),
            (_, Some(0)) => "power good since the boot".into(),
            (_, Some(bits)) => format!("throttled=0x{bits:x}"),
            (Some(false), None) => "power good now".into(),
            _ => "power unknown".into(),
        });
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(board: &Board) -> Vec<String> {
        let mut findings = Vec::new();
        board.judge(&Log::default(), &mut findings);
        findings.into_iter().map(|finding| finding.code).collect()
    }

    /// Words that people reported: raspberrypi/linux#2367 (0x80008), OGN#10 (0x00050005).
    #[test]
    fn the_firmwares_word() {
        let with = |bits: u32| {
            let mut board = Board {
                throttled: Some(bits),
                ..Board::default()
            };
            let start = board.clone();
            board.since(&start, false);
            codes(&board)
        };
        assert_eq!(with(0), [""; 0]);
        assert_eq!(with(0x50005), ["under-voltage", "throttled"]);
        assert_eq!(with(0x80008), ["throttled"]);
        assert_eq!(with(0x50000), ["under-voltage"], "once since the boot");
        assert_eq!(with(0xe0000), [""; 0], "hot once, cool now");
    }

    #[test]
    fn nothing_known_is_nothing_found() {
        assert_eq!(codes(&Board::default()), [""; 0]);
        assert_eq!(Board::default().state(), "power unknown");
        assert_eq!(Board::default().who(), "unknown, Linux unknown");
    }

    #[test]
    fn the_clock_at_both_ends() {
        let start = Board {
            clock_mhz: Some(600),
            ..Board::default()
        };
        let mut end = Board {
            clock_mhz: Some(1500),
            clock_max_mhz: Some(1500),
            governor: Some("ondemand".into()),
            celsius: Some(48.3),
            throttled: Some(0),
            ..Board::default()
        };
        end.since(&start, false);
        let want = "600 to 1500 of 1500 MHz, ondemand, 48 °C, power good since the boot";
        assert_eq!(end.state(), want);
        assert!(end.figures_stand());
    }
}
