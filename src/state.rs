//! The state file: what is known of each identity. Replaced atomically, never over 256 KiB;
//! a damaged one is set aside and the last good copy used.

use crate::error::{Error, Result};
use crate::record::{Record, When};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Of this file's layout: a file with a higher number is another program's and is set aside.
const SCHEMA: u32 = 1;
/// The largest state file in bytes.
pub const MAX_BYTES: usize = 256 << 10;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub schema: u32,
    #[serde(default, rename = "medium")]
    pub media: BTreeMap<String, Record>,
    /// Figures of the classic tools, oldest first.
    #[serde(default, skip_serializing_if = "heapless::Vec::is_empty")]
    pub compat: heapless::Vec<Kept, KEPT>,
}

/// Results of classic tools that are kept.
const KEPT: usize = 32;

/// What a classic tool found, for `compare`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub tool: String,
    /// Identity of the medium, or `share:CLIENT:SERVER-PATH`.
    pub medium: String,
    pub name: String,
    /// The tool's own.
    pub unit: String,
    pub runs: Vec<f64>,
    pub when: When,
}

impl State {
    /// Adds a result; the oldest one goes where there is no room.
    pub fn keep(&mut self, kept: Kept) {
        if self.compat.is_full() {
            self.compat.remove(0);
        }
        // There is room: one was removed above where it was full.
        let _ = self.compat.push(kept);
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            media: BTreeMap::new(),
            compat: heapless::Vec::new(),
        }
    }
}

/// The directory with `state.toml`, the copy before it, and a lock.
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
        }
    }

    pub fn file(&self) -> PathBuf {
        self.path.join("state.toml")
    }

    fn last_good(&self) -> PathBuf {
        self.path.join("state.toml.last")
    }

    /// Makes the directory where it is missing and takes its lock, so that two runs never
    /// write one state or disturb each other's figures. Waits at most `patience` for another
    /// run to end, unless `interrupted` is set.
    /// # Errors
    /// Where another run holds the lock, or the directory cannot be made.
    pub fn lock(&self, patience: Duration, interrupted: &AtomicBool) -> Result<Flock<File>> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.path)
            .map_err(|e| Error::new("create", &self.path, e))?;
        let path = self.path.join("lock");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|e| Error::new("open", &path, e))?;
        let end = Instant::now() + patience;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((again, Errno::EWOULDBLOCK))
                    if Instant::now() < end && !interrupted.load(Ordering::Relaxed) =>
                {
                    file = again;
                    std::thread::sleep(Duration::from_millis(200));
                }
                Err((_, Errno::EWOULDBLOCK)) => {
                    return Err(Error::said("lock", &path, "another run is under way"));
                }
                Err((_, errno)) => return Err(Error::new("lock", &path, errno.into())),
            }
        }
    }

    /// The state, or an empty one. A damaged file is set aside where `mend` allows it, with a line in the log.
    pub fn read(&self, mend: bool) -> State {
        for path in [self.file(), self.last_good()] {
            match read_file(&path) {
                Ok(Some(state)) => return state,
                Ok(None) => {}
                Err(error) => {
                    log::warn!("{error}");
                    if mend {
                        set_aside(&path);
                    }
                }
            }
        }
        State::default()
    }

    /// Replaces the state file: temporary file, fsync, rename, fsync of the directory.
    /// # Errors
    /// With the step that failed; the old file is whole then.
    pub fn write(&self, state: &mut State) -> Result<()> {
        let text = fitting(state).map_err(|e| Error::new("encode", self.file(), e))?;
        let temporary = self.path.join("state.toml.new");
        let _ = fs::remove_file(&temporary); // what a killed run left; its absence is the rule
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&temporary)
            .map_err(|e| Error::new("create", &temporary, e))?;
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all());
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary); // the error that matters is the write's
            return Err(Error::new("write", &temporary, error));
        }
        self.keep_last_good();
        fs::rename(&temporary, self.file()).map_err(|e| Error::new("rename", &temporary, e))?;
        File::open(&self.path)
            .and_then(|directory| directory.sync_all())
            .map_err(|e| Error::new("sync", &self.path, e))
    }

    /// A second name for the present file, so that at no moment there is none. File systems
    /// without hard links do without the copy.
    fn keep_last_good(&self) {
        // After a damaged file was set aside the copy is all there is.
        if !self.file().exists() {
            return;
        }
        let _ = fs::remove_file(self.last_good());
        let _ = fs::hard_link(self.file(), self.last_good());
    }
}

fn read_file(path: &Path) -> Result<Option<State>> {
    crate::error::refuse_special(path)?;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::new("open", path, error)),
    };
    let mut text = String::new();
    file.take(MAX_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|e| Error::new("read", path, e))?;
    if text.len() > MAX_BYTES {
        return Err(Error::said(
            "read",
            path,
            "larger than 256 KiB, so not ours",
        ));
    }
    let state: State = from_toml(&text).map_err(|e| Error::said("parse", path, e.message()))?;
    if state.schema != SCHEMA {
        return Err(Error::said(
            "parse",
            path,
            format!("schema {} is not {SCHEMA}", state.schema),
        ));
    }
    Ok(Some(state))
}

/// As `toml::from_str`, through a table: its own deserializer, which knows where each value
/// stands, would be compiled anew for each of our types, 10 KiB a type.
/// # Errors
/// Where the text is no TOML, or lacks what `T` wants.
pub fn from_toml<T: serde::de::DeserializeOwned>(
    text: &str,
) -> std::result::Result<T, toml::de::Error> {
    text.parse::<toml::Table>()?.try_into()
}

fn set_aside(path: &Path) {
    let aside = path.with_extension("damaged");
    match fs::rename(path, &aside) {
        Ok(()) => log::warn!("{} was set aside as {}", path.display(), aside.display()),
        Err(error) => log::error!("{}", Error::new("rename", path, error)),
    }
}

/// Media that keep their whole history: with 32 runs each they fit.
const MEDIA: usize = 8;

/// The text of the state; where it is too large, without the media not seen for longest, an
/// eighth at a time, and at last with half the runs.
fn fitting(state: &mut State) -> io::Result<String> {
    loop {
        let text = toml::to_string(state).map_err(io::Error::other)?;
        if text.len() <= MAX_BYTES {
            return Ok(text);
        }
        if state.media.len() > MEDIA {
            let mut seen: Vec<_> = state
                .media
                .iter()
                .map(|(id, record)| (&record.last_seen.time, id))
                .collect();
            seen.sort();
            let oldest: Vec<String> = seen[..seen.len().div_ceil(8)]
                .iter()
                .map(|s| s.1.clone())
                .collect();
            oldest
                .iter()
                .for_each(|identity| drop(state.media.remove(identity)));
        } else if state.media.values().all(|record| record.runs.is_empty()) {
            return Err(io::Error::other("too large without any run"));
        } else {
            for record in state.media.values_mut() {
                let keep = record.runs.len() / 2;
                record.runs = record
                    .runs
                    .iter()
                    .skip(record.runs.len() - keep)
                    .cloned()
                    .collect();
            }
        }
    }
}

#[cfg(test)]
#[path = "state_test.rs"]
mod tests;
