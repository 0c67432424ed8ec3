//! The random distributions of workloads, reproducible to the last bit.
//!
//! All distributions sample by inversion or by tables over [`RandomStream::unit`], with the
//! logarithm and exponential of this crate. So a seed gives the same numbers on every machine.

use crate::{
    DistributionError, RandomStream,
    real::{exp, ln, pow},
};

/// A distribution of indices with probabilities proportional to their weights.
#[derive(Clone, Debug)]
pub struct WeightedIndices {
    /// Cumulative weights; the last sum is positive.
    sums: Vec<f64>,
}

impl WeightedIndices {
    /// Creates indices with these weights, which must be finite and not negative.
    ///
    /// # Errors
    ///
    /// If a weight is invalid, or none is positive.
    pub fn new(weights: impl IntoIterator<Item = f64>) -> Result<Self, DistributionError> {
        let mut sums = Vec::new();
        let mut sum = 0.0;
        for weight in weights {
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(out_of_range("a weight", weight, "finite and not negative"));
            }
            sum += weight;
            sums.push(sum);
        }
        if sum > 0.0 { Ok(Self { sums }) } else { Err(DistributionError::Empty) }
    }

    /// Samples the index of an outcome.
    pub fn sample(&self, stream: &mut RandomStream) -> usize {
        self.at(stream.unit())
    }

    /// Returns the index at this fraction of the total weight, from 0 to 1.
    #[must_use]
    pub fn at(&self, share: f64) -> usize {
        let total = self.sums.last().copied().unwrap_or(0.0);
        let at = share * total;
        // An index without weight has the same sum as the index before it, so it is never chosen.
        let index = self.sums.partition_point(|sum| *sum <= at);
        index.min(self.sums.len().saturating_sub(1))
    }

    /// Returns the number of indices.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Returns false, because there is at least one index.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }
}

/// A distribution of ranks from 0 on; the k-th rank has a weight of 1 / k^exponent.
#[derive(Clone, Debug)]
pub struct Zipf(WeightedIndices);

impl Zipf {
    /// Creates a distribution of `ranks` ranks; exponent 0 makes all equally likely.
    ///
    /// # Errors
    ///
    /// If there is no rank, or the exponent is negative or not finite.
    pub fn new(ranks: u32, exponent: f64) -> Result<Self, DistributionError> {
        if !(exponent.is_finite() && exponent >= 0.0) {
            return Err(out_of_range("the exponent", exponent, "finite and not negative"));
        }
        WeightedIndices::new((1..=ranks).map(|rank| pow(f64::from(rank), -exponent))).map(Self)
    }

    /// Samples a rank from 0.
    pub fn sample(&self, stream: &mut RandomStream) -> usize {
        self.0.sample(stream)
    }
}

/// Exponentially distributed gaps between events.
#[derive(Clone, Copy, Debug)]
pub struct Exponential {
    mean: f64,
}

impl Exponential {
    /// Creates the distribution of gaps with a mean.
    ///
    /// # Errors
    ///
    /// If the mean is not positive and finite.
    pub fn new(mean: f64) -> Result<Self, DistributionError> {
        check_positive("the mean", mean).map(|mean| Self { mean })
    }

    /// Samples the gap between two events.
    pub fn sample(&self, stream: &mut RandomStream) -> f64 {
        -self.mean * ln(1.0 - stream.unit())
    }
}

/// A log-normal distribution of positive numbers.
#[derive(Clone, Copy, Debug)]
pub struct LogNormal {
    mu: f64,
    sigma: f64,
}

impl LogNormal {
    /// Creates the distribution from mean and deviation of the *logarithm*.
    ///
    /// # Errors
    ///
    /// If the mean is not finite, or the deviation is negative or not finite.
    pub fn new(mu: f64, sigma: f64) -> Result<Self, DistributionError> {
        if !mu.is_finite() {
            return Err(out_of_range("mu", mu, "finite"));
        }
        if !(sigma.is_finite() && sigma >= 0.0) {
            return Err(out_of_range("sigma", sigma, "finite and not negative"));
        }
        Ok(Self { mu, sigma })
    }

