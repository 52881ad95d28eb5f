//! A few blocks across the whole disk, stamped, read back twice and put back as they were.

use super::Blocks;
use super::diagnose::{Fate, Stamp};
use crate::probe::extents::Extent;
use crate::probe::pattern::{self, BLOCK, Random, Seen};
use crate::sys::Buffer;
use std::io;

/// Stamps of the first round; each later one has four times as many in all.
pub const COARSE: usize = 16;

/// A block that bears our stamp now.
struct Stamped {
    at: u64,
    /// What was there before; `None` for zeros.
    old: Option<Box<[u8]>>,
    fate: Fate,
    /// How many readings showed something else.
    bad: u8,
}

pub struct Stamps {
    salt: u64,
    random: Random,
    stamped: Vec<Stamped>,
    /// First words of all stamps with their addresses, sorted when read back.
    words: Vec<(u64, u64)>,
}

/// At most `count` addresses of blocks within `extents`: their bytes in the order of the disk are cut
/// into as many equal parts, and in each one block is chosen at random. Sorted.
pub fn choose(extents: &[Extent], count: usize, random: &mut Random) -> Vec<u64> {
    let block = BLOCK as u64;
    let mut pieces: Vec<Extent> = extents
        .iter()
        .filter(|e| e.length >= block)
        .copied()
        .collect();
    pieces.sort_unstable_by_key(|piece| piece.disk);
    let blocks: u64 = pieces.iter().map(|piece| piece.length / block).sum();
    let count = blocks.min(count as u64);
    let mut chosen = Vec::with_capacity(count as usize);
    let (mut n, mut before) = (0, 0);
    let mut target = |n: u64| {
        let (from, to) = (n * blocks / count, (n + 1) * blocks / count);
        from + random.below(to - from)
    };
    let mut next = if count > 0 { target(0) } else { 0 };
    for piece in pieces {
        // Blocks count from the start of the piece: a partition may begin at any sector.
        let here = piece.length / block;
        while n < count && next < before + here {
            chosen.push(piece.disk + (next - before) * block);
            n += 1;
            next = if n < count { target(n) } else { 0 };
        }
        before += here;
    }
    chosen
}

/// The rounds in which `addresses` are stamped, coarse to fine, each in random order.
pub fn rounds(addresses: &[u64], random: &mut Random) -> Vec<Vec<u64>> {
    let mut rounds = Vec::new();
    let mut taken = vec![false; addresses.len()];
    let mut wanted = COARSE;
    while taken.iter().any(|taken| !taken) {
        let step = addresses.len().div_ceil(wanted).max(1);
        let mut round = Vec::new();
        // From the end, so that the last address, the likeliest to be lost, is in the first round.
        for n in (0..addresses.len()).rev().step_by(step) {
            if !std::mem::replace(&mut taken[n], true) {
                round.push(addresses[n]);
            }
        }
        shuffle(&mut round, random);
        rounds.push(round);
        wanted *= 4;
    }
    rounds
}

pub fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for n in (1..items.len()).rev() {
        items.swap(n, random.below(n as u64 + 1) as usize);
    }
}

impl Stamps {
    pub fn new(salt: u64) -> Self {
        Self {
            salt,
            random: Random::new(!salt),
            stamped: Vec::new(),
            words: Vec::new(),
        }
    }

    pub fn count(&self) -> usize {
        self.stamped.len()
    }

    /// Bytes from the lowest to behind the highest stamp.
    pub fn span(&self) -> u64 {
        let all = || self.stamped.iter().map(|stamp| stamp.at);
        let behind = all().max().map_or(0, |at| at + BLOCK as u64);
        behind - all().min().unwrap_or(0)
    }

    /// Keeps what is at `at` and stamps it. False where only a uniform block may be stamped, and
    /// this one holds data: on a disk not proved yet it may be somebody's.
    /// # Errors
    /// Of the read or the write.
    pub fn stamp(
        &mut self,
        disk: &mut dyn Blocks,
        at: u64,
        only_uniform: bool,
    ) -> io::Result<bool> {
        let mut block = Buffer::new(BLOCK)?;
        disk.read(at, &mut block)?;
        let uniform = block.iter().all(|byte| *byte == block[0]);
        if only_uniform && !uniform && !self.ours(&block) {
            // What differs from one reading to the next is nobody's data either.
            let first = block.to_vec();
            disk.read(at, &mut block)?;
            if *block == first[..] {
                return Ok(false);
            }
        }
        let zeros = block.iter().all(|&byte| byte == 0);
        let old = (!zeros).then(|| Box::from(&block[..]));
        pattern::fill(&mut block, self.salt, at, 1);
        self.stamped.push(Stamped {
            at,
            old,
            fate: Fate::Kept,
            bad: 0,
        });
        self.words.push((pattern::first_word(self.salt, at, 1), at));
        disk.write(at, &block)?;
        Ok(true)
    }

    /// Whether a stamp was bad in both readings.
    pub fn confirmed(&self) -> bool {
        self.stamped.iter().any(|stamp| stamp.bad > 1)
    }

