//! Fragments and whole packets: lookups see no ports of a first fragment, but actions do.
//!
//! If an entry consults ports, it may not cover both fragments and whole packets. The ports would
//! have two values in one table, and no engine could decide which rules overlap the entry.

use shunt_flow::{FieldId, FlowKey};

use crate::cases::{Switch, packet};

/// Returns the key of a TCP packet from port 80 to port 8080.
fn whole() -> FlowKey {
    let ports = [(FieldId::TcpSrc, 80), (FieldId::TcpDst, 8080)];
    packet(&[[(FieldId::IpProto, 6)].as_slice(), &ports].concat())
}

fn first_fragment() -> FlowKey {
    let mut key = whole();
    key.set_field(FieldId::NwFrag, 1);
    key
}

/// Checks that an entry is right for all packets of its region.
/// Only an entry that remains after `rule` was added is checked.
#[track_caller]
fn check(rules: &[&str], rule: &str) {
    for maker in [whole(), first_fragment()] {
        let mut switch = Switch::new(rules);
        let made = switch.translate_key(&maker);
        let entry = switch.install_key(&maker);
        if switch.add(&[rule]) == [entry] {
            continue;
        }
        for packet in [whole(), first_fragment()] {
            let is_in = packet.agrees_with(&(&made.key).into(), &(&made.mask).into());
            let now = switch.translate_key(&packet);
            assert!(!is_in || made.decides_like(&now), "what stays is wrong for {packet:?}");
        }
    }
}

#[test]
fn action_that_reads_port_tells_fragments_apart() {
    let rules = [
        "tcp,actions=move:NXM_OF_TCP_SRC[]->NXM_NX_REG0[0..15],goto_table:1",
        "table=1,priority=1,actions=output:2",
    ];
    check(&rules, "table=1,priority=10,tcp,tp_src=80,actions=output:3");
}

#[test]
fn a_rule_for_low_ports_matches_first_fragments() {
    let rules = ["priority=1,tcp,actions=move:NXM_OF_TCP_DST[]->NXM_NX_REG0[0..15],output:2"];
    check(&rules, "priority=10,tcp,tp_dst=0/0xfc00,actions=drop");
}

#[test]
fn action_that_writes_port_tells_fragments_apart() {
    let rules =
        ["tcp,actions=set_field:8080->tcp_dst,goto_table:1", "table=1,priority=1,actions=output:2"];
    check(&rules, "table=1,priority=10,tcp,tp_dst=0/0xfc00,actions=drop");
    check(&rules, "table=1,priority=10,tcp,tp_dst=8080,actions=drop");
}
