//! The time between one packet and the next, over all flows together.
//!
//! CAIDA's and MAWI's gaps are lognormal with the published mean and deviation. Another rate
//! stretches them and leaves their burstiness, the deviation over the mean, as it is.

use crate::{
    DistributionError, Exponential, LogNormal, RandomStream,
    traffic::published::{Trace, published},
};

/// Distributions of the time between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gaps {
    /// As bursty as CAIDA's trace.
    Caida,
    /// As bursty as MAWI's trace.
    Mawi,
    /// Without memory.
    Poisson,
    /// All the same.
    Constant,
}

/// Packets in a second where neither the name nor a trace says how many.
const RATE: u32 = 1_000_000;

impl Gaps {
    /// Packets in a second if nobody asks for another rate.
    #[must_use]
    pub fn rate(self) -> u32 {
        let rate = |trace: &Trace| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a positive number below a million"
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

    /// What draws one gap after the other, at this rate.
    ///
    /// # Errors
    ///
    /// A rate of zero.
    pub fn sampler(self, rate: u32) -> Result<GapSampler, DistributionError> {
        let mean = 1e9 / f64::from(rate);
        let bursty = |trace: &Trace| {
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

/// Draws times between packets.
#[derive(Clone, Copy, Debug)]
pub struct GapSampler(Gap);

#[derive(Clone, Copy, Debug)]
enum Gap {
    LogNormal(LogNormal),
    Exponential(Exponential),
    Constant(f64),
}

impl GapSampler {
    /// One gap, in nanoseconds.
    pub fn sample(&self, stream: &mut RandomStream) -> f64 {
        match self.0 {
            Gap::LogNormal(gap) => gap.sample(stream),
            Gap::Exponential(gap) => gap.sample(stream),
            Gap::Constant(gap) => gap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    /// Mean and deviation of a million gaps.
    fn drawn(gaps: Gaps, rate: u32) -> (f64, f64) {
        let (sampler, mut stream) = (gaps.sampler(rate).unwrap(), Seed::new(2).stream("gaps"));
        let all: Vec<f64> = (0..1_000_000).map(|_| sampler.sample(&mut stream)).collect();
        let mean = all.iter().sum::<f64>() / 1e6;
        let square = all.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 1e6;
        (mean, square.sqrt())
    }

    #[test]
    fn mean_and_deviation_of_gaps_are_those_published() {
        let (mean, deviation) = drawn(Gaps::Mawi, Gaps::Mawi.rate());
        assert!((3300.0..3480.0).contains(&mean), "{mean}");
        assert!((8500.0..9700.0).contains(&deviation), "{deviation}");
        // A deviation forty times the mean shows slowly.
        let (mean, deviation) = drawn(Gaps::Caida, Gaps::Caida.rate());
        assert!((1500.0..1900.0).contains(&mean), "{mean}");
        assert!(deviation > 15.0 * mean, "{deviation}");
    }

    #[test]
    fn another_rate_keeps_the_burstiness() {
        let (slow, fast) = (drawn(Gaps::Mawi, 1000), drawn(Gaps::Mawi, 1_000_000));
        assert!((slow.0 / fast.0 - 1000.0).abs() < 0.01, "{slow:?} {fast:?}");
        assert!((slow.1 / fast.1 - 1000.0).abs() < 0.01, "{slow:?} {fast:?}");
        assert!(Gaps::Constant.sampler(0).is_err() && Gaps::Caida.sampler(0).is_err());
    }
}