    fn ours(&self, block: &[u8]) -> bool {
        let word = block[..8].try_into().map_or(0, u64::from_le_bytes);
        self.words.iter().any(|entry| entry.0 == word)
    }

    /// Writes the lowest stamp once more: a disk that shows the last block written wherever it
    /// has none shows this one then, and no stamp beyond its end passes for kept.
    /// # Errors
    /// Of the write.
    pub fn lowest_again(&self, disk: &mut dyn Blocks) -> io::Result<()> {
        let Some(at) = self.stamped.iter().map(|stamp| stamp.at).min() else {
            return Ok(());
        };
        let mut block = Buffer::new(BLOCK)?;
        pattern::fill(&mut block, self.salt, at, 1);
        disk.write(at, &block)
    }

    /// Reads all stamps back in random order, twice; a stamp bad in one reading is bad.
    /// # Errors
    /// Only of memory: a read that fails is the stamp's fate.
    pub fn read_back(&mut self, disk: &mut dyn Blocks) -> io::Result<Vec<Stamp>> {
        let mut block = Buffer::new(BLOCK)?;
        self.words.sort_unstable();
        let mut order: Vec<usize> = (0..self.stamped.len()).collect();
        let mut found = Vec::with_capacity(order.len());
        for pass in 0..2 {
            shuffle(&mut order, &mut self.random);
            for &n in &order {
                let at = self.stamped[n].at;
                let fate = match disk.read(at, &mut block) {
                    Ok(()) => self.fate(&block, at),
                    Err(_) => Fate::Unreadable,
                };
                let stamp = &mut self.stamped[n];
                if pass == 0 {
                    (stamp.fate, stamp.bad) = (Fate::Kept, 0);
                }
                stamp.bad += u8::from(fate != Fate::Kept);
                if stamp.fate == Fate::Kept {
                    stamp.fate = fate;
                }
            }
        }
        found.extend(self.stamped.iter().map(|stamp| (stamp.at, stamp.fate)));
        Ok(found)
    }

    fn fate(&self, block: &[u8], at: u64) -> Fate {
        let instead = match pattern::compare(block, self.salt, at, 1) {
            Seen::Same => return Fate::Kept,
            Seen::Changed(bits) => return Fate::Changed(bits),
            Seen::Lost(instead) => instead,
        };
        let word = block[..8].try_into().map_or(0, u64::from_le_bytes);
        match self.words.binary_search_by_key(&word, |entry| entry.0) {
            Ok(n) => Fate::Overwritten(self.words[n].1),
            Err(_) if block.iter().all(|&byte| byte == 0xff) => Fate::Lost("ones"),
            Err(_) => Fate::Lost(instead),
        }
    }

    /// Puts back what was there before, the last stamp first: where two of them hit the same
    /// block of a fake, that order heals it. `write` times the write.
    /// # Errors
    /// Of the first write that failed; the others are done all the same.
    pub fn restore(
        &mut self,
        disk: &mut dyn Blocks,
        mut write: impl FnMut(&mut dyn Blocks, u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut zeros = Buffer::new(BLOCK)?;
        let mut result = Ok(());
        while let Some(stamp) = self.stamped.pop() {
            if let Some(old) = &stamp.old {
                zeros.copy_from_slice(old);
            } else {
                zeros.fill(0);
            }
            let written = write(disk, stamp.at, &zeros);
            result = result.and(written);
        }
        self.words.clear();
        result.and(disk.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lie_in_the_pieces_on_their_own_blocks_and_across_the_disk() {
        let pieces = [
            Extent {
                file: 1 << 30,
                disk: (20 << 30) + 512,
                length: 4 << 30,
            },
            Extent {
                file: 0,
                disk: (1 << 30) + 512,
                length: 10 << 30,
            },
            Extent {
                file: 9 << 30,
                disk: 8 << 20,
                length: 512,
            },
        ];
        let chosen = choose(&pieces, 512, &mut Random::new(1));
        assert_eq!(chosen.len(), 512);
        assert!(chosen.is_sorted_by(|a, b| a < b));
        for &at in &chosen {
            let piece = pieces
                .iter()
                .find(|p| at >= p.disk && at + 4096 <= p.disk + p.length);
            assert_eq!((at - piece.unwrap().disk) % 4096, 0);
        }
        // 4 of the 14 GiB that are free lie above 20 GiB.
        let high = chosen.iter().filter(|&&at| at >= 20 << 30).count();
        assert!((145..=147).contains(&high), "{high}");
        assert_eq!(choose(&pieces[2..], 512, &mut Random::new(1)), []);
    }

    #[test]
    fn the_first_round_is_sixteen_across_the_whole_with_the_last_one() {
        let all: Vec<u64> = (0..1000).collect();
        let rounds = rounds(&all, &mut Random::new(1));
        assert_eq!(rounds.iter().map(Vec::len).sum::<usize>(), 1000);
        assert!((15..=17).contains(&rounds[0].len()));
        assert!(rounds[0].contains(&999) && rounds[0].iter().any(|&at| at < 64));
    }
}
