//! Distributions of packets per flow, and of packet lengths.
//!
//! Packets per flow are sampled from the published mixture of a campus link. The distributions of
//! CAIDA's and MAWI's traces were not published; so the mixture is truncated at a length that gives
//! the mean of their traces. The flow sizes of a workload with a fixed number of packets are scaled
//! to this number ([`scale_to_packets`]), which preserves the order and the proportion of its
//! flows.

use crate::{
    DistributionError, LogNormal, RandomStream, WeightedIndices,
    real::pow,
    traffic::published::{FlowBytes, LogNormalPart, UniformPart, published},
};

/// Distributions of the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowSizes {
    /// As on a campus link, truncated so that the mean equals CAIDA's.
    Caida,
    /// As on a campus link, truncated so that the mean equals MAWI's.
    Mawi,
    /// Lengths of packets as on a campus link.
    Campus,
    /// The k-th flow has a share of 1 / k^e of the packets.
    Zipf {
        /// The exponent e, in hundredths.
        hundredths: u16,
    },
    /// Like flows of Hadoop, in packets of 1500 bytes.
    Hadoop,
    /// Like the remote calls of a search engine, in packets of 1500 bytes.
    Search,
    /// All flows have one size.
    Fixed,
}

/// Maximum flow length for CAIDA's mean of 16.7.
const CAIDA_MAX: u32 = 980;
/// Maximum flow length for MAWI's mean of 15.8.
const MAWI_MAX: u32 = 825;
/// Maximum flow length on a campus link: hardly any of 4 billion flows exceeds it.
const CAMPUS_MAX: u32 = 10_000_000;
/// Number of bytes of a flow that become one packet.
const PACKET_BYTES: f64 = 1500.0;

impl FlowSizes {
    /// Samples the numbers of packets of `flows` flows, in random order.
    ///
    /// # Errors
    ///
    /// If published parameters are invalid.
    pub fn draw(
        self,
        flows: usize,
        stream: &mut RandomStream,
    ) -> Result<Vec<u32>, DistributionError> {
        let published = published();
        Ok(match self {
            Self::Caida => Mixture::campus(CAIDA_MAX)?.draw(flows, stream),
            Self::Mawi => Mixture::campus(MAWI_MAX)?.draw(flows, stream),
            Self::Campus => Mixture::campus(CAMPUS_MAX)?.draw(flows, stream),
            Self::Zipf { hundredths } => zipf(flows, hundredths, stream),
            Self::Hadoop => in_packets(published.coflows.hadoop, flows, stream)?,
            Self::Search => in_packets(published.coflows.search, flows, stream)?,
            Self::Fixed => vec![1; flows],
        })
    }
}

/// The published mixture, truncated at a length.
struct Mixture {
    parts: WeightedIndices,
    uniform: &'static [UniformPart],
    lognormal: Vec<LogNormal>,
    max: u32,
}

impl Mixture {
    /// Returns the distribution of flow sizes on a campus link.
    fn campus(max: u32) -> Result<Self, DistributionError> {
        let lengths = &published().flow_lengths;
        let shares = lengths.uniform.iter().map(|part| part.share);
        let parts =
            WeightedIndices::new(shares.chain(lengths.lognormal.iter().map(|part| part.share)))?;
        let lognormal =
            |part: &LogNormalPart| LogNormal::new(crate::real::ln(part.median), part.sigma);
        let lognormal = lengths.lognormal.iter().map(lognormal).collect::<Result<_, _>>()?;
        Ok(Self { parts, uniform: &lengths.uniform, lognormal, max })
    }

    /// Returns random flow sizes.
    fn draw(&self, flows: usize, stream: &mut RandomStream) -> Vec<u32> {
        (0..flows).map(|_| self.length(stream)).collect()
    }

    /// Returns a random flow size in packets.
    fn length(&self, stream: &mut RandomStream) -> u32 {
        let part = self.parts.sample(stream);
        let value = match self.uniform.get(part) {
            Some(uniform) => stream.unit() * uniform.most,
            None => self
                .lognormal
                .get(part.saturating_sub(self.uniform.len()))
                .map_or(1.0, |part| part.sample(stream)),
        };
        saturating_u32(value.ceil().clamp(1.0, f64::from(self.max)))
    }
}

/// Returns flow sizes by Zipf's law, in random order.
fn zipf(flows: usize, hundredths: u16, stream: &mut RandomStream) -> Vec<u32> {
    let exponent = f64::from(hundredths) / 100.0;
    // Flows are numbered with 32 bits.
    let ranks = 1..=u32::try_from(flows).unwrap_or(u32::MAX);
    let share = |rank: u32| saturating_u32(f64::from(u32::MAX) * pow(f64::from(rank), -exponent));
    let mut sizes: Vec<u32> = ranks.map(share).collect();
    stream.shuffle(&mut sizes);
    sizes
}

