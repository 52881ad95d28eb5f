//! Whether the first boot's own work is over. A card that is being resized, trimmed or filled
//! with a swap file gives no figures of its own.

use crate::medium::Tree;
use std::path::Path;
use std::time::{Duration, Instant};

/// Units that write to media or resize them on the first boots: of Raspberry Pi OS
/// (raspberrypi-sys-mods, pi-gen, rpi-swap, dphys-swapfile), of Debian's images for the Pi
/// (rpi-resizerootfs), of Armbian, of systemd and util-linux, and of cloud-init.
const UNITS: &[&str] = &[
    "rpi-resize.service",
    "rpi-resizerootfs.service",
    "resize2fs_once.service",
    "systemd-growfs-root.service",
    "rpi-resize-swap-file.service",
    "dphys-swapfile.service",
    "fstrim.service",
    "armbian-resize-filesystem.service",
    "armbian-firstrun.service",
    "cloud-init-main.service",
    "cloud-init-local.service",
    "cloud-init.service",
    "cloud-init-network.service",
    "cloud-config.service",
    "cloud-final.service",
];

/// Files that are there while the machine is about to boot again, and what that is for:
/// Armbian's resize, raspi-config's, and shutdown(8) with a time.
const PENDING: &[(&str, &str)] = &[
    (
        "/run/resize2fs-reboot",
        "a reboot is pending that ends the resize",
    ),
    (
        "/etc/init.d/resize2fs_once",
        "a reboot is pending that ends the resize",
    ),
    ("/run/systemd/shutdown/scheduled", "a shutdown is scheduled"),
];

/// Why a test would be wrong now; `None` where nothing is in its way.
pub enum Obstacle {
    /// It ends by itself.
    AtWork(&'static str),
    /// It does not end in this boot.
    Pending(&'static str),
}

/// Looks once, at the system under `root`.
pub fn obstacle(root: &Path) -> Option<Obstacle> {
    let tree = Tree::new(root);
    // resize2fs_once removes itself when it is done: at work it is not pending.
    if let Some(unit) = UNITS.iter().find(|unit| at_work(&tree, unit)) {
        return Some(Obstacle::AtWork(unit));
    }
    PENDING
        .iter()
        .find(|(file, _)| tree.exists(file))
        .map(|&(_, why)| Obstacle::Pending(why))
}

/// Waits at most `patience` until nothing is in the way.
/// # Errors
/// With the reason why there should be no test in this boot.
pub fn wait(root: &Path, patience: Duration) -> Result<(), String> {
    let end = Instant::now() + patience;
    loop {
        match obstacle(root) {
            None => return Ok(()),
            Some(Obstacle::Pending(why)) => return Err(why.into()),
            Some(Obstacle::AtWork(unit)) if Instant::now() >= end => {
                return Err(format!(
                    "{unit} is still at work after {} s",
                    patience.as_secs()
                ));
            }
            Some(Obstacle::AtWork(_)) => std::thread::sleep(Duration::from_secs(1)),
        }
    }
}

/// A unit at work has a control group with processes: `cgroup.events` says so in the unified
/// hierarchy (cgroups(7)), `cgroup.procs` names them in the old one.
fn at_work(tree: &Tree, unit: &str) -> bool {
    let events = tree.bytes(format!("/sys/fs/cgroup/system.slice/{unit}/cgroup.events"));
    let processes = format!("/sys/fs/cgroup/systemd/system.slice/{unit}/cgroup.procs");
    match events {
        Ok(events) => String::from_utf8_lossy(&events).contains("populated 1"),
        Err(_) => tree.bytes(processes).is_ok_and(|pids| !pids.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A little root with these files.
    fn root(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("first-boot-{}-{name}", std::process::id()));
        for (file, content) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn said(name: &str, files: &[(&str, &str)]) -> Option<String> {
        let root = root(name, files);
        let said = wait(&root, Duration::ZERO).err();
        let _ = fs::remove_dir_all(root);
        said
    }

    #[test]
    fn a_unit_that_ended_or_only_remains_is_not_at_work() {
        let events = "sys/fs/cgroup/system.slice/fstrim.service/cgroup.events";
        assert_eq!(said("none", &[]), None);
        assert_eq!(said("ended", &[(events, "populated 0\nfrozen 0\n")]), None);
        assert_eq!(
            said("trims", &[(events, "populated 1\nfrozen 0\n")]),
            Some("fstrim.service is still at work after 0 s".into())
        );
    }

    #[test]
    fn the_old_hierarchy_is_asked_too() {
        let procs = "sys/fs/cgroup/systemd/system.slice/rpi-resize.service/cgroup.procs";
        assert_eq!(said("v1-empty", &[(procs, "")]), None);
        assert!(
            said("v1", &[(procs, "412\n")])
                .unwrap()
                .contains("rpi-resize.service")
        );
    }

    #[test]
    fn a_pending_reboot_is_not_waited_for() {
        let armbian = ("run/resize2fs-reboot", "");
        assert!(said("armbian", &[armbian]).unwrap().contains("resize"));
        let shutdown = ("run/systemd/shutdown/scheduled", "USEC=1\nMODE=reboot\n");
        assert!(
            said("shutdown", &[shutdown])
                .unwrap()
                .contains("is scheduled")
        );
        // While the script is at work it is not pending.
        let script = ("etc/init.d/resize2fs_once", "#!/bin/sh\n");
        let works = (
            "sys/fs/cgroup/system.slice/resize2fs_once.service/cgroup.events",
            "populated 1\n",
        );
        assert!(said("raspi-config", &[script]).unwrap().contains("pending"));
        assert!(
            said("resizes", &[script, works])
                .unwrap()
                .contains("at work")
        );
    }

    #[test]
    fn the_boot_unit_is_ordered_after_each_of_them() {
        let unit = include_str!("../systemd/storage-selftest.service");
        let after: Vec<&str> = unit
            .lines()
            .filter_map(|line| line.strip_prefix("After="))
            .flat_map(str::split_whitespace)
            .collect();
        for unit in UNITS {
            assert!(after.contains(unit), "{unit}");
        }
    }

    /// What is left when comments go: the lines below `# Hardening`.
    fn hardening(unit: &str) -> Vec<&str> {
        let lines = unit.lines().skip_while(|l| !l.starts_with("# Hardening"));
        lines
            .filter(|line| line.contains('=') && !line.starts_with('#'))
            .collect()
    }

    #[test]
    fn all_units_are_hardened_alike() {
        let boot = hardening(include_str!("../systemd/storage-selftest.service"));
        let routine = include_str!("../systemd/storage-selftest-routine.service");
        let plugged = include_str!("../systemd/storage-selftest@.service");
        assert!(boot.contains(&"DevicePolicy=closed") && boot.contains(&"DeviceAllow=block-* r"));
        assert_eq!(hardening(routine), boot);
        assert_eq!(hardening(plugged), boot);
    }
}
