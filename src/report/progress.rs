//! A line for each probe while it runs, for a person who waits at a terminal.

use super::short;
use crate::medium::Medium;
use crate::probe::Message;
use std::io::{self, IsTerminal, Write};

/// Says what a probe does and what it yielded.
pub fn say(medium: &Medium, message: &Message) {
    if !io::stderr().is_terminal() {
        return;
    }
    let device = &medium.device;
    match message {
        Message::Started(probe) => log::info!("{device}: {} …", probe.words()),
        Message::Measured(m) => {
            log::info!(
                "{device}: {} {} {}",
                m.probe.words(),
                short(m.figure()),
                m.probe.unit()
            );
        }
        Message::NotMeasured(not) => log::info!(
            "{device}: {}: not measured: {}",
            not.probe.words(),
            not.detail
        ),
        &Message::Progress {
            read,
            done,
            all,
            mb_s,
        } => {
            // What comes next on the terminal is written over it.
            let line = fill(read, done, all, mb_s);
            let _ = write!(io::stderr(), "\x1b[K{device}: {line}\r");
        }
        _ => {}
    }
}

/// How far a fill is, and how long it takes yet at this rate: all of it is read once more.
fn fill(read: bool, done: u64, all: u64, mb_s: f64) -> String {
    if all == 0 {
        return "fill: its space is given back".into();
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let (word, left) = match read {
        true => ("read back", all.saturating_sub(done)),
        false => ("written", 2 * all - done.min(all)),
    };
    let minutes = left as f64 / 60e6 / mb_s.max(0.1);
    format!(
        "fill: {:.1} of {:.1} GiB {word}, {} MB/s, some {minutes:.0} min left",
        gib(done),
        gib(all),
        short(mb_s)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_has_to_be_read_too() {
        let (all, rate) = (30 << 30, 20.0);
        let line = fill(false, 15 << 30, all, rate);
        // 45 GiB at 20 MB/s are 2416 s.
        assert_eq!(
            line,
            "fill: 15.0 of 30.0 GiB written, 20.0 MB/s, some 40 min left"
        );
        assert!(fill(true, 15 << 30, all, rate).ends_with("some 13 min left"));
    }
}
