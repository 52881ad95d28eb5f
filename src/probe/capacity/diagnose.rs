//! What the stamps' fates together say: a disk that ends early, or one with damaged blocks.

use super::gcd;

/// What was found where a stamp should be, worst of two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Kept,
    /// So many bits differ.
    Changed(u32),
    /// Zeros, ones, noise or what was there before.
    Lost(&'static str),
    /// The stamp of this other address.
    Overwritten(u64),
    Unreadable,
}

/// One stamp: its address on the disk in bytes, and its fate.
pub type Stamp = (u64, Fate);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Diagnosis {
    /// Nothing is kept from some address on: the last good stamp's address and the first bad one's.
    Ends {
        last_good: u64,
        first_bad: u64,
        instead: &'static str,
    },
    /// Stamps overwrite each other at this distance: the real size.
    Wraps {
        real: u64,
    },
    /// Scattered damage of one kind: how many stamps, and where the first is.
    Changed {
        count: u64,
        first: u64,
        bits: u32,
    },
    Lost {
        count: u64,
        first: u64,
        instead: &'static str,
    },
    Overwritten {
        count: u64,
        first: u64,
    },
    Unreadable {
        count: u64,
        first: u64,
    },
}

/// Bad stamps in a row at the end of the disk that are no chance: with as many as one in ten bad
/// elsewhere, five in a row are one in 100,000.
const IN_A_ROW: usize = 5;
/// Of the stamps beyond the end, so many of a hundred are bad: a memory may still know some.
const BEYOND_BAD: usize = 80;
/// Of the stamps below the end, at most so many of a hundred are bad: damage goes with fakes.
const BELOW_BAD: usize = 20;

/// Judges all stamps of a disk; `stamps` in any order. Empty where all were kept.
pub fn diagnose(stamps: &[Stamp]) -> Vec<Diagnosis> {
    let mut stamps = stamps.to_vec();
    stamps.sort_unstable_by_key(|stamp| stamp.0);
    if let Some(real) = wraps(&stamps) {
        return vec![Diagnosis::Wraps { real }];
    }
    match end(&stamps) {
        Some(at) => {
            let mut found = vec![Diagnosis::Ends {
                last_good: last_good(&stamps[..at]),
                first_bad: stamps[at].0,
                instead: instead(&stamps[at..]),
            }];
            found.extend(scattered(&stamps[..at]));
            found
        }
        None => scattered(&stamps),
    }
}

fn gone(fate: Fate) -> bool {
    matches!(fate, Fate::Lost(_) | Fate::Overwritten(_))
}

fn last_good(stamps: &[Stamp]) -> u64 {
    let kept = stamps.iter().rev().find(|stamp| stamp.1 == Fate::Kept);
    kept.map_or(0, |stamp| stamp.0)
}

/// Two or more pairs at distances with a common divisor far above a block. The same stamp
/// everywhere is no wrap: it is the last block written.
fn wraps(stamps: &[Stamp]) -> Option<u64> {
    let pairs = stamps.iter().filter_map(|&(at, fate)| match fate {
        Fate::Overwritten(other) if other != at => Some((other, at.abs_diff(other))),
        _ => None,
    });
    let pairs: Vec<(u64, u64)> = pairs.collect();
    let several = pairs.iter().any(|pair| pair.0 != pairs[0].0);
    let distance = pairs.iter().fold(0, |all, pair| gcd(all, pair.1));
    (several && distance >= 16 << 20).then_some(distance)
}

/// The first of the stamps beyond the end of the disk, where it has one: from there on nearly
/// all are gone, and nearly none before.
fn end(stamps: &[Stamp]) -> Option<usize> {
    let bad: Vec<bool> = stamps.iter().map(|stamp| gone(stamp.1)).collect();
    let all = bad.iter().filter(|&&bad| bad).count();
    let mut best: Option<(usize, usize)> = None;
    let mut before = 0;
    for at in 0..bad.len() {
        let beyond = all - before;
        let long = bad.len() - at;
        // Correctly placed: bad ones beyond, good ones before.
        let right = beyond + (at - before);
        if bad[at]
            && long >= IN_A_ROW
            && beyond * 100 >= long * BEYOND_BAD
            && before * 100 <= at * BELOW_BAD
            && best.is_none_or(|(most, _)| right > most)
        {
            best = Some((right, at));
        }
        before += usize::from(bad[at]);
    }
    best.map(|(_, at)| at)
}

/// What stands beyond the end mostly.
fn instead(stamps: &[Stamp]) -> &'static str {
    let mut others: Vec<u64> = Vec::new();
    for &(_, fate) in stamps {
        match fate {
            Fate::Lost(what) => return what,
            Fate::Overwritten(other) => others.push(other),
            _ => {}
        }
    }
    match others.first() {
        Some(first) if others.iter().all(|other| other == first) => "one block everywhere",
        _ => "other blocks",
    }
}

fn scattered(stamps: &[Stamp]) -> Vec<Diagnosis> {
    let of = |is: fn(Fate) -> bool| {
        let mut these = stamps.iter().filter(move |stamp| is(stamp.1));
        let first = these.next().copied();
        first.map(|(at, fate)| (at, fate, these.count() as u64 + 1))
    };
    let mut found = Vec::new();
    if let Some((first, Fate::Changed(bits), count)) = of(|f| matches!(f, Fate::Changed(_))) {
        found.push(Diagnosis::Changed { count, first, bits });
    }
    if let Some((first, Fate::Lost(instead), count)) = of(|f| matches!(f, Fate::Lost(_))) {
        found.push(Diagnosis::Lost {
            count,
            first,
            instead,
        });
    }
    if let Some((first, _, count)) = of(|f| matches!(f, Fate::Overwritten(_))) {
        found.push(Diagnosis::Overwritten { count, first });
    }
    if let Some((first, _, count)) = of(|f| f == Fate::Unreadable) {
        found.push(Diagnosis::Unreadable { count, first });
    }
    found
}

