//! The rows of `Datapath`: the capabilities of the switch.
//!
//! A controller such as `ovn-controller` adds a row for the type of its bridges, and reads there
//! which features it may use. The two types of `datapath_types` are one datapath.

use shunt_ovsdb::{
    DatabaseSnapshot, RowView,
    value::{Atom, Datum, RowUuid},
};

/// The types of datapaths that a bridge may have.
const TYPES: [&str; 2] = ["netdev", "system"];

/// The capabilities, with the keys of Open vSwitch.
///
/// The datapath has no connection tracking (`ct_*`), no tunnels (`tnl_push_pop`), and no packets
/// without an Ethernet header (`add_mpls`). `balance-tcp` needs no action of a datapath
/// (`lb_output_action`).
const CAPABILITIES: [(&str, &str); 27] = [
    ("add_mpls", "false"),
    ("check_pkt_len", "true"),
    ("clone", "true"),
    ("ct_clear", "false"),
    ("ct_eventmask", "false"),
    ("ct_flush", "false"),
    ("ct_label", "false"),
    ("ct_mark", "false"),
    ("ct_orig_tuple", "false"),
    ("ct_orig_tuple6", "false"),
    ("ct_state", "false"),
    ("ct_state_nat", "false"),
    ("ct_timeout", "false"),
    ("ct_zero_snat", "false"),
    ("ct_zone", "false"),
    ("explicit_drop_action", "true"),
    ("lb_output_action", "false"),
    ("masked_set_action", "true"),
    ("max_hash_alg", "0"),
    ("max_mpls_depth", "3"),
    ("max_vlan_headers", "2"),
    ("nd_ext", "true"),
    ("recirc", "true"),
    ("sample_nesting", "true"),
    ("tnl_push_pop", "false"),
    ("trunc", "true"),
    ("ufid", "true"),
];

/// Returns the value of the column `capabilities`.
pub(super) fn capabilities() -> Datum {
    Datum::string_map(CAPABILITIES)
}

/// Returns the value of a capability; `None` if Open vSwitch has no such key.
pub(crate) fn capability(key: &str) -> Option<&'static str> {
    CAPABILITIES.iter().find(|(own, _)| *own == key).map(|(_, value)| *value)
}

/// Returns the rows in `Datapath` of the types of datapaths that a bridge may have.
pub(super) fn datapath_rows<'a>(
    rows: &'a DatabaseSnapshot,
    root: RowView<'a>,
) -> impl Iterator<Item = RowView<'a>> {
    let referenced = TYPES.into_iter().filter_map(move |kind| row_of(root, kind));
    referenced.filter_map(move |uuid| rows.row("Datapath", uuid))
}

/// Returns the row in `Datapath` of a type of datapaths.
fn row_of(root: RowView<'_>, kind: &str) -> Option<RowUuid> {
    root.value("datapaths")?.find_value(&Atom::String(kind.into()))?.as_uuid()
}
