//! Read only: blocks low on the disk whose content is unmistakable, against the addresses where a
//! fake that takes addresses modulo a usual size would show them; then a run of them against the
//! upper half of the disk. So no space needs to be claimed on most fakes: what the file system
//! writes high up for a claim lands on what lies low there.

use super::Blocks;
use crate::probe::pattern::{BLOCK, Random};
use crate::sys::Buffer;
use std::io;

/// Sizes in MiB besides powers of two that fakes were seen to wrap at: the user area of cards sold
/// as 2, 4, 8, 16 and 32 GB (f3's and H2testw's public reports), and round thousands.
const USUAL_MIB: [u64; 14] = [
    960, 1920, 1886, 3724, 3840, 3781, 7450, 7580, 7680, 14900, 15193, 15360, 29800, 30720,
];

/// Blocks that are compared, at most.
const UNMISTAKABLE: usize = 24;
/// Fewer are no proof.
const LEAST: usize = 8;
/// What is looked for across the disk, bytes: a run of data low on it.
const RUN: u64 = 16 << 20;
/// Fakes are no smaller.
const SMALLEST: u64 = 64 << 20;
/// Copies that may be found before no more are looked for.
const COPIES: usize = 8;
/// Places that must be alike.
const ALIKE: u64 = 64;
/// Read at a time: a block that begins at any sector of the first half is whole in it.
const READ: usize = 2 * BLOCK;

/// The blocks that are looked at: closely in the first MiB (boot sectors, partition tables), then
/// one each MiB.
fn places() -> impl Iterator<Item = u64> {
    let close = (0..256).map(|n| n * BLOCK as u64);
    close.chain((1..256).map(|n| n << 20))
}

/// As many different bytes as data has that was no chance: text has 60, code and archives more.
fn unmistakable(block: &[u8]) -> bool {
    let mut seen = [false; 256];
    block
        .iter()
        .for_each(|&byte| seen[usize::from(byte)] = true);
    seen.iter().filter(|&&seen| seen).count() >= 48
}

/// What lies low on the disk.
struct Low {
    /// The first block of all: the partition table, a boot sector or a superblock. Of partitions
    /// there may be copies (a system to boot and one to fall back to), of this there is one.
    first: Vec<u8>,
    blocks: Vec<(u64, Vec<u8>)>,
    /// Where the [`RUN`] begins that has most data.
    run: Option<u64>,
}

/// The size that the disk takes addresses modulo of, where it shows: all that lies low is there
/// twice, in two readings. `None` proves nothing.
/// # Errors
/// Of a read.
pub fn find(disk: &mut dyn Blocks) -> io::Result<Option<u64>> {
    let mut block = Buffer::new(BLOCK)?;
    let low = match look(disk, &mut block) {
        // Where the whole disk may not be opened there is nothing to compare.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        low => low?,
    };
    // A blank first block is at home everywhere.
    if low.blocks.len() < LEAST || low.first.iter().all(|byte| *byte == low.first[0]) {
        return Ok(None);
    }
    let mut sizes: Vec<u64> = (6..40).map(|n| 1 << n).chain(USUAL_MIB).collect();
    sizes.sort_unstable();
    for mib in sizes {
        if again(disk, &mut block, &low, mib << 20)? {
            return smallest(disk, &mut block, &low, mib << 20).map(Some);
        }
    }
    by_a_run(disk, &mut block, &low)
}

fn look(disk: &mut dyn Blocks, block: &mut [u8]) -> io::Result<Low> {
    let mut low = Low {
        first: Vec::new(),
        blocks: Vec::new(),
        run: None,
    };
    let mut data = Vec::new();
    for at in places() {
        if at + BLOCK as u64 > disk.bytes() || disk.room(0).is_none() {
            break;
        }
        disk.read(at, block)?;
        if at == 0 {
            low.first = block.to_vec();
        }
        if !unmistakable(block) {
            continue;
        }
        data.push(at);
        if low.blocks.len() < UNMISTAKABLE && low.blocks.iter().all(|(_, b)| *b != block) {
            low.blocks.push((at, block.to_vec()));
        }
    }
    let within = |from: u64| {
        let all = data.iter().filter(|&&at| at >> 20 << 20 == at);
        all.filter(|&&at| (from..from + RUN).contains(&at)).count()
    };
    low.run = data.iter().copied().rev().max_by_key(|&at| within(at));
    Ok(low)
}

