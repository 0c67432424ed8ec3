//! The LTM program for `simple_switch` of bmv2, as the JSON that a P4 compiler would generate.
//!
//! Tables match and rewrite a copy of the headers in metadata (`key`). The copy is written to the
//! frame after the last stage, and only if the packet is forwarded; checksums are updated
//! incrementally. A punted packet is therefore unmodified.

use serde_json::{Value, json};

use super::{
    description::{
        ActionSpec, CPU_PORT, Disposition, KeyField, MISS_ACTION, MatchKind, PACKET_IN, PACKET_OUT,
        PacketHeader, Program, TAG_FIRST, TAG_WIDTH, actions, key_fields,
    },
    graph::{Graph, MatchTable},
    lengths::check_lengths,
    parser::parse_states,
    primitives::{
        assign, checksum_deltas, field, hex, local, masked, on_header, op, sum_of, update_checksum,
        valid,
    },
};

/// Verdict: no entry has decided yet.
const UNDECIDED: u128 = 0;
/// Verdict: forward the packet.
const FORWARD: u128 = 1;
/// Verdict: drop the packet.
const DROP: u128 = 2;
/// Verdict: send the packet to the controller.
const PUNT: u128 = 3;

/// Punt reason: the parser refused the packet.
///
/// Reason 0 means that no entry matched.
pub(super) const UNPARSED: u128 = 1;
/// Punt reason: the action of an entry.
const PUNTED_BY_ENTRY: u128 = 2;

/// The headers in frame order, with the widths of their fields.
const HEADERS: &[(&str, &[(&str, u16)])] = &[
    ("ethernet", &[("dst", 48), ("src", 48), ("eth_type", 16)]),
    ("vlan", &[("tci", 16), ("eth_type", 16)]),
    (
        "arp",
        &[
            ("hardware", 16),
            ("protocol", 16),
            ("lengths", 16),
            ("operation", 16),
            ("sha", 48),
            ("spa", 32),
            ("tha", 48),
            ("tpa", 32),
        ],
    ),
    (
        "ipv4",
        &[
            ("version_ihl", 8),
            ("tos", 8),
            ("length", 16),
            ("identification", 16),
            ("flags", 3),
            ("offset", 13),
            ("ttl", 8),
            ("protocol", 8),
            ("checksum", 16),
            ("src", 32),
            ("dst", 32),
        ],
    ),
    (
        "ipv6",
        &[
            ("version", 4),
            ("tos", 8),
            ("label", 20),
            ("length", 16),
            ("next_header", 8),
            ("ttl", 8),
            ("src", 128),
            ("dst", 128),
        ],
    ),
    (
        "tcp",
        &[
            ("src", 16),
            ("dst", 16),
            ("sequence", 32),
            ("acknowledgement", 32),
            ("data_offset", 4),
            ("flags", 12),
            ("window", 16),
            ("checksum", 16),
            ("urgent", 16),
        ],
    ),
    ("udp", &[("src", 16), ("dst", 16), ("length", 16), ("checksum", 16)]),
    ("icmp", &[("kind", 8), ("code", 8), ("checksum", 16), ("rest", 32)]),
];

/// Metadata of a packet; the key fields are separate.
const METADATA: &[(&str, u16)] = &[
    ("verdict", 8),
    ("port", 16),
    ("reason", 8),
    ("last_stage", 8),
    ("address_delta", 32),
    ("sum", 32),
    ("left", 32),
    ("tag_kept", 16),
];

/// Metadata of the v1model architecture.
const STANDARD: &[(&str, u16)] = &[
    ("ingress_port", 9),
    ("egress_spec", 9),
    ("egress_port", 9),
    ("instance_type", 32),
    ("packet_length", 32),
    ("enq_timestamp", 32),
    ("enq_qdepth", 19),
    ("deq_timedelta", 32),
    ("deq_qdepth", 19),
    ("ingress_global_timestamp", 48),
    ("egress_global_timestamp", 48),
    ("mcast_grp", 16),
    ("egress_rid", 16),
    ("checksum_error", 1),
    ("parser_error", 32),
    ("priority", 3),
];

/// Names under which the switch looks up architecture metadata.
const ALIASES: &[(&str, &str)] = &[
    ("queueing_metadata", "enq_timestamp"),
    ("queueing_metadata", "enq_qdepth"),
    ("queueing_metadata", "deq_timedelta"),
    ("queueing_metadata", "deq_qdepth"),
    ("intrinsic_metadata", "ingress_global_timestamp"),
    ("intrinsic_metadata", "egress_global_timestamp"),
    ("intrinsic_metadata", "mcast_grp"),
    ("intrinsic_metadata", "egress_rid"),
    ("intrinsic_metadata", "priority"),
];

