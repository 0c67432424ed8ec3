//! The egress queues of a bridge in OpenFlow messages.

use shunt_datapath::egress::{counters::QueueCounts, htb::HtbQueue};
use shunt_ofproto::message::{QueueDescription, QueueStatistics};
use shunt_pipeline::{BridgeId, Time};

use crate::ports::{port::BridgePort, registry::BridgeRegistry};

/// Returns the egress queues of all ports of a bridge.
pub(super) fn descriptions(bridges: &BridgeRegistry, id: BridgeId) -> Vec<QueueDescription> {
    let ports = bridges.by_id(id).into_iter().flat_map(|bridge| bridge.ports.values());
    ports.flat_map(port_descriptions).collect()
}

/// Returns the counters of the egress queues, in the order of [`descriptions`].
pub(super) fn statistics(
    bridges: &BridgeRegistry,
    id: BridgeId,
    now: Time,
) -> Vec<QueueStatistics> {
    let ports = bridges.by_id(id).into_iter().flat_map(|bridge| bridge.ports.values());
    ports.flat_map(|port| port_statistics(port, now)).collect()
}

/// Returns the descriptions of the egress queues of a port.
fn port_descriptions(port: &BridgePort) -> Vec<QueueDescription> {
    let Some(htb) = port.htb() else { return Vec::new() };
    let tenths = |rate: u64| {
        // The rate of a queue is at most the rate of its port.
        let tenths = u128::from(rate) * 1000 / u128::from(htb.max_rate.max(1));
        u16::try_from(tenths.min(1000)).ok()
    };
    let description = |(queue, rates): (&_, &HtbQueue)| QueueDescription {
        port: port.number,
        queue: *queue,
        min_rate: tenths(rates.min_rate),
        max_rate: tenths(rates.max_rate),
    };
    htb.queues.iter().map(description).collect()
}

/// Returns the statistics of the egress queues of a port.
fn port_statistics(port: &BridgePort, now: Time) -> Vec<QueueStatistics> {
    let Some(queues) = port.egress_queues() else { return Vec::new() };
    let duration = now.since(queues.created);
    let statistics = |(queue, counts): (_, QueueCounts)| QueueStatistics {
        port: port.number,
        queue,
        tx_bytes: counts.tx_bytes,
        tx_packets: counts.tx_packets,
        tx_errors: counts.tx_errors,
        duration,
    };
    queues.counts().map(statistics).collect()
}
