//! Settings of a bridge from its rows in `Bridge` and `Flow_Table`.

use shunt_ovsdb::{DatabaseSnapshot, RowView, value::RowUuid};
use shunt_switch::config::{BridgeOptions, FailMode};

/// Returns the rule limits of the tables of a bridge.
pub(super) fn table_limits(snapshot: &DatabaseSnapshot, bridge: RowView<'_>) -> Vec<String> {
    let limit = |(table, row): (i64, RowUuid)| {
        let row = snapshot.row("Flow_Table", row)?;
        // Tables above 253 are hidden in Open vSwitch, and do not exist in Shunt.
        let rules = row.integer("flow_limit").filter(|_| (0..=TABLE_MAX).contains(&table))?;
        // Without a policy a full table refuses rules.
        let policy = row.string("overflow_policy").unwrap_or("refuse");
        Some(format!("{table}:{rules}:{policy}"))
    };
    bridge.numbered_uuids("flow_tables").filter_map(limit).collect()
}

/// Returns the names of the tables of a bridge; wrong names are left out.
pub(super) fn table_names(snapshot: &DatabaseSnapshot, bridge: RowView<'_>) -> Vec<String> {
    let name = |(table, row): (i64, RowUuid)| {
        let name = snapshot.row("Flow_Table", row)?.string("name")?;
        let is_name = (0..=TABLE_MAX).contains(&table) && is_table_name(name);
        is_name.then(|| format!("{table}:{name}"))
    };
    bridge.numbered_uuids("flow_tables").filter_map(name).collect()
}

/// Returns the datapath id of a bridge; empty: derived from the MAC address.
///
/// As in Open vSwitch, the id 0 counts as none.
pub(super) fn datapath_id(bridge: RowView<'_>) -> String {
    let given = bridge.entry("other_config", "datapath-id").unwrap_or_default();
    if given == "0000000000000000" { String::new() } else { given.to_owned() }
}

/// Returns whether the switch accepts the name of a table.
pub(super) fn is_table_name(name: &str) -> bool {
    let table_names = vec![format!("0:{name}")];
    BridgeOptions { table_names, ..BridgeOptions::default() }.table_names().is_ok()
}

/// Returns whether the switch supports an OpenFlow version that `protocols` names.
pub(super) fn is_protocol(name: &str) -> bool {
    let protocols = vec![name.to_owned()];
    BridgeOptions { protocols, ..BridgeOptions::default() }.versions().is_ok()
}

/// Reads the behaviour without a reachable controller.
///
/// As in Open vSwitch, an empty column means `standalone`.
pub(super) fn fail_mode(bridge: RowView<'_>) -> FailMode {
    match bridge.string("fail_mode") {
        Some("secure") => FailMode::Secure,
        _ => FailMode::Standalone,
    }
}

/// The largest number of a table.
pub(super) const TABLE_MAX: i64 = 253;

/// Reads the settings of the MAC table.
///
/// As in Open vSwitch, values that are out of range are replaced by the nearest valid values.
pub(super) fn set_mac_table(options: &mut BridgeOptions, bridge: RowView<'_>) {
    let number = |key| bridge.entry("other_config", key)?.parse::<u32>().ok().filter(|n| *n > 0);
    let seconds = number("mac-aging-time").map(|seconds| seconds.clamp(15, 3600));
    options.mac_ageing_s = seconds.unwrap_or_default();
    let entries = number("mac-table-size").map(|entries| entries.clamp(10, 1_000_000));
    let vlan = |id: i64| u16::try_from(id).ok();
    options.flood_vlans = bridge.integers("flood_vlans").filter_map(vlan).collect();
    options.mac_entries =
        entries.and_then(|entries| usize::try_from(entries).ok()).unwrap_or_default();
}

/// Reads the settings of multicast snooping.
///
/// As in Open vSwitch, values that are out of range are replaced by the nearest valid values.
pub(super) fn set_snooping(options: &mut BridgeOptions, bridge: RowView<'_>) {
    let number = |key| bridge.entry("other_config", key)?.parse::<u32>().ok().filter(|n| *n > 0);
    options.mcast_snooping_enable = bridge.boolean("mcast_snooping_enable") == Some(true);
    let seconds = number("mcast-snooping-aging-time").map(|seconds| seconds.clamp(15, 3600));
    options.mcast_snooping_ageing_s = seconds.unwrap_or_default();
    let entries = number("mcast-snooping-table-size").map(|entries| entries.clamp(10, 1_000_000));
    options.mcast_snooping_entries =
        entries.and_then(|entries| usize::try_from(entries).ok()).unwrap_or_default();
    let strict = bridge.entry("other_config", "mcast-snooping-disable-flood-unregistered");
    options.mcast_snooping_disable_flood_unregistered = strict == Some("true");
}
