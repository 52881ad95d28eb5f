//! `list`: who is there, without any I/O on the media.

use super::{gigabytes, role};
use crate::error::printable_path;
use crate::evidence::Evidence;
use crate::medium::{Found, Medium, Transport};
use std::fmt::Write;

/// A block for each medium with what is known of it, and a line for each place that is none.
pub fn list(found: &Found, evidence: impl Fn(&Medium) -> Evidence) -> String {
    let mut text = String::new();
    for medium in &found.media {
        let known = evidence(medium);
        let (size, role) = (gigabytes(medium.bytes), role(medium.role));
        let _ = writeln!(text, "{}  {}  {size}  {role}", medium.device, medium.name);
        if let Some(joined) = &medium.joined_name {
            let _ = writeln!(text, "  model      {joined}");
        }
        let _ = writeln!(text, "  identity   {}", medium.identity);
        link(&mut text, medium, &known);
        for mount in &medium.mounts {
            let path = printable_path(&mount.path);
            let read_only = if mount.read_only { ", read-only" } else { "" };
            let layers = mount
                .layers
                .iter()
                .map(|layer| format!(", on {layer}"))
                .collect::<String>();
            let _ = writeln!(
                text,
                "  mounted    {path} ({}{read_only}{layers})",
                mount.fs_type
            );
        }
        let _ = writeln!(text, "  kernel     {}", known.log.summary());
    }
    for none in &found.none {
        let _ = writeln!(text, "{}: no medium: {}", none.asked, none.reason);
    }
    text
}

/// What the link is and could be; "unknown" where the system does not say.
fn link(text: &mut String, medium: &Medium, known: &Evidence) {
    let _ = match &medium.link {
        Some(link) => writeln!(
            text,
            "  link       {}, at most {:.0} MB/s",
            link.description, link.ceiling_mb_s
        ),
        None if matches!(medium.transport, Transport::Mmc | Transport::Usb) => {
            writeln!(text, "  link       unknown")
        }
        None => Ok(()),
    };
    let Some(usb) = &known.usb else { return };
    let _ = writeln!(text, "  usb        {}", usb.ability());
    let mut bridge = usb.who();
    if let Some(power) = usb.max_power_ma {
        let _ = write!(bridge, ", at most {power} mA");
    }
    if let Some(quirks) = &usb.quirks {
        let _ = write!(bridge, ", quirks {quirks}");
    }
    if usb.uas_trouble() {
        bridge += ", known for trouble with uas";
    }
    let _ = writeln!(text, "  bridge     {bridge}");
}
