//! What a run may spend: seconds and bytes written. Whichever is spent first ends a probe,
//! with the result so far.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// What the probes of a profile do at most. See the table in the README.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Seconds for all probes of one medium together.
    pub seconds: f64,
    /// Bytes that all probes of one medium may write together.
    pub written: u64,
    /// Seconds of sequential read at each of three places.
    pub place_seconds: f64,
    /// Seconds of random read, each for one and for 32 in flight.
    pub random_seconds: f64,
    /// Bytes of the durable write's file; 0 for a run without writes.
    pub file: u64,
    /// Seconds that the durable write may take.
    pub write_seconds: f64,
    /// Operations of the random write.
    pub random_writes: u64,
    pub random_write_seconds: f64,
    /// Stamps across the disk for the proof of its capacity, at most; 0 for none.
    pub stamps: u64,
    /// Seconds for what of that proof comes after the durable write.
    pub capacity_seconds: f64,
    /// Bytes of free space that are filled besides, at most; 0 for none.
    pub fill: u64,
}

/// The running account of a [`Plan`].
pub struct Budget {
    end: Instant,
    left: u64,
    written: u64,
}

impl Budget {
    pub fn new(plan: &Plan) -> Self {
        Self {
            end: Instant::now() + Duration::from_secs_f64(plan.seconds),
            left: plan.written,
            written: 0,
        }
    }

    /// The time of the whole run begins now: a spin-up or a fill is not for the probes to pay.
    pub fn restart(&mut self, plan: &Plan) {
        self.end = Instant::now() + Duration::from_secs_f64(plan.seconds);
    }

    /// Grants `bytes` more.
    pub fn grant(&mut self, bytes: u64) {
        self.left += bytes;
    }

    /// When a probe that may take `seconds` has to end: earlier if the whole run ends before.
    pub fn until(&self, seconds: f64) -> Instant {
        self.end
            .min(Instant::now() + Duration::from_secs_f64(seconds))
    }

    pub fn time_is_up(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Takes `bytes` from the budget before they are written; false, and nothing taken, where
    /// it holds less.
    #[must_use]
    pub fn spend(&mut self, bytes: u64) -> bool {
        if bytes > self.left {
            return false;
        }
        self.left -= bytes;
        self.written += bytes;
        true
    }

    /// Bytes not spent yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Bytes spent so far.
    pub fn written(&self) -> u64 {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_beyond_the_budget_is_refused_whole() {
        let plan = Plan {
            seconds: 1.0,
            written: 10_000,
            place_seconds: 0.0,
            random_seconds: 0.0,
            file: 0,
            write_seconds: 0.0,
            random_writes: 0,
            random_write_seconds: 0.0,
            stamps: 0,
            capacity_seconds: 0.0,
            fill: 0,
        };
        let mut budget = Budget::new(&plan);
        assert!(budget.spend(8192));
        assert!(!budget.spend(4096));
        assert!(budget.spend(1808));
        assert_eq!((budget.written(), budget.left()), (10_000, 0));
        assert!(budget.until(100.0) <= budget.end);
    }
}
