//! A tar archive, written: POSIX.1-2001 ustar, with a pax header before what is too long for it.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const BLOCK: usize = 512;
/// Longest name and longest link target in a ustar header, bytes.
const NAME: usize = 100;

const FILE: u8 = b'0';
const LINK: u8 = b'2';
const DIRECTORY: u8 = b'5';
const PAX: u8 = b'x';

/// An archive under way. Each name is written once: what comes again is left out.
pub struct Tar<W> {
    out: W,
    names: BTreeSet<PathBuf>,
}

impl<W: Write> Tar<W> {
    pub fn new(out: W) -> Self {
        Self {
            out,
            names: BTreeSet::new(),
        }
    }

    pub fn writer(&self) -> &W {
        &self.out
    }

    /// A regular file of mode 644.
    /// # Errors
    /// Those of the writer, here and below.
    pub fn file(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.entry(path, FILE, "", content)
    }

    pub fn link(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        self.entry(path, LINK, &target.to_string_lossy(), &[])
    }

    pub fn directory(&mut self, path: &Path) -> io::Result<()> {
        self.entry(path, DIRECTORY, "", &[])
    }

    /// Two blocks of zeros are the end of an archive.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()
    }

    fn entry(&mut self, path: &Path, kind: u8, target: &str, content: &[u8]) -> io::Result<()> {
        let path = path.strip_prefix("/").unwrap_or(path);
        if path.as_os_str().is_empty() || !self.names.insert(path.to_path_buf()) {
            return Ok(());
        }
        let name = path.to_string_lossy();
        if name.len() > NAME || target.len() > NAME {
            let mut records = pax("path", &name);
            if !target.is_empty() {
                records += &pax("linkpath", target);
            }
            self.block("pax", PAX, "", records.as_bytes())?;
        }
        self.block(&name, kind, target, content)
    }

    fn block(&mut self, name: &str, kind: u8, target: &str, content: &[u8]) -> io::Result<()> {
        self.out
            .write_all(&header(name, kind, target, content.len()))?;
        self.out.write_all(content)?;
        let rest = content.len().next_multiple_of(BLOCK) - content.len();
        self.out.write_all(&[0; BLOCK][..rest])
    }
}

/// `LENGTH KEY=VALUE\n`, where the length counts its own digits.
fn pax(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n")
}

/// Fields and their offsets: POSIX.1-2001, pax, ustar interchange format.
fn header(name: &str, kind: u8, target: &str, size: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str, room: usize| {
        let bytes = &text.as_bytes()[..text.len().min(room)];
        block[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(0, name, NAME);
    put(
        100,
        if kind == DIRECTORY {
            "0000755"
        } else {
            "0000644"
        },
        8,
    );
    put(108, "0000000", 8);
    put(116, "0000000", 8);
    put(124, &format!("{size:011o}"), 12);
    put(136, "00000000000", 12);
    put(148, "        ", 8);
    put(157, target, NAME);
    put(257, "ustar\0", 6);
    put(263, "00", 2);
    block[156] = kind;
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    block[148..156].copy_from_slice(sum.as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_blanks_in_its_place() {
        let block = header("a", FILE, "", 3);
        let text = std::str::from_utf8(&block[148..154]).unwrap();
        let stored = u32::from_str_radix(text, 8).unwrap();
        let mut blank = block;
        blank[148..156].fill(b' ');
        assert_eq!(stored, blank.iter().map(|&b| u32::from(b)).sum::<u32>());
        assert_eq!(&block[257..265], b"ustar\x0000");
        assert_eq!(&block[124..135], b"00000000003");
    }

    /// Counted by hand: 9 and 11 follow each other, 100 is no length, as 10 is none.
    #[test]
    fn a_pax_record_counts_itself() {
        assert_eq!(pax("path", "a"), "9 path=a\n");
        assert_eq!(pax("path", "aa"), "11 path=aa\n");
        let long = |letters: usize| pax("path", &"a".repeat(letters));
        assert!(long(90).starts_with("99 path=") && long(90).len() == 99);
        assert!(long(91).starts_with("101 path=") && long(91).len() == 101);
    }
}
