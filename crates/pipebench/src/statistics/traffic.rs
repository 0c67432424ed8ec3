//! Statistics of the packets of a workload or a capture.

use crate::statistics::StatisticRow;

/// Collects statistics packet by packet, with a few words of memory for each flow.
#[derive(Clone, Debug, Default)]
pub struct TrafficStatistics {
    packets: u64,
    bytes: u64,
    last_ns: u64,
    first_ns: u64,
    /// Mean of the gaps so far.
    gap_mean: f64,
    gap_squares: f64,
    /// For each flow: its number of packets, and the number of its last packet.
    flows: Vec<FlowPackets>,
    /// Number of packets with one of their flow among the [`WINDOW`] packets before.
    near: u64,
    /// The flows that arrive later, if any.
    later: Option<OverlapCounts>,
}

/// Counts about flows that arrive while others are active.
#[derive(Clone, Copy, Debug)]
struct OverlapCounts {
    /// Number of the first of the later flows.
    flow: u32,
    /// Number of packets of other flows before the first packet of the later flows.
    before: u64,
    /// Number of packets of other flows.
    others: u64,
    /// True after a later flow has arrived.
    has_begun: bool,
}

/// The number of packets of a flow, and the time of the last packet.
#[derive(Clone, Copy, Debug, Default)]
struct FlowPackets {
    packets: u32,
    /// Time of the last packet.
    last: u64,
}

/// Number of packets within which a flow counts as recent.
const WINDOW: u64 = 8192;

/// Row name for the share of packets before later flows.
pub(crate) const LATER: &str = "packets of the first flows before later flows arrive";

impl TrafficStatistics {
    /// Creates statistics; the flows with numbers from `flow` on arrive later.
    #[must_use]
    pub fn with_later(flow: Option<u32>) -> Self {
        let later = |flow| OverlapCounts { flow, before: 0, others: 0, has_begun: false };
        Self { later: flow.map(later), ..Self::default() }
    }

