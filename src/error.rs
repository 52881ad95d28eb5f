//! One error type: the operation, the path and the cause, as in
//! `read /sys/block/sda/stat: No such device`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An operation on a path that failed.
#[derive(Debug)]
pub struct Error {
    pub operation: &'static str,
    pub path: PathBuf,
    pub cause: io::Error,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(operation: &'static str, path: impl AsRef<Path>, cause: io::Error) -> Self {
        Self {
            operation,
            path: path.as_ref().to_path_buf(),
            cause,
        }
    }

    /// An error whose cause is a sentence of ours, not the kernel's.
    pub fn said(operation: &'static str, path: impl AsRef<Path>, cause: impl Into<String>) -> Self {
        Self::new(operation, path, io::Error::other(cause.into()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = printable(&self.path.to_string_lossy());
        write!(
            f,
            "{} {path}: {}",
            self.operation,
            printable(&cause_text(&self.cause))
        )
    }
}

/// A path made safe to print, see [`printable`].
pub fn printable_path(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// Refuses what would hold whoever opens it (a FIFO) or is no file at all (a device); a
/// directory and a missing file are left to the open, which says so itself.
/// # Errors
/// `open PATH: not a regular file`.
pub fn refuse_special(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() && !meta.is_dir() => {
            Err(Error::said("open", path, "not a regular file"))
        }
        _ => Ok(()),
    }
}

/// The kernel's own words for an errno, without Rust's "(os error N)".
pub fn cause_text(cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(errno) => nix::errno::Errno::from_raw(errno).desc().to_string(),
        None => cause.to_string(),
    }
}

/// Text from outside (a path, a label, a product name) made safe to print:
/// control characters become `?`, so that no terminal or log line is hijacked, and so do those
/// that reorder or hide what follows (Unicode's bidirectional and invisible format characters).
pub fn printable(text: &str) -> String {
    let hides = |c: char| matches!(c as u32, 0xad | 0x61c | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff);
    text.chars()
        .map(|c| if c.is_control() || hides(c) { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_or_hides_text_is_not_printed() {
        let name = "USB\u{1b}[2J \u{202e}DNAS\u{2069} Größe\u{200b}\n";
        assert_eq!(printable(name), "USB?[2J ?DNAS? Größe??");
    }
}
