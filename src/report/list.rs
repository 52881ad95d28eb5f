//! `list`: who is there, without any I/O on the media.

use super::{gigabytes, role};
use crate::error::printable_path;
use crate::medium::Found;
use std::fmt::Write;

/// A block for each medium, and a line for each place that is none.
pub fn list(found: &Found) -> String {
    let mut text = String::new();
    for medium in &found.media {
        let (size, role) = (gigabytes(medium.bytes), role(medium.role));
        let _ = writeln!(text, "{}  {}  {size}  {role}", medium.device, medium.name);
        if let Some(joined) = &medium.joined_name {
            let _ = writeln!(text, "  model      {joined}");
        }
        let _ = writeln!(text, "  identity   {}", medium.identity);
        if let Some(link) = &medium.link {
            let _ = writeln!(
                text,
                "  link       {}, at most {:.0} MB/s",
                link.description, link.ceiling_mb_s
            );
        }
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
    }
    for none in &found.none {
        let _ = writeln!(text, "{}: no medium: {}", none.asked, none.reason);
    }
    text
}
