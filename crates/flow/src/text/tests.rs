//! Properties of the text form and its errors; recorded text is in `tests/recorded.rs`.

use proptest::prelude::*;

use super::*;
use crate::{
    FieldId, FlowKey, FlowMask, Match, PortNo, prerequisite,
    testing::{any_match, field_bits, fuzz_match_text, matching::assert_survives},
};

/// Port names of which one has spaces.
struct TwoPorts;

impl PortNames for TwoPorts {
    fn number(&self, name: &str) -> Option<PortNo> {
        [("p1", 1), ("to the left", 2)]
            .iter()
            .find_map(|(known, number)| (*known == name).then(|| PortNo::new(*number)))
    }

    fn name(&self, port: PortNo) -> Option<String> {
        match port.number() {
            1 => Some("p1".to_owned()),
            2 => Some("to the left".to_owned()),
            _ => None,
        }
    }
}

/// Parses a match without names of ports.
fn read(text: &str) -> Result<Match, MatchError> {
    parse_match(text, &NoPortNames)
}

/// Parses a match, and formats it again.
fn canonical(text: &str) -> String {
    match read(text) {
        Ok(matching) => {
            assert_survives(&matching);
            format_match(&matching, &NoPortNames)
        }
        Err(error) => panic!("{text}: {error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_legal_match_survives_the_text(matching in any_match()) {
        let text = format_match(&matching, &NoPortNames);
        prop_assert_eq!(read(&text), Ok(matching), "through {}", text);
    }

    #[test]
    fn the_order_of_items_does_not_matter(matching in any_match(), seed in any::<u64>()) {
        let text = format_match(&matching, &NoPortNames);
        let mut items: Vec<_> = items(&text).collect();
        items.sort_by_key(|item| (item.0.len() as u64).wrapping_mul(seed | 1));
        let mut builder = MatchBuilder::new(&NoPortNames);
        for (name, value) in items {
            prop_assert_eq!(builder.set_item(name, value), Ok(true));
        }
        prop_assert_eq!(builder.finish(), Ok(matching));
    }

    #[test]
    fn no_text_makes_parsing_panic(text in "[a-z_0-9=/.:+|,()*\\- ]{0,40}") {
        fuzz_match_text(text.as_bytes());
    }

    #[test]
    fn no_value_makes_parsing_panic(
        field in prop::sample::select(FieldId::all().collect::<Vec<_>>()),
        value in "[-+|0-9a-fx:./*()]{1,20}|\\PC{1,8}",
    ) {
        fuzz_match_text(format!("{}={value}", field.name()).as_bytes());
        let _ = parse_value(field, &value);
    }

    #[test]
    fn each_value_alone_round_trips_through_text(
        (field, (value, mask)) in prop::sample::select(FieldId::all().collect::<Vec<_>>())
            .prop_filter("frag and flags are canonical in matches", |field| *field != FieldId::NwFrag)
            .prop_flat_map(|field| (Just(field), field_bits(field))),
    ) {
        let text = format_value(field, value, mask);
        prop_assert_eq!(parse_value(field, &text), Ok((value, mask)), "through {}", text);
    }
}

#[test]
fn protocol_decides_meaning_of_shared_bits() {
    for (text, expected) in [
        ("arp,nw_src=1.1.1.1,nw_proto=1", "arp,arp_spa=1.1.1.1,arp_op=1"),
        ("ip,arp_spa=1.1.1.1", "ip,nw_src=1.1.1.1"),
        ("udp,tcp_dst=80", "udp,tp_dst=80"),
        ("tp_dst=80,sctp6", "sctp6,tp_dst=80"),
        ("icmp,tp_src=8,tp_dst=0", "icmp,icmp_type=8,icmp_code=0"),
        (
            "icmp6,icmp_type=135,icmp_code=0,nd_target=::1",
            "icmp6,icmp_type=135,icmp_code=0,nd_target=::1",
        ),
    ] {
        assert_eq!(canonical(text), expected, "{text}");
    }
}

#[test]
fn tos_byte_is_read_like_ovs_ofctl() {
    // `ovs-ofctl parse-flow 'ip,nw_tos=VALUE,actions=drop'`, Open vSwitch 3.1.
    for (value, expected) in [
        ("33", "ip,nw_tos=32"),
        ("0xff", "ip,nw_tos=252"),
        ("4", "ip,nw_tos=4"),
        ("32/0xff", "ip,nw_tos=32"),
        ("33/0", "ip"),
        ("*", "ip"),
    ] {
        assert_eq!(canonical(&format!("ip,nw_tos={value}")), expected, "{value}");
    }
    for value in ["32/0xf0", "32/0xfc", "255/0xfc", "32/3"] {
        let error = read(&format!("ip,nw_tos={value}"));
        assert_eq!(error, Err(MatchError::Unmaskable("nw_tos")), "{value}");
    }
    assert!(read("ip,nw_tos=256").is_err());
}

#[test]
fn a_tunnel_option_round_trips_as_text() {
    for (text, expected) in [
        ("tun_metadata0=0x1234/0xffff", "tun_metadata0=0x1234/0xffff"),
        ("tun_metadata0=0", "tun_metadata0=0"),
        ("tun_metadata63=17,tun_metadata5", "tun_metadata5,tun_metadata63=0x11"),
        ("tun_metadata1=*", "tun_metadata1"),
        ("tun_metadata1=5/0,metadata=1", "tun_metadata1,metadata=0x1"),
        (
            "tun_flags=+oam,metadata=3,tun_metadata0=1",
            "tun_flags=+oam,tun_metadata0=0x1,metadata=0x3",
        ),
    ] {
        assert_eq!(canonical(text), expected, "{text}");
        let matching = read(text).expect("canonical read it");
        assert!(!matching.matches(&FlowKey::ZERO), "{text}");
    }
    let (zero, absent) = (read("tun_metadata0=0"), read("tun_metadata0"));
    assert!(zero.expect("legal").is_within(&absent.expect("legal")));
    let wide = "tun_metadata0=0x11111111222222223333333344444444555555556";
    for text in [wide, "tun_metadata0=0x100000000", "tun_metadata0=1/0x100000000"] {
        assert!(matches!(read(text), Err(MatchError::OutOfRange { .. })), "{text}");
    }
    assert!(matches!(read("tun_metadata64=1"), Err(MatchError::UnknownField { .. })));
    assert!(matches!(
        read("tun_metadata0=1,tun_metadata0=2"),
        Err(MatchError::Contradiction { .. })
    ));
}

#[test]
fn a_match_without_fields_is_empty() {
    for text in
        ["", " , ", "eth", "packet_type=(0,0)", "reg0=*", "dl_src=*,tcp_dst=*", "tun_id=5/0"]
    {
        assert_eq!(read(text), Ok(Match::any()), "{text}");
        assert_eq!(canonical(text), "", "{text}");
    }
}

#[test]
fn forms_of_the_same_tag_are_one_match() {
    let same = |a: &str, b: &str| assert_eq!(read(a), read(b), "{a} and {b}");
    same("dl_vlan=0xffff", "vlan_tci=0x0000");
    same("dl_vlan=65535", "vlan_vid=0");
    same("vlan_tci=0x0000/0xf000", "vlan_tci=0/0x1000");
    same("dl_vlan_pcp=3", "vlan_vid=0x1000/0x1000,vlan_pcp=3");
    same("dl_vlan=5,dl_vlan_pcp=3", "vlan_tci=0x7005");
    same("ip,nw_frag=no", "ip_frag=no,ip");
}

#[test]
fn ports_are_read_and_printed_by_name() {
    let matching = parse_match("in_port=\"to the left\"", &TwoPorts).expect("a known port");
    assert_eq!(matching, read("in_port=2").expect("a number"));
    assert_eq!(format_match(&matching, &TwoPorts), "in_port=\"to the left\"");
    let matching = parse_match("in_port=p1,actset_output=p1", &TwoPorts).expect("a known port");
    assert_eq!(format_match(&matching, &TwoPorts), "actset_output=p1,in_port=p1");
    assert_eq!(format_match(&matching, &NoPortNames), "actset_output=1,in_port=1");
}

#[test]
fn errors_say_how_to_mend_the_match() {
    for (text, expected) in [
        ("nw_dts=1.1.1.1", "unknown field `nw_dts`: is it `nw_dst`?"),
        ("tpc", "unknown field `tpc`: is it `tcp`?"),
        ("reg16=1", "unknown field `reg16`: is it `reg1`?"),
        ("frobnicate=1", "unknown field `frobnicate`"),
        (
            "skb_priority=1",
            "`skb_priority` can be shown but not matched: leave it out of the \
             match",
        ),
        (
            "ip,nw_dst",
            "`nw_dst` needs a value: write `nw_dst=` and an address, address/length or address/mask: 10.0.0.0/8",
        ),
        ("tcp=6", "`tcp` takes no value: write `tcp` alone"),
        (
            "ip,nw_dst=10.0.0",
            "`10.0.0` is not a value of `nw_dst`: write an address, address/length or address/mask: 10.0.0.0/8",
        ),
        (
            "ip,nw_dst=10.0.0.0/33",
            "`10.0.0.0/33` is not a value of `nw_dst`: write an address, address/length or address/mask: 10.0.0.0/8",
        ),
        (
            "reg0=0x100000000",
            "`0x100000000` does not fit `reg0`: only the bits 0xffffffff may be set",
        ),
        ("ip,nw_tos=256", "`256` does not fit `nw_tos`: only the bits 0xff may be set"),
        ("arp,arp_op=256", "`256` does not fit `arp_op`: only the bits 0xff may be set"),
        ("dl_type=0x800/0xff00", "`dl_type` can only be matched whole: leave out the mask"),
        (
            "tcp,tcp_flags=+syn+foo",
            "`foo` is not a flag of `tcp_flags`: it has fin, syn, rst, psh, ack, urg, ece, cwr, ns, [200], [400], [800]",
        ),
        ("ct_state=+trk-trk", "`trk` is given twice in `ct_state`: give each flag once"),
        ("tcp,udp", "`udp` contradicts `tcp`: leave out one of them"),
        ("dl_vlan=5,dl_vlan=6", "`dl_vlan=6` contradicts `dl_vlan=5`: leave out one of them"),
        ("nw_src=1.1.1.1", "`nw_src=1.1.1.1` needs ip, or arp or rarp: write ip,nw_src=1.1.1.1"),
        (
            "nw_frag=later,tcp,tp_dst=80",
            "`tp_dst=80` needs tcp or tcp6, or udp or udp6, or sctp or sctp6, or icmp, or icmp6, and no later fragments: write tcp,tp_dst=80",
        ),
        (
            "tcp_dst=80",
            "`tcp_dst=80` needs tcp or tcp6, and no later fragments: write tcp,tcp_dst=80",
        ),
        (
            "nd_target=::1",
            "`nd_target=::1` needs icmp6, icmpv6_type=135 or 136, icmpv6_code=0: write icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=::1",
        ),
        (
            "dl_type=ip",
            "`ip` is not a value of `dl_type`: write a number such as 0x0800, or the name of the protocol alone, ip",
        ),
        (
            "ip,nw_proto=tcp",
            "`tcp` is not a value of `nw_proto`: write a number such as 6, or the name of the protocol alone, tcp",
        ),
        ("icmp,tp_src=300", "`tp_src=300` does not fit `icmp_type`: only the bits 0xff may be set"),
        ("in_port=p1", "`p1` is not a value of `in_port`: write a port's number or name: 1, LOCAL"),
    ] {
        let error = read(text).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
    }
}

#[test]
fn the_example_of_each_prerequisite_meets_it() {
    for field in FieldId::all() {
        let example = field.info().prerequisite.example();
        let matching = read(example).expect(example);
        let mask = FlowMask::from(matching.mask());
        assert!(prerequisite::is_met(field, &matching.key(), &mask), "{example}: {field:?}");
    }
}

#[test]
fn a_very_long_name_has_no_suggestion() {
    let name = "tp_dst".repeat(200_000);
    assert_eq!(read(&name), Err(MatchError::UnknownField { name, nearest: None }));
}

#[test]
fn values_in_actions_print_as_in_open_vswitch() {
    // `ovs-ofctl -O OpenFlow15 parse-flow 'tcp,actions=set_field:VALUE->FIELD'`, Open vSwitch 3.1.
    for (field, text, expected) in [
        (FieldId::Reg0, "5", "0x5"),
        (FieldId::Reg0, "0", "0"),
        (FieldId::Reg0, "5/7", "0x5/0x7"),
        (FieldId::Reg0, "0/7", "0/0x7"),
        (FieldId::Reg0, "0x10/0xf", "0/0xf"),
        (FieldId::TcpSrc, "80/0xff", "80/0xff"),
        (FieldId::Ipv4Src, "10.0.0.0/8", "10.0.0.0/8"),
        (FieldId::Ipv4Src, "10.0.0.1/255.0.0.255", "10.0.0.1/255.0.0.255"),
        (FieldId::EthSrc, "0:1:2:3:4:5/ff:ff:0:0:0:0", "00:01:00:00:00:00/ff:ff:00:00:00:00"),
        (FieldId::VlanVid, "4101", "4101"),
        (FieldId::VlanTci, "0x5", "0x5"),
        (FieldId::InPort, "LOCAL", "LOCAL"),
        (FieldId::IpDscp, "010", "8"),
        (FieldId::TunFlags, "+oam", "oam"),
        (FieldId::Ipv6Label, "5/0xf", "0x5/0xf"),
        (FieldId::Ipv6Src, "::1/64", "::/64"),
        (FieldId::Xxreg0, "0x12345", "0x12345"),
    ] {
        let (value, mask) = parse_value(field, text).expect(text);
        assert_eq!(format_value(field, value, mask), expected, "{text}");
    }
    assert_eq!(format_value(FieldId::Reg0, 5, 0), "ANY");
}

#[test]
fn consulted_bits_differ_from_written_values() {
    let (key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    mask.add_bits(FieldId::EthType, 0x8000);
    assert_eq!(format_match(&Match::new(&key, &mask), &NoPortNames), "dl_type=0x0000/0x8000");
    mask.add_field(FieldId::EthType);
    assert_eq!(format_match(&Match::new(&key, &mask), &NoPortNames), "dl_type=0x0000");
}

#[test]
fn a_suggestion_differs_in_at_most_a_third() {
    let known = ["flood", "Normal", "local"];
    for (word, meant) in [
        ("floda", Some("flood")),
        ("NORMLA", Some("Normal")),
        ("lcal", Some("local")),
        ("foo", None),
        ("fl", None),
        ("nomarlx", None),
    ] {
        assert_eq!(nearest_of(word, known), meant, "{word}");
    }
    // Both names differ by three letters.
    let keys = ["caches.index", "caches.idle_ms"];
    assert_eq!(nearest_of("caches.idle", keys), Some("caches.idle_ms"));
    assert_eq!(nearest_of("idle_ms", keys), Some("caches.idle_ms"), "the section is missing");
}
