//! What the loader of a board will see in the binaries under `dist/`.

use std::fs;
use std::path::PathBuf;

const PT_LOAD: u64 = 1;
const PT_INTERP: u64 = 3;
const SHT_ARM_ATTRIBUTES: u64 = 0x7000_0003;
const TAG_CPU_ARCH: u64 = 6;
const CPU_ARCH_V6: u64 = 6;
const CPU_ARCH_V7: u64 = 10;

/// The largest page size of an ARM kernel. Pi 5 kernels have 16 KiB.
const LARGEST_PAGE: u64 = 64 << 10;
const AARCH64_LIMIT: usize = 768 << 10;

/// A little-endian ELF file of either class.
struct Elf {
    bytes: Vec<u8>,
    wide: bool,
}

impl Elf {
    fn new(bytes: Vec<u8>) -> Elf {
        assert_eq!(&bytes[..4], b"\x7fELF");
        assert_eq!(bytes[5], 1, "not little-endian");
        let wide = bytes[4] == 2;
        Elf { bytes, wide }
    }

    fn number(&self, at: u64, size: u64) -> u64 {
        let bytes = &self.bytes[at as usize..(at + size) as usize];
        bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
    }

    /// A field that has another place, and maybe another size, in each class.
    fn field(&self, start: u64, narrow: (u64, u64), wide: (u64, u64)) -> u64 {
        let (at, size) = if self.wide { wide } else { narrow };
        self.number(start + at, size)
    }

    /// Type and alignment of each program header.
    fn segments(&self) -> Vec<(u64, u64)> {
        let table = self.field(0, (0x1c, 4), (0x20, 8));
        let size = self.field(0, (0x2a, 2), (0x36, 2));
        let count = self.field(0, (0x2c, 2), (0x38, 2));
        (0..count)
            .map(|i| table + i * size)
            .map(|h| (self.number(h, 4), self.field(h, (0x1c, 4), (0x30, 8))))
            .collect()
    }

    fn section(&self, kind: u64) -> Option<&[u8]> {
        let table = self.field(0, (0x20, 4), (0x28, 8));
        let size = self.field(0, (0x2e, 2), (0x3a, 2));
        let count = self.field(0, (0x30, 2), (0x3c, 2));
        let header = (0..count)
            .map(|i| table + i * size)
            .find(|h| self.number(h + 4, 4) == kind)?;
        let start = self.field(header, (0x10, 4), (0x18, 8)) as usize;
        let length = self.field(header, (0x14, 4), (0x20, 8)) as usize;
        Some(&self.bytes[start..start + length])
    }
}

fn uleb(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().expect("attributes end early");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

/// Tag_CPU_arch of `.ARM.attributes`: 'A', length, "aeabi\0", Tag_File,
/// length, then pairs of tag and value.
fn cpu_arch(attributes: &[u8]) -> Option<u64> {
    assert_eq!(attributes[0], b'A');
    assert_eq!(&attributes[5..11], b"aeabi\0");
    assert_eq!(attributes[11], 1, "attributes of the file come first");
    let mut rest = &attributes[16..];
    while !rest.is_empty() {
        let tag = uleb(&mut rest);
        // Tags 4, 5 and the odd ones above 32 hold text; 32 a number and text.
        let text = matches!(tag, 4 | 5 | 32) || tag > 32 && tag % 2 == 1;
        if tag == 32 || !text {
            let value = uleb(&mut rest);
            if tag == TAG_CPU_ARCH {
                return Some(value);
            }
        }
        if text {
            let end = rest.iter().position(|b| *b == 0)?;
            rest = &rest[end + 1..];
        }
    }
    None
}

fn dist(arch: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("dist/{arch}/storage-selftest"))
}

/// The binaries that are there; the tests are nothing without this machine's own.
fn binaries() -> Vec<(&'static str, Elf)> {
    let found: Vec<_> = ["aarch64", "armv7", "armv6", "x86_64"]
        .into_iter()
        .filter_map(|arch| Some((arch, Elf::new(fs::read(dist(arch)).ok()?))))
        .collect();
    let own = if cfg!(target_arch = "arm") {
        "armv6"
    } else {
        std::env::consts::ARCH
    };
    assert!(
        found.iter().any(|(arch, _)| *arch == own),
        "no dist/{own}/storage-selftest: run make"
    );
    found
}

#[test]
fn static_without_a_loader() {
    for (arch, elf) in binaries() {
        assert!(
            elf.segments().iter().all(|(kind, _)| *kind != PT_INTERP),
            "{arch} wants a loader"
        );
    }
}

#[test]
fn segments_fit_the_largest_page() {
    for (arch, elf) in binaries() {
        let loads: Vec<u64> = elf
            .segments()
            .into_iter()
            .filter(|s| s.0 == PT_LOAD)
            .map(|s| s.1)
            .collect();
        assert!(!loads.is_empty(), "{arch} has nothing to load");
        assert!(
            loads.iter().all(|align| *align >= LARGEST_PAGE),
            "{arch}: {loads:#x?}"
        );
    }
}

#[test]
fn arm_code_is_for_the_processor_it_is_named_after() {
    for (arch, elf) in binaries() {
        let newest = match arch {
            "armv6" => CPU_ARCH_V6,
            "armv7" => CPU_ARCH_V7,
            _ => continue,
        };
        let attributes = elf.section(SHT_ARM_ATTRIBUTES).expect("no .ARM.attributes");
        let found = cpu_arch(attributes).expect("no Tag_CPU_arch");
        assert!(found <= newest, "{arch}: Tag_CPU_arch {found}");
    }
}

#[test]
fn aarch64_is_small() {
    for (arch, elf) in binaries() {
        let size = elf.bytes.len();
        assert!(arch != "aarch64" || size <= AARCH64_LIMIT, "{size} bytes");
    }
}