/// The errors of a bmv2 program, in the order of their numbers.
const ERRORS: &[&str] = &[
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
];

/// Returns a field of the metadata.
pub(super) fn meta(name: &str) -> Value {
    field("meta", name)
}

/// Returns a field of the table key.
pub(super) fn key(name: &str) -> Value {
    field("key", name)
}

/// Returns the field with the egress port.
fn egress() -> Value {
    field("standard_metadata", "egress_spec")
}

impl Program {
    /// Returns the program in the JSON format of `simple_switch`.
    #[must_use]
    pub fn bmv2_json(&self) -> Value {
        let mut graph = Graph::default();
        self.ingress(&mut graph);
        let (types, headers) = header_instances();
        let counters: Vec<Value> = (0..self.stages())
            .map(|stage| {
                let number = u16::from(stage) + 1;
                json!({
                    "name": format!("ingress.ltm_{number}_hits"), "id": stage, "is_direct": true,
                    "binding": format!("ingress.ltm_{number}"),
                })
            })
            .collect();
        let aliases: Vec<Value> = ALIASES
            .iter()
            .map(|(header, name)| json!([format!("{header}.{name}"), ["standard_metadata", name]]))
            .collect();
        let errors: Vec<Value> =
            ERRORS.iter().zip(0u8..).map(|(name, number)| json!([name, number])).collect();
        let mut order = vec![PACKET_IN.name];
        order.extend(HEADERS.iter().map(|(name, _)| *name));
        json!({
            "__meta__": { "version": [2, 23], "compiler": "shunt" },
            "program": "gigaflow.p4",
            "header_types": types, "headers": headers,
            "header_stacks": [], "header_union_types": [], "header_unions": [],
            "header_union_stacks": [], "field_lists": [], "enums": [], "errors": errors,
            "parsers": [{
                "name": "parser", "id": 0, "init_state": "start", "parse_states": parse_states(),
            }],
            "parse_vsets": [],
            "deparsers": [{ "name": "deparser", "id": 0, "order": order }],
            "meter_arrays": [], "counter_arrays": counters, "register_arrays": [],
            "calculations": [], "learn_lists": [], "checksums": [], "force_arith": [],
            "extern_instances": [], "field_aliases": aliases,
            "actions": graph.actions,
            "pipelines": [
                {
                    "name": "ingress", "id": 0, "init_table": "is_from_controller",
                    "tables": graph.tables, "action_profiles": [],
                    "conditionals": graph.conditions,
                },
                {
                    "name": "egress", "id": 1, "init_table": null, "tables": [],
                    "action_profiles": [], "conditionals": [],
                },
            ],
        })
    }

    /// Adds the steps of the ingress control block.
    fn ingress(&self, graph: &mut Graph) {
        packet_out_steps(graph);
        let start = graph.action(
            "ingress.start",
            &[json!({ "name": "tag", "bitwidth": TAG_WIDTH })],
            &[assign(&key("tag"), &local(0))],
        );
        graph.table(&MatchTable {
            name: "ingress.start_table",
            key: Vec::new(),
            actions: &[(start, "ingress.start".to_owned())],
            default_data: vec![format!("{TAG_FIRST:#x}")],
            is_default_const: false,
            size: 1,
            on_hit: "is_open_1",
            on_miss: "is_open_1",
        });
        self.stages_in(graph);
        let verdict = |code| op("==", &meta("verdict"), &hex(code));
        graph.branch("is_forwarded", &verdict(FORWARD), "is_hairpin", Some("is_dropped"));
        graph.branch("is_dropped", &verdict(DROP), "drop", Some("punt"));
        let hairpin = op("==", &meta("port"), &key("in_port"));
        graph.branch("is_hairpin", &hairpin, "drop", Some("commit_link"));
        graph.step("drop", &[on_header("mark_to_drop", "standard_metadata")], None);
        punt(graph);
        write_headers(graph);
    }

