//! `list`: who is there, without any I/O on the media.

use super::{gigabytes, role};
use crate::error::printable_path;
use crate::evidence::Evidence;
use crate::evidence::boot_before::own_journal;
use crate::evidence::written::words;
use crate::medium::{Found, Medium, Mount, Transport};
use std::fmt::Write;

/// A block for each medium with what is known of it, and a line for each place that is none.
pub fn list(found: &Found, evidence: impl Fn(&Medium) -> Evidence) -> String {
    let mut text = String::new();
    let mut board = None;
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
                "  mounted    {path} ({}{read_only}{layers}){}",
                mount.fs_type,
                note(&known, mount)
            );
        }
        board = Some(known.board.clone());
        if medium.transport == Transport::Network {
            continue; // what follows is of a disk
        }
        let _ = writeln!(text, "  queue      {}", queue(medium, &known));
        let _ = writeln!(text, "  written    {}", written(medium, &known));
        if let Some(smart) = &known.smart {
            let _ = writeln!(text, "  SMART      {}", smart.words());
        } else if matches!(
            medium.transport,
            Transport::Nvme | Transport::Scsi | Transport::Usb
        ) {
            let _ = writeln!(text, "  SMART      unknown");
        }
        let _ = writeln!(text, "  kernel     {}", known.log.summary());
        if let Some(boot) = known.boot_before.as_ref().filter(|_| own_journal(medium)) {
            let _ = writeln!(text, "  last boot  {}", boot.words());
        }
    }
    if let Some(board) = board {
        let _ = writeln!(text, "board: {}; {}", board.who(), board.state());
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
            let mode = known.log.card_mode.as_ref();
            let mode = mode.map_or(String::new(), |mode| {
                format!(", by the kernel's log a {mode}")
            });
            writeln!(text, "  link       unknown{mode}")
        }
        None => Ok(()),
    };
    if let Some(card) = &known.card {
        let _ = writeln!(text, "  card       {}", card.words());
        if card.registers.emmc {
            let wear = card.wear.unwrap_or_default().words();
            let _ = writeln!(text, "  wear       {wear}");
        }
    }
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

fn note(known: &Evidence, mount: &Mount) -> String {
    let own = known.file_systems.iter().find(|fs| fs.path == mount.path);
    let Some(own) = own else { return String::new() };
    let unclean = match known.log.unclean.contains(&own.block) {
        true => ", not unmounted before this boot",
        false => "",
    };
    own.note() + unclean
}

/// What the machine writes in a day.
fn written(medium: &Medium, known: &Evidence) -> String {
    match known.written_a_day {
        Some(a_day) => words(medium, known, a_day, "the boot"),
        None => "unknown until it is up for an hour".into(),
    }
}

/// The scheduler and what is read ahead: both change what other programs see of a disk.
fn queue(medium: &Medium, known: &Evidence) -> String {
    let scheduler = match medium.scheduler.as_str() {
        "" => "unknown scheduler",
        scheduler => scheduler,
    };
    let ahead = known
        .read_ahead_kib
        .map_or("unknown".into(), |kib| format!("{kib} KiB"));
    format!("{scheduler}, read-ahead {ahead}")
}
