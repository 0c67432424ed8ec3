//! Published statistics of traffic, read from `data/traffic.json`.
//!
//! Every group of statistics names its publication. The traffic of this crate uses only such
//! statistics, and no data of a trace, so it may be redistributed.

use std::sync::OnceLock;

use serde::Deserialize;

/// All published statistics of traffic.
#[derive(Debug, Deserialize)]
pub struct Published {
    /// Traces of Internet links.
    pub traces: TracePair,
    /// The distribution of packets per flow.
    pub flow_lengths: FlowLengths,
    /// The distribution of packet lengths.
    pub packet_bytes: PacketBytes,
    /// A workload of coflows.
    pub coflows: Coflows,
    /// The replay of traffic to pipelines.
    pub replay: ReplayStatistics,
    /// The kinds of rule updates.
    pub updates: UpdateKinds,
}

/// Statistics of two traces.
#[derive(Debug, Deserialize)]
pub struct TracePair {
    /// Publication that describes the traces.
    pub cite: String,
    /// The trace of CAIDA.
    pub caida: TraceStatistics,
    /// The trace of MAWI.
    pub mawi: TraceStatistics,
}

/// Published numbers of packets and flows of a trace, and its gaps.
#[derive(Debug, Deserialize)]
pub struct TraceStatistics {
    /// Number of packets of the trace.
    pub packets: u64,
    /// Number of distinct tuples of addresses, ports and protocol.
    pub flows: u64,
    /// Mean time between packets, in microseconds.
    pub gap_mean_us: f64,
    /// Standard deviation of the time between packets, in microseconds.
    pub gap_deviation_us: f64,
}

impl TraceStatistics {
    /// Returns the mean number of packets per flow.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the count is far below 2^53")]
    pub fn flow_mean(&self) -> f64 {
        self.packets as f64 / self.flows as f64
    }
}

/// A mixture of distributions of packets per flow.
#[derive(Debug, Deserialize)]
pub struct FlowLengths {
    /// The publication with the figure.
    pub cite: String,
    /// Mean number of packets of the observed flows.
    pub mean: f64,
    /// Share of flows with one packet.
    pub single_packet: f64,
    /// The uniform parts of the mixture.
    pub uniform: Vec<UniformPart>,
    /// The log-normal parts of the mixture.
    pub lognormal: Vec<LogNormalPart>,
}

/// A uniform part of a mixture, from zero to `most`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct UniformPart {
    /// Share of the part in the mixture.
    pub share: f64,
    /// The upper end of the part.
    pub most: f64,
}

/// A log-normal part of a mixture.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct LogNormalPart {
    /// Share of the part in the mixture.
    pub share: f64,
    /// The standard deviation of the logarithm.
    pub sigma: f64,
    /// The median number of packets per flow.
    pub median: f64,
}

/// Lengths of packets, in bytes on the wire.
#[derive(Debug, Deserialize)]
pub struct PacketBytes {
    /// The Internet mix (IMIX).
    pub imix: Vec<LengthShare>,
    /// Mean length on a campus link.
    pub campus_mean: f64,
}

/// The share of packets of one length.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct LengthShare {
    /// The share of the packets, in any unit.
    pub share: f64,
    /// Length in bytes on the wire.
    pub bytes: u16,
}

/// A workload of coflows.
#[derive(Debug, Deserialize)]
pub struct Coflows {
    /// Publication that describes the workload.
    pub cite: String,
    /// Number of coflows of the workload.
    pub coflows: u32,
    /// Number of flows of all coflows.
    pub flows: u32,
    /// The UDP destination port of base flows.
    pub base_port: u16,
    /// Bytes of each frame on the wire.
    pub frame_bytes: u16,
    /// Number of receivers of a cluster.
    pub pods: u32,
    /// Number of UDP ports of a service.
    pub ports: u16,
    /// Number of packets per second.
    pub packets_per_second: u32,
    /// Sizes of flows like those of Hadoop.
    pub hadoop: FlowBytes,
    /// Sizes of flows like those of remote calls of a search engine.
    pub search: FlowBytes,
}

/// Sizes of flows, in bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct FlowBytes {
    /// The mean size of a flow.
    pub mean_bytes: f64,
    /// The largest size of a flow.
    pub most_bytes: f64,
    /// The smallest size of a flow.
    pub least_bytes: f64,
}

/// The replay of traffic to pipelines, as published.
#[derive(Debug, Deserialize)]
pub struct ReplayStatistics {
    /// Publication that describes the replay.
    pub cite: String,
    /// Number of flows of the replay.
    pub flows: u64,
    /// Number of packets of all flows.
    pub packets: u64,
}

/// Kinds of updates of a rule-set.
#[derive(Debug, Deserialize)]
pub struct UpdateKinds {
    /// Publication that describes the updates.
    pub cite: String,
    /// The size of each kind.
    pub kinds: Vec<UpdateSize>,
}

/// The number of rules of an update of one kind: a share of all rules, or a number.
#[derive(Clone, Debug, Deserialize)]
pub struct UpdateSize {
    /// Name of the kind.
    pub kind: String,
    /// Purpose of the updates.
    pub title: String,
    /// Percentage of the rule set.
    pub percent: Option<u32>,
    /// Number of rules of the update.
    pub rules: Option<u32>,
}

/// Returns the published statistics of traffic, from `data/traffic.json`.
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