/// Returns random flow sizes in packets, from a distribution in bytes.
fn in_packets(
    bytes: FlowBytes,
    flows: usize,
    stream: &mut RandomStream,
) -> Result<Vec<u32>, DistributionError> {
    let sizes = BoundedPareto::with_mean(bytes.least_bytes, bytes.most_bytes, bytes.mean_bytes)?;
    Ok((0..flows)
        .map(|_| saturating_u32((sizes.sample(stream) / PACKET_BYTES).ceil().max(1.0)))
        .collect())
}

/// A bounded Pareto distribution.
#[derive(Clone, Copy, Debug)]
pub struct BoundedPareto {
    least: f64,
    /// The power alpha of the quotient of lower and upper bound.
    tail: f64,
    alpha: f64,
}

impl BoundedPareto {
    /// Creates the distribution with a mean and two bounds.
    ///
    /// # Errors
    ///
    /// If lower bound, mean and upper bound are not in ascending order.
    pub fn with_mean(least: f64, most: f64, mean: f64) -> Result<Self, DistributionError> {
        let value = mean;
        if !(0.0 < least && least < mean && mean < most && most.is_finite()) {
            let expected = "between the bounds";
            return Err(DistributionError::Parameter { what: "the mean", value, expected });
        }
        // The mean decreases with alpha.
        let (mut low, mut high) = (0.001, 20.0);
        for _ in 0..BISECTIONS {
            let middle = f64::midpoint(low, high);
            if mean_of(middle, least, most) > mean { low = middle } else { high = middle }
        }
        Ok(Self { least, tail: pow(least / most, low), alpha: low })
    }

    /// Samples one number of the distribution.
    pub fn sample(&self, stream: &mut RandomStream) -> f64 {
        self.least * pow(1.0 - stream.unit() * (1.0 - self.tail), -1.0 / self.alpha)
    }
}

/// Number of bisections after which alpha is stable.
const BISECTIONS: u32 = 60;

/// Returns the mean of a bounded Pareto distribution.
fn mean_of(alpha: f64, least: f64, most: f64) -> f64 {
    let scale = pow(least, alpha) / (1.0 - pow(least / most, alpha));
    scale * alpha / (alpha - 1.0) * (pow(least, 1.0 - alpha) - pow(most, 1.0 - alpha))
}

/// Scales flow sizes to a total of `packets` packets, with at least one per flow.
///
/// Returns false if this total is impossible, because there are more flows than packets. The packets
/// of a flow beyond its first keep their proportion, rounded to packets.
#[must_use]
pub fn scale_to_packets(sizes: &mut [u32], packets: u64) -> bool {
    let flows = u64::try_from(sizes.len()).unwrap_or(u64::MAX);
    let Some(wanted) = packets.checked_sub(flows) else { return false };
    let extra = |size: u32| u64::from(size.saturating_sub(1));
    let mut total: u64 = sizes.iter().map(|size| extra(*size)).sum();
    let is_flat = total == 0;
    if is_flat {
        total = flows;
    }
    let (mut sum, mut given) = (0_u64, 0_u64);
    for size in sizes.iter_mut() {
        sum = sum.saturating_add(if is_flat { 1 } else { extra(*size) });
        let due = u128::from(sum) * u128::from(wanted) / u128::from(total.max(1));
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let own = due.saturating_sub(given);
        given = due;
        let Ok(own) = u32::try_from(own.saturating_add(1)) else { return false };
        *size = own;
    }
    given == wanted
}

/// Distributions of packet lengths, in bytes on the wire with the check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketSizes {
    /// All packets have one length.
    Fixed(u16),
    /// The Internet mix: seven short packets, four of middle length, one long packet.
    Imix,
    /// Only shortest and longest packets, with the mean length of a campus link.
    Campus,
}

/// Minimum length of a packet on the wire, in bytes.
pub const PACKET_MIN: u16 = 64;
/// Maximum length of a packet on the wire, in bytes.
pub const PACKET_MAX: u16 = 9018;
/// Length of a long packet: a full Ethernet frame without a tag.
const PACKET_LONG: u16 = 1518;

impl PacketSizes {
    /// Returns a sampler of lengths.
    ///
    /// # Errors
    ///
    /// If published parameters are invalid.
    pub fn sampler(self) -> Result<LengthSampler, DistributionError> {
        let published = &published().packet_bytes;
        let (shares, lengths): (Vec<f64>, Vec<u16>) = match self {
            Self::Fixed(bytes) => (vec![1.0], vec![bytes]),
            Self::Imix => published.imix.iter().map(|part| (part.share, part.bytes)).unzip(),
            Self::Campus => {
                let span = f64::from(PACKET_LONG) - f64::from(PACKET_MIN);
                let long = (published.campus_mean - f64::from(PACKET_MIN)) / span;
                (vec![1.0 - long, long], vec![PACKET_MIN, PACKET_LONG])
            }
        };
        Ok(LengthSampler { shares: WeightedIndices::new(shares)?, lengths })
    }
}

