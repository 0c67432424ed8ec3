//! Flow keys in the syntax of Open vSwitch's datapath, parsed as a packet to trace.
//!
//! `ofproto/trace` accepts a key that was copied from `dpctl/dump-flows -m`. The key is converted
//! to a match of `ovs-ofctl`, without masks, because masks only describe the cache entry.

/// A parsed key: its datapath port, and its other fields for `ovs-ofctl`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OdpFlow {
    /// Datapath number or name of the ingress port.
    pub(super) in_port: Option<String>,
    /// Other fields, as `name=value` in the syntax of `ovs-ofctl`.
    pub(super) fields: Vec<String>,
}

/// Fields by attribute, each with its name in the datapath and in `ovs-ofctl`.
const ATTRIBUTES: &[(&str, &[(&str, &str)])] = &[
    ("eth", &[("src", "dl_src"), ("dst", "dl_dst")]),
    ("vlan", &[("vid", "dl_vlan"), ("pcp", "dl_vlan_pcp")]),
    (
        "mpls",
        &[("label", "mpls_label"), ("tc", "mpls_tc"), ("ttl", "mpls_ttl"), ("bos", "mpls_bos")],
    ),
    (
        "arp",
        &[
            ("sip", "arp_spa"),
            ("tip", "arp_tpa"),
            ("op", "arp_op"),
            ("sha", "arp_sha"),
            ("tha", "arp_tha"),
        ],
    ),
    (
        "ipv4",
        &[
            ("src", "nw_src"),
            ("dst", "nw_dst"),
            ("proto", "nw_proto"),
            ("tos", TOS),
            ("ttl", "nw_ttl"),
            ("frag", "nw_frag"),
        ],
    ),
    (
        "ipv6",
        &[
            ("src", "ipv6_src"),
            ("dst", "ipv6_dst"),
            ("label", "ipv6_label"),
            ("proto", "nw_proto"),
            ("tclass", TOS),
            ("hlimit", "nw_ttl"),
            ("frag", "nw_frag"),
        ],
    ),
    ("tcp", &[("src", "tcp_src"), ("dst", "tcp_dst")]),
    ("udp", &[("src", "udp_src"), ("dst", "udp_dst")]),
    ("sctp", &[("src", "sctp_src"), ("dst", "sctp_dst")]),
    ("icmp", &[("type", "icmp_type"), ("code", "icmp_code")]),
    ("icmpv6", &[("type", "icmpv6_type"), ("code", "icmpv6_code")]),
    ("nd", &[("target", "nd_target"), ("sll", "nd_sll"), ("tll", "nd_tll")]),
];

/// The byte with DSCP and ECN, which are two separate fields in `ovs-ofctl`.
const TOS: &str = "tos";

/// Attributes that must be zero, because they are zero in every arriving packet.
const ZERO_AT_INGRESS: &[&str] = &[
    "recirc_id",
    "dp_hash",
    "skb_priority",
    "skb_mark",
    "ct_state",
    "ct_zone",
    "ct_mark",
    "ct_label",
    "packet_type",
];

/// The MAC address that stands in for an absent option of neighbour discovery.
const NO_MAC: &str = "00:00:00:00:00:00";

impl OdpFlow {
    /// Returns whether an argument is a key, and not the name of a bridge.
    pub(super) fn is_key(word: &str) -> bool {
        word.contains('(')
    }

    /// Parses a key.
    ///
    /// # Errors
    ///
    /// If an attribute is unknown, or only exists in recirculated packets.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut flow = Self::default();
        flow.read(text)?;
        Ok(flow)
    }

    /// Parses attributes, including those inside of `encap(..)`.
    fn read(&mut self, text: &str) -> Result<(), String> {
        let mut rest = text;
        while !rest.is_empty() {
            let (name, inner, after) = attribute(rest)?;
            rest = after;
            match name {
                // `encap(..)` contains the inner headers.
                "encap" => rest = inner_then(inner, after)?,
                "ufid" => {}
                "in_port" => self.in_port = Some(value(inner).to_owned()),
                "eth_type" => self.set_ethertype(inner),
                "tcp_flags" if is_zero(value(inner)) => {}
                "tcp_flags" => self.fields.push(format!("tcp_flags={}", value(inner))),
                _ if ZERO_AT_INGRESS.contains(&name) => check_zero(name, inner)?,
                _ => self.set_fields(name, inner)?,
            }
        }
        Ok(())
    }

    /// Sets the Ethernet type, unless it is the type of a VLAN tag.
    fn set_ethertype(&mut self, text: &str) {
        let own = value(text);
        if !["0x8100", "0x88a8", "0"].contains(&own) {
            self.fields.push(format!("dl_type={own}"));
        }
    }

    /// Sets the fields of an attribute, such as `ipv4(src=10.0.0.1)`.
    fn set_fields(&mut self, name: &str, inner: &str) -> Result<(), String> {
        let known = ATTRIBUTES.iter().find(|(own, _)| *own == name);
        let (_, fields) = known.ok_or_else(|| format!("syntax error at {name}("))?;
        for part in inner.split(',').filter(|part| !part.is_empty()) {
            let (field, own) = part.split_once('=').ok_or_else(|| syntax_error(part))?;
            let field = fields.iter().find(|(odp, _)| *odp == field);
            let (_, field) = field.ok_or_else(|| syntax_error(part))?;
            self.set_field(field, value(own)).ok_or_else(|| syntax_error(part))?;
        }
        Ok(())
    }

    /// Sets a field; `None` if the value is not a number.
    fn set_field(&mut self, field: &str, own: &str) -> Option<()> {
        match field {
            "nd_sll" | "nd_tll" if own == NO_MAC => {}
            TOS => {
                let digits = own.strip_prefix("0x");
                let tos = digits.map_or_else(|| own.parse(), |hex| u8::from_str_radix(hex, 16));
                let tos: u8 = tos.ok()?;
                self.fields.push(format!("nw_tos={},nw_ecn={}", tos & 0xfc, tos & 3));
            }
            _ => self.fields.push(format!("{field}={own}")),
        }
        Some(())
    }
}

