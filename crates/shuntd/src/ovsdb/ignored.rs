//! Columns and keys that have no effect in Shunt, but that an operator may rely on.
//!
//! Each such setting is logged once for its row, and added to the column `status` of the row under
//! its own name.

use std::collections::{BTreeMap, BTreeSet};

use shunt_ovsdb::{
    DatabaseSnapshot, RowView,
    value::{Atom, Datum, RowUuid},
};
use tracing::warn;

use super::{
    bridge_rows::{TABLE_MAX, is_protocol, is_table_name},
    changed_rows::ChangedRows,
};

/// The settings without effect of each row, with their reasons.
pub(super) type IgnoredSettings = BTreeMap<RowUuid, BTreeMap<String, &'static str>>;

/// The settings without effect that were already logged.
#[derive(Debug, Default)]
pub(super) struct IgnoredLog(BTreeSet<(RowUuid, String)>);

/// A column that has no effect.
struct IgnoredColumn {
    /// The table of the column.
    table: &'static str,
    /// The name of the column.
    name: &'static str,
    /// Returns whether a value requests something that the switch does not do.
    asks: fn(&Datum) -> bool,
    /// The reason for the log.
    reason: &'static str,
}

/// A key of `other_config` for which the effect or a specific reason is known.
struct KnownKey {
    /// The table with the column `other_config`.
    table: &'static str,
    /// The key in `other_config`.
    name: &'static str,
    /// The values that have an effect, or the reason why none has one.
    effect: KeyEffect,
}

