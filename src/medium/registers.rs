//! The registers of SD cards and eMMC. Bit positions are those of the SD Physical Layer
//! Simplified Specification, as used by drivers/mmc/core/sd.c and mmc.c in the kernel.
//! Only what some finding or identity uses is decoded.
#![allow(
    dead_code,
    reason = "all of a register is decoded and tested, used or not"
)]

use super::tree::Tree;

/// A register of `N` bytes, most significant first, as sysfs prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register<const N: usize>([u8; N]);

impl<const N: usize> Register<N> {
    /// From 2 × `N` hexadecimal digits without `0x`; `None` for anything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.trim().as_bytes();
        if digits.len() != 2 * N {
            return None;
        }
        let mut bytes = [0; N];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = [pair[0], pair[1]].map(|digit| char::from(digit).to_digit(16));
            *byte = (high? << 4 | low?) as u8;
        }
        Some(Self(bytes))
    }

    /// Bits `high` to `low`, numbered as in the specification (0 is the last bit), at most 64.
    fn bits(&self, high: usize, low: usize) -> u64 {
        (low..=high).rev().fold(0, |value, bit| {
            let byte = self
                .0
                .len()
                .checked_sub(1 + bit / 8)
                .and_then(|at| self.0.get(at));
            value << 1 | u64::from(byte.copied().unwrap_or(0) >> (bit % 8) & 1)
        })
    }
}

/// The last byte of a CID, which only some hosts report (omap, sunxi and dw do; sdhci
/// gives `00`, bcm2835 `01`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crc {
    Right,
    NotReported,
    Wrong,
}

/// Card identification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cid {
    pub manfid: u8,
    /// SD: two characters. eMMC: CBX (0 card, 1 BGA, 2 POP) and the OEM id.
    pub oemid: u16,
    /// Product name: 5 bytes on SD, 6 on eMMC; blanks and zeros are kept.
    pub product: Vec<u8>,
    /// SD: hardware and firmware revision, a nibble each. eMMC: PRV.
    pub revision: u8,
    pub serial: u32,
    /// 1 to 12 on an honest card; 0 to 15 can be read.
    pub month: u8,
    /// SD: the year, 2000 to 2255. eMMC: its code 0 to 15, whose meaning depends on EXT_CSD.
    pub year: u16,
    pub crc: Crc,
}

/// Decodes the CID of an SD card.
pub fn sd_cid(cid: &Register<16>) -> Cid {
    Cid {
        manfid: cid.0[0],
        oemid: cid.bits(119, 104) as u16,
        product: cid.0[3..8].to_vec(),
        revision: cid.0[8],
        serial: cid.bits(55, 24) as u32,
        month: cid.bits(11, 8) as u8,
        year: 2000 + cid.bits(19, 12) as u16,
        crc: crc(cid),
    }
}

/// Decodes the CID of an eMMC.
pub fn emmc_cid(cid: &Register<16>) -> Cid {
    Cid {
        manfid: cid.0[0],
        oemid: cid.bits(119, 104) as u16 & 0x03ff,
        product: cid.0[3..9].to_vec(),
        revision: cid.0[9],
        serial: cid.bits(47, 16) as u32,
        month: cid.bits(15, 12) as u8,
        year: cid.bits(11, 8) as u16,
        crc: crc(cid),
    }
}

fn crc(cid: &Register<16>) -> Crc {
    let (content, last) = (&cid.0[..15], cid.0[15]);
    if last == crc7(content) << 1 | 1 {
        Crc::Right
    } else if last <= 1 {
        Crc::NotReported
    } else {
        Crc::Wrong
    }
}

/// CRC7 with the polynomial x⁷ + x³ + 1, SD Physical Layer 4.5.
fn crc7(bytes: &[u8]) -> u8 {
    let step = |crc: u8, _| {
        if crc & 0x80 != 0 {
            crc << 1 ^ 0x12
        } else {
            crc << 1
        }
    };
    bytes
        .iter()
        .fold(0, |crc, byte| (0..8).fold(crc ^ byte, step))
        >> 1
}

