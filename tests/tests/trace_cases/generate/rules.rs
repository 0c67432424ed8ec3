//! Generated rules.

use super::{
    TABLES, Theme,
    actions::{action, is_settable},
    dice::Dice,
};

const MACS: &[&str] = &[
    "02:00:00:00:00:01",
    "02:00:00:00:00:02",
    "02:00:00:00:00:03",
    "02:00:00:00:00:01/ff:ff:ff:ff:ff:fd",
    "01:00:00:00:00:00/01:00:00:00:00:00",
    "00:00:00:00:00:02/00:00:00:00:00:02",
];
const IPV4: &[&str] = &[
    "10.0.0.1",
    "10.0.0.2",
    "10.0.1.1",
    "192.168.0.1",
    "10.0.0.0/24",
    "10.0.0.0/15",
    "0.0.0.1/0.0.0.1",
];
const IPV6: &[&str] = &[
    "2001:db8::1",
    "2001:db8::2",
    "fe80::1",
    "ff02::1",
    "2001:db8::/64",
    "2001:db8::/33",
    "::1/::1",
];
const PORTS: &[&str] = &["53", "80", "1000", "2000", "0x3e8/0xfff8", "0x50/0xfff0"];

/// Protocols with ports.
const WITH_PORTS: &[&str] = &["tcp", "udp", "sctp", "tcp6", "udp6", "sctp6"];
/// Protocols over IPv4.
const OVER_IPV4: &[&str] = &["ip", "tcp", "udp", "icmp", "sctp"];
/// Protocols over IPv6.
const OVER_IPV6: &[&str] = &["ipv6", "tcp6", "udp6", "icmp6", "sctp6"];

/// Returns the rules of all tables. Each rule has a unique cookie.
pub(crate) fn rules(dice: &mut Dice, theme: Theme) -> Vec<String> {
    let mut rules = Vec::new();
    for table in 0..TABLES {
        for _ in 0..dice.pick(&[2, 4, 6]) + if table == 0 { 2 } else { 0 } {
            rules.push(rule(dice, theme, table));
        }
        let actions: Vec<_> = (0..2).map(|_| action(dice, theme, "", table)).collect();
        rules.push(format!("table={table},priority=0,actions={}", actions.join(",")));
    }
    for _ in 0..dice.pick(&[0, 1, 2]) {
        conjunctions(dice, theme, &mut rules);
    }
    let numbered = |(index, rule)| format!("cookie={:#x},{rule}", index + 1);
    rules.iter().enumerate().map(numbered).collect()
}

fn rule(dice: &mut Dice, theme: Theme, table: usize) -> String {
    let (protocol, matching) = matching(dice, theme);
    let mut actions: Vec<String> =
        (0..dice.pick(&[1, 2, 3, 4, 6])).map(|_| action(dice, theme, protocol, table)).collect();
    if dice.percent(6) {
        actions = vec!["drop".to_owned()];
    } else if dice.percent(30) && table + 1 < TABLES {
        actions.truncate(dice.below(3));
        actions.extend(instructions(dice, theme, protocol, table));
    }
    let actions = actions.join(",");
    format!("table={table},priority={}{matching},actions={actions}", priority(dice))
}

fn priority(dice: &mut Dice) -> usize {
    dice.pick(&[0, 1, 5, 10, 10, 20, 20, 30, 40]) + 100 * dice.below(3)
}

/// Returns the instructions after the actions of a rule that continues.
fn instructions(dice: &mut Dice, theme: Theme, protocol: &str, table: usize) -> Vec<String> {
    let mut list = Vec::new();
    if dice.percent(15) {
        list.push("clear_actions".to_owned());
    }
    if dice.percent(70) {
        let mut set: Vec<_> = (0..6).map(|_| action(dice, theme, protocol, table)).collect();
        set.retain(|action| is_settable(action));
        set.truncate(4);
        if !set.is_empty() {
            list.push(format!("write_actions({})", set.join(",")));
        }
    }
    if dice.percent(30) {
        list.push(format!("write_metadata:{}", dice.pick(&["5", "1/1", "0x3/0x7"])));
    }
    list.push(format!("goto_table:{}", table + 1 + dice.below(TABLES - table - 1)));
    if dice.percent(10) {
        list.insert(0, format!("meter:{}", 1 + dice.below(2)));
    }
    list
}

/// Returns a match as the protocol and the text of the match.
fn matching(dice: &mut Dice, theme: Theme) -> (&'static str, String) {
    let mut parts = Vec::new();
    let mut protocol = "";
    if dice.percent(60) {
        let kinds = ["ip", "tcp", "udp", "icmp", "ipv6", "tcp6", "udp6", "icmp6", "arp", "sctp"];
        protocol = if theme.labels && dice.percent(40) { "mpls" } else { dice.pick(&kinds) };
        parts.push(protocol.to_owned());
    }
    if dice.percent(25) {
        parts.push(format!("in_port={}", dice.port()));
    }
    for field in ["dl_src", "dl_dst"] {
        if dice.percent(18) {
            parts.push(format!("{field}={}", dice.pick(MACS)));
        }
    }
    if dice.percent(25) {
        parts.push(dice.pick(TAGS).to_owned());
    }
    network(dice, protocol, &mut parts);
    transport(dice, protocol, &mut parts);
    if dice.percent(20) {
        parts.push(dice.pick(REGISTERS).to_owned());
    }
    if dice.percent(10) {
        parts.push(dice.pick(HIDDEN).to_owned());
    }
    (protocol, parts.iter().map(|part| format!(",{part}")).collect())
}

