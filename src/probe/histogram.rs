//! Latency of each operation in a histogram of fixed size, with the slowest window.

use heapless::Vec;
use std::time::Duration;

/// Buckets a power of two: each is at most 1/16 wide, so that a percentile is right to 6 %.
const STEPS: u64 = 16;
/// From 2^9 ns (0.5 µs) to 2^37 ns (137 s).
const FIRST_POWER: u32 = 9;
const POWERS: u32 = 28;
const BUCKETS: usize = (POWERS as usize) * STEPS as usize;

/// An operation this long is a stall: SD 4.10, the longest that a write may be busy.
pub const STALL: Duration = Duration::from_millis(250);
/// An operation this long is a long stall.
pub const LONG_STALL: Duration = Duration::from_secs(1);

pub struct Histogram {
    counts: Vec<u32, BUCKETS>,
    pub operations: u64,
    pub max: Duration,
    pub stalls: u32,
    pub long_stalls: u32,
}

impl Histogram {
    pub fn new() -> Self {
        let mut counts = Vec::new();
        // The length is the capacity, so this cannot fail.
        let _ = counts.resize(BUCKETS, 0);
        Self {
            counts,
            operations: 0,
            max: Duration::ZERO,
            stalls: 0,
            long_stalls: 0,
        }
    }

    pub fn add(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket_of(nanos)) {
            *count = count.saturating_add(1);
        }
        self.operations += 1;
        self.max = self.max.max(latency);
        self.stalls += u32::from(latency >= STALL);
        self.long_stalls += u32::from(latency >= LONG_STALL);
    }

    /// The latency in µs that `share` (0 to 1) of the operations did not exceed; 0 without operations.
    pub fn percentile_us(&self, share: f64) -> f64 {
        let wanted = (share * self.operations as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += u64::from(count);
            if seen >= wanted {
                let middle = (lower_bound(bucket) + lower_bound(bucket + 1)) / 2;
                return (middle as f64 / 1e3).min(self.max.as_secs_f64() * 1e6);
            }
        }
        0.0
    }

    /// Lower bound in µs and count of each octave that has operations.
    pub fn octaves(&self) -> std::vec::Vec<(f64, u32)> {
        self.counts
            .chunks(STEPS as usize)
            .enumerate()
            .map(|(octave, counts)| {
                (
                    lower_bound(octave * STEPS as usize) as f64 / 1e3,
                    counts.iter().sum(),
                )
            })
            .filter(|&(_, count)| count > 0)
            .collect()
    }
}

fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.max(1 << FIRST_POWER);
    let power = nanos.ilog2();
    let step = (nanos >> (power - 4)) & (STEPS - 1);
    let bucket = u64::from(power - FIRST_POWER) * STEPS + step;
    (bucket as usize).min(BUCKETS - 1)
}

fn lower_bound(bucket: usize) -> u64 {
    let power = FIRST_POWER + (bucket as u64 / STEPS) as u32;
    let step = bucket as u64 % STEPS;
    (1 << power) + (step << (power - 4))
}

/// The longest time that a window of so many operations took.
pub struct Windows {
    size: u64,
    in_window: u64,
    time: Duration,
    slowest: Duration,
    all: Duration,
    operations: u64,
}

impl Windows {
    /// Windows of `size` operations.
    pub fn new(size: u64) -> Self {
        Self {
            size: size.max(1),
            in_window: 0,
            time: Duration::ZERO,
            slowest: Duration::ZERO,
            all: Duration::ZERO,
            operations: 0,
        }
    }

    /// `operations` ended after `time` of work.
    pub fn add(&mut self, operations: u64, time: Duration) {
        self.in_window += operations;
        self.operations += operations;
        self.time += time;
        self.all += time;
        if self.in_window >= self.size {
            let scaled = self.time.mul_f64(self.size as f64 / self.in_window as f64);
            self.slowest = self.slowest.max(scaled);
            self.in_window = 0;
            self.time = Duration::ZERO;
        }
    }

    /// Operations a second in the slowest window; of all operations where no window was filled.
    pub fn slowest_rate(&self) -> f64 {
        let (count, time) = if self.slowest > Duration::ZERO {
            (self.size, self.slowest)
        } else {
            (self.operations, self.all)
        };
        count as f64 / time.as_secs_f64().max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_known_series_are_right_to_a_sixteenth() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|ms| histogram.add(Duration::from_millis(ms)));
        let near = |got: f64, want: f64| {
            assert!(
                (got / want - 1.0).abs() < 1.0 / 16.0,
                "{got} is not near {want}"
            )
        };
        near(histogram.percentile_us(0.5), 500_000.0);
        near(histogram.percentile_us(0.99), 990_000.0);
        assert_eq!(histogram.max, Duration::from_secs(1));
        assert_eq!((histogram.stalls, histogram.long_stalls), (751, 1));
        assert_eq!(histogram.octaves().iter().map(|o| o.1).sum::<u32>(), 1000);
    }

    #[test]
    fn latencies_beyond_both_ends_are_kept_in_the_outer_buckets() {
        let mut histogram = Histogram::new();
        histogram.add(Duration::ZERO);
        histogram.add(Duration::from_secs(100_000));
        assert_eq!(histogram.octaves().len(), 2);
        assert_eq!(Histogram::new().percentile_us(0.5), 0.0);
    }

    #[test]
    fn one_stall_makes_the_slowest_window_and_a_short_run_is_a_window_of_its_own() {
        let mut windows = Windows::new(4);
        for n in 0..40 {
            windows.add(1, Duration::from_millis(if n == 21 { 970 } else { 10 }));
        }
        assert!(
            (windows.slowest_rate() - 4.0).abs() < 0.01,
            "{}",
            windows.slowest_rate()
        );
        let mut short = Windows::new(32);
        short.add(1, Duration::from_millis(200));
        assert!((short.slowest_rate() - 5.0).abs() < 0.01);
    }
}