    /// Adds the tables of all stages to the graph.
    fn stages_in(&self, graph: &mut Graph) {
        let mut listed: Vec<(usize, String)> = actions()
            .iter()
            .map(|spec| {
                let name = format!("ingress.{}", spec.name);
                let params: Vec<Value> = spec
                    .params()
                    .map(|param| json!({ "name": param.name(), "bitwidth": param.width }))
                    .collect();
                (graph.action(&name, &params, &primitives(spec)), name)
            })
            .collect();
        let miss = format!("ingress.{}", MISS_ACTION.name);
        listed.push((graph.action(&miss, &[], &[]), miss));
        for number in 1..=u16::from(self.stages()) {
            let open = op("==", &meta("verdict"), &hex(UNDECIDED));
            let next = if number == u16::from(self.stages()) {
                "is_forwarded".to_owned()
            } else {
                format!("is_open_{}", number + 1)
            };
            let (table, hit) = (format!("ingress.ltm_{number}"), format!("hit_{number}"));
            graph.branch(&format!("is_open_{number}"), &open, &table, Some(&next));
            graph.table(&MatchTable {
                name: &table,
                key: key_fields().iter().map(key_of).collect(),
                actions: &listed,
                default_data: Vec::new(),
                is_default_const: true,
                size: self.size(),
                on_hit: &hit,
                on_miss: &next,
            });
            let stage = assign(&meta("last_stage"), &hex(number.into()));
            graph.step(&hit, &[stage], Some(&next));
        }
    }
}

/// Returns a match field in the JSON form of BMv2.
fn key_of(field: &KeyField) -> Value {
    let kind = match field.kind {
        MatchKind::Exact => "exact",
        MatchKind::Ternary => "ternary",
    };
    json!({ "match_type": kind, "name": field.name, "target": ["key", field.name], "mask": null })
}

/// Returns the primitives of an LTM action: the rewrite, then the verdict.
fn primitives(spec: &ActionSpec) -> Vec<Value> {
    let writes = spec.writes().enumerate().map(|(index, field)| {
        let (value, mask) = (local(index * 2), local(index * 2 + 1));
        assign(&key(field.name), &masked(&key(field.name), &value, &mask, field.width))
    });
    let mut list: Vec<Value> = writes.collect();
    if spec.writes().any(|field| field.name == "vlan_tci") {
        let kept = op("&", &meta("tag_kept"), &key("vlan_tci"));
        list.push(assign(&meta("tag_kept"), &kept));
    }
    let last = local(spec.writes().count() * 2);
    let decide = |code| assign(&meta("verdict"), &hex(code));
    match spec.disposition {
        Disposition::Next => list.push(assign(&key("tag"), &last)),
        Disposition::Forward => list.extend([decide(FORWARD), assign(&meta("port"), &last)]),
        Disposition::Drop => list.push(decide(DROP)),
        Disposition::Punt => {
            list.extend([decide(PUNT), assign(&meta("reason"), &hex(PUNTED_BY_ENTRY))]);
        }
        Disposition::Miss => {}
    }
    list
}

/// Adds the steps for a packet-out of the controller.
fn packet_out_steps(graph: &mut Graph) {
    let out = |name| field(PACKET_OUT.name, name);
    graph.branch("is_from_controller", &valid(PACKET_OUT.name), "is_direct", Some("is_unparsed"));
    let direct = op("==", &out("resubmit"), &hex(0));
    graph.branch("is_direct", &direct, "send_direct", Some("resubmit"));
    let remove = on_header("remove_header", PACKET_OUT.name);
    let port = op("&", &out("egress_port"), &hex(0x1ff));
    graph.step("send_direct", &[assign(&egress(), &port), remove.clone()], None);
    let set_ingress = assign(&key("in_port"), &out("ingress_port"));
    graph.step("resubmit", &[set_ingress, remove], Some("is_unparsed"));
    let is_wrong = op("!=", &field("standard_metadata", "parser_error"), &hex(0));
    graph.branch("is_unparsed", &is_wrong, "note_unparsed", Some("is_refused"));
    graph.step("note_unparsed", &[assign(&meta("reason"), &hex(UNPARSED))], Some("punt"));
    let is_refused = op("!=", &meta("reason"), &hex(0));
    graph.branch("is_refused", &is_refused, "punt", Some("has_ipv4"));
    check_lengths(graph, "note_unparsed", "ingress.start_table");
}

/// Adds the step that sends a packet to the controller.
fn punt(graph: &mut Graph) {
    let set_packet_in = |name, value: &Value| assign(&field(PACKET_IN.name, name), value);
    let primitives = [
        on_header("add_header", PACKET_IN.name),
        set_packet_in("ingress_port", &key("in_port")),
        set_packet_in("reason", &meta("reason")),
        set_packet_in("miss_tag", &key("tag")),
        set_packet_in("last_stage", &meta("last_stage")),
        assign(&egress(), &hex(CPU_PORT.into())),
    ];
    graph.step("punt", &primitives, None);
}