/// The smallest share of bad blocks that `stamps` random ones would have shown with 99 %
/// probability: (1 - share)^stamps = 0.01. Halved towards, since a logarithm costs 8 KiB of tables.
pub fn smallest_share(stamps: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let share = (low + high) / 2.0;
        match f64::powi(1.0 - share, stamps.max(1) as i32) > 0.01 {
            true => low = share,
            false => high = share,
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` stamps evenly across `bytes`, the fate of each by its address.
    fn spread(count: u64, bytes: u64, fate: impl Fn(u64) -> Fate) -> Vec<Stamp> {
        let at = |n: u64| n * (bytes / count / 4096 * 4096);
        (0..count).map(|n| (at(n), fate(at(n)))).collect()
    }

    /// AltraMayor/f3 issue 15: 65,499,136 sectors claimed, the first bad one at byte 0xea3e4000;
    /// beyond it zeros. f3probe said genuine.
    #[test]
    fn a_card_of_four_gigabytes_that_says_thirty_two() {
        let claimed = (8_099_392 + 57_399_744) * 512;
        let stamps = spread(768, claimed, |at| match at < 0xea3e_4000 {
            true => Fate::Kept,
            false => Fate::Lost("zeros"),
        });
        let found = diagnose(&stamps);
        let [
            Diagnosis::Ends {
                last_good,
                first_bad,
                instead: "zeros",
            },
        ] = found[..]
        else {
            panic!("{found:?}");
        };
        assert!(last_good < 0xea3e_4000 && first_bad >= 0xea3e_4000);
        assert!(first_bad - last_good <= claimed / 768);
    }

    /// Issue 52: 15,563,776 sectors announced, 997,860 good; of the rest some showed others' blocks.
    #[test]
    fn a_damaged_fake_is_a_fake() {
        let stamps = spread(768, 15_563_776 * 512, |at| match at < 997_860 * 512 {
            true => Fate::Kept,
            false if at % 16 == 0 && at / 4096 % 20 == 0 => Fate::Overwritten(at % 4096),
            false => Fate::Lost("other content"),
        });
        assert!(matches!(
            diagnose(&stamps)[..],
            [Diagnosis::Ends { first_bad, .. }] if first_bad >= 997_860 * 512
        ));
    }

    /// Issue 243: f3probe takes a damaged card for a fake.
    #[test]
    fn scattered_damage_is_no_fake() {
        for every in [1000, 100, 10] {
            let stamps = spread(1024, 32 << 30, |at| match at / 4096 % every {
                0 => Fate::Lost("zeros"),
                _ => Fate::Kept,
            });
            let found = diagnose(&stamps);
            let scattered = |d: &Diagnosis| matches!(d, Diagnosis::Lost { .. });
            assert!(found.iter().all(scattered), "{found:?}");
        }
        let last_alone = spread(1024, 32 << 30, |at| match at >= (32 << 30) / 1024 * 1022 {
            true => Fate::Lost("zeros"),
            false => Fate::Kept,
        });
        assert!(matches!(
            diagnose(&last_alone)[..],
            [Diagnosis::Lost { count: 2, .. }]
        ));
    }

    #[test]
    fn flipped_bits_are_damage_however_many_blocks_have_them() {
        let stamps = spread(100, 32 << 30, |_| Fate::Changed(1));
        let first = Diagnosis::Changed {
            count: 100,
            first: 0,
            bits: 1,
        };
        assert_eq!(diagnose(&stamps), [first]);
    }

    #[test]
    fn stamps_that_overwrite_each_other_tell_the_real_size() {
        let real = 7450 << 20;
        let mut stamps = spread(16, 32 << 30, |_| Fate::Kept);
        stamps.push((4096, Fate::Overwritten(4096 + real)));
        stamps.push((40960, Fate::Overwritten(40960 + 3 * real)));
        assert_eq!(diagnose(&stamps), [Diagnosis::Wraps { real }]);
    }

    #[test]
    fn one_block_that_shows_everywhere_is_a_loss_and_no_wrap() {
        let stamps = spread(64, 32 << 30, |at| match at < 8 << 30 {
            true => Fate::Kept,
            false => Fate::Overwritten(31 << 30),
        });
        let found = diagnose(&stamps);
        assert!(
            matches!(
                found[..],
                [Diagnosis::Ends {
                    instead: "one block everywhere",
                    ..
                }]
            ),
            "{found:?}"
        );
    }

    /// peers.md section on f3probe: 64 samples catch 5 % bad with 96.2 %, 1024 catch 1 % with
    /// 99.9966 %: the same formula the other way round.
    #[test]
    fn the_share_that_would_be_missed_is_the_usual_formula() {
        assert!((1.0 - 0.95_f64.powi(64) - 0.962).abs() < 1e-3);
        assert!((smallest_share(1024) - 0.004_487).abs() < 1e-5);
        assert!((smallest_share(64) - 0.069_4).abs() < 1e-3);
    }
}
