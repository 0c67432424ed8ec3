//! The parser of the bmv2 program: which bytes of a frame become the key.
//!
//! What it cannot take apart as the key demands it refuses: such packets go to the controller.

use serde_json::{Value, json};

use super::{
    bmv2::{UNPARSED, key, meta},
    description::{CPU_PORT, PACKET_OUT},
    primitives::{extract, field, hex, op, set},
};

/// A state of the parser: what it does, what it looks at, and where it goes from there.
fn state(name: &str, ops: &[Value], look: &[Value], next: &[(&str, Option<&str>)]) -> Value {
    let transitions: Vec<Value> = next
        .iter()
        .map(|(value, state)| match *value {
            "" => json!({ "type": "default", "value": null, "mask": null, "next_state": state }),
            value => {
                json!({ "type": "hexstr", "value": value, "mask": null, "next_state": state })
            }
        })
        .collect();
    json!({ "name": name, "parser_ops": ops, "transition_key": look, "transitions": transitions })
}

/// All states, in the order of their numbers.
pub(super) fn parse_states() -> Vec<Value> {
    let cpu = format!("{CPU_PORT:#06x}");
    let after_link = [
        ("0x0800", Some("ipv4")),
        ("0x86dd", Some("ipv6")),
        ("0x0806", Some("arp")),
        ("0x8035", Some("arp")),
        ("0x8100", Some("refuse")),
        ("0x88a8", Some("refuse")),
        ("0x894f", Some("refuse")),
        ("", Some("is_length")),
    ];
    let mut after_ethernet = after_link;
    after_ethernet[4].1 = Some("vlan");
    let mut states = vec![
        state(
            "start",
            &[
                set(&key("in_port"), &field("standard_metadata", "ingress_port")),
                set(&meta("left"), &field("standard_metadata", "packet_length")),
            ],
            &[field("standard_metadata", "ingress_port")],
            &[(&cpu, Some("packet_out")), ("", Some("ethernet"))],
        ),
        state("packet_out", &[extract(PACKET_OUT.name), less(5)], &[], &[("", Some("ethernet"))]),
        state(
            "ethernet",
            &[
                extract("ethernet"),
                less(14),
                key_is("eth_dst", "ethernet", "dst"),
                key_is("eth_src", "ethernet", "src"),
                key_is("eth_type", "ethernet", "eth_type"),
            ],
            &[field("ethernet", "eth_type")],
            &after_ethernet,
        ),
        state(
            "vlan",
            &[
                extract("vlan"),
                less(4),
                set(&key("vlan_tci"), &op("|", &field("vlan", "tci"), &hex(0x1000))),
                set(&meta("tag_kept"), &hex(0x1000)),
                key_is("eth_type", "vlan", "eth_type"),
            ],
            &[field("vlan", "eth_type")],
            &after_link,
        ),
        // Below 0x0600 it is no type but a length.
        state(
            "is_length",
            &[set(&meta("sum"), &op(">>", &key("eth_type"), &hex(9)))],
            &[meta("sum")],
            &[
                ("0x00000000", Some("refuse")),
                ("0x00000001", Some("refuse")),
                ("0x00000002", Some("refuse")),
                ("", None),
            ],
        ),
        state("refuse", &[set(&meta("reason"), &hex(UNPARSED))], &[], &[("", None)]),
    ];
    states.extend(parse_arp());
    states.extend(parse_ipv4());
    states.extend(parse_ipv6());
    states.extend(parse_transport());
    for (id, state) in states.iter_mut().enumerate() {
        state["id"] = json!(id);
    }
    states
}

/// So many bytes of the frame have been read.
fn less(bytes: u128) -> Value {
    set(&meta("left"), &op("-", &meta("left"), &hex(bytes)))
}

/// A field of the key is set to one of a header.
fn key_is(name: &str, header: &str, from: &str) -> Value {
    set(&key(name), &field(header, from))
}

fn parse_arp() -> Vec<Value> {
    let arp = |name| field("arp", name);
    let addresses = [key_is("ip_src", "arp", "spa"), key_is("ip_dst", "arp", "tpa")];
    let known = [("0x000108000604", Some("arp_addresses")), ("", Some("refuse"))];
    let kind = [arp("hardware"), arp("protocol"), arp("lengths")];
    // What is above a byte is not told from zero.
    let high = [set(&meta("sum"), &op(">>", &arp("operation"), &hex(8)))];
    let is_low = [("0x00000000", Some("arp_known")), ("", None)];
    vec![
        state("arp", &[extract("arp")], &kind, &known),
        state("arp_addresses", &addresses, &[], &[("", Some("arp_operation"))]),
        state("arp_operation", &high, &[meta("sum")], &is_low),
        state("arp_known", &[key_is("nw_proto", "arp", "operation")], &[], &[("", None)]),
    ]
}

