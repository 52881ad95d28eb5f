//! What the blocks of a fill together say: the whole disk in bounded memory.

use crate::probe::capacity::diagnose::{Diagnosis, Fate, Stamp, diagnose};
use crate::probe::pattern::{self, Seen};

/// A fill is cut into about so many cells, each of which counts as a stamp or two.
const CELLS: u64 = 2048;
/// A cell with at least one in so many blocks bad is bad; fewer are scattered damage.
const BAD: u64 = 8;
/// Every block of a fill is of this generation.
pub const GENERATION: u8 = 1;

/// What stands in the place of a block, a whole fill having `blocks` of them: another one of
/// them is [`Fate::Overwritten`] with that one's index.
pub fn fate(block: &[u8], salt: u64, index: u64, blocks: u64) -> Fate {
    let instead = match pattern::compare(block, salt, index, GENERATION) {
        Seen::Same => return Fate::Kept,
        Seen::Changed(bits) => return Fate::Changed(bits),
        Seen::Lost(instead) => instead,
    };
    match pattern::index_of(block, salt, GENERATION) {
        Some(other) if other < blocks => Fate::Overwritten(other),
        _ if block.iter().all(|&byte| byte == 0xff) => Fate::Lost("ones"),
        _ => Fate::Lost(instead),
    }
}

/// A run of blocks of the fill.
#[derive(Default)]
struct Cell {
    blocks: u64,
    bad: u64,
    /// Index of the last good block before the first bad one.
    good: Option<u64>,
    first: Option<(u64, Fate)>,
    /// All blocks from the first bad one on are bad.
    to_its_end: bool,
}

/// Blocks of one kind of damage.
#[derive(Clone, Copy, Default)]
struct Count {
    blocks: u64,
    first: Option<(u64, Fate)>,
}

/// Where on the disk a block lies, bytes, by its index; `None` where nobody can tell.
pub type Address<'a> = &'a mut dyn FnMut(u64) -> Option<u64>;

/// The account of a fill's blocks, taken in their order.
pub struct Tally {
    /// Blocks of a cell.
    size: u64,
    cell: Cell,
    stamps: Vec<Stamp>,
    /// Changed, lost, overwritten, unreadable.
    counts: [Count; 4],
    /// Some block has no address.
    unplaced: bool,
    /// A second reading found the same block bad.
    pub confirmed: bool,
}

impl Tally {
    pub fn new(blocks: u64) -> Self {
        Self {
            size: (blocks / CELLS).max(256),
            cell: Cell::default(),
            stamps: Vec::new(),
            counts: Default::default(),
            unplaced: false,
            confirmed: false,
        }
    }

    /// Bad blocks so far.
    pub fn bad(&self) -> u64 {
        self.counts.iter().map(|count| count.blocks).sum()
    }

    /// Every address is known.
    pub fn is_placed(&self) -> bool {
        !self.unplaced
    }

    /// Blocks up to `index` were found good by an earlier run.
    pub fn good_before(&mut self, index: u64, address: Address) {
        match address(index) {
            Some(at) => self.stamps.push((at, Fate::Kept)),
            None => self.unplaced = true,
        }
    }

    /// Takes the next block.
    pub fn note(&mut self, index: u64, fate: Fate, address: Address) {
        let cell = &mut self.cell;
        cell.blocks += 1;
        if fate == Fate::Kept {
            cell.to_its_end = false;
            if cell.first.is_none() {
                cell.good = Some(index);
            }
        } else {
            cell.bad += 1;
            if cell.first.is_none() {
                (cell.first, cell.to_its_end) = (Some((index, fate)), true);
            }
            let count = &mut self.counts[match fate {
                Fate::Changed(_) => 0,
                Fate::Overwritten(_) => 2,
                Fate::Unreadable => 3,
                _ => 1,
            }];
            count.blocks += 1;
            count.first = count.first.or(Some((index, fate)));
        }
        if self.cell.blocks == self.size {
            self.end_cell(address);
        }
    }

    /// The cell becomes a stamp for what is good in it, and one for what is bad.
    fn end_cell(&mut self, address: Address) {
        let cell = std::mem::take(&mut self.cell);
        let mut stamps = [cell.good.map(|at| (at, Fate::Kept)), None];
        if cell.bad * BAD >= cell.blocks || cell.to_its_end {
            stamps[1] = cell.first;
        }
        for (index, fate) in stamps.into_iter().flatten() {
            let fate = match fate {
                Fate::Overwritten(other) => address(other).map(Fate::Overwritten),
                fate => Some(fate),
            };
            match (address(index), fate) {
                (Some(at), Some(fate)) => self.stamps.push((at, fate)),
                _ => self.unplaced = true,
            }
        }
    }

    /// What all blocks together say. Without addresses nothing is said of the disk's size.
    pub fn diagnoses(&mut self, address: Address) -> Vec<Diagnosis> {
        if self.cell.blocks > 0 {
            self.end_cell(address);
        }
        let mut found = match self.unplaced {
            true => Vec::new(),
            false => diagnose(&self.stamps),
        };
        let fake = |d: &Diagnosis| matches!(d, Diagnosis::Ends { .. } | Diagnosis::Wraps { .. });
        found.retain(fake);
        let [changed, lost, overwritten, unreadable] = self.counts;
        let mut place = |count: Count| {
            let (index, fate) = count.first?;
            Some((count.blocks, address(index).unwrap_or(0), fate))
        };
        if let Some((count, first, Fate::Changed(bits))) = place(changed) {
            found.push(Diagnosis::Changed { count, first, bits });
        }
        if found.iter().any(fake) {
            // The others are what is beyond the end.
        } else {
            if let Some((count, first, Fate::Lost(instead))) = place(lost) {
                found.push(Diagnosis::Lost {
                    count,
                    first,
                    instead,
                });
            }
            if let Some((count, first, _)) = place(overwritten) {
                found.push(Diagnosis::Overwritten { count, first });
            }
        }
        if let Some((count, first, _)) = place(unreadable) {
            found.push(Diagnosis::Unreadable { count, first });
        }
        found
    }
}
