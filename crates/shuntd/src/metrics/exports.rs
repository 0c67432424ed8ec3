//! The metrics of sFlow, NetFlow and IPFIX.

use shunt_switch::{BridgeStatus, CollectorSetStatus, IpfixStatus, NetflowStatus, SflowStatus};

use super::text::{Metric, MetricsText};

/// The metrics of sFlow on a bridge.
const SFLOW: [Metric<SflowStatus>; 4] = [
    ("shunt_sflow_samples_total", "counter", "Packets that sFlow sampled on a bridge.", |own| {
        own.samples.into()
    }),
    (
        "shunt_sflow_samples_dropped_total",
        "counter",
        "Sampled packets that were lost because they were too many.",
        |own| own.samples_dropped.into(),
    ),
    (
        "shunt_sflow_datagrams_total",
        "counter",
        "sFlow datagrams that a bridge sent, counted for each collector.",
        |own| own.datagrams.into(),
    ),
    (
        "shunt_sflow_datagrams_lost_total",
        "counter",
        "sFlow datagrams that a bridge could not send.",
        |own| own.datagrams_lost.into(),
    ),
];

/// The metrics of NetFlow on a bridge.
const NETFLOW: [Metric<NetflowStatus>; 5] = [
    (
        "shunt_netflow_active_flows",
        "gauge",
        "Flows of a bridge that have not ended, and that NetFlow will report.",
        |own| own.active_flows.into(),
    ),
    (
        "shunt_netflow_flows_total",
        "counter",
        "Reports of flows by NetFlow; a long flow is reported several times.",
        |own| own.flows.into(),
    ),
    (
        "shunt_netflow_flows_lost_total",
        "counter",
        "Flows that NetFlow lost, because they were too many or a collector did not get their \
         datagrams.",
        |own| own.flows_lost.into(),
    ),
    (
        "shunt_netflow_datagrams_total",
        "counter",
        "NetFlow datagrams that a bridge sent, counted for each collector.",
        |own| own.datagrams.into(),
    ),
    (
        "shunt_netflow_datagrams_lost_total",
        "counter",
        "NetFlow datagrams that a bridge could not send.",
        |own| own.datagrams_lost.into(),
    ),
];

/// The metrics of IPFIX on a bridge.
const IPFIX: [Metric<IpfixStatus>; 7] = [
    (
        "shunt_ipfix_active_flows",
        "gauge",
        "Flows of sampled packets that IPFIX has not reported yet.",
        |own| own.active_flows.into(),
    ),
    ("shunt_ipfix_samples_total", "counter", "Packets that IPFIX sampled on a bridge.", |own| {
        own.samples.into()
    }),
    (
        "shunt_ipfix_samples_dropped_total",
        "counter",
        "Packets sampled for IPFIX that were lost because they were too many.",
        |own| own.samples_dropped.into(),
    ),
    (
        "shunt_ipfix_flows_total",
        "counter",
        "Flows that IPFIX reported, including those that a collector did not get.",
        |own| own.flows.into(),
    ),
    (
        "shunt_ipfix_flows_lost_total",
        "counter",
        "Flows that IPFIX lost in messages that a collector did not get.",
        |own| own.flows_lost.into(),
    ),
    (
        "shunt_ipfix_messages_total",
        "counter",
        "IPFIX messages that a bridge sent, counted for each collector.",
        |own| own.messages.into(),
    ),
    (
        "shunt_ipfix_messages_lost_total",
        "counter",
        "IPFIX messages that a bridge could not send.",
        |own| own.messages_lost.into(),
    ),
];

/// The metrics of a set of IPFIX collectors.
const COLLECTOR_SET: [Metric<CollectorSetStatus>; 6] = [
    (
        "shunt_collector_set_active_flows",
        "gauge",
        "Flows of packets that rules sampled, not reported yet.",
        |own| own.active_flows.into(),
    ),
    (
        "shunt_collector_set_samples_total",
        "counter",
        "Packets that rules sampled for a set of collectors.",
        |own| own.samples.into(),
    ),
    (
        "shunt_collector_set_flows_total",
        "counter",
        "Flows that were reported to a set of collectors, including those that a collector did not \
         get.",
        |own| own.flows.into(),
    ),
    (
        "shunt_collector_set_flows_lost_total",
        "counter",
        "Flows in messages that a collector of a set did not get.",
        |own| own.flows_lost.into(),
    ),
    (
        "shunt_collector_set_messages_total",
        "counter",
        "IPFIX messages sent to a set of collectors, counted for each collector.",
        |own| own.messages.into(),
    ),
    (
        "shunt_collector_set_messages_lost_total",
        "counter",
        "IPFIX messages that could not be sent to a set of collectors.",
        |own| own.messages_lost.into(),
    ),
];

/// Adds the sFlow, NetFlow and IPFIX metrics of all bridges.
pub(super) fn exports(text: &mut MetricsText, bridges: &[BridgeStatus]) {
    add(text, bridges, |own| own.sflow.as_ref(), &SFLOW);
    add(text, bridges, |own| own.netflow.as_ref(), &NETFLOW);
    add(text, bridges, |own| own.ipfix.as_ref(), &IPFIX);
    add_collector_sets(text, bridges);
}

/// Adds the metrics of IPFIX collector sets.
fn add_collector_sets(text: &mut MetricsText, bridges: &[BridgeStatus]) {
    let sets = bridges.iter().flat_map(|bridge| {
        let name = bridge.name.as_str();
        bridge.collector_sets.iter().map(move |own| (name, own.options.id.to_string(), own))
    });
    let sets: Vec<_> = sets.collect();
    let labelled: Vec<_> = sets
        .iter()
        .map(|(bridge, id, own)| (vec![("bridge", *bridge), ("set", id.as_str())], *own))
        .collect();
    text.families(&labelled, &COLLECTOR_SET);
}

/// Adds the metrics of the bridges with this kind of export.
fn add<T>(
    text: &mut MetricsText,
    bridges: &[BridgeStatus],
    status: fn(&BridgeStatus) -> Option<&T>,
    metrics: &[Metric<T>],
) {
    let running = bridges
        .iter()
        .filter_map(|bridge| Some((vec![("bridge", bridge.name.as_str())], status(bridge)?)));
    text.families(&running.collect::<Vec<_>>(), metrics);
}
