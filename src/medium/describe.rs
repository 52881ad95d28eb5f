//! One disk's attributes, gathered into a [`Medium`].

use super::resolve::{Loops, Machine};
use super::tree::{Tree, name_of};
use super::usb::UsbDevice;
use super::{Medium, Mount, Role, Transport, identity, mmc, nvme, usb};
use std::path::Path;

/// Sizes in sysfs are in units of 512 bytes, whatever the disk's own block size is.
const SECTOR: u64 = 512;

/// The medium at `disk` (its own directory in sysfs), and its place, for [`identity::separate`].
pub fn medium(machine: &Machine, role: Role, disk: &Path) -> (Medium, String) {
    let tree = &machine.tree;
    let usb = usb::above(tree, disk);
    let device = name_of(disk);
    let transport = transport(&device, usb.as_ref());
    let bytes = tree
        .number(disk.join("size"))
        .unwrap_or(0_u64)
        .saturating_mul(SECTOR);
    let (name, joined_name) = identity::names(tree, disk, transport);
    let write_cache = tree.text(disk.join("queue/write_cache"));
    let medium = Medium {
        role,
        identity: identity::identity(tree, disk, transport, usb.as_ref(), bytes),
        name,
        joined_name,
        transport,
        bytes,
        logical_block: tree
            .number(disk.join("queue/logical_block_size"))
            .unwrap_or(512),
        rotational: tree.flag(disk.join("queue/rotational")),
        read_only: tree.flag(disk.join("ro")),
        volatile_cache: write_cache.as_deref() == Some("write back"),
        scheduler: scheduler(tree, disk),
        link: match transport {
            Transport::Mmc => mmc::link(tree, disk),
            Transport::Nvme => nvme::link(tree, disk),
            _ => usb.as_ref().and_then(UsbDevice::link),
        },
        mounts: mounts(machine, disk),
        device,
    };
    (medium, identity::place(disk, usb.as_ref()))
}

fn transport(device: &str, usb: Option<&UsbDevice>) -> Transport {
    match device {
        name if name.starts_with("mmcblk") => Transport::Mmc,
        name if name.starts_with("loop") => Transport::Loop,
        _ if usb.is_some() => Transport::Usb,
        name if name.starts_with("nvme") => Transport::Nvme,
        name if name.starts_with("vd") => Transport::Virtio,
        name if name.starts_with("sd") => Transport::Scsi,
        _ => Transport::Other,
    }
}

/// The one in brackets: `[none] mq-deadline kyber`. A disk without a choice shows one word.
fn scheduler(tree: &Tree, disk: &Path) -> String {
    let line = tree.text(disk.join("queue/scheduler")).unwrap_or_default();
    let active = line
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    match active {
        Some((name, _)) => name.to_string(),
        None if line.contains(' ') => String::new(),
        None => line,
    }
}

/// The mounts whose data lies on the disk. An overlay is none of them: what it shows lies
/// elsewhere. The plain ones come first, then those through a loop device, then bind mounts.
fn mounts(machine: &Machine, disk: &Path) -> Vec<Mount> {
    let mut found: Vec<(bool, bool, Mount)> = Vec::new();
    for entry in &machine.mounts.entries {
        if entry.fs_type == "overlay" || !machine.mounts.is_visible(entry) {
            continue;
        }
        let on_disk = |loops| {
            let below = machine.mount_disks(entry, loops).ok()?;
            below.into_iter().find(|below| below.disk == disk)
        };
        let direct = on_disk(Loops::AreMedia);
        let through_loop = direct.is_none();
        if let Some(below) = direct.or_else(|| on_disk(Loops::AreLayers)) {
            let mount = Mount {
                path: entry.point.clone(),
                fs_type: entry.fs_type.clone(),
                read_only: entry.read_only(),
                layers: below.layers,
            };
            found.push((entry.is_bind(), through_loop, mount));
        }
    }
    found.sort_by_key(|(bind, through_loop, _)| (*bind, *through_loop));
    found.into_iter().map(|(_, _, mount)| mount).collect()
}