    /// Adds a packet, in the order of times; `bytes` is its length on the wire.
    #[expect(clippy::cast_precision_loss, reason = "gaps and counts stay below 2^53")]
    pub fn add(&mut self, time_ns: u64, flow: u32, bytes: u32) {
        if self.packets == 0 {
            self.first_ns = time_ns;
        } else {
            let gap = time_ns.saturating_sub(self.last_ns) as f64;
            let before = gap - self.gap_mean;
            self.gap_mean += before / self.packets as f64;
            self.gap_squares += before * (gap - self.gap_mean);
        }
        if let Some(later) = &mut self.later {
            later.has_begun |= flow >= later.flow;
            later.before += u64::from(!later.has_begun);
            later.others += u64::from(flow < later.flow);
        }
        self.last_ns = time_ns;
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes.into());
        let index = usize::try_from(flow).unwrap_or(usize::MAX);
        if index >= self.flows.len() {
            self.flows.resize(index.saturating_add(1), FlowPackets::default());
        }
        if let Some(seen) = self.flows.get_mut(index) {
            let distance = self.packets.saturating_sub(seen.last);
            self.near += u64::from(seen.packets > 0 && distance <= WINDOW);
            *seen = FlowPackets { packets: seen.packets.saturating_add(1), last: self.packets };
        }
    }

    /// Returns the number of packets.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the number of flows with a packet.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flows.iter().filter(|seen| seen.packets > 0).count()
    }

    /// Returns the mean number of packets per flow.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the value is below 2^53")]
    pub fn flow_mean(&self) -> f64 {
        self.packets as f64 / self.flows().max(1) as f64
    }

    /// Returns the mean time between packets in microseconds.
    #[must_use]
    pub const fn gap_mean_us(&self) -> f64 {
        self.gap_mean / 1000.0
    }

    /// Returns the deviation of the gaps between packets divided by their mean.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the value is below 2^53")]
    pub fn burstiness(&self) -> f64 {
        let gaps = self.packets.saturating_sub(1).max(1) as f64;
        if self.gap_mean > 0.0 { (self.gap_squares / gaps).sqrt() / self.gap_mean } else { 0.0 }
    }

    /// Returns the mean length of a packet on the wire in bytes.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the value is below 2^53")]
    pub fn packet_bytes(&self) -> f64 {
        self.bytes as f64 / self.packets.max(1) as f64
    }

    /// Returns the time in seconds from the first packet to the last.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the value is below 2^53")]
    pub fn seconds(&self) -> f64 {
        self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9
    }

    /// Returns the rows of the statistics, without targets.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the value is below 2^53")]
    pub fn rows(&self) -> Vec<StatisticRow> {
        let mut sizes: Vec<u32> =
            self.flows.iter().map(|seen| seen.packets).filter(|packets| *packets > 0).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let of_all = |packets: u64| 100.0 * packets as f64 / self.packets.max(1) as f64;
        let top: u64 =
            sizes.iter().take(sizes.len().div_ceil(100)).map(|size| u64::from(*size)).sum();
        let single = sizes.iter().filter(|size| **size == 1).count();
        let mut rows = vec![
            StatisticRow::count("flows", sizes.len()),
            StatisticRow::new("packets", self.packets as f64, ""),
            StatisticRow::new("packets per flow", self.flow_mean(), ""),
            StatisticRow::new(
                "packets of the largest flow",
                sizes.first().copied().unwrap_or(0).into(),
                "",
            ),
            StatisticRow::new(
                "flows of one packet",
                100.0 * single as f64 / sizes.len().max(1) as f64,
                "%",
            ),
            StatisticRow::new("packets of the largest 1 % of flows", of_all(top), "%"),
            StatisticRow::new(
                "packets of flows seen in the last 8192 packets",
                of_all(self.near),
                "%",
            ),
            StatisticRow::new("bytes per packet", self.packet_bytes(), ""),
            StatisticRow::new("duration", self.seconds(), "s"),
            StatisticRow::new("mean gap", self.gap_mean_us(), "us"),
            StatisticRow::new("deviation of gaps / mean gap", self.burstiness(), ""),
        ];
        rows.extend(self.later.map(|later| {
            let share = 100.0 * later.before as f64 / later.others.max(1) as f64;
            StatisticRow::new(LATER, share, "%")
        }));
        rows
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the statistics of some packets.
    fn of(packets: &[(u64, u32, u32)]) -> TrafficStatistics {
        let mut statistics = TrafficStatistics::default();
        packets.iter().for_each(|(time, flow, bytes)| statistics.add(*time, *flow, *bytes));
        statistics
    }

    proptest! {
        #[test]
        fn mean_and_deviation_are_of_all_gaps(
            gaps in prop::collection::vec(0_u64..1_000_000, 1..50),
        ) {
            let mut time = 5;
            let mut packets = vec![(time, 0, 64)];
            for gap in &gaps {
                time += gap;
                packets.push((time, 0, 64));
            }
            let statistics = of(&packets);
            let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
            let square = gaps.iter().map(|gap| (*gap as f64 - mean).powi(2)).sum::<f64>();
            let deviation = (square / gaps.len() as f64).sqrt();
            prop_assert!((statistics.gap_mean_us() * 1000.0 - mean).abs() < 1e-6 * mean.max(1.0));
            let expected = if mean > 0.0 { deviation / mean } else { 0.0 };
            prop_assert!((statistics.burstiness() - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn flows_are_counted_with_their_packets() {
        let statistics = of(&[(0, 7, 64), (10, 7, 1518), (30, 2, 64)]);
        assert_eq!((statistics.flows(), statistics.packets()), (2, 3));
        let rows = statistics.rows();
        let value = |what: &str| rows.iter().find(|row| row.what == what).unwrap().value;
        assert_eq!(value("packets per flow"), 1.5);
        assert_eq!(value("packets of the largest flow"), 2.0);
        assert_eq!(value("flows of one packet"), 50.0);
        assert!(
            (value("packets of flows seen in the last 8192 packets") - 100.0 / 3.0).abs() < 1e-9
        );
        assert_eq!(value("bytes per packet"), 1646.0 / 3.0);
    }

    #[test]
    fn packets_before_later_flows_are_counted() {
        let mut statistics = TrafficStatistics::with_later(Some(2));
        let flows = [0, 1, 0, 2, 1, 3];
        (0..).zip(flows).for_each(|(time, flow)| statistics.add(time, flow, 64));
        assert_eq!(statistics.rows().pop(), Some(StatisticRow::new(LATER, 75.0, "%")));
    }

    #[test]
    fn no_packets_give_zero_statistics() {
        assert!(of(&[]).rows().iter().all(|row| row.value == 0.0));
    }
}
