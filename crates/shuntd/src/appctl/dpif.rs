//! Commands for the datapath, grouped by bridge.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use shunt_switch::{
    BridgePortStatus, BridgeStatus, DatapathFlowFilter, DatapathFlowFormat, DatapathReader,
    config::SocketMode,
};

use super::{
    command::commands,
    dpctl::{DATAPATH, flow_counters},
    methods::DaemonMethods,
};
use crate::ovsdb::capability;

commands! {
    "dpif/dump-dps" "", 0..=0, Read, dump_datapaths, "List the bridges with their datapath type";
    "dpif/dump-flows" "[-m] [--names | --no-names] bridge", 1..=3, Read, dump_flows,
        "List the cache entries of a bridge, in the syntax of the datapath";
    "dpif/show" "", 0..=0, Read, show, "Show lookups, and the ports of each bridge";
    "dpif/show-dp-features" "bridge", 1..=1, Read, show_features,
        "Show the features of the datapath, as `capabilities` of OVSDB";
}

/// The features in the order of Open vSwitch, each with its key in `capabilities`.
const FEATURES: [(&str, &str); 26] = [
    ("Masked set action", "masked_set_action"),
    ("Tunnel push pop", "tnl_push_pop"),
    ("Ufid", "ufid"),
    ("Truncate action", "trunc"),
    ("Clone action", "clone"),
    ("Sample nesting", "sample_nesting"),
    ("Conntrack eventmask", "ct_eventmask"),
    ("Conntrack clear", "ct_clear"),
    ("Max dp_hash algorithm", "max_hash_alg"),
    ("Check pkt length action", "check_pkt_len"),
    ("Conntrack timeout policy", "ct_timeout"),
    ("Explicit Drop action", "explicit_drop_action"),
    ("Optimized Balance TCP mode", "lb_output_action"),
    ("Conntrack all-zero IP SNAT", "ct_zero_snat"),
    ("MPLS Label add", "add_mpls"),
    ("Max VLAN headers", "max_vlan_headers"),
    ("Max MPLS depth", "max_mpls_depth"),
    ("Recirc", "recirc"),
    ("CT state", "ct_state"),
    ("CT zone", "ct_zone"),
    ("CT mark", "ct_mark"),
    ("CT label", "ct_label"),
    ("CT state NAT", "ct_state_nat"),
    ("CT orig tuple", "ct_orig_tuple"),
    ("CT orig tuple for IPv6", "ct_orig_tuple6"),
    ("IPv6 ND Extension", "nd_ext"),
];

/// OpenFlow number of the local port in the output of Open vSwitch.
const LOCAL: u32 = 65534;

/// OpenFlow number of the local port in the status of Shunt.
const LOCAL_STATUS: u32 = 0xffff_fffe;

/// Sums of the lookups of all packet threads since they were cleared.
pub(super) struct LookupTotals {
    /// Number of packets that hit an entry.
    pub(super) hit: u64,
    /// Number of packets that missed.
    pub(super) missed: u64,
    /// Number of missed packets that were dropped before their translation.
    pub(super) lost: u64,
    /// Number of cache entries of all packet threads.
    pub(super) entries: u64,
}

impl LookupTotals {
    /// Returns the sums over all packet threads.
    pub(super) fn of(methods: &DaemonMethods) -> Self {
        let threads = methods.packet_threads();
        Self {
            hit: threads.iter().map(|own| own.hits()).sum(),
            missed: threads.iter().map(|own| own.upcalls).sum(),
            lost: threads.iter().map(|own| own.upcalls_lost).sum(),
            entries: threads.iter().map(|own| own.entries).sum(),
        }
    }
}

/// Returns the type of a port, by its name in Open vSwitch.
pub(super) fn interface_type(port: &BridgePortStatus) -> &'static str {
    match (port.kind, port.socket_mode) {
        ("af_packet", _) => "system",
        ("af_xdp", _) => "afxdp",
        (_, Some(SocketMode::Client)) => "dpdkvhostuserclient",
        (_, Some(SocketMode::Server)) => "dpdkvhostuser",
        ("unbound", _) => "internal",
        (_, None) => port.kind,
    }
}

/// Handles `dpif/dump-dps`: lists the bridges with their datapath type.
async fn dump_datapaths(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    let bridges = methods.switch.bridges();
    Ok(bridges.iter().map(|bridge| format!("netdev@{}\n", bridge.name)).collect())
}

