//! What makes a medium the same one tomorrow, and what it is called.

use super::tree::{Tree, name_of};
use super::usb::UsbDevice;
use super::{Medium, Transport};
use crate::error::printable;
use std::path::Path;

/// Longest part of a `disk:` identity, characters: a loop device's file may have a long path.
const PART_LIMIT: usize = 200;

/// The strongest identity that a disk offers: its CID, its world wide name, or what it says of itself.
pub fn identity(
    tree: &Tree,
    disk: &Path,
    transport: Transport,
    usb: Option<&UsbDevice>,
    bytes: u64,
) -> String {
    if transport == Transport::Mmc
        && let Some(cid) = cid(tree, disk)
    {
        return format!("cid:{cid}");
    }
    if let Some(wwn) = wwn(tree, disk) {
        return format!("wwn:{wwn}");
    }
    let text = |name: &str| tree.text(disk.join(name));
    let vendor = match transport {
        // These two tell a model and a serial number, but no name of their maker.
        Transport::Virtio => Some("virtio".to_string()),
        Transport::Nvme => Some("nvme".to_string()),
        _ => text("device/vendor"),
    };
    let model = match transport {
        Transport::Loop => Some("loop".to_string()),
        Transport::Mmc => text("device/name"),
        _ => text("device/model"),
    };
    let serial = match (transport, usb) {
        (Transport::Loop, _) => text("loop/backing_file"),
        (Transport::Usb, Some(usb)) => tree.text(usb.dir.join("serial")),
        (Transport::Virtio, _) => text("serial"),
        (Transport::Scsi, _) => page_80(tree, disk),
        _ => text("device/serial"),
    };
    let [vendor, model, serial] = [vendor, model, serial].map(Option::unwrap_or_default);
    format!(
        "disk:{}:{}:{}:{bytes}",
        part(&vendor),
        part(&model),
        part(&serial)
    )
}

/// 32 hexadecimal digits. The last byte is the CRC, which only some hosts report: the same
/// card would be another one in another reader, so it is always written as `00`.
fn cid(tree: &Tree, disk: &Path) -> Option<String> {
    let cid = tree
        .text(disk.join("device/cid"))?
        .trim()
        .to_ascii_lowercase();
    let content = cid.get(..30)?;
    let sound =
        content.bytes().all(|c| c.is_ascii_hexdigit()) && content.bytes().any(|c| c != b'0');
    sound.then(|| format!("{content}00"))
}

/// `naa.…` or `eui.…`. Bridges fill in zeros, or NAA type 3, which is assigned locally and
/// so says nothing about who is who (SPC-4, NAA designator format).
fn wwn(tree: &Tree, disk: &Path) -> Option<String> {
    let wwid = tree
        .text(disk.join("wwid"))
        .or_else(|| tree.text(disk.join("device/wwid")))?;
    let wwid = wwid.trim().to_ascii_lowercase();
    let digits = wwid
        .strip_prefix("naa.")
        .or_else(|| wwid.strip_prefix("eui."))?;
    let hex = digits.bytes().all(|c| c.is_ascii_hexdigit());
    let unique = digits.bytes().skip(1).any(|c| c != b'0') && !wwid.starts_with("naa.3");
    (hex && unique && digits.len() <= 32).then_some(wwid)
}

/// The unit serial number of a SCSI disk: four bytes of header, then text (SPC-4, Unit Serial Number page).
fn page_80(tree: &Tree, disk: &Path) -> Option<String> {
    let page = tree.bytes(disk.join("device/vpd_pg80")).ok()?;
    Some(String::from_utf8_lossy(page.get(4..)?).into_owned())
}

/// Printable ASCII without blanks, quotes or the separator.
fn part(text: &str) -> String {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let safe = |c: char| {
        if c.is_ascii_graphic() && !"\"'`\\:".contains(c) {
            c
        } else {
            '_'
        }
    };
    text.chars().take(PART_LIMIT).map(safe).collect()
}

