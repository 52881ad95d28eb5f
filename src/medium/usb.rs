//! The USB device that a disk hangs on, and what its link can carry.

use super::Link;
use super::tree::{Tree, name_of};
use std::path::{Path, PathBuf};

/// The USB device above a disk.
#[derive(Debug)]
pub struct UsbDevice {
    /// Its directory below `/sys/devices`; the last part is the port path, `1-1.2`.
    pub dir: PathBuf,
    /// `uas` or `usb-storage`; empty where no driver is bound.
    pub driver: String,
    /// Signalling rate, Mbit/s; 0 where the kernel does not know it.
    pub mbit_s: f64,
}

/// Climbs from the disk's own directory to the first one with `idVendor`.
/// Documentation/ABI/testing/sysfs-bus-usb in the kernel.
pub fn above(tree: &Tree, disk: &Path) -> Option<UsbDevice> {
    let mut below = disk;
    for dir in disk.ancestors().skip(1) {
        if tree.exists(dir.join("idVendor")) {
            let driver = tree.real(below.join("driver")).ok();
            let bound = tree.exists(below.join("driver"));
            return Some(UsbDevice {
                dir: dir.to_path_buf(),
                driver: driver
                    .filter(|_| bound)
                    .map(|d| name_of(&d))
                    .unwrap_or_default(),
                mbit_s: tree.number(dir.join("speed")).unwrap_or(0.0),
            });
        }
        below = dir;
    }
    None
}

impl UsbDevice {
    /// `1-1.2`: bus and ports. It stays as long as the plug stays.
    pub fn port(&self) -> String {
        name_of(&self.dir)
    }

    /// `None` where the speed is not known.
    pub fn link(&self) -> Option<Link> {
        let ceiling_mb_s = ceiling(self.mbit_s)?;
        let driver = if self.driver.is_empty() {
            "no driver"
        } else {
            &self.driver
        };
        Some(Link {
            description: format!("USB {} Mbit/s, {driver}", self.mbit_s),
            ceiling_mb_s,
            usb_mbit_s: self.mbit_s,
        })
    }
}

/// What bulk transfers can carry at most, MB/s.
fn ceiling(mbit_s: f64) -> Option<f64> {
    // The kernel prints these rates and no others: drivers/usb/core/sysfs.c, speed_show().
    Some(match mbit_s as u32 {
        // USB 2.0 specification, table 5-9: 19 packets of 64 bytes in each of 1000 frames.
        12 => 1.216,
        // USB 2.0 specification, table 5-10: 13 packets of 512 bytes in each of 8000 microframes.
        480 => 53.248,
        // USB 3.2 specification, Gen 1: 8b/10b coding, 5 Gbit/s × 8/10.
        5000 => 500.0,
        // USB 3.2 specification, Gen 2: 128b/132b coding, 10 Gbit/s × 128/132.
        10000 => 1212.0,
        // The same on two lanes (Gen 2×2).
        20000 => 2424.0,
        // Low speed (1.5 Mbit/s) has no bulk endpoints: USB 2.0 specification, 5.8.
        _ => return None,
    })
}