/// Handles `dpif/dump-flows`: lists the cache entries of a bridge.
async fn dump_flows(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let (mut format, mut bridge) = (DatapathFlowFormat::default(), "");
    for word in arguments {
        match word.as_str() {
            "-m" => format = DatapathFlowFormat { port_names: true, wildcards: true },
            "--names" => format.port_names = true,
            "--no-names" => format.port_names = false,
            name => bridge = name,
        }
    }
    if !methods.switch.bridges().iter().any(|own| own.name == bridge) {
        return Err("no such bridge".to_owned());
    }
    let filter = DatapathFlowFilter { bridge: Some(bridge), ..DatapathFlowFilter::default() };
    let flows = DatapathReader::new(&methods.switch).flows(format, filter).await;
    let line = |flow: &shunt_switch::DatapathFlow| {
        let ufid = if format.wildcards { format!("ufid:{} ", flow.ufid) } else { String::new() };
        format!("{ufid}{}, {}, actions:{}\n", flow.key, flow_counters(flow), flow.actions)
    };
    Ok(flows.iter().map(line).collect())
}

/// Handles `dpif/show`: shows lookups, and the ports of each bridge.
async fn show(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    let LookupTotals { hit, missed, .. } = LookupTotals::of(methods);
    let peers = peers(methods);
    let mut text = format!("{DATAPATH}: hit:{hit} missed:{missed}\n");
    for mut bridge in methods.switch.bridges() {
        text += &format!("  {}:\n", bridge.name);
        bridge.ports.sort_by(|a, b| a.name.cmp(&b.name));
        for port in &bridge.ports {
            text += &port_line(port, peers.get(&port.name).map(String::as_str));
        }
    }
    Ok(text)
}

/// Returns the answer to `dpif/show` in JSON.
pub(super) fn show_json(methods: &DaemonMethods) -> Value {
    let LookupTotals { hit, missed, .. } = LookupTotals::of(methods);
    let peers = peers(methods);
    let bridge = |bridge: BridgeStatus| {
        let port = |port: &BridgePortStatus| {
            let shown = port_json(port, peers.get(&port.name).map(String::as_str));
            (port.name.clone(), shown)
        };
        let ports: Map<_, _> = bridge.ports.iter().map(port).collect();
        (bridge.name, json!({"ports": ports}))
    };
    let bridges: Map<_, _> = methods.switch.bridges().into_iter().map(bridge).collect();
    json!({DATAPATH: {"stats": {"n_hit": hit, "n_missed": missed}, "bridges": bridges}})
}

/// Returns the peers of patch ports, by the name of the port.
fn peers(methods: &DaemonMethods) -> BTreeMap<String, String> {
    let config = methods.switch.running_config();
    let ports = config.bridges.into_iter().flat_map(|bridge| bridge.ports);
    let patches = ports.filter(|port| !port.peer.is_empty());
    patches.map(|port| (port.name, port.peer)).collect()
}

/// Returns the number of a port, as Open vSwitch prints it.
const fn openflow_number(port: &BridgePortStatus) -> u32 {
    if port.number == LOCAL_STATUS { LOCAL } else { port.number }
}

/// Returns a port of `dpif/show` in JSON.
fn port_json(port: &BridgePortStatus, peer: Option<&str>) -> Value {
    let mut shown = json!({
        "ofport": openflow_number(port),
        "odp_port": port.datapath,
        "type": interface_type(port),
    });
    if let (Some(peer), Some(shown)) = (peer, shown.as_object_mut()) {
        shown.insert("config".to_owned(), json!({"peer": peer}));
    }
    shown
}

/// Formats a port as a line of `dpif/show`.
fn port_line(port: &BridgePortStatus, peer: Option<&str>) -> String {
    let number = openflow_number(port);
    let datapath = port.datapath.map_or_else(|| "none".to_owned(), |number| number.to_string());
    let peer = peer.map(|peer| format!(": peer={peer}")).unwrap_or_default();
    let kind = interface_type(port);
    format!("    {} {number}/{datapath}: ({kind}{peer})\n", port.name)
}

/// Handles `dpif/show-dp-features`: lists the features of the datapath.
async fn show_features(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let name = arguments.first().map(String::as_str).unwrap_or_default();
    if !methods.switch.bridges().iter().any(|bridge| bridge.name == name) {
        return Err("no such bridge".to_owned());
    }
    Ok(FEATURES.iter().map(|(label, key)| format!("{label}: {}\n", feature(key))).collect())
}

/// Returns the value of a feature in the words of Open vSwitch.
fn feature(key: &str) -> &'static str {
    match capability(key) {
        // The depth is not limited by a number.
        Some("true") if key == "sample_nesting" => "?",
        Some("true") => "Yes",
        Some("false") | None => "No",
        Some(number) => number,
    }
}