/// Writes the header copy to the frame.
fn write_headers(graph: &mut Graph) {
    let ethernet = |name| field("ethernet", name);
    let port = op("&", &meta("port"), &hex(0x1ff));
    let link = [
        assign(&egress(), &port),
        assign(&ethernet("dst"), &key("eth_dst")),
        assign(&ethernet("src"), &key("eth_src")),
    ];
    graph.step("commit_link", &link, Some("is_tagged"));
    let tci = field("vlan", "tci");
    let present = op("!=", &op("&", &key("vlan_tci"), &hex(0x1000)), &hex(0));
    graph.branch("is_tagged", &present, "has_tag", Some("had_tag"));
    graph.branch("has_tag", &valid("vlan"), "set_tag", Some("push_tag"));
    graph.branch("had_tag", &valid("vlan"), "pop_tag", Some("is_ipv4"));
    // Bit 12 of the tag on the wire is not part of the key. The bit is kept if the tag is kept.
    let kept = op("&", &tci, &meta("tag_kept"));
    let written = op("|", &kept, &op("&", &key("vlan_tci"), &hex(0xefff)));
    graph.step("set_tag", &[assign(&tci, &written)], Some("is_ipv4"));
    let push = [
        on_header("add_header", "vlan"),
        assign(&field("vlan", "eth_type"), &ethernet("eth_type")),
        assign(&ethernet("eth_type"), &hex(0x8100)),
        assign(&tci, &op("&", &key("vlan_tci"), &hex(0xefff))),
    ];
    graph.step("push_tag", &push, Some("is_ipv4"));
    let pop = [
        assign(&ethernet("eth_type"), &field("vlan", "eth_type")),
        on_header("remove_header", "vlan"),
    ];
    graph.step("pop_tag", &pop, Some("is_ipv4"));
    write_network(graph);
    write_transport(graph);
}

/// Adds the steps that write the network header.
fn write_network(graph: &mut Graph) {
    let (ipv4, ipv6) = (|name| field("ipv4", name), |name| field("ipv6", name));
    graph.branch("is_ipv4", &valid("ipv4"), "commit_ipv4", Some("is_ipv6"));
    let addresses = sum_of([
        checksum_deltas(&ipv4("src"), &key("ip_src"), 32),
        checksum_deltas(&ipv4("dst"), &key("ip_dst"), 32),
    ]);
    let high = |value: &Value| op("<<", value, &hex(8));
    let header = sum_of([
        meta("address_delta"),
        checksum_deltas(&ipv4("tos"), &key("nw_tos"), 16),
        checksum_deltas(&high(&ipv4("ttl")), &high(&key("nw_ttl")), 16),
    ]);
    let mut v4 = vec![assign(&meta("address_delta"), &addresses), assign(&meta("sum"), &header)];
    v4.extend(update_checksum(&ipv4("checksum"), &meta("sum")));
    let written = [("src", "ip_src"), ("dst", "ip_dst"), ("tos", "nw_tos"), ("ttl", "nw_ttl")];
    v4.extend(written.map(|(name, from)| assign(&ipv4(name), &key(from))));
    graph.step("commit_ipv4", &v4, Some("is_tcp"));
    graph.branch("is_ipv6", &valid("ipv6"), "commit_ipv6", Some("is_arp"));
    let addresses = sum_of([
        checksum_deltas(&ipv6("src"), &key("ipv6_src"), 128),
        checksum_deltas(&ipv6("dst"), &key("ipv6_dst"), 128),
    ]);
    let mut v6 = vec![assign(&meta("address_delta"), &addresses)];
    let written = [("src", "ipv6_src"), ("dst", "ipv6_dst"), ("tos", "nw_tos"), ("ttl", "nw_ttl")];
    v6.extend(written.map(|(name, from)| assign(&ipv6(name), &key(from))));
    graph.step("commit_ipv6", &v6, Some("is_tcp"));
    graph.branch("is_arp", &valid("arp"), "commit_arp", None);
    let arp = [
        assign(&field("arp", "spa"), &key("ip_src")),
        assign(&field("arp", "tpa"), &key("ip_dst")),
    ];
    graph.step("commit_arp", &arp, None);
}

