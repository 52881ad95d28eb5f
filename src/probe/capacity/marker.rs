//! The durable write's file as a marker: a fake that takes addresses modulo its real size shows an
//! image of it wherever that modulus puts it, and a read for each length of the marker across
//! the whole disk cannot miss it.

use super::{Blocks, gcd};
use crate::probe::pattern::{self, BLOCK};
use crate::sys::Buffer;
use std::io;

/// What a block of the marker holds, and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Address on the disk, bytes.
    pub at: u64,
    pub index: u64,
    pub generation: u8,
    word: u64,
}

pub struct Marker {
    seed: u64,
    /// Sorted by the first word.
    marks: Vec<Mark>,
    /// Bytes of its longest piece on the disk.
    piece: u64,
}

/// How far the reads came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    pub reads: u64,
    /// Bytes of the disk, from its start, that were looked through.
    pub covered: u64,
    /// The modulus, confirmed by a second marker; `None` where there is none up to `covered`.
    pub wraps_at: Option<u64>,
}

/// Images that are enough to tell the modulus.
const ENOUGH: usize = 8;
/// Read at a time: a block that begins at any sector of the first half is whole in it.
const READ: usize = 2 * BLOCK;

impl Marker {
    /// Of blocks `(address, index, generation)` filled from `seed`.
    pub fn new(seed: u64, blocks: impl Iterator<Item = (u64, u64, u8)>) -> Self {
        let mut marks: Vec<Mark> = blocks
            .map(|(at, index, generation)| Mark {
                at,
                index,
                generation,
                word: pattern::first_word(seed, index, generation),
            })
            .collect();
        marks.sort_unstable_by_key(|mark| mark.at);
        let (mut piece, mut run, mut end) = (0, 0, u64::MAX);
        for mark in &marks {
            run = if mark.at == end {
                run + BLOCK as u64
            } else {
                BLOCK as u64
            };
            end = mark.at + BLOCK as u64;
            piece = piece.max(run);
        }
        marks.sort_unstable_by_key(|mark| mark.word);
        Self { seed, marks, piece }
    }

    /// The mark whose block begins at some sector of `read`, and that sector's offset.
    fn image(&self, read: &[u8]) -> Option<(Mark, u64)> {
        let mut want = [0; BLOCK];
        (0..=read.len() - BLOCK).step_by(512).find_map(|from| {
            let word = u64::from_le_bytes(read[from..from + 8].try_into().ok()?);
            let found = self.marks.binary_search_by_key(&word, |mark| mark.word);
            let mark = self.marks[found.ok()?];
            pattern::fill(&mut want, self.seed, mark.index, mark.generation);
            (want == read[from..from + BLOCK]).then_some((mark, from as u64))
        })
    }

    /// Looks for images across the whole disk, low addresses first: fakes are small. Leaves time
    /// for the `stamped` blocks.
    /// # Errors
    /// Of a read or a write.
    pub fn scan(&mut self, disk: &mut dyn Blocks, stamped: usize) -> io::Result<Scan> {
        let mut scan = Scan::default();
        // A marker in crumbs would take a read for each of them.
        if self.piece < 64 * BLOCK as u64 {
            return Ok(scan);
        }
        let stride = self.piece - READ as u64;
        let mut buffer = Buffer::new(READ)?;
        let (mut modulus, mut images) = (0, 0);
        let mut at = 0;
        let fits = |disk: &dyn Blocks, at| at + READ as u64 <= disk.bytes();
        while fits(disk, at) && images < ENOUGH && disk.room(stamped).is_some() {
            disk.read(at, &mut buffer)?;
            scan.reads += 1;
            if let Some((mark, from)) = self.image(&buffer)
                && at + from != mark.at
            {
                modulus = gcd(modulus, (at + from).abs_diff(mark.at));
                images += 1;
            }
            at += stride;
            scan.covered = at.min(disk.bytes());
        }
        // The last read of the disk ends with it: no image is missed there.
        if modulus >= self.piece && self.confirms(disk, modulus)? == Some(true) {
            scan.wraps_at = Some(modulus);
        }
        Ok(scan)
    }

    /// Writes a new marker block, then another one elsewhere, and sees whether the first one's image
    /// changes with it, twice. A journal's copy stays as it was; a disk that shows the last block
    /// written at every address beyond its end shows the other one. `None` where no image is.
    /// # Errors
    /// Of a read or a write.
    pub fn confirms(&mut self, disk: &mut dyn Blocks, modulus: u64) -> io::Result<Option<bool>> {
        let mut block = Buffer::new(BLOCK)?;
        let mut want = [0; BLOCK];
        let bytes = disk.bytes();
        // Above it, or below where the marker lies near the end.
        let image = |mark: &Mark| match mark.at + modulus + BLOCK as u64 <= bytes {
            true => Some(mark.at + modulus),
            false => mark.at.checked_sub(modulus),
        };
        let mut chosen = (0..self.marks.len()).filter(|&n| image(&self.marks[n]).is_some());
        let pairs: Vec<usize> = chosen.by_ref().take(4).collect();
        if pairs.len() < 4 {
            return Ok(None);
        }
        for pair in pairs.chunks(2) {
            let [first, other] = pair else { continue };
            for &n in [first, other] {
                let mark = &mut self.marks[n];
                // Beyond what any overwrite of the file reached: 255 is the last generation.
                mark.generation = mark.generation.saturating_add(100);
                pattern::fill(&mut block, self.seed, mark.index, mark.generation);
                disk.write(mark.at, &block)?;
                disk.flush()?;
            }
            let mark = self.marks[*first];
            pattern::fill(&mut want, self.seed, mark.index, mark.generation);
            let Some(image) = image(&mark) else { continue };
            // Direct reads begin where a 4 KiB sector begins.
            disk.read(image, &mut block)?;
            if *block != want[..] {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }
}