/// A run of data low on the disk is looked for in its upper half: there a fake of any size shows
/// some image of it. That takes a thousand reads on 16 GiB.
fn by_a_run(disk: &mut dyn Blocks, block: &mut [u8], low: &Low) -> io::Result<Option<u64>> {
    let half = disk.bytes() / 2 / BLOCK as u64 * BLOCK as u64;
    let Some(run) = low.run.filter(|run| run + RUN <= half) else {
        return Ok(None);
    };
    let known = hashes(disk, run)?;
    let mut buffer = Buffer::new(READ)?;
    let (mut at, mut copies) = (half, 0);
    while at + READ as u64 <= disk.bytes() && copies < COPIES && disk.room(0).is_some() {
        disk.read(at, &mut buffer)?;
        let image = (0..BLOCK).step_by(512).find_map(|from| {
            let hash = hash(&buffer[from..from + BLOCK]);
            let found = known.binary_search_by_key(&hash, |(hash, _)| *hash).ok()?;
            Some(at + from as u64 - known[found].1)
        });
        if let Some(distance) = image {
            if again(disk, block, low, distance)? {
                return smallest(disk, block, low, distance).map(Some);
            }
            copies += 1;
        }
        // Two reads for each image: some of the run is no data.
        at += RUN / 2;
    }
    Ok(None)
}

/// Of the blocks of a run, with their addresses, sorted.
fn hashes(disk: &mut dyn Blocks, run: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut buffer = Buffer::new(1 << 20)?;
    let mut known = Vec::new();
    for at in (run..run + RUN).step_by(1 << 20) {
        if disk.room(0).is_none() {
            break;
        }
        disk.read(at, &mut buffer)?;
        let blocks = buffer.chunks_exact(BLOCK).zip((at..).step_by(BLOCK));
        let blocks = blocks.filter(|(block, _)| unmistakable(block));
        known.extend(blocks.map(|(block, at)| (hash(block), at)));
    }
    known.sort_unstable();
    Ok(known)
}

/// FNV-1a by words; what it finds is compared.
fn hash(block: &[u8]) -> u64 {
    block
        .chunks_exact(8)
        .fold(0xcbf2_9ce4_8422_2325, |hash, word| {
            let word = word.iter().fold(0, |all, &byte| all << 8 | u64::from(byte));
            (hash ^ word).wrapping_mul(0x100_0000_01b3)
        })
}

/// What shows at a multiple of the real size shows at the real size too.
fn smallest(disk: &mut dyn Blocks, block: &mut [u8], low: &Low, size: u64) -> io::Result<u64> {
    let parts = (2..=size / SMALLEST).rev();
    for part in parts.filter(|part| size.is_multiple_of(part * 512)) {
        if again(disk, block, low, size / part)? {
            return Ok(size / part);
        }
    }
    Ok(size)
}

/// Whether the disk shows `size` bytes further all that lies low, in two readings.
fn again(disk: &mut dyn Blocks, block: &mut [u8], low: &Low, size: u64) -> io::Result<bool> {
    let inside: Vec<_> = low.blocks.iter().filter(|(at, _)| *at < size).collect();
    let last = inside.last().map_or(0, |(at, _)| *at);
    if inside.len() < LEAST || size + last + BLOCK as u64 > disk.bytes() {
        return Ok(false);
    }
    for _ in 0..2 {
        disk.read(size, block)?;
        if *block != low.first[..] {
            return Ok(false);
        }
        for (at, content) in &inside {
            disk.read(at + size, block)?;
            if block != content.as_slice() {
                return Ok(false);
            }
        }
    }
    alike(disk, block, size)
}

/// Whether the disk shows the same block at both addresses.
pub fn same(disk: &mut dyn Blocks, at: u64, other: u64) -> bool {
    let (Ok(mut first), Ok(mut second)) = (Buffer::new(BLOCK), Buffer::new(BLOCK)) else {
        return false;
    };
    let read = disk.read(at, &mut first).and(disk.read(other, &mut second));
    read.is_ok() && *first == *second
}

/// Whether both are alike elsewhere, too. One may change while it is looked at, a system being at
/// work; it is looked at again.
fn alike(disk: &mut dyn Blocks, block: &mut [u8], size: u64) -> io::Result<bool> {
    let room = size.min(disk.bytes() - size) / BLOCK as u64;
    let mut random = Random::new(size);
    let mut other = Buffer::new(BLOCK)?;
    for _ in 0..ALIKE {
        let at = random.below(room) * BLOCK as u64;
        let mut same = false;
        for _ in 0..3 {
            disk.read(at, block)?;
            disk.read(at + size, &mut other)?;
            same |= *block == other[..];
        }
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}