/// Which values of a key of the database change what the switch does.
#[derive(Clone, Copy)]
enum KeyEffect {
    /// Any value has an effect.
    Any,
    /// A number that is not negative has an effect, other values do not.
    Number,
    /// A number of at least 1 has an effect, other values do not.
    Positive,
    /// A number from 0 to 100 has an effect, other values do not.
    Percent,
    /// A value of `priority-tags` has an effect, other values do not.
    PriorityTags,
    /// A value of `qinq-ethtype` has an effect, other values do not.
    QinqEthtype,
    /// The key has no effect, for this reason.
    Nothing(&'static str),
    /// The switch always behaves as with this value.
    ///
    /// Other values have no effect, for this reason.
    Always(&'static str, &'static str),
}

/// The tables that are searched, each with the word for its rows.
pub(super) const TABLES: [(&str, &str); 7] = [
    ("Open_vSwitch", "Open_vSwitch"),
    ("Bridge", "bridge"),
    ("Port", "port"),
    ("Interface", "interface"),
    ("Controller", "controller"),
    ("Manager", "manager"),
    ("IPFIX", "IPFIX"),
];

/// The tables of which the column `status` also contains a state.
pub(super) const TABLES_WITH_STATE: [&str; 3] = ["Controller", "Interface", "Manager"];

/// Columns without an effect in Shunt, with the reasons.
static COLUMNS: [IgnoredColumn; 24] = [
    column("Bridge", "auto_attach", is_given, "Auto Attach is not supported"),
    column("Bridge", "datapath_type", is_other_datapath, "there is one datapath: use netdev"),
    column(
        "Bridge",
        "protocols",
        is_other_version,
        "only OpenFlow 1.0 and 1.3 are spoken: use OpenFlow10 and OpenFlow13",
    ),
    column("Bridge", "rstp_enable", is_true, NO_SPANNING_TREE),
    column("Bridge", "stp_enable", is_true, NO_SPANNING_TREE),
    column(
        "Flow_Table",
        "groups",
        is_given,
        "a full table evicts the least important of all its rules, without groups",
    ),
    column(
        "Flow_Table",
        "name",
        is_no_table_name,
        "the name of a table must have 1 to 31 ASCII characters without spaces and commas",
    ),
    column("Flow_Table", "prefixes", is_given, "the switch chooses the prefixes itself"),
    column("Port", "mac", is_given, "set mac of the interface"),
    column("Interface", "cfm_mpid", is_given, NO_CFM),
    column("Interface", "cfm_flap_count", is_given, NO_CFM),
    column("Interface", "lldp", is_enabled, "LLDP is not supported: run an LLDP daemon"),
    column("Controller", "connection_mode", is_in_band, NO_IN_BAND),
    column("Controller", "controller_burst_limit", is_given, NO_PACKET_IN_LIMIT),
    column("Controller", "controller_queue_size", is_given, "the queue has a fixed size"),
    column("Controller", "controller_rate_limit", is_given, NO_PACKET_IN_LIMIT),
    column(
        "Controller",
        "enable_async_messages",
        is_false,
        "a controller gets the messages that it asks for",
    ),
    column(
        "Controller",
        "inactivity_probe",
        is_other_probe,
        "a controller is probed after 5 s of silence, and left after 10 s",
    ),
    column("Controller", "local_gateway", is_given, NO_IN_BAND),
    column("Controller", "local_ip", is_given, NO_IN_BAND),
    column("Controller", "local_netmask", is_given, NO_IN_BAND),
    column(
        "Controller",
        "max_backoff",
        is_other_backoff,
        "the longest pause between two attempts to connect is 8 s",
    ),
    column("Controller", "type", is_service, "each controller is a primary one"),
    column("Manager", "connection_mode", is_in_band, NO_IN_BAND),
];

/// The reason to ignore settings of in-band control.
const NO_IN_BAND: &str =
    "there is no in-band control: the host needs its own routes to controllers and managers";

/// The reason to ignore a rate limit of packet-ins.
const NO_PACKET_IN_LIMIT: &str = "packet-ins have no rate limit of their own: limit them by a meter with the rule that sends them";

/// The reason to ignore settings of CFM.
const NO_CFM: &str = "CFM is not supported: the link state is the carrier, or that of BFD";

/// The reason to ignore settings of spanning trees.
const NO_SPANNING_TREE: &str =
    "no spanning tree is computed: a loop of links stays a loop, remove it";

/// Known keys of `other_config` columns, with their effect.
const KEYS: [KnownKey; 30] = [
    // DPDK is initialised when the first DPDK port is opened.
    key("Open_vSwitch", "dpdk-init", KeyEffect::Any),
    key("Open_vSwitch", "enable-statistics", KeyEffect::Any),
    key("Open_vSwitch", "flow-limit", KeyEffect::Positive),
    key("Open_vSwitch", "flow-restore-wait", KeyEffect::Any),
    key("Open_vSwitch", "max-idle", KeyEffect::Positive),
    key("Open_vSwitch", "pmd-auto-lb", KeyEffect::Any),
    key("Open_vSwitch", "pmd-auto-lb-improvement-threshold", KeyEffect::Percent),
    key("Open_vSwitch", "pmd-auto-lb-load-threshold", KeyEffect::Percent),
    key("Open_vSwitch", "pmd-auto-lb-rebal-interval", KeyEffect::Number),
    key("Open_vSwitch", "stats-update-interval", KeyEffect::Number),
    key("Open_vSwitch", "vhost-sock-dir", KeyEffect::Any),
    key("Open_vSwitch", "vlan-limit", KeyEffect::Number),
    key("Bridge", "datapath-id", KeyEffect::Any),
    // Shunt has no in-band control.
    key("Bridge", "disable-in-band", KeyEffect::Any),
    key(
        "Bridge",
        "forward-bpdu",
        KeyEffect::Nothing("frames to the reserved addresses of bridges are dropped"),
    ),
    key("Bridge", "hwaddr", KeyEffect::Any),
    key("Bridge", "mac-aging-time", KeyEffect::Number),
    key("Bridge", "mac-table-size", KeyEffect::Number),
    key("Bridge", "mcast-snooping-aging-time", KeyEffect::Number),
    key("Bridge", "mcast-snooping-disable-flood-unregistered", KeyEffect::Any),
    key("Bridge", "mcast-snooping-table-size", KeyEffect::Number),
    key("IPFIX", "enable-input-sampling", KeyEffect::Always("true", ONE_FLOW)),
    key("IPFIX", "enable-output-sampling", KeyEffect::Always("false", ONE_FLOW)),
    key(
        "IPFIX",
        "enable-tunnel-sampling",
        KeyEffect::Always("false", "there are no tunnels to report"),
    ),
    key("IPFIX", "virtual_obs_id", KeyEffect::Any),
    key("Port", "bond-primary", KeyEffect::Any),
    key("Port", "mcast-snooping-flood", KeyEffect::Any),
    key("Port", "mcast-snooping-flood-reports", KeyEffect::Any),
    key("Port", "priority-tags", KeyEffect::PriorityTags),
    key("Port", "qinq-ethtype", KeyEffect::QinqEthtype),
];

/// The reason that the sampling of input and output cannot be chosen.
const ONE_FLOW: &str = "a packet is sampled once, when it is received, with both interfaces";

/// The values of `priority-tags`; older versions of Open vSwitch used `true`.
const PRIORITY_TAGS: [&str; 4] = ["always", "if-nonzero", "never", "true"];

/// The first letters of keys for absent features, each with the reason.
const ABSENT_FEATURES: [(&str, &str); 3] =
    [("stp-", NO_SPANNING_TREE), ("rstp-", NO_SPANNING_TREE), ("cfm_", NO_CFM)];

/// The prefixes of keys for bonds, which the module for bonds checks.
const BOND_WORDS: [&str; 2] = ["bond-", "lacp-"];

/// Returns a row of the list of columns without effect.
const fn column(
    table: &'static str,
    name: &'static str,
    asks: fn(&Datum) -> bool,
    reason: &'static str,
) -> IgnoredColumn {
    IgnoredColumn { table, name, asks, reason }
}

/// Returns a row of the list of known keys.
const fn key(table: &'static str, name: &'static str, effect: KeyEffect) -> KnownKey {
    KnownKey { table, name, effect }
}

impl KeyEffect {
    /// Returns why a key with a value has no effect; `None` if it has an effect.
    fn reason(self, value: &str) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::Number if value.parse::<u32>().is_ok() => None,
            Self::Number => Some("the value must be a whole number that is not negative"),
            Self::Positive if value.parse::<u32>().is_ok_and(|number| number > 0) => None,
            Self::Positive => Some("the value must be a whole number, at least 1"),
            Self::Percent if value.parse::<u8>().is_ok_and(|percent| percent <= 100) => None,
            Self::Percent => Some("the value must be a whole number from 0 to 100"),
            Self::PriorityTags if PRIORITY_TAGS.contains(&value) => None,
            Self::PriorityTags => Some("the value must be always, if-nonzero or never"),
            Self::QinqEthtype if ["802.1ad", "802.1q"].contains(&value) => None,
            Self::QinqEthtype => Some("the value must be 802.1ad or 802.1q"),
            Self::Nothing(reason) => Some(reason),
            Self::Always(own, _) if own == value => None,
            Self::Always(_, reason) => Some(reason),
        }
    }
}