/// Protocols whose headers are read, or refused, whatever carries them.
const INSIDE: [(&str, Option<&str>); 4] = [
    ("0x06", Some("tcp")),
    ("0x11", Some("udp")),
    ("0x02", Some("refuse")),
    ("0x84", Some("refuse")),
];

fn parse_ipv4() -> Vec<Value> {
    let ops = [
        extract("ipv4"),
        key_is("ip_src", "ipv4", "src"),
        key_is("ip_dst", "ipv4", "dst"),
        key_is("nw_proto", "ipv4", "protocol"),
        key_is("nw_tos", "ipv4", "tos"),
        key_is("nw_ttl", "ipv4", "ttl"),
    ];
    let plain = [("0x45", Some("ipv4_part")), ("", Some("refuse"))];
    let fragment = |bits| set(&key("ip_frag"), &hex(bits));
    // The offset, and behind it the flags: the lowest says that more fragments follow.
    let whole = ["0x000000", "0x000002", "0x000004", "0x000006"];
    let first = ["0x000001", "0x000003", "0x000005", "0x000007"];
    let part: Vec<_> = whole
        .map(|value| (value, Some("ipv4_inside")))
        .into_iter()
        .chain(first.map(|value| (value, Some("ipv4_first"))))
        .chain([("", Some("ipv4_later"))])
        .collect();
    // ICMP of the other version of IP has type and code in a flow key, in either version.
    let own = [("0x01", Some("icmp")), ("0x3a", Some("refuse")), ("", None)];
    let inside: Vec<_> = INSIDE.into_iter().chain(own).collect();
    vec![
        state("ipv4", &ops, &[field("ipv4", "version_ihl")], &plain),
        state("ipv4_part", &[], &[field("ipv4", "offset"), field("ipv4", "flags")], &part),
        state("ipv4_first", &[fragment(1)], &[], &[("", Some("ipv4_inside"))]),
        state("ipv4_later", &[fragment(3)], &[], &[("", None)]),
        state("ipv4_inside", &[], &[field("ipv4", "protocol")], &inside),
    ]
}

fn parse_ipv6() -> Vec<Value> {
    let ops = [
        extract("ipv6"),
        key_is("ipv6_src", "ipv6", "src"),
        key_is("ipv6_dst", "ipv6", "dst"),
        key_is("nw_proto", "ipv6", "next_header"),
        key_is("nw_tos", "ipv6", "tos"),
        key_is("nw_ttl", "ipv6", "ttl"),
    ];
    let plain = [("0x06", Some("ipv6_inside")), ("", Some("refuse"))];
    let extensions = ["0x00", "0x2b", "0x2c", "0x33", "0x3c", "0x87"];
    let inside: Vec<_> = INSIDE
        .into_iter()
        .chain(extensions.map(|number| (number, Some("refuse"))))
        .chain([("0x3a", Some("icmpv6")), ("0x01", Some("refuse")), ("", None)])
        .collect();
    vec![
        state("ipv6", &ops, &[field("ipv6", "version")], &plain),
        state("ipv6_inside", &[], &[field("ipv6", "next_header")], &inside),
    ]
}

fn parse_transport() -> Vec<Value> {
    let ports = |header| {
        [extract(header), key_is("tp_src", header, "src"), key_is("tp_dst", header, "dst")]
    };
    let [tcp, tcp_src, tcp_dst] = ports("tcp");
    let tcp = [tcp, tcp_src, tcp_dst, key_is("tcp_flags", "tcp", "flags")];
    let icmp =
        [extract("icmp"), key_is("tp_src", "icmp", "kind"), key_is("tp_dst", "icmp", "code")];
    // Neighbour discovery has more that rules look at.
    let kinds = [("0x87", Some("refuse")), ("0x88", Some("refuse")), ("", None)];
    vec![
        state("tcp", &tcp, &[], &[("", None)]),
        state("udp", &ports("udp"), &[], &[("", None)]),
        state("icmp", &icmp, &[], &[("", None)]),
        state("icmpv6", &icmp, &[field("icmp", "kind")], &kinds),
    ]
}
