//! Commands for the MAC table of a bridge.

use std::fmt::Write as _;

use serde_json::{Value, json};
use shunt_flow::PortNo;
use shunt_switch::{
    LearnedTotals, MacStatus, MacTableStatus, StaticMacError, SwitchError,
    config::{mac_text, parse_any_mac},
    with_causes,
};

use super::{command::commands, methods::DaemonMethods};
use crate::render;

commands! {
    "fdb/add" "bridge port vlan mac", 4..=4, Change, add,
        "Add a static MAC address, which does not age and which no packet moves";
    "fdb/del" "bridge vlan mac", 3..=3, Change, delete, "Delete a static MAC address";
    "fdb/flush" "[bridge]", 0..=1, Change, flush,
        "Remove the learned MAC addresses of a bridge, or of all bridges. Static ones stay";
    "fdb/stats-clear" "[bridge]", 0..=1, Change, clear_stats,
        "Clear the totals of `fdb/stats-show`";
    "fdb/stats-show" "bridge", 1..=1, Read, show_stats,
        "Show the numbers of MAC addresses, their limit, and totals of changes";
    "fdb/show" "bridge", 1..=1, Read, show, "List the learned and static MAC addresses";
}

/// The highest VLAN of a MAC address (IEEE 802.1Q, table 9-2: 4095 is reserved).
const VLAN_MAX: u16 = 4094;

/// The OpenFlow number of the local port, as Open vSwitch prints it.
const LOCAL: u32 = 65534;

/// Handles `fdb/add`: adds a static MAC address.
async fn add(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let [bridge, port, vlan, mac] = arguments else { return Err(String::new()) };
    let (vlan, mac) = (parse_vlan(vlan)?, parse_mac(mac)?);
    let added = methods.switch.add_static_mac(bridge, port, vlan, mac).await;
    let mut text = String::new();
    if let Some(replaced) = added.map_err(|error| refusal(&error))? {
        let kind = if replaced.is_static { "static" } else { "dynamic" };
        let number = openflow_number(replaced.port);
        let _ = write!(text, "Overriding already existing {kind} entry on {number}");
    }
    Ok(text)
}

/// Handles `fdb/del`: deletes a static MAC address.
async fn delete(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let [bridge, vlan, mac] = arguments else { return Err(String::new()) };
    let (vlan, mac) = (parse_vlan(vlan)?, parse_mac(mac)?);
    let removed = methods.switch.remove_static_mac(bridge, vlan, mac).await;
    removed.map(|()| String::new()).map_err(|error| refusal(&error))
}

/// Parses the VLAN of a static address.
fn parse_vlan(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|vlan| *vlan <= VLAN_MAX).ok_or_else(|| {
        format!("bad VLAN {text:?}: a VLAN is a number from 0 to {VLAN_MAX}: use 0 for no tag")
    })
}

/// Parses the address of a static entry.
fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    parse_any_mac(text).ok_or_else(|| {
        format!("bad MAC address {text:?}: write six octets, as in 02:00:00:00:00:01")
    })
}

/// Returns the text of an error: that of Open vSwitch, and more about the cause.
fn refusal(error: &SwitchError) -> String {
    match error {
        SwitchError::NoSuchBridge { name, known } => {
            format!("no such bridge: {name}; existing bridges: {known}")
        }
        SwitchError::NoSuchPort { name, known } => {
            format!("no such port: {name}; existing ports: {known}")
        }
        SwitchError::StaticMac { bridge, error: StaticMacError::NoSuchMac { vlan, mac } } => {
            format!(
                "could not find static mac entry: bridge {bridge} has no static address {} in VLAN \
                 {vlan}: list the addresses with `fdb/show {bridge}`",
                mac_text(*mac)
            )
        }
        error => with_causes(error),
    }
}

/// Handles `fdb/flush`: removes learned MAC addresses of one or all bridges.
async fn flush(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridge = arguments.first().map(String::as_str);
    let flushed = methods.switch.flush_macs(bridge).await;
    flushed.map(|()| "table successfully flushed".to_owned()).map_err(|error| refusal(&error))
}

/// Handles `fdb/show`: lists the learned and static MAC addresses.
async fn show(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridge = arguments.first().map_or("", String::as_str);
    let macs = methods.switch.macs(bridge).await;
    macs.map(|macs| render::macs(&macs)).map_err(|error| refusal(&error))
}

/// Returns the answer to `fdb/show` in JSON: an array of addresses.
pub(super) async fn show_json(
    methods: &DaemonMethods,
    arguments: &[String],
) -> Result<Value, String> {
    let bridge = arguments.first().map_or("", String::as_str);
    let macs = methods.switch.macs(bridge).await.map_err(|error| refusal(&error))?;
    let row = |own: &MacStatus| {
        let (port, mac) = (openflow_number(own.port), mac_text(own.mac));
        let age = (!own.is_static).then_some(own.age.as_secs());
        json!({"port": port, "vlan": own.vlan, "mac": mac, "static": own.is_static, "age": age})
    };
    Ok(macs.iter().map(row).collect())
}

/// Returns the answer to `fdb/stats-show` in JSON.
pub(super) fn show_stats_json(
    methods: &DaemonMethods,
    arguments: &[String],
) -> Result<Value, String> {
    let name = arguments.first().map_or("", String::as_str);
    let table = methods.switch.mac_table(name).map_err(|error| refusal(&error))?;
    let totals = methods.cleared.of_macs(table.bridge, table.totals);
    Ok(json!({
        "current": table.entries,
        "maximum": table.entries_max,
        "static": table.statics,
        "learned": totals.learned,
        "expired": totals.expired,
        "evicted": totals.evicted,
        "moved": totals.moved,
    }))
}

/// Returns the number of a port, as Open vSwitch prints it.
fn openflow_number(port: PortNo) -> u32 {
    if port == PortNo::LOCAL { LOCAL } else { port.number() }
}

/// Handles `fdb/stats-clear`: clears the totals of `fdb/stats-show`.
async fn clear_stats(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let all = methods.switch.mac_tables();
    methods.cleared.keep_bridges(&all.iter().map(|table| table.bridge).collect());
    let cleared = match arguments.first() {
        Some(name) => vec![methods.switch.mac_table(name).map_err(|error| refusal(&error))?],
        None => all,
    };
    for table in cleared {
        methods.cleared.clear_macs(table.bridge, table.totals);
    }
    Ok("statistics successfully cleared".to_owned())
}

/// Shows the size of the MAC table, and the totals of its changes.
async fn show_stats(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let name = arguments.first().map_or("", String::as_str);
    let table = methods.switch.mac_table(name).map_err(|error| refusal(&error))?;
    let MacTableStatus { bridge, entries, statics, entries_max, totals } = table;
    let LearnedTotals { learned, expired, evicted, moved } =
        methods.cleared.of_macs(bridge, totals);
    Ok(format!(
        "Statistics for bridge \"{name}\":\n  \
         Current/maximum MAC entries in the table: {entries}/{entries_max}\n  \
         Current static MAC entries in the table : {statics}\n  \
         Total number of learned MAC entries     : {learned}\n  \
         Total number of expired MAC entries     : {expired}\n  \
         Total number of evicted MAC entries     : {evicted}\n  \
         Total number of port moved MAC entries  : {moved}\n"
    ))
}