/// Adds the steps that write the transport header.
fn write_transport(graph: &mut Graph) {
    for (header, otherwise) in [("tcp", "is_udp"), ("udp", "is_icmp")] {
        let at = |name| field(header, name);
        let ports = sum_of([
            meta("address_delta"),
            checksum_deltas(&at("src"), &key("tp_src"), 16),
            checksum_deltas(&at("dst"), &key("tp_dst"), 16),
        ]);
        let mut steps = vec![assign(&meta("sum"), &ports)];
        steps.extend(update_checksum(&at("checksum"), &meta("sum")));
        let write = format!("commit_{header}");
        graph.step(
            &format!("sum_{header}"),
            &steps,
            Some(if header == "udp" { "is_udp_zero" } else { &write }),
        );
        let ports = [assign(&at("src"), &key("tp_src")), assign(&at("dst"), &key("tp_dst"))];
        graph.step(&write, &ports, None);
        graph.branch(
            &format!("is_{header}"),
            &valid(header),
            if header == "udp" { "has_udp_sum" } else { "sum_tcp" },
            Some(otherwise),
        );
    }
    // Zero means no checksum; a computed zero is sent as all ones (RFC 768).
    let zero = op("==", &field("udp", "checksum"), &hex(0));
    graph.branch("has_udp_sum", &zero, "commit_udp", Some("sum_udp"));
    graph.branch("is_udp_zero", &zero, "note_udp_sum", Some("commit_udp"));
    let ones = assign(&field("udp", "checksum"), &hex(0xffff));
    graph.step("note_udp_sum", &[ones], Some("commit_udp"));
    let icmp = |name| field("icmp", name);
    let type_and_code = |kind: &Value, code: &Value| op("+", &op("<<", kind, &hex(8)), code);
    let delta = checksum_deltas(
        &type_and_code(&icmp("kind"), &icmp("code")),
        &type_and_code(&op("&", &key("tp_src"), &hex(0xff)), &op("&", &key("tp_dst"), &hex(0xff))),
        16,
    );
    // The checksum of ICMPv6 includes the addresses, the checksum of ICMP does not.
    graph.branch("is_icmp", &valid("icmp"), "is_icmp_alone", None);
    graph.branch("is_icmp_alone", &valid("ipv4"), "sum_icmp", Some("sum_icmpv6"));
    let both = op("+", &meta("address_delta"), &delta);
    for (name, delta) in [("sum_icmp", &delta), ("sum_icmpv6", &both)] {
        let mut steps = vec![assign(&meta("sum"), delta)];
        steps.extend(update_checksum(&icmp("checksum"), &meta("sum")));
        graph.step(name, &steps, Some("commit_icmp"));
    }
    let written = [assign(&icmp("kind"), &key("tp_src")), assign(&icmp("code"), &key("tp_dst"))];
    graph.step("commit_icmp", &written, None);
}

/// Field names and widths.
type FieldList = Vec<(String, u16)>;

/// Returns the types and instances of all headers and metadata.
fn header_instances() -> (Vec<Value>, Vec<Value>) {
    let fields = |list: &[(&str, u16)]| -> FieldList {
        list.iter().map(|(name, width)| ((*name).to_owned(), *width)).collect()
    };
    let packet = |header: &PacketHeader| -> FieldList {
        header.fields.iter().map(|field| (field.name.to_owned(), field.width)).collect()
    };
    let keyed = key_fields().iter().map(|field| (field.name.to_owned(), field.width)).collect();
    let mut all: Vec<(&str, bool, FieldList)> = vec![
        ("standard_metadata", true, fields(STANDARD)),
        ("meta", true, fields(METADATA)),
        ("key", true, keyed),
        (PACKET_IN.name, false, packet(&PACKET_IN)),
        (PACKET_OUT.name, false, packet(&PACKET_OUT)),
    ];
    all.extend(HEADERS.iter().map(|(name, list)| (*name, false, fields(list))));
    let (mut types, mut headers) = (Vec::new(), Vec::new());
    for (id, (name, is_metadata, mut list)) in all.into_iter().enumerate() {
        let beyond: u16 = list.iter().map(|(_, width)| width).sum::<u16>() % 8;
        if beyond != 0 {
            list.push(("_padding".to_owned(), 8 - beyond));
        }
        let list: Vec<Value> =
            list.into_iter().map(|(name, width)| json!([name, width, false])).collect();
        let type_name = format!("{name}_t");
        types.push(json!({ "name": type_name, "id": id, "fields": list }));
        headers.push(json!({
            "name": name, "id": id, "header_type": type_name, "metadata": is_metadata,
            "pi_omit": true,
        }));
    }
    (types, headers)
}
