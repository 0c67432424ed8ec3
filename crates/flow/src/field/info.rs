//! The properties of a field: a row of the field table.

use std::fmt;

use crate::{FieldId, layout::FieldSlot};

/// The properties of one field: a row of the field table.
#[derive(Clone, Copy, Debug)]
pub struct FieldInfo {
    /// Names in `ovs-fields(7)`: the name first, then aliases.
    pub names: &'static [&'static str],
    /// Width of the field in bits, without padding bits, which cannot be set.
    pub width: u8,
    /// Slot of the field in a flow key.
    pub slot: FieldSlot,
    /// Text format of the values.
    pub format: Format,
    /// The condition under which the field exists.
    pub prerequisite: Prerequisite,
    /// The masks that a match may have for the field.
    pub maskable: Maskable,
    /// The access that actions have to the field.
    pub access: Access,
    /// Numbers of the field on the wire. `ovs-ofctl` prints the first of the numbers.
    pub oxms: &'static [Oxm],
}

/// One number of a field on the wire: an OXM or NXM header.
/// See OpenFlow 1.3.5, 7.2.3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oxm {
    /// Name in the standard's header file, as `load` and `move` spell fields.
    pub name: &'static str,
    /// The class of the OXM header.
    pub class: OxmClass,
    /// The field number within the class: 0 to 127.
    pub number: u8,
    /// Width of the value on the wire in bits; a multiple of eight.
    /// Zero means the width of the field, rounded up.
    pub wire_bits: u8,
}

/// The class of an OXM header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OxmClass {
    /// The class `OFPXMC_NXM_0` of Nicira extended matches.
    Nxm0,
    /// The class `OFPXMC_NXM_1` of Nicira extended matches.
    Nxm1,
    /// The class `OFPXMC_OPENFLOW_BASIC` of standard fields.
    Basic,
    /// The class `OFPXMC_PACKET_REGS` of wide registers.
    PacketRegs,
    /// The class that Open vSwitch gives to Ericsson's fields.
    Ericsson,
    /// `OFPXMC_EXPERIMENTER` with the ONF's experimenter id.
    Onf,
    /// `OFPXMC_EXPERIMENTER` with Nicira's experimenter id.
    Nicira,
    /// `OFPXMC_EXPERIMENTER` with the experimenter id of the NSH fields.
    Nsh,
}

impl OxmClass {
    /// Returns the 16-bit class on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Nxm0 => 0x0000,
            Self::Nxm1 => 0x0001,
            Self::Basic => 0x8000,
            Self::PacketRegs => 0x8001,
            Self::Ericsson => 0x1000,
            Self::Onf | Self::Nicira | Self::Nsh => 0xffff,
        }
    }

    /// Returns the experimenter id that follows the header, if the class has one.
    #[must_use]
    pub const fn experimenter(self) -> Option<u32> {
        match self {
            Self::Onf => Some(0x4f4e_4600),
            Self::Nicira => Some(0x0000_2320),
            Self::Nsh => Some(0x005a_d650),
            Self::Nxm0 | Self::Nxm1 | Self::Basic | Self::PacketRegs | Self::Ericsson => None,
        }
    }
}

/// The text format of the values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A decimal number; masked as hexadecimal.
    Decimal,
    /// The value is written as a hexadecimal number.
    Hex,
    /// Six octets with colons.
    Ethernet,
    /// Dotted quad, with a prefix length or a mask.
    Ipv4,
    /// RFC 5952, with a prefix length or a mask.
    Ipv6,
    /// A port number or a reserved name.
    Port,
    /// `no`, `yes`, `first`, `later`, `not_later`.
    Frag,
    /// Names of TCP flags.
    TcpFlags,
    /// Names of tunnel flags.
    TunFlags,
    /// Names of connection states.
    CtState,
    /// Name space and type, with a comma.
    PacketType,
}

/// The masks that a match may have on a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maskable {
    /// A match may have any mask on the field.
    Maskable,
    /// A match has all bits of the field or none.
    Exact,
}

/// The access that actions have to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Set-field, load, move and learn may write the field.
    ReadWrite,
    /// The field can only be matched and read.
    ReadOnly,
}

/// The condition under which a field exists (OpenFlow 1.3.5, table 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prerequisite {
    /// No condition: every packet has the field.
    Any,
    /// The packet type is Ethernet; all packets are Ethernet so far.
    Ethernet,
    /// The match needs `in_port`.
    InPort,
    /// A VLAN tag is present: `vlan_vid` has its present bit set.
    VlanVid,
    /// `eth_type` is 0x8847 or 0x8848.
    Mpls,
    /// The match needs `eth_type` 0x88e7 (PBB).
    Pbb,
    /// The match needs `eth_type` 0x0800 (IPv4).
    Ipv4,
    /// The match needs `eth_type` 0x86dd (IPv6).
    Ipv6,
    /// `eth_type` is 0x0800 or 0x86dd.
    Ip,
    /// `eth_type` is 0x0806 or 0x8035.
    Arp,
    /// The match needs `eth_type` 0x894f (NSH).
    Nsh,
    /// IPv4 or IPv6 with `ip_proto` 6.
    Tcp,
    /// IPv4 or IPv6 with `ip_proto` 17.
    Udp,
    /// IPv4 or IPv6 with `ip_proto` 132.
    Sctp,
    /// IPv4 with `ip_proto` 1.
    Icmp,
    /// IPv6 with `ip_proto` 58.
    Icmpv6,
    /// `icmpv6_type` is 135 or 136 and `icmpv6_code` is 0.
    Nd,
    /// `icmpv6_type` is 135 and `icmpv6_code` is 0.
    NdSolicit,
    /// `icmpv6_type` is 136 and `icmpv6_code` is 0.
    NdAdvert,
    /// The packet was tracked: `ct_state` has `trk` set.
    Ct,
}