/// Card specific data of an SD card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Csd {
    /// 1 SDSC, 2 SDHC and SDXC, 3 SDUC.
    pub version: u8,
    /// Capacity in bytes, as the card claims it.
    pub bytes: u64,
    /// Write protected for good, or until told otherwise: some cards do so at their end of life.
    pub write_protected: bool,
}

/// `None` for a version that does not exist.
pub fn sd_csd(csd: &Register<16>) -> Option<Csd> {
    let version = csd.bits(127, 126) as u8 + 1;
    let bytes = match version {
        1 => (csd.bits(73, 62) + 1) << (csd.bits(49, 47) + 2 + csd.bits(83, 80)),
        2 => (csd.bits(69, 48) + 1) << 19,
        3 => (csd.bits(75, 48) + 1) << 19,
        _ => return None,
    };
    let write_protected = csd.bits(13, 12) != 0;
    Some(Csd {
        version,
        bytes,
        write_protected,
    })
}

/// The major version of the SD specification that a card follows, from its SCR: 1 to 5 and up.
pub fn sd_spec(scr: &Register<8>) -> u8 {
    match (
        scr.bits(59, 56),
        scr.bits(47, 47),
        scr.bits(42, 42),
        scr.bits(41, 38),
    ) {
        (2, 1, _, x @ 1..) => 4 + x as u8,
        (2, 1, 1, _) => 4,
        (2, 1, 0, _) => 3,
        (2, ..) => 2,
        _ => 1,
    }
}

/// SD status: what the card promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ssr {
    /// 0, 2, 4, 6 or 10 (MB/s).
    pub speed_class: u8,
    /// U0, U1 or U3 (10, 30 MB/s).
    pub uhs_grade: u8,
    /// V6 to V90 (MB/s); 0 for none.
    pub video_class: u8,
    /// A1 or A2; 0 for none.
    pub app_class: u8,
    /// AU_SIZE, a code: 9 is 4 MiB.
    pub au_code: u8,
    pub uhs_au_code: u8,
    pub discard: bool,
}

/// `None` where the register is all zero: the card has none, or the kernel could not read it.
pub fn sd_ssr(ssr: &Register<64>) -> Option<Ssr> {
    if ssr.0.iter().all(|&byte| byte == 0) {
        return None;
    }
    let speed_class = match ssr.bits(447, 440) as u8 {
        4 => 10,
        code @ 0..=3 => 2 * code,
        _ => 0,
    };
    Some(Ssr {
        speed_class,
        uhs_grade: ssr.bits(399, 396) as u8,
        video_class: ssr.bits(391, 384) as u8,
        app_class: ssr.bits(339, 336) as u8,
        au_code: ssr.bits(431, 428) as u8,
        uhs_au_code: ssr.bits(395, 392) as u8,
        discard: ssr.bits(313, 313) == 1,
    })
}

/// Everything that a card or eMMC says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    pub emmc: bool,
    pub cid: Option<Cid>,
    pub csd: Option<Csd>,
    pub spec: Option<u8>,
    pub ssr: Option<Ssr>,
}

/// The registers of `device` (`mmcblk0`), from sysfs: nothing is sent to the card.
/// `None` where it is no SD card or eMMC.
pub fn read(tree: &Tree, device: &str) -> Option<Registers> {
    if !device.starts_with("mmcblk") {
        return None;
    }
    let text = |name: &str| tree.text(format!("/sys/block/{device}/device/{name}"));
    let emmc = text("type")? == "MMC";
    let decode = if emmc { emmc_cid } else { sd_cid };
    Some(Registers {
        emmc,
        cid: text("cid")
            .and_then(|hex| Register::from_hex(&hex))
            .map(|cid| decode(&cid)),
        csd: text("csd")
            .filter(|_| !emmc)
            .and_then(|hex| sd_csd(&Register::from_hex(&hex)?)),
        spec: text("scr")
            .and_then(|hex| Register::from_hex(&hex))
            .map(|scr| sd_spec(&scr)),
        ssr: text("ssr").and_then(|hex| sd_ssr(&Register::from_hex(&hex)?)),
    })
}