/// Samples packet lengths.
#[derive(Clone, Debug)]
pub struct LengthSampler {
    shares: WeightedIndices,
    lengths: Vec<u16>,
}

impl LengthSampler {
    /// Samples the length of one packet on the wire, in bytes.
    pub fn sample(&self, stream: &mut RandomStream) -> u16 {
        match self.lengths.as_slice() {
            [only] => *only,
            lengths => lengths.get(self.shares.sample(stream)).copied().unwrap_or(PACKET_MIN),
        }
    }
}

/// Truncates a positive number; out-of-range numbers saturate.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "such a cast saturates"
)]
const fn saturating_u32(value: f64) -> u32 {
    value as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Seed;

    fn sample_sizes(sizes: FlowSizes, flows: usize) -> Vec<u32> {
        sizes.draw(flows, &mut Seed::new(1).stream("sizes")).unwrap()
    }

    /// Returns the mean of sizes.
    fn mean(sizes: &[u32]) -> f64 {
        let sum: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
        sum as f64 / sizes.len() as f64
    }

    fn assert_near(value: f64, expected: f64, tolerance: f64) {
        assert!((value / expected - 1.0).abs() < tolerance, "{value}, not {expected}");
    }

    #[test]
    fn flow_lengths_equal_caida_and_mawi() {
        let traces = &published().traces;
        assert_near(
            mean(&sample_sizes(FlowSizes::Caida, 1_000_000)),
            traces.caida.flow_mean(),
            0.02,
        );
        assert_near(mean(&sample_sizes(FlowSizes::Mawi, 1_000_000)), traces.mawi.flow_mean(), 0.02);
        let campus = sample_sizes(FlowSizes::Campus, 300_000);
        let single = campus.iter().filter(|size| **size == 1).count() as f64 / 300_000.0;
        assert_near(single, published().flow_lengths.single_packet, 0.01);
    }

    #[test]
    fn coflows_have_the_published_mean_size() {
        for bytes in [published().coflows.hadoop, published().coflows.search] {
            let pareto =
                BoundedPareto::with_mean(bytes.least_bytes, bytes.most_bytes, bytes.mean_bytes);
            let (pareto, mut stream) = (pareto.unwrap(), Seed::new(1).stream("bytes"));
            let sizes: Vec<f64> = (0..500_000).map(|_| pareto.sample(&mut stream)).collect();
            let inside =
                |size: &f64| (bytes.least_bytes..bytes.most_bytes * 1.000_001).contains(size);
            assert!(sizes.iter().all(inside));
            assert_near(sizes.iter().sum::<f64>() / 500_000.0, bytes.mean_bytes, 0.1);
        }
    }

    #[test]
    fn the_second_zipf_rank_has_half_the_packets() {
        let mut sizes = sample_sizes(FlowSizes::Zipf { hundredths: 100 }, 1000);
        assert!(scale_to_packets(&mut sizes, 1_000_000));
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        assert_near(f64::from(sizes[0]) / f64::from(sizes[1]), 2.0, 0.01);
    }

    #[test]
    fn packet_lengths_have_the_mean_that_is_published() {
        let mean = |sizes: PacketSizes| {
            let (sampler, mut stream) = (sizes.sampler().unwrap(), Seed::new(1).stream("lengths"));
            (0..100_000).map(|_| f64::from(sampler.sample(&mut stream))).sum::<f64>() / 100_000.0
        };
        assert_near(mean(PacketSizes::Imix), 361.8, 0.02);
        assert_near(mean(PacketSizes::Campus), 870.6, 0.02);
        assert_near(mean(PacketSizes::Fixed(64)), 64.0, 0.000_001);
    }

    proptest! {
        #[test]
        fn sizes_are_scaled_to_the_exact_packet_count(
            sizes in prop::collection::vec(1_u32..5000, 1..100), more in 0_u64..1_000_000,
        ) {
            let (mut scaled, packets) = (sizes.clone(), sizes.len() as u64 + more);
            prop_assert!(scale_to_packets(&mut scaled, packets));
            prop_assert_eq!(scaled.iter().map(|size| u64::from(*size)).sum::<u64>(), packets);
            prop_assert!(scaled.iter().all(|size| *size >= 1));
            let extra: u64 = sizes.iter().map(|size| u64::from(size - 1)).sum();
            for (size, scaled) in sizes.iter().zip(&scaled) {
                let share = if extra == 0 { 1.0 / sizes.len() as f64 } else { f64::from(size - 1) / extra as f64 };
                prop_assert!((f64::from(scaled - 1) - share * more as f64).abs() <= 1.001);
            }
        }

        #[test]
        fn fewer_packets_than_flows_are_refused(flows in 1_usize..100) {
            prop_assert!(!scale_to_packets(&mut vec![1; flows], flows as u64 - 1));
        }
    }
}
