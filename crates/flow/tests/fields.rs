//! The field table against the facts of `ovs-fields(7)`, and its internal consistency.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::collections::HashSet;

use shunt_flow::{
    FieldId, FlowKey, FlowMask,
    field::{Access, Format, Maskable, OxmClass, Prerequisite},
    layout::{FieldSlot, HEADER_WORDS, word},
};

/// The recorded properties of a field in Open vSwitch.
struct Fact {
    names: Vec<&'static str>,
    width: u16,
    wire_len: usize,
    columns: [&'static str; 4],
    numbers: HashSet<(&'static str, u8)>,
}

fn facts() -> impl Iterator<Item = Fact> {
    let data = include_str!("data/ovs-fields.tsv");
    data.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let [names, width, wire_len, format, masking, prerequisite, access, numbers] =
            line.split('\t').collect::<Vec<_>>()[..]
        else {
            panic!("eight columns: {line}")
        };
        let number = |text: &'static str| {
            let (name, number) = text.split_once('=').expect("name=number");
            (name, number.parse().expect("a number"))
        };
        Fact {
            names: names.split(',').collect(),
            width: width.parse().expect("a number"),
            wire_len: wire_len.parse().expect("a number"),
            columns: [format, masking, prerequisite, access],
            numbers: numbers.split(',').filter(|text| *text != "-").map(number).collect(),
        }
    })
}

fn columns(field: FieldId) -> [&'static str; 4] {
    let info = field.info();
    let format = match info.format {
        Format::Decimal => "decimal",
        Format::Hex => "hexadecimal",
        Format::Ethernet => "Ethernet",
        Format::Ipv4 => "IPv4",
        Format::Ipv6 => "IPv6",
        Format::Port => "OpenFlow 1.1+ port",
        Format::Frag => "frag",
        Format::TcpFlags => "TCP flags",
        Format::TunFlags => "tunnel flags",
        Format::CtState => "ct state",
        Format::PacketType => "packet type",
    };
    let prerequisite = match info.prerequisite {
        Prerequisite::Any | Prerequisite::InPort => "none",
        Prerequisite::Ethernet => "Ethernet",
        Prerequisite::VlanVid => "VLAN VID",
        Prerequisite::Mpls => "MPLS",
        Prerequisite::Pbb => "PBB",
        Prerequisite::Ipv4 => "IPv4",
        Prerequisite::Ipv6 => "IPv6",
        Prerequisite::Ip => "IPv4/IPv6",
        Prerequisite::Arp => "ARP",
        Prerequisite::Nsh => "NSH",
        Prerequisite::Tcp => "TCP",
        Prerequisite::Udp => "UDP",
        Prerequisite::Sctp => "SCTP",
        Prerequisite::Icmp => "ICMPv4",
        Prerequisite::Icmpv6 => "ICMPv6",
        Prerequisite::Nd => "ND",
        Prerequisite::NdSolicit => "ND solicit",
        Prerequisite::NdAdvert => "ND advert",
        Prerequisite::Ct => "CT",
    };
    let masking = match info.maskable {
        Maskable::Maskable => "masked",
        Maskable::Exact => "exact",
    };
    let access = match info.access {
        Access::ReadWrite => "read/write",
        Access::ReadOnly => "read-only",
    };
    [format, masking, prerequisite, access]
}

