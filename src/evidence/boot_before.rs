//! The boot before this one: how it ended, and what the kernel then said of the medium. Known only
//! where the journal is kept on a disk, which neither Raspberry Pi OS nor Armbian does by itself.

use super::kernel_log::{Kind, Log, Names, concerns_storage, example};
use super::{RECORDED, Source, counted};
use crate::error::printable;
use crate::judge::{Finding, Verdict};
use crate::medium::tree::Tree;
use crate::medium::{Medium, Role, Transport};
use crate::record::{Record, Run};
use crate::supervise::reap;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where journald keeps what outlives a boot; on Armbian a link to its disk.
const KEPT: &str = "/var/log/journal";
/// For journalctl: it may have to search many files, on the very medium that fails.
const PATIENCE: Duration = Duration::from_secs(5);
/// Entries asked for, and bytes of them that are taken at most.
const ENTRIES: &str = "2000";
const BYTES: usize = 1 << 20;

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BootBefore {
    /// 32 hexadecimal digits, as in `/proc/sys/kernel/random/boot_id` without its dashes.
    pub id: String,
    /// It was shut down; otherwise its journal just ends.
    pub shut_down: bool,
    /// Complaints about the medium, by its present names.
    pub log: Log,
    /// The last of them.
    pub last: String,
}

/// Reads it. `None` where nothing of it was kept.
pub fn read(source: &Source) -> Option<BootBefore> {
    static ASKED: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let recorded;
    let export = match source.tree.is_machine() {
        true => ASKED.get_or_init(journal).as_ref()?,
        false => {
            recorded = source.tree.bytes(path()).ok()?;
            &recorded
        }
    };
    parse(export, &Names::of(source))
}

/// Where a recorded tree keeps it.
fn path() -> String {
    format!("{RECORDED}/boot-before")
}

/// The entries that matter, in journalctl's export format (systemd.io/JOURNAL_EXPORT_FORMATS):
/// the kernel's, journald's own, and that PID 1 began to shut down.
fn journal() -> Option<Vec<u8>> {
    if !Path::new(KEPT).is_dir() {
        return None;
    }
    let mut child = Command::new("journalctl")
        .args(["-b", "-1", "-q", "--no-pager"])
        .args(["-n", ENTRIES, "-o", "export"])
        .arg("--output-fields=MESSAGE,SYSLOG_IDENTIFIER,UNIT")
        .args(["_TRANSPORT=kernel", "+", "_TRANSPORT=driver", "+"])
        .args(["_PID=1", "JOB_TYPE=stop", "UNIT=basic.target"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut export = Vec::new();
    let end = Instant::now() + PATIENCE;
    let mut chunk = [0; 4096];
    let pipe = child.stdout.take();
    let pipe = pipe.filter(|pipe| fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_ok());
    if let Some(mut pipe) = pipe {
        while Instant::now() < end && export.len() < BYTES {
            match pipe.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => export.extend_from_slice(&chunk[..length]),
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => {
                    let ready = PollFd::new(pipe.as_fd(), PollFlags::POLLIN);
                    let _ = poll(&mut [ready], PollTimeout::from(100u8));
                }
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }
    let _ = child.kill(); // it has ended, or has had its time
    reap(&mut child);
    (!export.is_empty()).then_some(export)
}

/// Entries end with an empty line. What is no UTF-8, or has a line end in it, has its length in
/// eight bytes before it: no device can forge a line by its name.
fn parse(export: &[u8], names: &Names) -> Option<BootBefore> {
    let mut boot = BootBefore::default();
    boot.log.known = true;
    let (mut message, mut kernel) = (String::new(), false);
    let mut rest = export;
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        let equals = line.iter().position(|&byte| byte == b'=');
        match equals.map(|at| (&line[..at], &line[at + 1..])) {
            Some((b"_BOOT_ID", id)) => boot.id = printable(&String::from_utf8_lossy(id)),
            Some((b"SYSLOG_IDENTIFIER", by)) => kernel = by == b"kernel",
            Some((b"MESSAGE", text)) => message = String::from_utf8_lossy(text).into_owned(),
            Some((b"UNIT", b"basic.target")) => boot.shut_down = true,
            Some(_) => {}
            None if line.is_empty() => {
                boot.shut_down |= !kernel && message == "Journal stopped";
                if kernel && boot.log.add(&message, names) {
                    boot.last = example(&message);
                }
                (message, kernel) = (String::new(), false);
            }
            None => {
                let length = rest.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
                rest = rest.get(usize::try_from(length).ok()?.checked_add(9)?..)?;
            }
        }
    }
    (!boot.id.is_empty()).then_some(boot)
}

/// The records that concern storage, for a recorded tree, the latest `limit` bytes of them.
pub fn record(tree: &Tree, limit: usize) -> Option<(String, Vec<u8>)> {
    let export = match tree.is_machine() {
        true => journal()?,
        false => tree.bytes(path()).ok()?,
    };
    let mut kept = String::new();
    for entry in String::from_utf8_lossy(&export).rsplit("\n\n") {
        let own = |message: &str| concerns_storage(message) || message == "Journal stopped";
        let fields = |line: &&str| match line.split_once('=') {
            Some(("MESSAGE", message)) => own(message),
            Some((key, _)) => matches!(key, "_BOOT_ID" | "SYSLOG_IDENTIFIER" | "UNIT"),
            None => false,
        };
        let lines: Vec<&str> = entry.lines().filter(fields).collect();
        let tells = |line: &&str| line.starts_with("MESSAGE=") || line.starts_with("UNIT=");
        if lines.iter().any(tells) && kept.len() < limit {
            kept = lines.join("\n") + "\n\n" + &kept;
        }
    }
    Some((path(), kept.into_bytes()))
}

/// The journal lies on this medium, and its name is that of a slot, the same in each boot.
pub fn own_journal(medium: &Medium) -> bool {
    medium.role == Role::Root && matches!(medium.transport, Transport::Mmc | Transport::Nvme)
}

impl BootBefore {
    /// Whether it is to be told of this medium: an earlier run saw it under its present name in
    /// that boot, or it is its own journal. An earlier run of this boot has told it already.
    pub fn tell(&self, medium: &Medium, record: Option<&Record>, this_boot: &str) -> bool {
        let Some(record) = record else {
            return own_journal(medium);
        };
        let seen = record.last_seen.boot.replace('-', "") == self.id;
        let told = |run: &Run| run.when.boot == this_boot;
        let known = (seen && record.device == medium.device) || own_journal(medium);
        known && !record.runs.last().is_some_and(told)
    }

    fn how(&self) -> &'static str {
        match self.shut_down {
            true => "was shut down",
            false => "ended without a shutdown",
        }
    }

    /// One line.
    pub fn words(&self) -> String {
        match self.log.complaints() {
            0 => format!("{}, nothing about it", self.how()),
            count => {
                let complaints = counted(count.into(), "complaint");
                format!("{}, {complaints}, the last one: {}", self.how(), self.last)
            }
        }
    }

    /// What would be a finding in a boot's own log is one here.
    pub fn finding(&self) -> Option<Finding> {
        let power = self.log.count(Kind::UnderVoltage) > 0 && !self.shut_down;
        let worth = power || !self.log.findings().is_empty();
        worth.then(|| {
            let sentence = format!("the boot before {}", self.words());
            Finding::new("boot-before", Verdict::Warn, sentence)
        })
    }
}

#[cfg(test)]
#[path = "boot_before_test.rs"]
mod tests;
