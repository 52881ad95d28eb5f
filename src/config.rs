//! `/etc/storage-selftest.toml`: every key with its default, unit and range in one table, from
//! which the commented example and the README's table are made too.

use crate::error::{Error, Result};
use crate::probe::budget::Plan;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub const PATH: &str = "/etc/storage-selftest.toml";

/// A configuration is a page of text; more is not one.
const MAX_BYTES: u64 = 64 << 10;

/// From which figure on a medium is warned of, and failed. See [`SETTINGS`] for units and sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    pub random_read_warn: f64,
    pub random_read_fail: f64,
    pub random_write_warn: f64,
    pub random_write_fail: f64,
    pub durable_write_warn: f64,
    pub durable_write_fail: f64,
    pub stall_ms: f64,
    pub write_over_read: f64,
    pub slower_than_before: f64,
    pub usb2_warn: f64,
    pub superspeed_warn: f64,
}

/// Which probes with which budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    Boot,
    Glance,
    Routine,
    Full,
}

impl Profile {
    pub const ALL: [Profile; 4] = [
        Profile::Boot,
        Profile::Glance,
        Profile::Routine,
        Profile::Full,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Profile::Boot => "boot",
            Profile::Glance => "glance",
            Profile::Routine => "routine",
            Profile::Full => "full",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }
}

/// Seconds and MiB written that a run of a profile may use on each medium.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budgets {
    pub seconds: f64,
    pub written_mib: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Media to test besides the root medium and USB disks.
    pub media: Vec<String>,
    pub limits: Limits,
    /// In the order of [`Profile::ALL`].
    pub budgets: [Budgets; 4],
    pub select: Select,
    pub report: Outlets,
}

/// What an image builder chooses for a medium that is new.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Select {
    /// Disks on USB are tested without being named.
    pub usb_disks: bool,
    /// Profile of a medium's first test.
    pub first_profile: String,
    /// A root medium that is a fake stops the board.
    pub stop_on_fake: bool,
}

/// Where else a verdict goes; empty: nowhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlets {
    pub metrics: String,
    pub text: String,
    pub led: String,
}

/// One number of the configuration.
pub struct Setting {
    pub table: &'static str,
    pub key: &'static str,
    pub unit: &'static str,
    pub default: f64,
    pub range: (f64, f64),
    pub meaning: &'static str,
    field: fn(&mut Config) -> &mut f64,
}

macro_rules! setting {
    ($table:literal, $key:literal, $default:literal $unit:literal, $from:literal - $to:literal, $meaning:literal, $($field:tt)+) => {
        Setting {
            table: $table,
            key: $key,
            unit: $unit,
            default: $default as f64,
            range: ($from as f64, $to as f64),
            meaning: $meaning,
            field: |config| &mut config.$($field)+,
        }
    };
}