/// Returns whether a column has a value.
fn is_given(value: &Datum) -> bool {
    !value.is_empty()
}

/// Returns whether a value is `false`.
fn is_false(value: &Datum) -> bool {
    *value == Datum::boolean(false)
}

/// Returns whether a connection mode is `in-band`.
fn is_in_band(value: &Datum) -> bool {
    *value == Datum::string("in-band")
}

/// Returns whether a maximum back-off differs from that of the switch.
fn is_other_backoff(value: &Datum) -> bool {
    !value.is_empty() && *value != Datum::integer(8000)
}

/// Returns whether a probe interval differs from that of the switch.
fn is_other_probe(value: &Datum) -> bool {
    !value.is_empty() && *value != Datum::integer(5000)
}

/// Returns whether a controller type is `service`.
fn is_service(value: &Datum) -> bool {
    *value == Datum::string("service")
}

/// Returns whether a value is `true`.
fn is_true(value: &Datum) -> bool {
    *value == Datum::boolean(true)
}

/// Returns whether a map has the entry `enable=true`.
fn is_enabled(value: &Datum) -> bool {
    let text = |text: &str| Atom::String(text.into());
    value.find_value(&text("enable")) == Some(&text("true"))
}

/// Returns whether a set has an OpenFlow version that the switch lacks.
fn is_other_version(value: &Datum) -> bool {
    value.keys().iter().any(|atom| matches!(atom, Atom::String(name) if !is_protocol(name)))
}

/// Returns whether a value cannot be the name of a table.
fn is_no_table_name(value: &Datum) -> bool {
    matches!(value.as_scalar(), Some(Atom::String(name)) if !is_table_name(name))
}

/// Returns whether a datapath type is unknown.
fn is_other_datapath(value: &Datum) -> bool {
    !["", "netdev", "system"].into_iter().any(|known| *value == Datum::string(known))
}

