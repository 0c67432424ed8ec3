//! The parser of the bmv2 program, which fills the key from a frame.
//!
//! Packets that the parser cannot parse into the key are refused and punted.

use serde_json::{Value, json};

use super::{
    bmv2::{UNPARSED, key, meta},
    description::{CPU_PORT, PACKET_OUT},
    primitives::{extract, field, hex, op, set},
};

/// Returns a parser state: its operations, its select fields, and its transitions.
fn state(name: &str, ops: &[Value], select: &[Value], next: &[(&str, Option<&str>)]) -> Value {
    let transitions: Vec<Value> = next
        .iter()
        .map(|(value, state)| match *value {
            "" => json!({ "type": "default", "value": null, "mask": null, "next_state": state }),
            value => {
                json!({ "type": "hexstr", "value": value, "mask": null, "next_state": state })
            }
        })
        .collect();
    json!({ "name": name, "parser_ops": ops, "transition_key": select, "transitions": transitions })
}

/// Returns the state that refuses a length: below 0x0600, the value is not a type.
fn parse_length() -> Value {
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
    )
}

/// Returns all parser states in the order of their ids.
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
        state(
            "packet_out",
            &[extract(PACKET_OUT.name), consume_bytes(5)],
            &[],
            &[("", Some("ethernet"))],
        ),
        state(
            "ethernet",
            &[
                extract("ethernet"),
                consume_bytes(14),
                set_key("eth_dst", "ethernet", "dst"),
                set_key("eth_src", "ethernet", "src"),
                set_key("eth_type", "ethernet", "eth_type"),
            ],
            &[field("ethernet", "eth_type")],
            &after_ethernet,
        ),
        state(
            "vlan",
            &[
                extract("vlan"),
                consume_bytes(4),
                set(&key("vlan_tci"), &op("|", &field("vlan", "tci"), &hex(0x1000))),
                set(&meta("tag_kept"), &hex(0x1000)),
                set_key("eth_type", "vlan", "eth_type"),
            ],
            &[field("vlan", "eth_type")],
            &after_link,
        ),
        parse_length(),
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

/// Subtracts parsed bytes from the bytes left in the frame.
fn consume_bytes(bytes: u128) -> Value {
    set(&meta("left"), &op("-", &meta("left"), &hex(bytes)))
}

/// Sets a key field to a header field.
fn set_key(name: &str, header: &str, from: &str) -> Value {
    set(&key(name), &field(header, from))
}

/// Returns the parser states of ARP.
fn parse_arp() -> Vec<Value> {
    let arp = |name| field("arp", name);
    let addresses = [set_key("ip_src", "arp", "spa"), set_key("ip_dst", "arp", "tpa")];
    let known = [("0x000108000604", Some("arp_addresses")), ("", Some("refuse"))];
    let kind = [arp("hardware"), arp("protocol"), arp("lengths")];
    // Operations above 255 are stored as zero, as in a flow key.
    let high = [set(&meta("sum"), &op(">>", &arp("operation"), &hex(8)))];
    let is_low = [("0x00000000", Some("arp_known")), ("", None)];
    vec![
        state("arp", &[extract("arp")], &kind, &known),
        state("arp_addresses", &addresses, &[], &[("", Some("arp_operation"))]),
        state("arp_operation", &high, &[meta("sum")], &is_low),
        state("arp_known", &[set_key("nw_proto", "arp", "operation")], &[], &[("", None)]),
    ]
}

/// IP protocols that are parsed or refused in both IP versions.
const INSIDE: [(&str, Option<&str>); 4] = [
    ("0x06", Some("tcp")),
    ("0x11", Some("udp")),
    ("0x02", Some("refuse")),
    ("0x84", Some("refuse")),
];

/// Returns the parser states of IPv4.
fn parse_ipv4() -> Vec<Value> {
    let ops = [
        extract("ipv4"),
        set_key("ip_src", "ipv4", "src"),
        set_key("ip_dst", "ipv4", "dst"),
        set_key("nw_proto", "ipv4", "protocol"),
        set_key("nw_tos", "ipv4", "tos"),
        set_key("nw_ttl", "ipv4", "ttl"),
    ];
    let plain = [("0x45", Some("ipv4_part")), ("", Some("refuse"))];
    let fragment = |bits| set(&key("ip_frag"), &hex(bits));
    // The fragment offset, then the flags; the lowest flag means more fragments.
    let whole = ["0x000000", "0x000002", "0x000004", "0x000006"];
    let first = ["0x000001", "0x000003", "0x000005", "0x000007"];
    let part: Vec<_> = whole
        .map(|value| (value, Some("ipv4_inside")))
        .into_iter()
        .chain(first.map(|value| (value, Some("ipv4_first"))))
        .chain([("", Some("ipv4_later"))])
        .collect();
    // A flow key has type and code of ICMP in the wrong IP version, too, so these packets are
    // refused.
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

/// Returns the parser states of IPv6.
fn parse_ipv6() -> Vec<Value> {
    let ops = [
        extract("ipv6"),
        set_key("ipv6_src", "ipv6", "src"),
        set_key("ipv6_dst", "ipv6", "dst"),
        set_key("nw_proto", "ipv6", "next_header"),
        set_key("nw_tos", "ipv6", "tos"),
        set_key("nw_ttl", "ipv6", "ttl"),
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

/// Returns the parser states of the transport protocols.
fn parse_transport() -> Vec<Value> {
    let ports = |header| {
        [extract(header), set_key("tp_src", header, "src"), set_key("tp_dst", header, "dst")]
    };
    let [tcp, tcp_src, tcp_dst] = ports("tcp");
    let tcp = [tcp, tcp_src, tcp_dst, set_key("tcp_flags", "tcp", "flags")];
    let icmp =
        [extract("icmp"), set_key("tp_src", "icmp", "kind"), set_key("tp_dst", "icmp", "code")];
    // Rules can match fields of neighbour discovery that the program lacks, so these packets are
    // refused.
    let kinds = [("0x87", Some("refuse")), ("0x88", Some("refuse")), ("", None)];
    vec![
        state("tcp", &tcp, &[], &[("", None)]),
        state("udp", &ports("udp"), &[], &[("", None)]),
        state("icmp", &icmp, &[], &[("", None)]),
        state("icmpv6", &icmp, &[field("icmp", "kind")], &kinds),
    ]
}
