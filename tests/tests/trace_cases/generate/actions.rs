//! Generated actions.

use super::{TABLES, Theme, dice::Dice, groups};

/// Maximum nesting of clones.
const CLONES_MAX: usize = 2;

const MACS: &[&str] = &["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"];
const ADDRESSES: &[&str] = &["10.0.0.1", "10.0.0.2", "10.0.1.1", "192.168.0.1"];

/// Returns an action for a rule of `table`, for packets of a protocol.
pub(crate) fn action(dice: &mut Dice, theme: Theme, protocol: &str, table: usize) -> String {
    nested_actions(dice, theme, protocol, table, 0)
}

/// Returns whether an action may be in an action set.
pub(crate) fn is_settable(action: &str) -> bool {
    let kinds = [
        "output:",
        "set_field",
        "load",
        "move",
        "push_vlan",
        "pop_vlan",
        "push_mpls",
        "pop_mpls",
        "group",
        "mod_",
        "dec_",
        "set_",
        "resubmit",
        "strip",
        "in_port",
        "all",
        "flood",
        "normal",
    ];
    kinds.iter().any(|kind| action.starts_with(kind)) && !action.starts_with("output:reg")
}

fn nested_actions(
    dice: &mut Dice,
    theme: Theme,
    protocol: &str,
    table: usize,
    depth: usize,
) -> String {
    match dice.below(100) {
        0..30 => output(dice, theme),
        30..60 => set(dice, theme, protocol),
        60..66 if !theme.cuts => {
            let tags = ["push_vlan:0x8100", "push_vlan:0x88a8", "pop_vlan", "strip_vlan"];
            dice.pick(&tags).to_owned()
        }
        66..74 if theme.labels && !theme.cuts => label(dice, theme, protocol),
        74..82 if table + 1 < TABLES => {
            let target = table + 1 + dice.below(TABLES - table - 1);
            match dice.below(4) {
                0 => format!("resubmit({},{target})", dice.port()),
                1 => format!("resubmit(in_port,{target})"),
                _ => format!("resubmit(,{target})"),
            }
        }
        82..87 if depth < CLONES_MAX => {
            let inner: Vec<_> = (0..1 + dice.below(3))
                .map(|_| nested_actions(dice, theme, protocol, table, depth + 1))
                .collect();
            format!("clone({})", inner.join(","))
        }
        87..91 => format!("group:{}", 1 + dice.below(groups::COUNT)),
        91..93 if theme.learns => learn(dice, table),
        93 => "exit".to_owned(),
        94 => dice.pick(&["set_queue:1", "pop_queue", "note:01.02", "enqueue:2:1"]).to_owned(),
        95 | 96 => bundle(dice),
        97 => punt(dice),
        98 if protocol.starts_with("tcp") => {
            "fin_timeout(idle_timeout=5,hard_timeout=9)".to_owned()
        }
        _ => format!("output:{}", dice.port()),
    }
}

fn output(dice: &mut Dice, theme: Theme) -> String {
    if theme.cuts && dice.percent(40) {
        return format!("output(port={},max_len={})", dice.port(), dice.pick(&[14, 40, 64, 100]));
    }
    match dice.below(16) {
        0 => "in_port".to_owned(),
        1 => "all".to_owned(),
        2 => "flood".to_owned(),
        3 | 4 if theme.learns => "normal".to_owned(),
        5 => dice.pick(&["output:NXM_NX_REG0[0..15]", "output:NXM_NX_REG1[]"]).to_owned(),
        6 => "controller".to_owned(),
        7 => "local".to_owned(),
        _ => format!("output:{}", dice.port()),
    }
}

fn punt(dice: &mut Dice) -> String {
    let reason = dice.pick(&["action", "no_match", "invalid_ttl"]);
    let length = dice.pick(&[60, 65535]);
    match dice.below(3) {
        0 => format!("controller(reason={reason},max_len={length})"),
        1 => format!("controller(userdata=01.02.03,max_len={length})"),
        _ => format!("controller(userdata=ff,meter_id={})", 1 + dice.below(2)),
    }
}