#[test]
fn the_field_table_equals_the_manual() {
    for fact in facts() {
        let name = fact.names[0];
        if name == "tun_metadata0" {
            // Only a TLV table gives a tunnel option its width and access, and Shunt has no TLV
            // table.
            continue;
        }
        let field = FieldId::find(name).unwrap_or_else(|| panic!("{name} is in the table"));
        for alias in &fact.names {
            assert_eq!(FieldId::find(alias), Some(field), "{alias}");
        }
        // The only field with two widths: `in_port` has 16 bits in NXM, and `in_port_oxm` has 32.
        let of_name = |numbers: HashSet<(&'static str, u8)>| match name {
            "in_port" => numbers.into_iter().filter(|(name, _)| name.starts_with("NXM")).collect(),
            "in_port_oxm" => {
                numbers.into_iter().filter(|(name, _)| name.starts_with("OXM")).collect()
            }
            _ => numbers,
        };
        let oxms = field.info().oxms;
        let numbers = of_name(oxms.iter().map(|oxm| (oxm.name, oxm.number)).collect());
        assert_eq!(numbers, fact.numbers, "{name}");
        for oxm in oxms.iter().filter(|oxm| fact.numbers.contains(&(oxm.name, oxm.number))) {
            assert_eq!(oxm.wire_len(field.width()), fact.wire_len, "{name}");
        }
        let format_is_of_nxm = name == "in_port";
        let from = usize::from(format_is_of_nxm);
        let mut columns = columns(field);
        if name == "nd_options_type" {
            // A write would make the key differ from the packet.
            assert_eq!(columns[3], "read-only");
            columns[3] = "read/write";
        }
        assert_eq!(columns[from..], fact.columns[from..], "{name}");
        match name {
            "in_port" => {}
            // The manual omits the presence bit, which OXM has in the value.
            "vlan_vid" => assert_eq!(u16::from(field.width()), fact.width + 1),
            // The manual allows more bits; eight states have a name, and the other bits are
            // refused.
            "ct_state" => assert_eq!(field.width(), 8),
            _ => assert_eq!(u16::from(field.width()), fact.width, "{name}"),
        }
    }
}

#[test]
fn registers_follow_the_first_of_their_kind() {
    for (kind, count, bits) in [("reg", 16, 32), ("xreg", 8, 64), ("xxreg", 4, 128)] {
        let first = FieldId::find(&format!("{kind}0")).expect("a register");
        for index in 0..count {
            let field = FieldId::find(&format!("{kind}{index}")).expect("a register");
            let bit = u32::from(index) * bits;
            let slot = field.slot();
            assert_eq!(u32::from(slot.word), u32::from(word::REGS) + bit / 64, "{kind}{index}");
            let shift = if bits == 32 { 32 - bit % 64 } else { 0 };
            assert_eq!(u32::from(slot.shift), shift, "{kind}{index}");
            assert_eq!(u32::from(slot.width), bits, "{kind}{index}");
            assert_eq!(columns(field), columns(first), "{kind}{index}");
            let [oxm] = field.info().oxms else { panic!("{kind}{index} has one number") };
            assert_eq!(oxm.number, first.info().oxms[0].number + index, "{kind}{index}");
            assert_eq!(oxm.class, first.info().oxms[0].class, "{kind}{index}");
        }
    }
}

#[test]
fn tunnel_options_follow_the_first() {
    let first = FieldId::TunMetadata0.slot();
    let options: Vec<FieldId> =
        FieldId::all().filter(|field| field.tunnel_option().is_some()).collect();
    assert_eq!(options.len(), 64);
    for (number, field) in (0_u8..).zip(options) {
        assert_eq!(field.tunnel_option(), Some(number));
        assert_eq!(field.name(), format!("tun_metadata{number}"));
        let [oxm] = field.info().oxms else { panic!("{field:?} has one number") };
        assert_eq!((oxm.class, oxm.number), (OxmClass::Nxm1, 40 + number));
        let bit = |slot: FieldSlot| u32::from(slot.word) * 64 + 64 - u32::from(slot.shift);
        assert_eq!(bit(field.slot()) - bit(first), u32::from(number) * 32);
        assert_eq!(columns(field)[..3], ["hexadecimal", "masked", "none"]);
        assert_eq!((field.width(), field.info().access), (32, Access::ReadOnly));
    }
}

#[test]
fn field_names_and_numbers_are_unique() {
    let (mut names, mut numbers, mut oxm_names) = (HashSet::new(), HashSet::new(), HashSet::new());
    for field in FieldId::all() {
        for name in field.info().names {
            assert!(names.insert(*name), "{name}");
            assert_eq!(FieldId::find(name), Some(field));
        }
        for oxm in field.info().oxms {
            assert!(numbers.insert((oxm.class, oxm.number)), "{}", oxm.name);
            assert!(oxm_names.insert(oxm.name), "{}", oxm.name);
            assert_eq!(FieldId::find_oxm_name(oxm.name), Some(field));
            assert!(oxm.number < 128, "{}", oxm.name);
            // The NXM port has 16 bits, whatever the width of a port.
            let fits = oxm.wire_len(field.width()) * 8 >= usize::from(field.width());
            assert!(fits || oxm.name == "NXM_OF_IN_PORT", "{}", oxm.name);
        }
    }
}