/// Sources of the defaults: 1500/500 IOPS and 10 MB/s are SD's class A1 (SD 5.1); 175/100 IOPS
/// and 2.5 MB/s are what armbianmonitor calls "way too low" (700 and 400 KB/s in 4 KiB,
/// 2500 KB/s); 250 ms is the longest that SD 4.10 lets a write be busy; 20 and 40 MB/s are
/// what a disk on USB 2 reaches at the least, and at most (measured 30 to 43).
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    setting!("limits", "random_read_iops_warn", 1500 "IOPS", 0 - 1000000, "random read below this is a warning", limits.random_read_warn),
    setting!("limits", "random_read_iops_fail", 175 "IOPS", 0 - 1000000, "random read below this fails", limits.random_read_fail),
    setting!("limits", "random_write_iops_warn", 500 "IOPS", 0 - 1000000, "random write below this is a warning", limits.random_write_warn),
    setting!("limits", "random_write_iops_fail", 100 "IOPS", 0 - 1000000, "durable random write below this fails", limits.random_write_fail),
    setting!("limits", "durable_write_mb_s_warn", 10 "MB/s", 0 - 100000, "durable write below this is a warning", limits.durable_write_warn),
    setting!("limits", "durable_write_mb_s_fail", 2.5 "MB/s", 0 - 100000, "durable write below this fails", limits.durable_write_fail),
    setting!("limits", "stall_ms", 250 "ms", 10 - 60000, "an operation this long is a stall; 1 s or more, twice, fails", limits.stall_ms),
    setting!("limits", "write_over_read", 1.5 "times", 1 - 100, "writing faster than reading by this factor is a warning", limits.write_over_read),
    setting!("limits", "slower_than_before", 0.5 "of the baseline", 0 - 1, "a median of three runs below this share is a warning", limits.slower_than_before),
    setting!("limits", "usb2_mb_s_warn", 20 "MB/s", 0 - 100000, "sequential read of an attached disk on USB 2 below this is a warning", limits.usb2_warn),
    setting!("limits", "superspeed_mb_s_warn", 40 "MB/s", 0 - 100000, "the same on USB 3", limits.superspeed_warn),
    setting!("profile.boot", "seconds", 30 "s", 2 - 600, "time for each medium", budgets[0].seconds),
    setting!("profile.boot", "written_mib", 24 "MiB", 0 - 1024, "bytes written to each medium", budgets[0].written_mib),
    setting!("profile.glance", "seconds", 2 "s", 1 - 60, "time for each medium; 64 KiB are written at most", budgets[1].seconds),
    setting!("profile.routine", "seconds", 20 "s", 2 - 600, "time for each medium", budgets[2].seconds),
    setting!("profile.routine", "written_mib", 12 "MiB", 0 - 1024, "bytes written to each medium", budgets[2].written_mib),
    setting!("profile.full", "seconds", 300 "s", 2 - 3600, "time for each medium, besides the fill", budgets[3].seconds),
    setting!("profile.full", "written_mib", 384 "MiB", 0 - 4096, "bytes written to each medium, besides the fill", budgets[3].written_mib),
];

/// A word or a switch of the configuration.
pub struct Choice {
    pub table: &'static str,
    pub key: &'static str,
    pub default: &'static str,
    pub wants: &'static str,
    pub meaning: &'static str,
    right: fn(&str) -> bool,
    field: Field,
}

enum Field {
    Word(fn(&mut Config) -> &mut String),
    Switch(fn(&mut Config) -> &mut bool),
}

fn absolute(text: &str) -> bool {
    text.is_empty() || (text.starts_with('/') && !text.ends_with('/'))
}

fn name(text: &str) -> bool {
    !text.contains('/') && text != ".." && text != "."
}

fn switch(text: &str) -> bool {
    matches!(text, "true" | "false")
}

const PATH_WANTED: &str = "an absolute path, or empty for none";

#[rustfmt::skip]
pub const CHOICES: &[Choice] = &[
    Choice { table: "select", key: "usb_disks", default: "true", wants: "true or false", meaning: "disks on USB are tested without being named", right: switch, field: Field::Switch(|c| &mut c.select.usb_disks) },
    Choice { table: "select", key: "first_profile", default: "boot", wants: "boot, routine or full", meaning: "profile of a medium's first test", right: |t| matches!(t, "boot" | "routine" | "full"), field: Field::Word(|c| &mut c.select.first_profile) },
    Choice { table: "select", key: "stop_on_fake", default: "false", wants: "true or false", meaning: "a root medium that loses data or has not its size stops the board, with a message on the console", right: switch, field: Field::Switch(|c| &mut c.select.stop_on_fake) },
    Choice { table: "report", key: "metrics", default: "", wants: PATH_WANTED, meaning: "file for the textfile collector of Prometheus' node_exporter", right: absolute, field: Field::Word(|c| &mut c.report.metrics) },
    Choice { table: "report", key: "text", default: "", wants: PATH_WANTED, meaning: "file for the report as text, on the boot partition say", right: absolute, field: Field::Word(|c| &mut c.report.text) },
    Choice { table: "report", key: "led", default: "", wants: "a name in /sys/class/leds, or empty for none", meaning: "LED that blinks while a verdict is fail", right: name, field: Field::Word(|c| &mut c.report.led) },
];

