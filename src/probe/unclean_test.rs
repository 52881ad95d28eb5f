//! Heads by the specifications' offsets. On images of mkfs.vfat and mkntfs with the flags set, fsck.vfat and
//! ntfsfix said the same; for exfat there was no second tool that tells.

use super::*;

fn head(parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut head = vec![0; HEAD];
    for (at, bytes) in parts {
        head[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    head
}

#[test]
fn fat_tells_it_in_two_places() {
    // mkfs.vfat -F 32: sectors of 512 bytes, 32 of them before the table.
    let fat32 = |state: u8, entry: &[u8]| {
        head(&[
            (11, &[0, 2]),
            (14, &[32, 0]),
            (0x41, &[state]),
            (82, b"FAT32   "),
            (510, &[0x55, 0xaa]),
            (32 * 512, &[0xf8, 0xff, 0xff, 0x0f]),
            (32 * 512 + 4, entry),
        ])
    };
    let clean = [0xff, 0xff, 0xff, 0x0f];
    assert_eq!(dirty(&fat32(0, &clean)), None);
    assert_eq!(dirty(&fat32(1, &clean)), Some("vfat"));
    assert_eq!(dirty(&fat32(0, &[0xff, 0xff, 0xff, 0x07])), Some("vfat"));
    // mkfs.vfat -F 16: 4 sectors before it.
    let fat16 = |state: u8, entry: &[u8]| {
        head(&[
            (11, &[0, 2]),
            (14, &[4, 0]),
            (0x25, &[state]),
            (54, b"FAT16   "),
            (510, &[0x55, 0xaa]),
            (4 * 512, &[0xf8, 0xff]),
            (4 * 512 + 2, entry),
        ])
    };
    assert_eq!(dirty(&fat16(0, &[0xff, 0xff])), None);
    assert_eq!(dirty(&fat16(1, &[0xff, 0xff])), Some("vfat"));
    assert_eq!(dirty(&fat16(0, &[0xff, 0x7f])), Some("vfat"));
}

#[test]
fn exfat_has_a_flag() {
    let exfat = |flags: u8| head(&[(3, b"EXFAT   "), (106, &[flags]), (510, &[0x55, 0xaa])]);
    // ActiveFat, VolumeDirty, MediaFailure.
    assert_eq!(dirty(&exfat(1)), None);
    assert_eq!(dirty(&exfat(2)), Some("exfat"));
    assert_eq!(dirty(&exfat(4)), None);
}

#[test]
fn ntfs_has_it_in_its_volume_record() {
    // mkntfs: clusters of 4096 bytes, the table at cluster 4, records of 2^10 bytes.
    let boot = [
        (3, &b"NTFS    "[..]),
        (11, &[0, 2]),
        (13, &[8]),
        (48, &[4, 0, 0, 0, 0, 0, 0, 0]),
        (64, &[0xf6]),
        (510, &[0x55, 0xaa]),
    ];
    assert_eq!(ntfs_volume(&head(&boot)), Some(4 * 4096 + 3 * 1024));
    let record = |flags: u8| {
        head(&[
            (0, b"FILE"),
            (20, &[0x38, 0]),
            (0x38, &[0x10, 0, 0, 0, 0x48, 0, 0, 0]),
            (0x80, &[0x70, 0, 0, 0, 0x28, 0, 0, 0]),
            (0x80 + 20, &[0x18, 0]),
            (0x80 + 0x18 + 8, &[3, 1, flags, 0]),
        ])
    };
    assert!(!ntfs_dirty(&record(0)));
    assert!(ntfs_dirty(&record(1)));
}

#[test]
fn nonsense_is_nothing() {
    for byte in [0, 0x55, 0xff] {
        let nonsense = vec![byte; HEAD];
        assert_eq!(dirty(&nonsense), None);
        assert_eq!(ntfs_volume(&nonsense), None);
        assert!(!ntfs_dirty(&nonsense));
    }
    let mut loop_of_attributes = head(&[(0, b"FILE"), (20, &[0x38, 0])]);
    loop_of_attributes.truncate(100);
    assert!(!ntfs_dirty(&loop_of_attributes));
    // Sizes that no file system has.
    let absurd = head(&[
        (3, b"NTFS    "),
        (11, &[0xff, 0xff, 0x90]),
        (48, &[0xff; 8]),
        (64, &[0x90]),
    ]);
    assert_eq!(ntfs_volume(&absurd), None);
}