/// Writes the condition as match text.
impl fmt::Display for Prerequisite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "nothing",
            Self::Ethernet => "packet_type=(0,0)",
            Self::InPort => "in_port",
            Self::VlanVid => "vlan_vid with its presence bit, 0x1000",
            Self::Mpls => "mpls or mplsm",
            Self::Pbb => "dl_type=0x88e7",
            Self::Ipv4 => "ip",
            Self::Ipv6 => "ipv6",
            Self::Ip => "ip or ipv6",
            Self::Arp => "arp or rarp",
            Self::Nsh => "dl_type=0x894f",
            Self::Tcp => "tcp or tcp6, and no later fragments",
            Self::Udp => "udp or udp6, and no later fragments",
            Self::Sctp => "sctp or sctp6, and no later fragments",
            Self::Icmp => "icmp",
            Self::Icmpv6 => "icmp6",
            Self::Nd => "icmp6, icmpv6_type=135 or 136, icmpv6_code=0",
            Self::NdSolicit => "icmp6, icmpv6_type=135, icmpv6_code=0",
            Self::NdAdvert => "icmp6, icmpv6_type=136, icmpv6_code=0",
            Self::Ct => "ct_state that only valid tracked packets have, such as +trk-inv",
        })
    }
}

/// Suffix of the condition text of a transport protocol.
/// Later fragments have no ports.
pub(crate) const NO_LATER_FRAGMENTS: &str = ", and no later fragments";

impl Prerequisite {
    /// Returns an example of the condition as match text.
    #[must_use]
    pub const fn example(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Ethernet => "packet_type=(0,0)",
            Self::InPort => "in_port=1",
            Self::VlanVid => "vlan_vid=0x1000/0x1000",
            Self::Mpls => "mpls",
            Self::Pbb => "dl_type=0x88e7",
            Self::Ipv4 | Self::Ip => "ip",
            Self::Ipv6 => "ipv6",
            Self::Arp => "arp",
            Self::Nsh => "dl_type=0x894f",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
            Self::Icmp => "icmp",
            Self::Icmpv6 => "icmp6",
            Self::Nd | Self::NdSolicit => "icmp6,icmpv6_type=135,icmpv6_code=0",
            Self::NdAdvert => "icmp6,icmpv6_type=136,icmpv6_code=0",
            Self::Ct => "ct_state=+trk-inv",
        }
    }
}

impl FieldId {
    /// Returns the name: the first spelling of `ovs-fields(7)`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.info().names[0]
    }

    /// Returns the slot of the field in a flow key.
    #[must_use]
    pub const fn slot(self) -> FieldSlot {
        self.info().slot
    }

    /// Returns the width in bits.
    #[must_use]
    pub const fn width(self) -> u8 {
        self.info().width
    }

    /// Returns all bits of the field, as a value.
    ///
    /// `nw_tos` is a byte, but only the upper six bits belong to the field. The lower two bits are
    /// `nw_ecn`, and writing one field does not change the other field.
    #[must_use]
    pub const fn value_max(self) -> u128 {
        match self {
            Self::NwTos => 0xfc,
            _ => self.info().slot.value_max(),
        }
    }

    /// Returns the number of a tunnel option.
    /// The number is 0 to 63 for `tun_metadata0` to `tun_metadata63`.
    ///
    /// A match on an option also matches its presence: an absent option has no value, not even
    /// zero.
    #[must_use]
    pub const fn tunnel_option(self) -> Option<u8> {
        let (first, last) = (Self::TunMetadata0 as u8, Self::TunMetadata63 as u8);
        if first <= self as u8 && self as u8 <= last { Some(self as u8 - first) } else { None }
    }

    /// Returns the field with the given name or alias of `ovs-fields(7)`.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        let named = |id: &Self| id.info().names.contains(&name);
        Self::all().find(named)
    }

    /// Returns the field with a header name such as `NXM_NX_REG0`.
    /// The names come from OXM and NXM headers.
    #[must_use]
    pub fn find_oxm_name(name: &str) -> Option<Self> {
        Self::all().find(|id| id.info().oxms.iter().any(|oxm| oxm.name == name))
    }
}

impl Oxm {
    /// Sets the width of the value on the wire to `bits`.
    pub(super) const fn bits(self, bits: u8) -> Self {
        Self { wire_bits: bits, ..self }
    }

    /// Returns the number of bytes of a value on the wire, for a field of `width` bits.
    #[must_use]
    pub const fn wire_len(self, width: u8) -> usize {
        let bits = if self.wire_bits == 0 { width } else { self.wire_bits };
        bits.div_ceil(8) as usize
    }

    /// Returns an OXM with the length of its field.
    pub(super) const fn of(class: OxmClass, name: &'static str, number: u8) -> Self {
        Self { name, class, number, wire_bits: 0 }
    }
}
