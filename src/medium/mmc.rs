//! The bus mode of an SD card or eMMC, which bounds its speed whatever the label says.

use super::Link;
use super::tree::{Tree, name_of};
use std::path::Path;

/// The link from `/sys/kernel/debug/mmcN/ios` (drivers/mmc/core/debugfs.c in the kernel).
/// `None` where debugfs is not mounted or not ours to read: nothing else tells the clock.
pub fn link(tree: &Tree, disk: &Path) -> Option<Link> {
    let host = host(disk)?;
    let ios = tree.bytes(format!("/sys/kernel/debug/{host}/ios")).ok()?;
    parse_ios(&String::from_utf8_lossy(&ios))
}

/// `mmcN` of `…/mmc_host/mmcN/mmcN:rca/…`: its number is not that of `mmcblkN`.
pub fn host(disk: &Path) -> Option<String> {
    let host = disk
        .ancestors()
        .find(|dir| dir.parent().is_some_and(|up| name_of(up) == "mmc_host"))?;
    Some(name_of(host))
}

fn parse_ios(ios: &str) -> Option<Link> {
    let value = |key: &str| {
        let mut lines = ios.lines();
        lines.find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
    };
    let hertz = |key| value(key)?.split(' ').next()?.parse::<f64>().ok();
    // "actual clock" is what the controller's divider gave; older kernels do not print it.
    let clock = hertz("actual clock")
        .filter(|&hz| hz > 0.0)
        .or(hertz("clock"))?;
    let bits: u32 = in_brackets(value("bus width")?)?
        .split(' ')
        .next()?
        .parse()
        .ok()?;
    let timing = in_brackets(value("timing spec")?)?;
    if clock <= 0.0 || bits == 0 {
        return None;
    }
    let edges = if timing.contains("DDR") || timing.contains("HS400") {
        2.0
    } else {
        1.0
    };
    Some(Link {
        description: format!(
            "{}, {} MHz, {bits} bit",
            spelled(timing),
            (clock / 1e5).round() / 10.0
        ),
        // One bit a line and edge. SD Physical Layer Simplified Specification, bus speed modes: 25 MB/s at 50 MHz.
        ceiling_mb_s: clock * f64::from(bits) * edges / 8.0 / 1e6,
        usb_mbit_s: 0.0,
    })
}

fn in_brackets(text: &str) -> Option<&str> {
    Some(text.split_once('(')?.1.rsplit_once(')')?.0)
}

fn spelled(timing: &str) -> String {
    for (kernel, ours) in [("sd uhs ", "SD UHS "), ("sd ", "SD "), ("mmc ", "eMMC ")] {
        if let Some(mode) = timing.strip_prefix(kernel) {
            return format!("{ours}{mode}");
        }
    }
    format!("{timing} timing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_modes() {
        let ios = "clock:\t\t50000000 Hz\nbus width:\t3 (8 bits)\ntiming spec:\t8 (mmc DDR52)\n";
        let link = parse_ios(ios).unwrap();
        assert_eq!(link.description, "eMMC DDR52, 50 MHz, 8 bit");
        assert_eq!(link.ceiling_mb_s, 100.0);
        let ios = "clock:\t208000000 Hz\nactual clock:\t133333333 Hz\nbus width:\t2 (4 bits)\n\
                   timing spec:\t6 (sd uhs SDR104)\n";
        let link = parse_ios(ios).unwrap();
        assert_eq!(link.description, "SD UHS SDR104, 133.3 MHz, 4 bit");
    }

    #[test]
    fn garbage_is_no_link() {
        for ios in [
            "",
            "clock: x",
            "clock: 0 Hz\nbus width: 2 (4 bits)\ntiming spec: 0 (legacy)",
        ] {
            assert!(parse_ios(ios).is_none(), "{ios}");
        }
    }
}
