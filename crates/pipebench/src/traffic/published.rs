//! Published statistics of traffic, read from `data/traffic.json`.
//!
//! Every group names its publication. The traffic of this crate uses such statistics only, and no
//! data of a trace, so it can be redistributed.

use std::sync::OnceLock;

use serde::Deserialize;

/// All statistics.
#[derive(Debug, Deserialize)]
pub struct Published {
    /// Traces of Internet links.
    pub traces: TracePair,
    /// Number of packets per flow.
    pub flow_lengths: FlowLengths,
    /// Lengths of packets.
    pub packet_bytes: PacketBytes,
    /// A workload of coflows.
    pub coflows: Coflows,
    /// Replay of traffic to pipelines.
    pub replay: ReplayStatistics,
    /// Kinds of rule updates.
    pub updates: UpdateKinds,
}

/// Two traces.
#[derive(Debug, Deserialize)]
pub struct TracePair {
    /// Publication that describes the traces.
    pub cite: String,
    /// CAIDA's.
    pub caida: TraceStatistics,
    /// MAWI's.
    pub mawi: TraceStatistics,
}

/// Statistics of a trace.
#[derive(Debug, Deserialize)]
pub struct TraceStatistics {
    /// Packets.
    pub packets: u64,
    /// Distinct tuples of addresses, ports and protocol.
    pub flows: u64,
    /// Mean time between packets, in microseconds.
    pub gap_mean_us: f64,
    /// Standard deviation of the time between packets, in microseconds.
    pub gap_deviation_us: f64,
}

impl TraceStatistics {
    /// Returns the mean number of packets per flow.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub fn flow_mean(&self) -> f64 {
        self.packets as f64 / self.flows as f64
    }
}

/// A mixture of distributions of packets per flow.
#[derive(Debug, Deserialize)]
pub struct FlowLengths {
    /// The publication.
    pub cite: String,
    /// Mean of the observed flows.
    pub mean: f64,
    /// Share of flows with one packet.
    pub single_packet: f64,
    /// Uniform parts, from zero.
    pub uniform: Vec<UniformPart>,
    /// Log-normal parts.
    pub lognormal: Vec<LogNormalPart>,
}

/// A uniform part of a mixture, from zero to `most`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct UniformPart {
    /// Share of the part in the mixture.
    pub share: f64,
    /// Upper end of the part.
    pub most: f64,
}

/// A log-normal part of a mixture.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct LogNormalPart {
    /// Share of the part in the mixture.
    pub share: f64,
    /// Deviation of the logarithm.
    pub sigma: f64,
    /// The median.
    pub median: f64,
}

/// Lengths of packets, in bytes on the wire.
#[derive(Debug, Deserialize)]
pub struct PacketBytes {
    /// A common mix.
    pub imix: Vec<LengthShare>,
    /// Mean on a campus link.
    pub campus_mean: f64,
}

/// The share of packets of one length.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct LengthShare {
    /// Their share, in any unit.
    pub share: f64,
    /// Bytes on the wire.
    pub bytes: u16,
}

/// A workload of coflows.
#[derive(Debug, Deserialize)]
pub struct Coflows {
    /// Publication that describes the workload.
    pub cite: String,
    /// Coflows.
    pub coflows: u32,
    /// Flows of all coflows.
    pub flows: u32,
    /// UDP destination port that marks base flows.
    pub base_port: u16,
    /// Bytes of each frame on the wire.
    pub frame_bytes: u16,
    /// Receivers of a cluster.
    pub pods: u32,
    /// UDP ports of a service.
    pub ports: u16,
    /// Packets in a second.
    pub packets_per_second: u32,
    /// Sizes of flows like those of Hadoop.
    pub hadoop: FlowBytes,
    /// Sizes of flows like those of remote calls of a search engine.
    pub search: FlowBytes,
}

/// Sizes of flows, in bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct FlowBytes {
    /// Mean.
    pub mean_bytes: f64,
    /// The largest.
    pub most_bytes: f64,
    /// The smallest.
    pub least_bytes: f64,
}

/// How traffic was replayed to pipelines.
#[derive(Debug, Deserialize)]
pub struct ReplayStatistics {
    /// Publication that describes the replay.
    pub cite: String,
    /// Flows.
    pub flows: u64,
    /// Packets of all flows.
    pub packets: u64,
}

/// Kinds of updates of a rule-set.
#[derive(Debug, Deserialize)]
pub struct UpdateKinds {
    /// Publication that describes the updates.
    pub cite: String,
    /// One after the other.
    pub kinds: Vec<UpdateSize>,
}

/// How many rules an update of one kind has: a share of all, or a number.
#[derive(Clone, Debug, Deserialize)]
pub struct UpdateSize {
    /// Name of the kind.
    pub kind: String,
    /// Purpose of the updates.
    pub title: String,
    /// Percent of the rule-set.
    pub percent: Option<u32>,
    /// Rules.
    pub rules: Option<u32>,
}

/// The figures.
#[must_use]
#[expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "the file is part of the program, and a test reads it"
)]
pub fn published() -> &'static Published {
    static PUBLISHED: OnceLock<Published> = OnceLock::new();
    PUBLISHED.get_or_init(|| {
        serde_json::from_str(include_str!("../../data/traffic.json"))
            .expect("data/traffic.json has the shape of Published")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_published() {
        let published = published();
        let means =
            [&published.traces.caida, &published.traces.mawi].map(TraceStatistics::flow_mean);
        assert!((means[0] - 16.7).abs() < 0.05 && (means[1] - 15.8).abs() < 0.05, "{means:?}");
        let lengths = &published.flow_lengths;
        let shares: f64 = lengths.uniform.iter().map(|part| part.share).sum::<f64>()
            + lengths.lognormal.iter().map(|part| part.share).sum::<f64>();
        assert!((shares - 1.0).abs() < 1e-4, "{shares}");
        assert_eq!(published.updates.kinds.len(), 5);
    }
}
