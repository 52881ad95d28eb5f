//! The flag by which vfat, exfat and ntfs tell that they were not unmounted. Only where none is
//! mounted: the kernel sets it while one is.

use super::Message;
use super::io::read_exact;
use super::job::Context;
use crate::sys::Buffer;

/// Bytes read of a file system: FAT32 has its table behind 32 sectors as a rule.
const HEAD: usize = 64 << 10;

/// Reads the first 64 KiB of each file system that is not mounted, and says which are unclean.
pub fn run(context: &mut Context) {
    let mut unclean = String::new();
    let block = u64::from(context.job.logical_block.max(512));
    for (name, start) in context.job.unmounted.clone() {
        let disk = &context.disk;
        let read = |offset: u64| {
            let mut buffer = Buffer::new(HEAD).ok()?;
            let end = offset.checked_add(HEAD as u64)?;
            let fits = end <= context.job.bytes && offset.is_multiple_of(block);
            (fits && read_exact(disk, &mut buffer, offset).is_ok()).then_some(buffer)
        };
        let Some(head) = read(start) else { continue };
        let record = ntfs_volume(&head).and_then(|at| {
            let place = start.checked_add(at)?;
            let buffer = read(place / block * block)?;
            Some(ntfs_dirty(buffer.get((place % block) as usize..)?))
        });
        let kind = match record {
            Some(dirty) => dirty.then_some("ntfs"),
            None => dirty(&head),
        };
        if let Some(kind) = kind {
            let comma = if unclean.is_empty() { "" } else { ", " };
            unclean += &format!("{comma}{name} ({kind})");
        }
    }
    if !unclean.is_empty() {
        (context.tell)(Message::Unclean(unclean));
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(length)?)?;
    let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    Some(part.iter().rev().fold(0, add))
}

/// exFAT specification 3.1.13.2: VolumeDirty. FAT: what Linux sets in its boot sector
/// (FAT_STATE_DIRTY), and ClnShutBitMask of the second entry of the table (Microsoft's FAT
/// specification), which is 1 where all is well.
fn dirty(head: &[u8]) -> Option<&'static str> {
    let has = |at: usize, text: &[u8]| head.get(at..at + text.len()) == Some(text);
    if !has(510, &[0x55, 0xaa]) {
        return None;
    }
    if has(3, b"EXFAT   ") {
        return (number(head, 106, 2)? & 2 != 0).then_some("exfat");
    }
    let sector = usize::try_from(number(head, 11, 2)?).ok()?;
    let table = usize::try_from(number(head, 14, 2)?)
        .ok()?
        .checked_mul(sector)?;
    let (state, clean) = if has(82, b"FAT32   ") {
        (0x41, number(head, table + 4, 4)? & 0x0800_0000)
    } else if has(54, b"FAT16   ") {
        (0x25, number(head, table + 2, 2)? & 0x8000)
    } else {
        return None;
    };
    (number(head, state, 1)? & 1 != 0 || clean == 0).then_some("vfat")
}

/// Where record 3 of an NTFS' file table, $Volume, is in it, bytes.
fn ntfs_volume(head: &[u8]) -> Option<u64> {
    if head.get(3..11)? != b"NTFS    " {
        return None;
    }
    let sector = number(head, 11, 2)?;
    let cluster = match number(head, 13, 1)? {
        size if size <= 0x80 => sector * size,
        shift => sector << (256 - shift).min(16),
    };
    // Negative: the power of two of its bytes.
    let record = match number(head, 64, 1)? {
        size if size < 0x80 => cluster * size,
        shift => 1 << (256 - shift).min(16),
    };
    number(head, 48, 8)?
        .checked_mul(cluster)?
        .checked_add(3 * record)
}

/// $VOLUME_INFORMATION, attribute 0x70: bit 0 of its flags (Linux, fs/ntfs3/ntfs.h).
fn ntfs_dirty(record: &[u8]) -> bool {
    let find = || -> Option<u64> {
        let mut at = usize::try_from(number(record, 20, 2)?).ok()?;
        for _ in 0..16 {
            if number(record, at, 4)? == 0x70 {
                let content = usize::try_from(number(record, at + 20, 2)?).ok()?;
                return number(record, at + content + 10, 2);
            }
            at = at.checked_add(usize::try_from(number(record, at + 4, 4)?).ok()?)?;
        }
        None
    };
    record.starts_with(b"FILE") && find().is_some_and(|flags| flags & 1 != 0)
}

#[cfg(test)]
#[path = "unclean_test.rs"]
mod tests;