/// Splits the first attribute off: its name, its text in parentheses, and the rest.
fn attribute(text: &str) -> Result<(&str, &str, &str), String> {
    if let Some(rest) = text.strip_prefix("ufid:") {
        let (ufid, rest) = rest.split_once([',', ' ']).unwrap_or((rest, ""));
        return Ok(("ufid", ufid, rest.trim_start()));
    }
    let (name, rest) = text.split_once('(').ok_or_else(|| syntax_error(text))?;
    let mut depth = 1_usize;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let after = rest.get(at + 1..).unwrap_or_default();
            let after = after.strip_prefix(',').unwrap_or(after).trim_start();
            return Ok((name.trim(), rest.get(..at).unwrap_or_default(), after));
        }
    }
    Err(syntax_error(text))
}

/// Returns the inner headers; an error if text follows them.
fn inner_then<'a>(inner: &'a str, after: &str) -> Result<&'a str, String> {
    if after.is_empty() { Ok(inner) } else { Err(syntax_error(after)) }
}

/// Returns a value without its mask.
fn value(text: &str) -> &str {
    text.split('/').next().unwrap_or_default()
}

/// Returns whether a decimal or hexadecimal number is zero.
fn is_zero(number: &str) -> bool {
    number.trim_start_matches("0x").bytes().all(|digit| digit == b'0')
}

/// Refuses an attribute that is not zero in a received packet.
fn check_zero(name: &str, text: &str) -> Result<(), String> {
    let is_part_zero = |part: &str| is_zero(value(part.split_once('=').map_or(part, |own| own.1)));
    if text.split(',').all(is_part_zero) {
        return Ok(());
    }
    Err(format!(
        "{name}({text}): a packet that arrives has {name}(0): trace it from its ingress port on"
    ))
}

/// Returns the error of an attribute that has another form.
fn syntax_error(text: &str) -> String {
    format!("syntax error at {text} (or the bridge name was omitted)")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the fields of a datapath flow as text.
    fn fields(text: &str) -> String {
        OdpFlow::parse(text).map_or_else(|error| error, |flow| flow.fields.join(","))
    }

    #[test]
    fn a_key_of_a_dump_is_a_match() {
        let key = "ufid:00000000-0000-0000-0000-000000000001, skb_mark(0/0),ct_state(0/0),recirc_id(0),\
                   in_port(p1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05/00:00:00:00:00:00,\
                   dst=50:54:00:00:00:07),eth_type(0x8100),vlan(vid=7,pcp=0/0x0),encap(eth_type(0x0800),\
                   ipv4(src=172.16.0.1/0.0.0.0,dst=10.9.2.3/255.255.0.0,proto=6,tos=0x5/0,ttl=64/0,frag=no),\
                   tcp(src=1000/0,dst=80),tcp_flags(0/0))";
        let flow = OdpFlow::parse(key).unwrap();
        assert_eq!(flow.in_port.as_deref(), Some("p1"));
        let expected = "dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,dl_vlan=7,dl_vlan_pcp=0,dl_type=0x0800,\
                        nw_src=172.16.0.1,nw_dst=10.9.2.3,nw_proto=6,nw_tos=4,nw_ecn=1,nw_ttl=64,nw_frag=no,\
                        tcp_src=1000,tcp_dst=80";
        assert_eq!(flow.fields.join(","), expected);
    }

    #[test]
    fn absent_options_of_neighbour_discovery_are_left_out() {
        let nd = "nd(target=fe80::1,sll=50:54:00:00:00:05,tll=00:00:00:00:00:00/00:00:00:00:00:00)";
        assert_eq!(fields(nd), "nd_target=fe80::1,nd_sll=50:54:00:00:00:05");
    }

    #[test]
    fn tcp_flags_are_numbers_or_names() {
        for none in ["0", "0/0", "0x0", "0x000/0xfff"] {
            assert_eq!(fields(&format!("tcp_flags({none})")), "", "{none}");
        }
        assert_eq!(fields("tcp_flags(0x002)"), "tcp_flags=0x002");
        assert_eq!(fields("tcp_flags(0x002/0xfff)"), "tcp_flags=0x002");
        assert_eq!(fields("tcp_flags(+syn-ack)"), "tcp_flags=+syn-ack");
    }

    #[test]
    fn an_invalid_key_is_refused_with_its_place() {
        assert!(fields("eth(src=50:54:00:00:00:05").starts_with("syntax error at eth("));
        assert!(fields("tunnel(src=1.2.3.4)").starts_with("syntax error at tunnel("));
        assert!(fields("eth(sorc=1)").starts_with("syntax error at sorc=1"));
        assert!(fields("recirc_id(0x5)").contains("from its ingress port on"));
        assert!(fields("encap(eth_type(0x0800)),eth(src=1)").starts_with("syntax error"));
        assert!(fields("br0").starts_with("syntax error at br0"));
    }
}