/// Returns the settings that have no effect, for each row that has some.
///
/// Rows in `Port` and `Interface` that have not changed keep their settings in `earlier`.
pub(super) fn ignored_settings(
    snapshot: &DatabaseSnapshot,
    changed: &ChangedRows,
    mut earlier: IgnoredSettings,
) -> IgnoredSettings {
    let mut found = IgnoredSettings::new();
    if let ChangedRows::Ports(changed) = changed {
        earlier.retain(|uuid, _| {
            let is_port =
                ["Port", "Interface"].iter().any(|own| snapshot.row(own, *uuid).is_some());
            is_port && !changed.contains(uuid)
        });
        found = earlier;
    }
    for (table, _) in TABLES {
        let columns = columns_of(table);
        for row in changed.rows_to_read(snapshot, table) {
            let mut settings = settings_of(table, &columns, row);
            if table == "Bridge" {
                settings.extend(settings_of_tables(snapshot, row));
            }
            if !settings.is_empty() {
                found.insert(row.uuid(), settings);
            }
        }
    }
    found
}

/// Returns the columns of a table that have no effect.
fn columns_of(table: &str) -> Vec<&'static IgnoredColumn> {
    COLUMNS.iter().filter(|column| column.table == table).collect()
}

/// Returns the settings of a row without effect, each with the reason.
fn settings_of(
    table: &str,
    columns: &[&'static IgnoredColumn],
    row: RowView<'_>,
) -> BTreeMap<String, &'static str> {
    let asks = |column: &&&IgnoredColumn| row.value(column.name).is_some_and(column.asks);
    let columns = columns.iter().filter(asks);
    let mut settings: BTreeMap<_, _> =
        columns.map(|column| (column.name.to_owned(), column.reason)).collect();
    for (name, value) in row.string_map("other_config") {
        let known = KEYS.iter().find(|key| key.table == table && key.name == name);
        let absent = ABSENT_FEATURES.iter().find(|(prefix, _)| name.starts_with(prefix));
        let unknown = absent.map_or("Shunt does not have this key", |(_, reason)| *reason);
        let unknown = KeyEffect::Nothing(unknown);
        let reason = known.map_or(unknown, |known| known.effect).reason(value);
        let is_of_bond = BOND_WORDS.iter().any(|word| name.starts_with(word));
        if let Some(reason) = reason.filter(|_| known.is_some() || !is_of_bond) {
            settings.insert(format!("other_config:{name}"), reason);
        }
    }
    settings
}

/// Returns the settings without effect of the flow tables of a bridge.
///
/// Rows of flow tables have no column `status`, so these settings are reported in the row of the
/// bridge.
fn settings_of_tables(
    snapshot: &DatabaseSnapshot,
    bridge: RowView<'_>,
) -> BTreeMap<String, &'static str> {
    let mut settings = BTreeMap::new();
    let columns = columns_of("Flow_Table");
    for (table, row) in bridge.numbered_uuids("flow_tables") {
        if !(0..=TABLE_MAX).contains(&table) {
            settings.insert(format!("flow_tables:{table}"), "tables have the numbers 0 to 253");
        } else if let Some(row) = snapshot.row("Flow_Table", row) {
            let own = settings_of("Flow_Table", &columns, row).into_iter();
            settings
                .extend(own.map(|(name, reason)| (format!("flow_tables:{table}:{name}"), reason)));
        }
    }
    settings
}

impl IgnoredLog {
    /// Logs the settings that were not logged since they were last set.
    pub(super) fn update(&mut self, snapshot: &DatabaseSnapshot, ignored: &IgnoredSettings) {
        let mut now = BTreeSet::new();
        for (uuid, settings) in ignored {
            let found = |(table, word)| Some((word, snapshot.row(table, *uuid)?));
            let Some((word, row)) = TABLES.into_iter().find_map(found) else { continue };
            for (setting, reason) in settings {
                let own = (*uuid, setting.clone());
                if !self.0.contains(&own) {
                    let name = row.string("name").or_else(|| row.string("target"));
                    let name = name.unwrap_or(".");
                    warn!("{word} {name}: the setting {setting} has no effect: {reason}");
                }
                now.insert(own);
            }
        }
        self.0 = now;
    }
}
