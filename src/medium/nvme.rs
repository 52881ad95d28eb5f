//! The PCI Express link of an NVMe disk, which a board's single lane often bounds.

use super::Link;
use super::tree::{Tree, name_of};
use std::path::{Path, PathBuf};

/// The link from `current_link_speed` and `current_link_width` of the controller's PCI device
/// (Documentation/ABI/testing/sysfs-bus-pci in the kernel). `None` where it is not on PCI Express.
pub fn link(tree: &Tree, disk: &Path) -> Option<Link> {
    let pci = tree.real(controller(tree, disk)?.join("device")).ok()?;
    let speed = tree.text(pci.join("current_link_speed"))?;
    let giga_transfers = speed.strip_suffix(" GT/s PCIe")?;
    let lanes: u32 = tree
        .number(pci.join("current_link_width"))
        .filter(|&lanes| lanes > 0)?;
    let ceiling_mb_s = lane(giga_transfers.parse().ok()?)? * f64::from(lanes);
    Some(Link {
        description: format!("PCIe {giga_transfers} GT/s x{lanes}"),
        ceiling_mb_s,
        usb_mbit_s: 0.0,
    })
}

/// The directory above the disk. Where the kernel joins paths (NVME_MULTIPATH) that is the
/// subsystem's, with a link to each controller in it: drivers/nvme/host/core.c.
fn controller(tree: &Tree, disk: &Path) -> Option<PathBuf> {
    let above = disk.parent()?;
    if !name_of(above).starts_with("nvme-subsys") {
        return Some(above.to_path_buf());
    }
    let is_controller = |name: &String| {
        let number = name.strip_prefix("nvme");
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
    };
    let name = tree.list(above).into_iter().find(is_controller)?;
    tree.real(above.join(name)).ok()
}

/// What one lane carries after line coding, MB/s. PCI Express Base Specification: 8b/10b up
/// to 5 GT/s, 128b/130b from 8 GT/s, blocks of 256 bytes with 242 of payload at 64 GT/s.
fn lane(giga_transfers: f64) -> Option<f64> {
    let coding = match giga_transfers {
        2.5 | 5.0 => 8.0 / 10.0,
        8.0 | 16.0 | 32.0 => 128.0 / 130.0,
        64.0 => 242.0 / 256.0,
        _ => return None,
    };
    Some(giga_transfers * coding * 1e3 / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_carries_what_the_specification_says() {
        // MB/s as PCI-SIG rounds them: 250, 500, 985, 1969, 3938.
        for (speed, mb_s) in [
            (2.5, 250),
            (5.0, 500),
            (8.0, 985),
            (16.0, 1969),
            (32.0, 3938),
        ] {
            assert_eq!(lane(speed).map(|value| value.round() as u32), Some(mb_s));
        }
        assert_eq!(lane(12.0), None);
    }
}