/// Where two media claim to be the same one (bogus serials are common), the port tells
/// them apart: `@1-1.2` is added to both.
pub fn separate(media: &mut [(Medium, String)]) {
    let identities: Vec<String> = media
        .iter()
        .map(|(medium, _)| medium.identity.clone())
        .collect();
    for (medium, place) in media {
        if identities
            .iter()
            .filter(|other| **other == medium.identity)
            .count()
            > 1
        {
            medium.identity = format!("{}@{}", medium.identity, part(place).replace('/', "_"));
        }
    }
}

/// The place of a disk: the USB port, with the unit of a reader that has several; else the
/// directory of the hardware that it hangs on.
pub fn place(disk: &Path, usb: Option<&UsbDevice>) -> String {
    let address = disk.ancestors().nth(2).map(name_of).unwrap_or_default();
    match (usb, address.rsplit_once(':')) {
        (Some(usb), Some((_, "0")) | None) => usb.port(),
        (Some(usb), Some((_, unit))) => format!("{}.unit{unit}", usb.port()),
        (None, Some(_)) => address,
        (None, None) => name_of(disk),
    }
}

/// The name as `parted -l` prints it (libparted/arch/linux.c), and the model in one piece
/// where a bridge cut an ATA model into SCSI's 8 + 16 bytes.
pub fn names(tree: &Tree, disk: &Path, transport: Transport) -> (String, Option<String>) {
    let line = |name: &str| first_line(tree, &disk.join("device").join(name));
    let plain = |bytes: &[u8]| printable(&String::from_utf8_lossy(bytes));
    match transport {
        Transport::Loop => ("Loopback device".to_string(), None),
        Transport::Virtio => ("Virtio Block Device".to_string(), None),
        Transport::Nvme => match line("model") {
            Some(model) => (plain(&strip(&model)), None),
            None => ("NVMe Device".to_string(), None),
        },
        Transport::Mmc => match (line("type"), line("name")) {
            (Some(kind), Some(name)) => (
                format!("{} {}", plain(&strip(&kind)), plain(&strip(&name))),
                None,
            ),
            _ => ("Generic SD/MMC Storage Card".to_string(), None),
        },
        Transport::Usb | Transport::Scsi | Transport::Network | Transport::Other => {
            match (line("vendor"), line("model")) {
                (Some(vendor), Some(model)) => {
                    let (short, long) = (strip(&vendor), strip(&model));
                    let [short, long] = [(&short, 8), (&long, 16)]
                        .map(|(field, size)| plain(&field[..field.len().min(size)]));
                    let filled = vendor
                        .get(7)
                        .is_some_and(|byte| !byte.is_ascii_whitespace());
                    let joined = filled.then(|| format!("{short}{long}"));
                    (format!("{short} {long}"), joined)
                }
                _ => ("Generic".to_string(), None),
            }
        }
    }
}

/// Bytes, since the name in a CID may be anything.
fn first_line(tree: &Tree, path: &Path) -> Option<Vec<u8>> {
    let content = tree.bytes(path).ok()?;
    content
        .split(|&byte| byte == b'\n')
        .next()
        .map(<[u8]>::to_vec)
}

/// As parted does: blanks at the end dropped, runs of them made one.
fn strip(text: &[u8]) -> Vec<u8> {
    let kept = text.iter().enumerate().filter(|&(at, byte)| {
        let next = text.get(at + 1);
        !byte.is_ascii_whitespace() || next.is_some_and(|next| !next.is_ascii_whitespace())
    });
    kept.map(|(_, byte)| *byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_safe() {
        assert_eq!(part("  a b\"c'd:e\\f\u{1b}é "), "a_b_c_d_e_f__");
        assert_eq!(strip(b"USD  "), b"USD");
        assert_eq!(strip(b"a   b"), b"a b");
    }
}
