//! The times between consecutive packets of all flows together.
//!
//! The gaps of CAIDA and MAWI are log-normal with the published mean and deviation. Another rate
//! scales them and preserves their burstiness, which is the deviation divided by the mean.

use std::time::Duration;

use crate::{
    DistributionError, Exponential, LogNormal, RandomStream, Seed,
    traffic::published::{TraceStatistics, published},
};

/// Distributions of the time between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gaps {
    /// Log-normal gaps with the burstiness of CAIDA's trace.
    Caida,
    /// Log-normal gaps with the burstiness of MAWI's trace.
    Mawi,
    /// Exponential gaps, which are memoryless.
    Poisson,
    /// All gaps between packets are equal.
    Constant,
}

/// Default packets per second without a trace.
const RATE: u32 = 1_000_000;

impl Gaps {
    /// Returns the default packets per second.
    #[must_use]
    pub fn rate(self) -> u32 {
        let rate = |trace: &TraceStatistics| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the value is positive and below a million"
            )]
            let rate = (1e6 / trace.gap_mean_us).round() as u32;
            rate
        };
        match self {
            Self::Caida => rate(&published().traces.caida),
            Self::Mawi => rate(&published().traces.mawi),
            Self::Poisson | Self::Constant => RATE,
        }
    }

    /// Returns a sampler of gaps for a rate of packets.
    ///
    /// # Errors
    ///
    /// If the rate is zero.
    pub fn sampler(self, rate: u32) -> Result<GapSampler, DistributionError> {
        let mean = 1e9 / f64::from(rate);
        let bursty = |trace: &TraceStatistics| {
            LogNormal::with_mean(mean, mean * trace.gap_deviation_us / trace.gap_mean_us)
        };
        Ok(GapSampler(match self {
            Self::Caida => Gap::LogNormal(bursty(&published().traces.caida)?),
            Self::Mawi => Gap::LogNormal(bursty(&published().traces.mawi)?),
            Self::Poisson => Gap::Exponential(Exponential::new(mean)?),
            Self::Constant => Exponential::new(mean).map(|_| Gap::Constant(mean))?,
        }))
    }
}

/// Samples times between packets.
#[derive(Clone, Copy, Debug)]
pub struct GapSampler(Gap);

/// The distribution of one gap.
#[derive(Clone, Copy, Debug)]
enum Gap {
    LogNormal(LogNormal),
    Exponential(Exponential),
    Constant(f64),
}

impl GapSampler {
    /// Returns the time of the last packet of a [`Schedule`](super::Schedule).
    #[must_use]
    pub fn last(&self, packets: u64, seed: Seed) -> Duration {
        let mut stream = seed.stream(STREAM);
        let time = (1..packets).fold(0.0, |time, _| time + self.sample(&mut stream));
        Duration::from_nanos(nanoseconds(time))
    }

    /// Samples one gap, in nanoseconds.
    pub fn sample(&self, stream: &mut RandomStream) -> f64 {
        match self.0 {
            Gap::LogNormal(gap) => gap.sample(stream),
            Gap::Exponential(gap) => gap.sample(stream),
            Gap::Constant(gap) => gap,
        }
    }
}

/// The name of the random stream for the gaps of a schedule.
pub(super) const STREAM: &str = "gaps";

/// Returns a time of nanoseconds as a whole number, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time is not negative, and saturation is right for one that is too long"
)]
pub(super) const fn nanoseconds(time: f64) -> u64 {
    time as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    /// Checks quantiles, because no sample shows a deviation of forty times the mean.
    ///
    /// Let c be the deviation divided by the mean. The median of the gaps is the mean divided by
    /// the square root of 1 + c². The quantile of 84.13 % is the median times e to the power of the
    /// square root of ln(1 + c²).
    #[test]
    fn bursty_gaps_have_the_published_quantiles() {
        for gaps in [Gaps::Caida, Gaps::Mawi] {
            let trace = match gaps {
                Gaps::Caida => &published().traces.caida,
                _ => &published().traces.mawi,
            };
            let burstiness = 1.0 + (trace.gap_deviation_us / trace.gap_mean_us).powi(2);
            let median = 1e9 / f64::from(gaps.rate()) / burstiness.sqrt();
            let sampler = gaps.sampler(gaps.rate()).unwrap();
            let mut stream = Seed::new(3).stream("gaps");
            let mut all: Vec<f64> = (0..200_000).map(|_| sampler.sample(&mut stream)).collect();
            all.sort_unstable_by(f64::total_cmp);
            for (quantile, expected) in
                [(5000, median), (8413, median * burstiness.ln().sqrt().exp())]
            {
                let found = all[all.len() * quantile / 10_000];
                assert!((found / expected - 1.0).abs() < 0.04, "{gaps:?}: {found}, not {expected}");
            }
        }
    }

    /// Returns mean and deviation of a million gaps.
    fn sample_gaps(gaps: Gaps, rate: u32) -> (f64, f64) {
        let (sampler, mut stream) = (gaps.sampler(rate).unwrap(), Seed::new(2).stream("gaps"));
        let all: Vec<f64> = (0..1_000_000).map(|_| sampler.sample(&mut stream)).collect();
        let mean = all.iter().sum::<f64>() / 1e6;
        let square = all.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 1e6;
        (mean, square.sqrt())
    }

    #[test]
    fn mean_and_deviation_of_gaps_are_those_published() {
        let (mean, deviation) = sample_gaps(Gaps::Mawi, Gaps::Mawi.rate());
        assert!((3300.0..3480.0).contains(&mean), "{mean}");
        assert!((8500.0..9700.0).contains(&deviation), "{deviation}");
        let (mean, _) = sample_gaps(Gaps::Caida, Gaps::Caida.rate());
        assert!((1500.0..1900.0).contains(&mean), "{mean}");
    }

    #[test]
    fn another_rate_keeps_the_burstiness() {
        let (slow, fast) = (sample_gaps(Gaps::Mawi, 1000), sample_gaps(Gaps::Mawi, 1_000_000));
        assert!((slow.0 / fast.0 - 1000.0).abs() < 0.01, "{slow:?} {fast:?}");
        assert!((slow.1 / fast.1 - 1000.0).abs() < 0.01, "{slow:?} {fast:?}");
        assert!(Gaps::Constant.sampler(0).is_err() && Gaps::Caida.sampler(0).is_err());
    }
}