#[test]
fn the_name_of_a_number_tells_its_class() {
    for oxm in FieldId::all().flat_map(|field| field.info().oxms) {
        let prefix = match oxm.class {
            OxmClass::Nxm0 => "NXM_OF_",
            OxmClass::Nxm1 => "NXM_NX_",
            OxmClass::Basic => "OXM_OF_",
            OxmClass::PacketRegs => "OXM_OF_PKT_REG",
            OxmClass::Onf => "ONFOXM_ET_",
            OxmClass::Nicira => "NXOXM_ET_",
            OxmClass::Nsh => "NXOXM_NSH_",
            OxmClass::Ericsson => "ERICOXM_OF_",
        };
        assert!(oxm.name.starts_with(prefix), "{}", oxm.name);
    }
}

#[test]
fn every_writable_field_has_a_wire_number() {
    // The tag of OpenFlow 1.0 is written through `vlan_vid` and `vlan_pcp`.
    let only_words = [FieldId::DlVlan, FieldId::DlVlanPcp];
    for field in FieldId::all().filter(|field| field.info().access == Access::ReadWrite) {
        assert!(only_words.contains(&field) || !field.info().oxms.is_empty(), "{}", field.name());
    }
}

#[test]
fn dscp_and_ecn_are_written_independently() {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    key.set_field(FieldId::IpEcn, 3);
    key.set_field(FieldId::NwTos, 0xff);
    key.set_field(FieldId::IpEcn, 1);
    assert_eq!(key.field(FieldId::NwTos), 0xfc);
    assert_eq!(key.field(FieldId::IpDscp), 0x3f);
    assert_eq!(key.field(FieldId::IpEcn), 1);
    mask.add_field(FieldId::NwTos);
    assert_eq!((mask.field(FieldId::NwTos), mask.field(FieldId::IpEcn)), (0xfc, 0));
}

#[test]
fn packet_fields_lie_in_the_header_words() {
    for field in FieldId::all() {
        let of_packet = !matches!(
            field.info().prerequisite,
            Prerequisite::Any | Prerequisite::InPort | Prerequisite::Ct
        );
        let at = usize::from(field.slot().word);
        let lies_in_header = HEADER_WORDS.contains(&at);
        let ingress = [FieldId::InPort, FieldId::PacketType].contains(&field);
        assert_eq!(lies_in_header, of_packet || ingress, "{}", field.name());
    }
}

#[test]
fn only_related_fields_share_bits() {
    for a in FieldId::all() {
        for b in FieldId::all().filter(|b| *b > a) {
            let differs = a.info().prerequisite != b.info().prerequisite;
            assert!(!share_bits(a, b) || differs || is_another_view(a, b), "{a:?} and {b:?}");
        }
    }
}

fn share_bits(a: FieldId, b: FieldId) -> bool {
    let bits = |field: FieldId| {
        let start = u32::from(field.slot().word) * 64;
        let slot = field.slot();
        if slot.width == 128 {
            (start, start + 128)
        } else {
            let low = start + u32::from(slot.shift);
            (low, low + u32::from(slot.width))
        }
    };
    let ((a_low, a_high), (b_low, b_high)) = (bits(a), bits(b));
    a_low < b_high && b_low < a_high
}

/// Returns whether two rows share bits under the same prerequisite.
fn is_another_view(a: FieldId, b: FieldId) -> bool {
    /// Prefixes of the names of fields that share bits.
    const VIEWS: [&[&str]; 3] = [
        &["reg", "xreg", "xxreg"],
        &["vlan_tci", "dl_vlan", "vlan_"],
        &["nw_tos", "ip_dscp", "nw_ecn"],
    ];
    let among =
        |names: &&[&str], field: FieldId| names.iter().any(|name| field.name().starts_with(name));
    VIEWS.iter().any(|names| among(names, a) && among(names, b))
}