fn bundle(dice: &mut Dice) -> String {
    let members = format!("{},{}", dice.port(), dice.port());
    match dice.below(3) {
        0 => "multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG1[0..15])".to_owned(),
        1 => format!(
            "bundle_load(eth_src,0,active_backup,ofport,NXM_NX_REG1[0..15],members:{members})"
        ),
        _ => format!("bundle(eth_src,0,active_backup,ofport,members:{members})"),
    }
}

fn label(dice: &mut Dice, theme: Theme, protocol: &str) -> String {
    // A push and a pop without an output between them are a known difference.
    if theme.pushes {
        dice.pick(&["push_mpls:0x8847", "push_mpls:0x8848"]).to_owned()
    } else if protocol == "mpls" {
        dice.pick(&["pop_mpls:0x0800", "pop_mpls:0x86dd", "dec_mpls_ttl", "set_mpls_ttl(9)"])
            .to_owned()
    } else {
        "pop_mpls:0x0800".to_owned()
    }
}

fn learn(dice: &mut Dice, table: usize) -> String {
    let (target, cookie) = (table + dice.below(TABLES - table), 0x100 + dice.below(4));
    let parts = dice.pick(&[
        "priority=50,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]",
        "priority=150,idle_timeout=60,NXM_OF_ETH_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],\
         output:NXM_OF_IN_PORT[]",
        "priority=350,hard_timeout=90,delete_learned,NXM_OF_VLAN_TCI[0..11],\
         NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:5->NXM_NX_REG1[0..15]",
        "priority=250,limit=2,result_dst=NXM_NX_REG0[3],NXM_OF_ETH_DST[],reg1=5,\
         output:NXM_OF_IN_PORT[]",
        "priority=250,NXM_NX_REG0[0..15],NXM_OF_IN_PORT[],\
         load:NXM_NX_REG0[0..7]->NXM_NX_REG1[8..15],output:NXM_NX_REG0[0..15]",
        "priority=450,send_flow_rem,NXM_OF_ETH_TYPE[],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
         output:NXM_OF_IN_PORT[]",
        "priority=260,limit=1,idle_timeout=30,fin_idle_timeout=5,eth_type=0x800,ip_proto=6,\
         NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]",
    ]);
    format!("learn(table={target},cookie={cookie:#x},{parts})")
}

/// Returns an action that sets a field of the packets of a protocol.
fn set(dice: &mut Dice, theme: Theme, protocol: &str) -> String {
    let of_protocol = fields(protocol);
    if !of_protocol.is_empty() && dice.percent(55) {
        return dice.pick(of_protocol).to_owned();
    }
    match dice.below(10) {
        0 => format!("set_field:{}->eth_src", dice.pick(MACS)),
        1 => format!("mod_dl_dst:{}", dice.pick(MACS)),
        2 => format!("load:{}->NXM_OF_IN_PORT[]", dice.below(7)),
        3 | 4 if !theme.cuts => dice.pick(TAGS).to_owned(),
        5 if protocol == "ip" => format!("mod_nw_src:{}", dice.pick(ADDRESSES)),
        _ => dice.pick(HIDDEN).to_owned(),
    }
}

/// Actions on VLAN tags.
const TAGS: &[&str] = &[
    "mod_vlan_vid:5",
    "mod_vlan_vid:7",
    "mod_vlan_vid:0",
    "mod_vlan_pcp:3",
    "mod_vlan_pcp:0",
    "load:0x1007->NXM_OF_VLAN_TCI[]",
    "load:3->NXM_OF_VLAN_TCI[13..15]",
    "move:NXM_OF_VLAN_TCI[0..11]->NXM_NX_REG1[0..11]",
];
/// Actions on fields that no frame has.
const HIDDEN: &[&str] = &[
    "set_field:1->reg0",
    "set_field:5->reg0",
    "set_field:6->reg1",
    "set_field:0x1/0x3->reg0",
    "load:1->NXM_NX_REG0[3]",
    "load:3->NXM_NX_REG1[0..15]",
    "load:2->NXM_NX_REG2[]",
    "set_field:0x5->metadata",
    "set_field:0x3->pkt_mark",
    "move:NXM_NX_REG0[0..15]->NXM_NX_REG1[0..15]",
    "move:NXM_OF_IN_PORT[]->NXM_NX_REG1[0..15]",
    "set_field:02:00:00:00:00:00/ff:ff:00:00:00:00->eth_dst",
    "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
    "move:NXM_OF_ETH_SRC[0..15]->NXM_NX_REG0[0..15]",
    "set_field:7->xreg0",
    "load:9->OXM_OF_METADATA[0..3]",
    "set_tunnel:5",
    "push:NXM_NX_REG0[0..15]",
    "pop:NXM_NX_REG1[0..15]",
    "push:NXM_OF_ETH_SRC[0..7]",
    "pop:NXM_OF_ETH_DST[0..7]",
    "push:NXM_OF_IN_PORT[]",
    "pop:NXM_OF_IN_PORT[]",
    "move:NXM_NX_REG0[]->NXM_NX_XXREG1[32..63]",
];

