//! Incompressible data as a pure function of seed, block and generation, so that a read-back can
//! say what should be there, and what is there instead.

/// Bytes a block: the unit of stamping and comparing.
pub const BLOCK: usize = 4096;

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014), a bijection with full avalanche.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn start(seed: u64, index: u64, generation: u8) -> u64 {
    mix(seed ^ mix(index.wrapping_mul(GOLDEN) ^ (u64::from(generation) << 56)))
}

fn word(start: u64, n: u64) -> u64 {
    mix(start.wrapping_add((n + 1).wrapping_mul(GOLDEN)))
}

/// Fills one block of a file: `generation` counts the overwrites of that block.
pub fn fill(block: &mut [u8], seed: u64, index: u64, generation: u8) {
    let start = start(seed, index, generation);
    for (n, bytes) in block.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&word(start, n as u64).to_le_bytes());
    }
}

/// The first eight bytes of such a block, little-endian: enough to look for it among many.
pub fn first_word(seed: u64, index: u64, generation: u8) -> u64 {
    word(start(seed, index, generation), 0)
}

/// The inverse of an odd number modulo 2^64: each step of Newton's doubles the right bits.
const fn inverse(a: u64) -> u64 {
    let (mut x, mut step) = (a, 0);
    while step < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(a.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// Undoes [`mix`].
fn unmix(mut x: u64) -> u64 {
    x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    x ^ (x >> 30) ^ (x >> 60)
}

/// The index of the block that `block` is a whole copy of: a block bears it in its first word.
/// A block of another seed has one too, and a far too large one, as any number is equally likely.
pub fn index_of(block: &[u8], seed: u64, generation: u8) -> Option<u64> {
    let word = u64::from_le_bytes(block[..8].try_into().ok()?);
    let start = unmix(word).wrapping_sub(GOLDEN);
    let mixed = unmix(unmix(start) ^ seed) ^ (u64::from(generation) << 56);
    let index = mixed.wrapping_mul(inverse(GOLDEN));
    (compare(block, seed, index, generation) == Seen::Same).then_some(index)
}

/// A stream of offsets for random I/O: seeded, so that a run can be repeated.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which is at least 1 and far below 2^64: the bias of the
    /// multiplication is under 2^-32.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        ((u128::from(mix(self.0)) * u128::from(bound)) >> 64) as u64
    }
}

/// What stands where a block should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Same,
    /// So many bits differ: few enough to be the same block, damaged.
    Changed(u32),
    /// Zeros, an earlier generation, or something else altogether.
    Lost(&'static str),
}

/// More differing bits than this of 32768 is other content: damage flips some, foreign data half.
const FEW_BITS: u32 = 2048;

/// Compares a block read with what was written last.
pub fn compare(got: &[u8], seed: u64, index: u64, generation: u8) -> Seen {
    let mut want = [0; BLOCK];
    fill(&mut want, seed, index, generation);
    if got == want {
        return Seen::Same;
    }
    if got.iter().all(|&byte| byte == 0) {
        return Seen::Lost("zeros");
    }
    let bits = got
        .iter()
        .zip(&want)
        .map(|(a, b)| (a ^ b).count_ones())
        .sum();
    if bits <= FEW_BITS {
        return Seen::Changed(bits);
    }
    for earlier in 0..generation {
        fill(&mut want, seed, index, earlier);
        if got == want {
            return Seen::Lost("the content before the last write");
        }
    }
    Seen::Lost("other content")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_of_damage_are_told_apart() {
        let mut block = [0; BLOCK];
        fill(&mut block, 7, 3, 1);
        assert_eq!(compare(&block, 7, 3, 1), Seen::Same);
        let mut flipped = block;
        flipped[100] ^= 0b101;
        assert_eq!(compare(&flipped, 7, 3, 1), Seen::Changed(2));
        assert_eq!(compare(&[0; BLOCK], 7, 3, 1), Seen::Lost("zeros"));
        assert_eq!(
            compare(&block, 7, 3, 2),
            Seen::Lost("the content before the last write")
        );
        assert_eq!(compare(&block, 7, 4, 1), Seen::Lost("other content"));
        assert_eq!(compare(&block, 8, 3, 1), Seen::Lost("other content"));
    }

    #[test]
    fn a_block_tells_its_index_and_no_other_data_does() {
        let mut block = [0; BLOCK];
        for index in [0, 1, 262_144, 1 << 40, u64::MAX] {
            fill(&mut block, 7, index, 1);
            assert_eq!(index_of(&block, 7, 1), Some(index));
            assert!(index_of(&block, 8, 1) > Some(1 << 50));
        }
        block[4000] ^= 1;
        assert_eq!(index_of(&block, 7, 1), None);
        assert_eq!(index_of(&[0; BLOCK], 7, 1), None);
    }

    #[test]
    fn data_has_about_as_many_ones_as_zeros_and_no_block_twice() {
        let mut a = [0; BLOCK];
        let mut b = [0; BLOCK];
        fill(&mut a, 1, 0, 0);
        fill(&mut b, 1, 1, 0);
        let ones: u32 = a.iter().map(|byte| byte.count_ones()).sum();
        // 32768 fair bits: standard deviation 90; five of them on either side.
        assert!((15_930..16_840).contains(&ones), "{ones}");
        assert_ne!(a, b);
    }

    #[test]
    fn random_numbers_stay_below_the_bound_and_reach_both_halves() {
        let mut random = Random::new(42);
        let low = (0..1000)
            .map(|_| random.below(10))
            .inspect(|&n| assert!(n < 10))
            .filter(|&n| n < 5)
            .count();
        assert!((400..600).contains(&low), "{low}");
        assert_eq!(random.below(1), 0);
    }
}