fn network(dice: &mut Dice, protocol: &str, parts: &mut Vec<String>) {
    if OVER_IPV4.contains(&protocol) || protocol == "arp" {
        for field in ["nw_src", "nw_dst"] {
            if dice.percent(30) {
                parts.push(format!("{field}={}", dice.pick(IPV4)));
            }
        }
    }
    if OVER_IPV6.contains(&protocol) {
        for field in ["ipv6_src", "ipv6_dst"] {
            if dice.percent(25) {
                parts.push(format!("{field}={}", dice.pick(IPV6)));
            }
        }
        if dice.percent(10) {
            parts.push(dice.pick(&["ipv6_label=0x12345", "ipv6_label=0x5/0xff"]).to_owned());
        }
    }
    if OVER_IPV4.contains(&protocol) || OVER_IPV6.contains(&protocol) {
        if dice.percent(12) {
            let fields = ["nw_ttl=64", "nw_ttl=1", "nw_ecn=2", "nw_tos=40", "nw_ecn=0"];
            parts.push(dice.pick(&fields).to_owned());
        }
        if dice.percent(12) {
            let states = ["no", "yes", "first", "later", "not_later"];
            parts.push(format!("nw_frag={}", dice.pick(&states)));
        }
    }
}

fn transport(dice: &mut Dice, protocol: &str, parts: &mut Vec<String>) {
    if WITH_PORTS.contains(&protocol) {
        for field in ["tp_src", "tp_dst"] {
            if dice.percent(30) {
                parts.push(format!("{field}={}", dice.pick(PORTS)));
            }
        }
    }
    let more: &[&str] = match protocol {
        "tcp" | "tcp6" => {
            &["tcp_flags=+syn-ack", "tcp_flags=+ack", "tcp_flags=0x010/0x017", "tcp_flags=+fin"]
        }
        "icmp" => &["icmp_type=8", "icmp_type=3,icmp_code=1"],
        "icmp6" => &[
            "icmp_type=128",
            "icmp_type=135,icmp_code=0",
            "icmp_type=136,icmp_code=0,nd_tll=02:00:00:00:00:aa",
            "icmp_type=135,icmp_code=0,nd_target=fe80::1",
            "icmp_type=135,icmp_code=0,nd_sll=02:00:00:00:00:aa",
        ],
        "arp" => {
            &["arp_op=1", "arp_op=2", "arp_sha=02:00:00:00:00:01", "arp_tha=00:00:00:00:00:00"]
        }
        "mpls" => &[
            "mpls_label=16",
            "mpls_bos=1",
            "mpls_bos=0",
            "mpls_tc=3",
            "mpls_label=100,mpls_bos=1",
            "mpls_ttl=64",
        ],
        _ => return,
    };
    if dice.percent(45) {
        parts.push(dice.pick(more).to_owned());
    }
}

/// Matches of VLAN tags.
const TAGS: &[&str] = &[
    "dl_vlan=5",
    "dl_vlan=7",
    "dl_vlan=100",
    "vlan_tci=0",
    "vlan_tci=0x1000/0x1000",
    "dl_vlan=5,dl_vlan_pcp=3",
    "vlan_vid=0x1005/0x1005",
    "vlan_tci=0/0x1fff",
    "dl_vlan=0",
];
const REGISTERS: &[&str] = &[
    "reg0=0",
    "reg0=5",
    "reg0=0x1/0x1",
    "reg1=2",
    "reg1=0x2/0x6",
    "xreg0=5",
    "reg0=0x8/0x8",
    "reg2=3/7",
    "xxreg1=0",
];
/// Matches of fields that no frame has.
const HIDDEN: &[&str] =
    &["metadata=5", "metadata=0x1/0x1", "metadata=0", "tun_id=0", "pkt_mark=3", "pkt_mark=0"];

/// Adds a conjunction.
///
/// The conjunction has rules for each clause, and the rule of the conjunction. Some rules belong to
/// two conjunctions.
fn conjunctions(dice: &mut Dice, theme: Theme, rules: &mut Vec<String>) {
    let (table, id) = (dice.below(TABLES - 1), 1 + dice.below(3));
    let (priority, clauses_count) = (dice.pick(&[45, 145, 300]), dice.pick(&[2, 2, 3]));
    for clause in 1..=clauses_count {
        for _ in 0..dice.pick(&[1, 2, 3]) {
            let part = match clause {
                1 => format!("nw_src={}", dice.pick(IPV4)),
                2 => format!("nw_dst={}", dice.pick(IPV4)),
                _ if dice.percent(50) => format!("dl_src={}", dice.pick(MACS)),
                _ => format!("in_port={}", dice.port()),
            };
            let other = if dice.percent(20) {
                format!(",conjunction({},{}/2)", id + 4, 1 + dice.below(2))
            } else {
                String::new()
            };
            rules.push(format!(
                "table={table},priority={priority},ip,{part},\
                 actions=conjunction({id},{clause}/{clauses_count}){other}"
            ));
        }
    }
    for id in [id, id + 4] {
        let actions: Vec<_> = (0..2).map(|_| action(dice, theme, "ip", table)).collect();
        let (own, actions) = (dice.pick(&[45, 145, 300, 20]), actions.join(","));
        rules.push(format!("table={table},priority={own},conj_id={id},ip,actions={actions}"));
    }
}
