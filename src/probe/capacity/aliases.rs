//! Read only: blocks low on the disk whose content is unmistakable, against the addresses where a
//! fake that takes addresses modulo a usual size would show them.

use super::Blocks;
use crate::probe::pattern::BLOCK;
use crate::sys::Buffer;
use std::io;

/// Sizes in MiB besides powers of two that fakes were seen to wrap at: the user area of cards sold
/// as 2, 4, 8, 16 and 32 GB (f3's and H2testw's public reports), and round thousands.
const USUAL_MIB: [u64; 14] = [
    960, 1920, 1886, 3724, 3840, 3781, 7450, 7580, 7680, 14900, 15193, 15360, 29800, 30720,
];

/// Blocks that are compared, at most.
const UNMISTAKABLE: usize = 24;
/// Fewer are no proof: two copies of one system on a disk are alike too, but not in their first MiB.
const LEAST: usize = 8;

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

/// The size that the disk takes addresses modulo of, where one shows: every unmistakable block is
/// there twice, in two readings. `None` proves nothing.
/// # Errors
/// Of a read.
pub fn find(disk: &mut dyn Blocks) -> io::Result<Option<u64>> {
    let mut block = Buffer::new(BLOCK)?;
    let mut low: Vec<(u64, Vec<u8>)> = Vec::new();
    for at in places() {
        if low.len() == UNMISTAKABLE || at + BLOCK as u64 > disk.bytes() || disk.room(0).is_none() {
            break;
        }
        match disk.read(at, &mut block) {
            // Where the whole disk may not be opened there is nothing to compare.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            read => read?,
        }
        if unmistakable(&block) && low.iter().all(|(_, other)| *other != *block) {
            low.push((at, block.to_vec()));
        }
    }
    if low.len() < LEAST {
        return Ok(None);
    }
    let mut sizes: Vec<u64> = (6..40).map(|n| 1 << n).chain(USUAL_MIB).collect();
    sizes.sort_unstable();
    for mib in sizes {
        let size = mib << 20;
        let inside = low.iter().filter(|(at, _)| *at < size);
        let inside: Vec<_> = inside.collect();
        let fits = size + low[low.len() - 1].0 + BLOCK as u64 <= disk.bytes();
        if fits && inside.len() >= LEAST && twice(disk, &mut block, &inside, size)? {
            return smallest(disk, &mut block, &low, size).map(Some);
        }
    }
    Ok(None)
}

/// Largest divisor that is tried: 64 MiB on 2 GiB.
const PARTS: u64 = 32;

/// What shows at a multiple of the real size shows at the real size too.
fn smallest(
    disk: &mut dyn Blocks,
    block: &mut [u8],
    low: &[(u64, Vec<u8>)],
    size: u64,
) -> io::Result<u64> {
    for part in (2..=PARTS)
        .rev()
        .filter(|part| size.is_multiple_of(part * BLOCK as u64))
    {
        let inside: Vec<_> = low.iter().filter(|(at, _)| *at < size / part).collect();
        if inside.len() >= LEAST && twice(disk, block, &inside, size / part)? {
            return Ok(size / part);
        }
    }
    Ok(size)
}

/// Whether all of `low` is there again `size` bytes further, in two readings.
fn twice(
    disk: &mut dyn Blocks,
    block: &mut [u8],
    low: &[&(u64, Vec<u8>)],
    size: u64,
) -> io::Result<bool> {
    for _ in 0..2 {
        for (at, content) in low {
            disk.read(at + size, block)?;
            if block != content.as_slice() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
