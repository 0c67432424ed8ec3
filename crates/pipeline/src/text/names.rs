//! Names of items and actions, supported and unsupported.

/// Actions and instructions that rules may have.
pub(super) const ACTIONS: &[&str] = &[
    "output",
    "controller",
    "enqueue",
    "set_queue",
    "pop_queue",
    "resubmit",
    "clone",
    "exit",
    "note",
    "drop",
    "in_port",
    "flood",
    "all",
    "local",
    "set_field",
    "load",
    "move",
    "push_vlan",
    "pop_vlan",
    "strip_vlan",
    "mod_vlan_vid",
    "mod_vlan_pcp",
    "set_vlan_vid",
    "set_vlan_pcp",
    "mod_dl_src",
    "mod_dl_dst",
    "mod_nw_src",
    "mod_nw_dst",
    "mod_nw_tos",
    "mod_nw_ecn",
    "mod_nw_ttl",
    "set_nw_ttl",
    "mod_tp_src",
    "mod_tp_dst",
    "dec_ttl",
    "set_tunnel",
    "set_tunnel64",
    "set_mpls_label",
    "set_mpls_tc",
    "set_mpls_ttl",
    "dec_mpls_ttl",
    "push_mpls",
    "pop_mpls",
    "copy_ttl_out",
    "copy_ttl_in",
    "push",
    "pop",
    "normal",
    "group",
    "meter",
    "learn",
    "conjunction",
    "multipath",
    "bundle",
    "bundle_load",
    "fin_timeout",
    "check_pkt_larger",
    "ct",
    "ct_clear",
    "nat",
    "sample",
    "apply_actions",
    "clear_actions",
    "write_actions",
    "write_metadata",
    "goto_table",
];

/// Actions of OpenFlow and its extensions that this switch does not support yet.
const LATER: &[&str] = &["encap", "decap", "dec_nsh_ttl", "delete_field"];

/// Items of a rule other than its match.
pub(super) const ITEMS: &[&str] = &[
    "table",
    "priority",
    "cookie",
    "idle_timeout",
    "hard_timeout",
    "importance",
    "send_flow_rem",
    "check_overlap",
    "reset_counts",
    "no_packet_counts",
    "no_byte_counts",
    "out_port",
    "out_group",
    "actions",
];

/// Returns the unsupported action with this name.
pub(super) fn find_later(name: &str) -> Option<&'static str> {
    LATER.iter().copied().find(|later| later.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_action_is_both_supported_and_refused() {
        assert!(ACTIONS.iter().all(|name| find_later(name).is_none()));
        assert_eq!(find_later("DECAP"), Some("decap"));
    }
}