/// Returns writes to the fields that packets of a protocol have.
fn fields(protocol: &str) -> &'static [&'static str] {
    match protocol {
        "ip" | "icmp" => &[
            "mod_nw_dst:10.0.0.2",
            "set_field:10.0.1.1->ip_dst",
            "set_field:0.0.0.9/0.0.0.255->ip_src",
            "move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]",
            "move:NXM_OF_IP_SRC[]->NXM_NX_REG1[]",
            "load:1->NXM_OF_IP_SRC[0..3]",
            "push:NXM_OF_IP_DST[]",
            "pop:NXM_OF_IP_SRC[]",
            "mod_nw_tos:40",
            "mod_nw_ecn:1",
            "mod_nw_ttl:9",
            "mod_nw_ttl:1",
            "dec_ttl",
            "dec_ttl(1,2)",
            "set_field:10->ip_dscp",
            "set_field:3->ip_ecn",
            "move:NXM_NX_IP_TTL[]->NXM_NX_REG0[0..7]",
        ],
        "tcp" | "udp" | "sctp" => &[
            "mod_nw_src:10.0.0.1",
            "mod_nw_dst:192.168.0.1",
            "mod_nw_ttl:2",
            "dec_ttl",
            "mod_tp_src:80",
            "mod_tp_dst:1000",
            "mod_tp_dst:0",
            "set_field:3->ip_dscp",
        ],
        "ipv6" | "tcp6" | "udp6" | "sctp6" => &[
            "set_field:2001:db8::9->ipv6_dst",
            "set_field:0x1234->ipv6_label",
            "set_field:2001:db8::7->ipv6_src",
            "move:NXM_NX_IPV6_SRC[0..31]->NXM_NX_REG1[]",
            "set_field:::5/::ff->ipv6_src",
            "mod_nw_tos:40",
            "mod_nw_ecn:2",
            "dec_ttl",
            "mod_nw_ttl:1",
            "move:NXM_NX_IPV6_SRC[]->NXM_NX_XXREG0[]",
            "move:NXM_NX_IPV6_SRC[]->NXM_NX_IPV6_DST[]",
        ],
        "icmp6" => &[
            "set_field:fe80::9->ipv6_src",
            "dec_ttl",
            "mod_nw_tos:8",
            "move:NXM_NX_IPV6_SRC[0..31]->NXM_NX_REG1[]",
        ],
        "arp" => &[
            "set_field:10.0.0.9->arp_spa",
            "load:2->NXM_OF_ARP_OP[]",
            "set_field:02:00:00:00:00:09->arp_sha",
            "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]",
            "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]",
            "move:NXM_OF_ETH_SRC[]->NXM_NX_ARP_THA[]",
            "set_field:10.0.0.0/255.255.0.0->arp_tpa",
        ],
        "mpls" => &[
            "set_field:40->mpls_label",
            "set_mpls_ttl(9)",
            "dec_mpls_ttl",
            "set_field:3->mpls_tc",
            "load:17->OXM_OF_MPLS_LABEL[]",
            "set_mpls_label(3)",
            "set_mpls_tc(1)",
            "move:OXM_OF_MPLS_LABEL[]->NXM_NX_REG0[0..19]",
        ],
        _ => &[],
    }
}