impl Default for Config {
    fn default() -> Self {
        let limits = Limits {
            random_read_warn: 0.0,
            random_read_fail: 0.0,
            random_write_warn: 0.0,
            random_write_fail: 0.0,
            durable_write_warn: 0.0,
            durable_write_fail: 0.0,
            stall_ms: 0.0,
            write_over_read: 0.0,
            slower_than_before: 0.0,
            usb2_warn: 0.0,
            superspeed_warn: 0.0,
        };
        let mut config = Self {
            media: Vec::new(),
            limits,
            budgets: [Budgets {
                seconds: 0.0,
                written_mib: 0.0,
            }; 4],
            select: Select::default(),
            report: Outlets::default(),
        };
        for setting in SETTINGS {
            *(setting.field)(&mut config) = setting.default;
        }
        for choice in CHOICES {
            choice.put(&mut config, choice.default);
        }
        config
    }
}

impl Config {
    /// Reads the file at `path`; the defaults where there is none at the usual place.
    /// # Errors
    /// With file, line, key and range for whatever is wrong in it.
    pub fn read(path: &Path) -> Result<Self> {
        crate::error::refuse_special(path)?;
        // One that somebody named has to be there.
        let usual = path.ends_with(PATH.trim_start_matches('/'));
        match fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && usual => Ok(Self::default()),
            Err(error) => Err(Error::new("open", path, error)),
            Ok(file) => {
                let mut text = String::new();
                file.take(MAX_BYTES + 1)
                    .read_to_string(&mut text)
                    .map_err(|e| Error::new("read", path, e))?;
                if text.len() as u64 > MAX_BYTES {
                    return Err(Error::said("read", path, "larger than 64 KiB"));
                }
                Self::parse(&text).map_err(|(line, what)| {
                    Error::said("configuration", format!("{}:{line}", path.display()), what)
                })
            }
        }
    }

    /// A configuration from its text, or the line that is wrong and why.
    pub fn parse(text: &str) -> std::result::Result<Self, (usize, String)> {
        let line_at = |at: usize| 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count();
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            (line_at(at), error.message().to_string())
        })?;
        let mut config = Self::default();
        config
            .fill("", table.get_ref())
            .map_err(|(at, what)| (line_at(at), what))?;
        config.in_order().map_err(|what| (1, what))?;
        Ok(config)
    }

    fn fill(&mut self, prefix: &str, table: &DeTable) -> std::result::Result<(), (usize, String)> {
        for (key, value) in table.iter() {
            let name = key.get_ref().as_ref();
            let wrong = |what: String| (key.span().start, what);
            if let DeValue::Table(inner) = value.get_ref() {
                let path = if prefix.is_empty() {
                    name.to_string()
                } else {
                    format!("{prefix}.{name}")
                };
                let known =
                    |s: &Setting| s.table == path || s.table.starts_with(&format!("{path}."));
                if !SETTINGS.iter().any(known) && !CHOICES.iter().any(|c| c.table == path) {
                    return Err(wrong(format!("{path}: no such table")));
                }
                self.fill(&path, inner)?;
            } else if prefix.is_empty() && name == "media" {
                self.media = strings(value)
                    .ok_or_else(|| wrong("media: wants an array of at most 32 strings".into()))?;
            } else if let Some(choice) = choice(prefix, name) {
                choice.take(self, value).map_err(wrong)?;
            } else {
                let setting = SETTINGS.iter().find(|s| s.table == prefix && s.key == name);
                let setting = setting.ok_or_else(|| wrong(unknown(prefix, name)))?;
                *(setting.field)(self) = number(setting, value).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// A limit that fails above the one that warns is a slip.
    fn in_order(&self) -> std::result::Result<(), String> {
        let limits = &self.limits;
        for (name, warn, fail) in [
            (
                "random_read_iops",
                limits.random_read_warn,
                limits.random_read_fail,
            ),
            (
                "random_write_iops",
                limits.random_write_warn,
                limits.random_write_fail,
            ),
            (
                "durable_write_mb_s",
                limits.durable_write_warn,
                limits.durable_write_fail,
            ),
        ] {
            if fail > warn {
                return Err(format!(
                    "limits.{name}_fail: {fail} is above {name}_warn, which is {warn}"
                ));
            }
        }
        Ok(())
    }

    /// What a run of `profile` does, within the budgets of this configuration.
    pub fn plan(&self, profile: Profile) -> Plan {
        let budgets = self.budgets[profile as usize];
        let (place, random, file_mib, write, operations, random_write) = match profile {
            Profile::Boot => (1.0, 2.0, 16.0, 4.0, 256, 2.0),
            Profile::Glance => (0.2, 0.3, 0.0, 0.0, 0, 0.0),
            Profile::Routine => (0.5, 1.0, 8.0, 4.0, 256, 1.0),
            Profile::Full => (5.0, 10.0, 256.0, 120.0, 16384, 10.0),
        };
        // A MiB of the budget is left to the file system's own writes, and a fifth to the
        // random write where the budget is too small for the whole.
        let usable = (budgets.written_mib - 1.0).max(0.0);
        let file = f64::min(file_mib, (usable * 0.8).floor());
        Plan {
            // Time to end the operations under way and to report before the deadline: a slow card
            // may take half a second for 1 MiB.
            seconds: (budgets.seconds * 0.95)
                .min(budgets.seconds - 0.5)
                .max(budgets.seconds / 2.0),
            // A glance stamps a little of the canary anew.
            written: match profile {
                Profile::Glance => 64 << 10,
                _ => (usable * f64::from(1 << 20)) as u64,
            },
            place_seconds: place,
            random_seconds: random,
            file: if file < 4.0 { 0 } else { (file as u64) << 20 },
            write_seconds: write,
            random_writes: operations,
            random_write_seconds: random_write,
            stamps: match profile {
                Profile::Boot | Profile::Full => 1024,
                Profile::Glance | Profile::Routine => 0,
            },
            capacity_seconds: if profile == Profile::Full { 60.0 } else { 8.0 },
            fill: 0,
        }
    }

    /// The longest that a run of `profile` may take for one medium, seconds.
    pub fn deadline(&self, profile: Profile) -> f64 {
        self.budgets[profile as usize].seconds
    }
}

impl Choice {
    fn put(&self, config: &mut Config, text: &str) {
        match self.field {
            Field::Word(field) => *field(config) = text.into(),
            Field::Switch(field) => *field(config) = text == "true",
        }
    }

    fn take(
        &self,
        config: &mut Config,
        value: &Spanned<DeValue>,
    ) -> std::result::Result<(), String> {
        let text = match (value.get_ref(), &self.field) {
            (DeValue::String(text), Field::Word(_)) => Some(text.to_string()),
            (DeValue::Boolean(on), Field::Switch(_)) => Some(on.to_string()),
            _ => None,
        };
        let plain = |text: &String| (self.right)(text) && !text.contains(char::is_control);
        let text = text.filter(plain);
        let text =
            text.ok_or_else(|| format!("{}.{}: wants {}", self.table, self.key, self.wants))?;
        self.put(config, &text);
        Ok(())
    }

    /// The default as TOML writes it.
    pub fn default_toml(&self) -> String {
        match self.field {
            Field::Word(_) => format!("\"{}\"", self.default),
            Field::Switch(_) => self.default.into(),
        }
    }
}

fn choice(table: &str, key: &str) -> Option<&'static Choice> {
    CHOICES.iter().find(|c| c.table == table && c.key == key)
}

fn unknown(prefix: &str, name: &str) -> String {
    let settings = SETTINGS.iter().map(|s| (s.table, s.key));
    let choices = CHOICES.iter().map(|c| (c.table, c.key));
    let keys: Vec<&str> = settings
        .chain(choices)
        .filter(|(table, _)| *table == prefix)
        .map(|(_, key)| key)
        .collect();
    let name = crate::error::printable(name);
    match (prefix.is_empty(), keys.is_empty()) {
        (true, _) => format!(
            "{name}: no such key; known are media, [limits], [profile.NAME], [select], [report]"
        ),
        (false, true) => format!("{prefix}.{name}: no such key"),
        (false, false) => format!(
            "{prefix}.{name}: no such key; known are {}",
            keys.join(", ")
        ),
    }
}

fn strings(value: &Spanned<DeValue>) -> Option<Vec<String>> {
    let DeValue::Array(items) = value.get_ref() else {
        return None;
    };
    if items.len() > 32 {
        return None;
    }
    items
        .iter()
        .map(|item| match item.get_ref() {
            DeValue::String(text) if !text.is_empty() => Some(text.to_string()),
            _ => None,
        })
        .collect()
}

fn number(setting: &Setting, value: &Spanned<DeValue>) -> std::result::Result<f64, String> {
    let (from, to) = setting.range;
    let wants = format!("wants a number of {} from {from} to {to}", setting.unit);
    let name = format!("{}.{}", setting.table, setting.key);
    let found = match value.get_ref() {
        DeValue::Integer(n) if n.radix() == 10 => n.as_str().replace('_', "").parse::<f64>().ok(),
        DeValue::Float(n) => n.as_str().replace('_', "").parse::<f64>().ok(),
        _ => {
            return Err(format!(
                "{name}: {wants}, without the unit and without quotes"
            ));
        }
    };
    match found {
        Some(n) if n >= from && n <= to => Ok(n),
        Some(n) => Err(format!("{name}: {n} is out of range; it {wants}")),
        None => Err(format!("{name}: {wants}")),
    }
}

/// The commented example that goes to `/etc`: every key with its default.
pub fn example() -> String {
    let mut text = String::from(
        "# storage-selftest: every key with its default. A key that is left out has that value.\n\n\
         # Media to test besides the root medium and the USB disks: a device, a link\n\
         # below /dev/disk/by-id, a path or a mount point.\n\
         #media = [\"/dev/disk/by-id/usb-Example_Disk_0001\"]\n",
    );
    let mut table = "";
    for setting in SETTINGS {
        if setting.table != table {
            table = setting.table;
            text += &format!("\n#[{table}]\n");
        }
        let (from, to) = setting.range;
        text += &format!("# {} ({}, {from} to {to})\n", setting.meaning, setting.unit);
        text += &format!("#{} = {}\n", setting.key, setting.default);
    }
    for choice in CHOICES {
        if choice.table != table {
            table = choice.table;
            text += &format!("\n#[{table}]\n");
        }
        text += &format!("# {} ({})\n", choice.meaning, choice.wants);
        text += &format!("#{} = {}\n", choice.key, choice.default_toml());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_ends_before_the_deadline_by_what_an_operation_may_take() {
        let seconds = |profile| Config::default().plan(profile).seconds;
        assert_eq!(
            [seconds(Profile::Glance), seconds(Profile::Boot)],
            [1.5, 28.5]
        );
    }

    #[test]
    fn the_defaults_are_the_published_limits() {
        let config = Config::parse("").unwrap();
        // SD 5.1 class A1, and the whole boot run of design.md.
        assert_eq!(
            (
                config.limits.random_read_warn,
                config.limits.random_write_warn
            ),
            (1500.0, 500.0)
        );
        assert_eq!(config.limits.durable_write_warn, 10.0);
        let plan = config.plan(Profile::Boot);
        assert_eq!((plan.file, plan.random_writes), (16 << 20, 256));
        assert!(plan.written < 24 << 20 && plan.seconds < 30.0);
        assert_eq!(config.plan(Profile::Glance).written, 64 << 10);
    }

    #[test]
    fn each_slip_is_named_with_its_line_key_and_range() {
        for (text, line, part) in [
            (
                "\n[limits]\nrandom_reed = 3\n",
                3,
                "limits.random_reed: no such key; known are random_read_iops_warn",
            ),
            (
                "[limits]\nstall_ms = \"250 ms\"",
                2,
                "limits.stall_ms: wants a number of ms from 10 to 60000",
            ),
            (
                "[limits]\n\nstall_ms = 9",
                3,
                "limits.stall_ms: 9 is out of range",
            ),
            ("[profile.boot]\nseconds = nan", 2, "profile.boot.seconds"),
            (
                "[profile.fast]\nseconds = 3",
                1,
                "profile.fast: no such table",
            ),
            ("speed = 3", 1, "speed: no such key"),
            ("media = \"sda\"", 1, "media: wants an array"),
            ("media = [\"a\"\nb", 2, ""),
            (
                "[limits]\nrandom_read_iops_fail = 2000",
                1,
                "above random_read_iops_warn",
            ),
            ("[limits]\nstall_ms = 0x20", 2, "wants a number"),
            (
                "[report]\nmetrics = \"m.prom\"",
                2,
                "report.metrics: wants an absolute path",
            ),
            ("[report]\nled = \"../sda\"", 2, "report.led: wants a name"),
            (
                "[report]\nlamp = \"ACT\"",
                2,
                "known are metrics, text, led",
            ),
            (
                "[select]\nusb_disks = \"yes\"",
                2,
                "select.usb_disks: wants true or false",
            ),
            (
                "[select]\nfirst_profile = \"glance\"",
                2,
                "wants boot, routine or full",
            ),
        ] {
            let (at, what) = Config::parse(text).expect_err(text);
            assert_eq!(at, line, "{text}: {what}");
            assert!(what.contains(part), "{text}: {what}");
        }
    }

    #[test]
    fn the_shipped_example_is_the_table_and_its_keys_are_taken() {
        let shipped = include_str!("../image/storage-selftest.toml");
        assert_eq!(
            shipped,
            example(),
            "image/storage-selftest.toml is not what the table gives"
        );
        let uncommented: String = example()
            .lines()
            .map(|line| {
                line.strip_prefix('#')
                    .filter(|rest| !rest.starts_with(' '))
                    .unwrap_or(line)
            })
            .collect::<Vec<_>>()
            .join("\n");
        let mut config = Config::parse(&uncommented).unwrap();
        config.media.clear();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn the_readme_has_a_row_for_each_choice() {
        let readme = include_str!("../README.md");
        for choice in CHOICES {
            let row = format!(
                "| `{}` | `{}` | `{}` | {} | {} |",
                choice.table,
                choice.key,
                choice.default_toml(),
                choice.wants,
                choice.meaning
            );
            assert!(readme.contains(&row), "{row}");
        }
    }

    /// The manual's page, from the tables: storage-selftest.toml(5).
    fn manual() -> String {
        let mut text = String::from(concat!(
            ".TH STORAGE-SELFTEST.TOML 5 \"\" storage-selftest \"File Formats\"\n.SH NAME\n",
            "storage-selftest.toml \\- configuration of storage-selftest\n.SH SYNOPSIS\n",
            ".I /etc/storage\\-selftest.toml\n.SH DESCRIPTION\n",
            "A TOML file, optional, as is every key in it. What is wrong in it ends a run with\n",
            "status 78, with file, line, key and range, before anything is touched.\n",
            ".TP\n.B media\n",
            "Media to test besides the root medium and the USB disks, at most 32: devices, links\n",
            "below\n.IR /dev/disk/by\\-id ,\npaths or mount points.\n",
        ));
        let settings = SETTINGS.iter().map(|s| {
            let (from, to) = s.range;
            (
                s.table,
                s.key,
                s.meaning,
                format!("{} from {from} to {to}; default {}", s.unit, s.default),
            )
        });
        let choices = CHOICES.iter().map(|c| {
            (
                c.table,
                c.key,
                c.meaning,
                format!("{}; default {}", c.wants, c.default_toml()),
            )
        });
        let mut last = "";
        for (table, key, meaning, values) in settings.chain(choices) {
            if table != last {
                last = table;
                text += &format!(".SH [{table}]\n");
            }
            text += &format!(".TP\n.B {key}\n{meaning} ({values})\n");
        }
        text + ".SH SEE ALSO\n.BR storage\\-selftest (8)\n"
    }

    #[test]
    fn the_manual_has_every_key() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/image/man/storage-selftest.toml.5"
        );
        if std::env::var_os("BLESS").is_some() {
            fs::write(path, manual()).unwrap();
        }
        let written = fs::read_to_string(path).unwrap();
        assert!(
            written == manual(),
            "out of date: BLESS=1 cargo test manual"
        );
    }

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let path =
            std::env::temp_dir().join(format!("storage-selftest-fifo-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = Config::read(&path);
        fs::remove_file(&path).unwrap();
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("not a regular file")
        );
    }

    #[test]
    fn a_small_budget_shrinks_the_file_and_none_means_no_writes() {
        let config = Config::parse("[profile.boot]\nwritten_mib = 11\n").unwrap();
        assert_eq!(config.plan(Profile::Boot).file, 8 << 20);
        let config = Config::parse("[profile.boot]\nwritten_mib = 0\n").unwrap();
        assert_eq!(config.plan(Profile::Boot).file, 0);
    }
}
