//! A line for each probe while it runs, for a person who waits at a terminal.

use super::short;
use crate::medium::Medium;
use crate::probe::Message;
use std::io::{self, IsTerminal};

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
        _ => {}
    }
}