    /// Creates the distribution from mean and deviation of the numbers themselves.
    ///
    /// # Errors
    ///
    /// If the mean or the deviation is not positive and finite.
    pub fn with_mean(mean: f64, deviation: f64) -> Result<Self, DistributionError> {
        let ratio = check_positive("the deviation", deviation)? / check_positive("the mean", mean)?;
        let variance = ln(1.0 + ratio * ratio);
        Self::new(ln(mean) - variance / 2.0, variance.sqrt())
    }

    /// Samples a number from the distribution.
    pub fn sample(&self, stream: &mut RandomStream) -> f64 {
        exp(self.mu + self.sigma * normal(stream))
    }
}

/// Samples the standard normal distribution by Marsaglia's polar method.
fn normal(stream: &mut RandomStream) -> f64 {
    loop {
        let (x, y) = (2.0 * stream.unit() - 1.0, 2.0 * stream.unit() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * ln(square) / square).sqrt();
        }
    }
}

/// Returns a number that is above zero, or an error.
fn check_positive(what: &'static str, value: f64) -> Result<f64, DistributionError> {
    let good = value.is_finite() && value > 0.0;
    if good { Ok(value) } else { Err(out_of_range(what, value, "positive and finite")) }
}

/// Returns the error of a number outside of its range.
const fn out_of_range(what: &'static str, value: f64, expected: &'static str) -> DistributionError {
    DistributionError::Parameter { what, value, expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    /// Number of samples of which the tests take the mean.
    const DRAWS: u32 = 100_000;

    /// Returns the mean of many random numbers.
    fn mean(mut draw: impl FnMut(&mut RandomStream) -> f64) -> f64 {
        let mut stream = Seed::new(3).stream("mean");
        (0..DRAWS).map(|_| draw(&mut stream)).sum::<f64>() / f64::from(DRAWS)
    }

    #[test]
    fn sampled_indexes_follow_their_weights() {
        let weighted = WeightedIndices::new([0.0, 1.0, 0.0, 3.0, 0.0]).unwrap();
        let mut stream = Seed::new(1).stream("weights");
        let mut counts = [0; 5];
        for _ in 0..40_000 {
            counts[weighted.sample(&mut stream)] += 1;
        }
        assert_eq!((counts[0], counts[2], counts[4]), (0, 0, 0));
        assert!((9_500..10_500).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn exponent_one_halves_the_second_rank() {
        let zipf = Zipf::new(1000, 1.0).unwrap();
        let share = |rank: usize| mean(|stream| f64::from(u8::from(zipf.sample(stream) == rank)));
        let ratio = share(0) / share(1);
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn distributions_have_the_requested_means() {
        let gap = Exponential::new(5.0).unwrap();
        let size = LogNormal::with_mean(10.0, 5.0).unwrap();
        let (gaps, sizes) = (mean(|stream| gap.sample(stream)), mean(|stream| size.sample(stream)));
        assert!((4.9..5.1).contains(&gaps), "{gaps}");
        assert!((9.9..10.1).contains(&sizes), "{sizes}");
    }

    #[test]
    fn invalid_parameters_are_refused() {
        assert_eq!(WeightedIndices::new([]).unwrap_err(), DistributionError::Empty);
        assert_eq!(Zipf::new(0, 1.0).unwrap_err(), DistributionError::Empty);
        let refused = [
            WeightedIndices::new([1.0, -1.0]).is_err(),
            Zipf::new(3, f64::NAN).is_err(),
            Exponential::new(0.0).is_err(),
            LogNormal::with_mean(1.0, f64::INFINITY).is_err(),
        ];
        assert_eq!(refused, [true; 4]);
    }
}
