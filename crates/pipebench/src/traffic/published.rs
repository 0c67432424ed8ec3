//! The published figures that traffic is made after, read from `data/traffic.json`.
//!
//! Every group of figures names where it was published. Nothing in the traffic of this crate is
//! drawn from a trace: only such statistics are, so that anybody may have all of it.

use std::sync::OnceLock;

use serde::Deserialize;

/// All figures.
#[derive(Debug, Deserialize)]
pub struct Published {
    /// Traces of Internet links.
    pub traces: Traces,
    /// How many packets flows have.
    pub flow_lengths: FlowLengths,
    /// How long packets are.
    pub packet_bytes: PacketBytes,
    /// A workload of coflows.
    pub coflows: Coflows,
    /// How traffic was replayed.
    pub replay: Replay,
    /// How updates of rules are.
    pub updates: UpdateKinds,
}

/// Two traces.
#[derive(Debug, Deserialize)]
pub struct Traces {
    /// Where they were described.
    pub cite: String,
    /// CAIDA's.
    pub caida: Trace,
    /// MAWI's.
    pub mawi: Trace,
}

/// Statistics of a trace.
#[derive(Debug, Deserialize)]
pub struct Trace {
    /// Packets.
    pub packets: u64,
    /// Distinct tuples of addresses, ports and protocol.
    pub flows: u64,
    /// Mean time between packets, in microseconds.
    pub gap_mean_us: f64,
    /// Standard deviation of that.
    pub gap_deviation_us: f64,
}

impl Trace {
    /// Mean number of packets of a flow.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub fn flow_mean(&self) -> f64 {
        self.packets as f64 / self.flows as f64
    }
}

/// A mixture of distributions of packets per flow.
#[derive(Debug, Deserialize)]
pub struct FlowLengths {
    /// Where it was described.
    pub cite: String,
    /// Mean of the flows that were observed.
    pub mean: f64,
    /// Share of flows of one packet.
    pub single_packet: f64,
    /// Parts that are uniform from zero.
    pub uniform: Vec<UniformPart>,
    /// Parts that are lognormal.
    pub lognormal: Vec<LogNormalPart>,
}

/// A part of a mixture: every number from zero to `most` is as likely.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct UniformPart {
    /// Its share of all.
    pub share: f64,
    /// Its upper end.
    pub most: f64,
}

/// A part of a mixture whose logarithm is normally distributed.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct LogNormalPart {
    /// Its share of all.
    pub share: f64,
    /// Deviation of the logarithm.
    pub sigma: f64,
    /// The median of the numbers.
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

/// How many packets are of this length.
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
    /// Where it was described.
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
pub struct Replay {
    /// Where it was described.
    pub cite: String,
    /// Flows.
    pub flows: u64,
    /// Packets of all flows.
    pub packets: u64,
}

/// Kinds of updates of a rule-set.
#[derive(Debug, Deserialize)]
pub struct UpdateKinds {
    /// Where they were described.
    pub cite: String,
    /// One after the other.
    pub kinds: Vec<UpdateSize>,
}

/// How many rules an update of one kind has: a share of all, or a number.
#[derive(Clone, Debug, Deserialize)]
pub struct UpdateSize {
    /// Its name.
    pub kind: String,
    /// What it is for.
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
        let means = [&published.traces.caida, &published.traces.mawi].map(Trace::flow_mean);
        assert!((means[0] - 16.7).abs() < 0.05 && (means[1] - 15.8).abs() < 0.05, "{means:?}");
        let lengths = &published.flow_lengths;
        let shares: f64 = lengths.uniform.iter().map(|part| part.share).sum::<f64>()
            + lengths.lognormal.iter().map(|part| part.share).sum::<f64>();
        assert!((shares - 1.0).abs() < 1e-4, "{shares}");
        assert_eq!(published.updates.kinds.len(), 5);
    }
}
