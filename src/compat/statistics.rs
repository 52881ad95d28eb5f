//! A series of runs in figures: the first apart, since it is often cold.

/// Of all runs, and without the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    pub runs: usize,
    pub mean: f64,
    pub median: f64,
    /// Sample standard deviation; 0 for one run.
    pub deviation: f64,
    pub first: f64,
    /// Mean and sample standard deviation without the first run; none for one run.
    pub rest: Option<(f64, f64)>,
}

impl Statistics {
    /// None for no run.
    pub fn of(runs: &[f64]) -> Option<Self> {
        let (&first, rest) = runs.split_first()?;
        let (mean, deviation) = mean_and_deviation(runs);
        Some(Self {
            runs: runs.len(),
            mean,
            median: median(runs),
            deviation,
            first,
            rest: (!rest.is_empty()).then(|| mean_and_deviation(rest)),
        })
    }

    /// The first run against the mean of the rest.
    pub fn first_over_rest(&self) -> Option<f64> {
        self.rest.map(|(mean, _)| self.first / mean)
    }

    /// More than 3 % off: cold, or a disk that had to spin up.
    pub fn first_is_apart(&self) -> bool {
        self.first_over_rest()
            .is_some_and(|ratio| (ratio - 1.0).abs() > 0.03)
    }
}

fn mean_and_deviation(runs: &[f64]) -> (f64, f64) {
    let n = runs.len() as f64;
    let mean = runs.iter().sum::<f64>() / n;
    let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}

/// The middle one, or the mean of the two in the middle; 0 for none.
pub fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
#[path = "articles_test.rs"]
mod tests;
