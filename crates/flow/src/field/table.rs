//! The field table: one row per field of OpenFlow 1.5 and of the Nicira extensions.
//!
//! Columns: names; width in bits; slot in the flow key (word, shift, width); text format;
//! prerequisite; whether it can be masked; whether actions may write it; numbers on the wire. The
//! width counts the bits that can be set; a wire number has its own width if the value has more
//! bits on the wire. Fields that share bits are separate rows over one slot: `vlan_tci` and
//! `vlan_vid`, `arp_spa` and `ip_src`, the ports of the transport protocols, and registers of 32,
//! 64 and 128 bits.
//!
//! `tun_metadata0` to `tun_metadata63` are tunnel options (RFC 8926, 3.5). A table of the bridge
//! gives each option its number and length. Shunt does not have this table of options: no packet
//! has a tunnel option, OpenFlow matches on a tunnel option are refused, and actions cannot write
//! one. In text, each tunnel option has 32 bits.
//!
//! Open vSwitch can write `nd_options_type`: a write turns the sender's address into the target's,
//! and leaves both addresses in the key. In Shunt the field is read-only.

use super::info::{
    Access::{ReadOnly, ReadWrite},
    FieldInfo,
    Format::{
        CtState, Decimal, Ethernet, Frag, Hex, Ipv4, Ipv6, PacketType, Port, TcpFlags, TunFlags,
    },
    Maskable::{Exact, Maskable as Masked},
    Oxm, OxmClass, Prerequisite,
};
use crate::layout::{FieldSlot, word::*};

macro_rules! fields {
    ($($id:ident {
        [$($name:literal),+], $width:literal, at($word:expr, $shift:literal, $bits:literal),
        $format:ident, $prerequisite:ident, $maskable:ident, $access:ident,
        [$($oxm:expr),*]
    })+ ; tunnel_options { $($option:ident $option_number:literal,)+ }) => {
        /// A field of a flow key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum FieldId {
            $(#[doc = concat!("`", fields!(@first $($name),+), "`")] $id,)+
            $(#[doc = concat!("`tun_metadata", $option_number, "`")] $option,)+
        }

        impl FieldId {
            /// Every field, in the order of the table.
            pub fn all() -> impl Iterator<Item = Self> {
                [$(Self::$id,)+ $(Self::$option),+].into_iter()
            }

            /// Returns the row of this field.
            #[must_use]
            pub const fn info(self) -> &'static FieldInfo {
                &FIELDS[self as usize]
            }
        }

        const FIELDS: &[FieldInfo] = &[$(FieldInfo {
            names: &[$($name),+],
            width: $width,
            slot: FieldSlot::new($word, $shift, $bits),
            format: $format,
            prerequisite: Prerequisite::$prerequisite,
            maskable: $maskable,
            access: $access,
            oxms: &[$($oxm),*],
        },)+ $(FieldInfo {
            names: &[concat!("tun_metadata", $option_number)],
            width: 32,
            slot: FieldSlot::new(TUN_METADATA + $option_number / 2, 32 - $option_number % 2 * 32, 32),
            format: Hex,
            prerequisite: Prerequisite::Any,
            maskable: Masked,
            access: ReadOnly,
            oxms: &[nxm1(concat!("NXM_NX_TUN_METADATA", $option_number), 40 + $option_number)],
        }),+];
    };
    (@first $first:literal $(, $rest:literal)*) => { $first };
}

/// A field with a number of the class `NXM_OF`.
const fn nxm0(name: &'static str, number: u8) -> Oxm {
    Oxm::of(OxmClass::Nxm0, name, number)
}

/// A field with a number of the class `NXM_NX`.
const fn nxm1(name: &'static str, number: u8) -> Oxm {
    Oxm::of(OxmClass::Nxm1, name, number)
}

/// A field with a number of the class `OXM_OF`.
const fn oxm(name: &'static str, number: u8) -> Oxm {
    Oxm::of(OxmClass::Basic, name, number)
}

/// A field with a number of the class for packet registers.
const fn pkt_reg(name: &'static str, number: u8) -> Oxm {
    Oxm::of(OxmClass::PacketRegs, name, number)
}

/// A field with a number of ONF.
const fn onf(name: &'static str, number: u8) -> Oxm {
    Oxm::of(OxmClass::Onf, name, number)
}

/// A field with an experimenter number of Nicira.
const fn nicira(name: &'static str, number: u8) -> Oxm {
    Oxm::of(OxmClass::Nicira, name, number)
}

/// A field with an experimenter number of Ericsson.
const fn ericsson(name: &'static str, number: u8) -> Oxm {
    Oxm::of(OxmClass::Ericsson, name, number)
}

/// A field with an experimenter number of NSH.
const fn nsh(name: &'static str, number: u8) -> Oxm {
    Oxm::of(OxmClass::Nsh, name, number)
}

fields! {
    DpHash { ["dp_hash"], 32, at(RECIRC, 32, 32), Hex, Any, Masked, ReadOnly, [
        nxm1("NXM_NX_DP_HASH", 35)
    ] }
    RecircId { ["recirc_id"], 32, at(RECIRC, 0, 32), Decimal, Any, Exact, ReadOnly, [
        nxm1("NXM_NX_RECIRC_ID", 36)
    ] }
    PacketType { ["packet_type"], 32, at(IN_PORT, 0, 32), PacketType, Any, Exact, ReadOnly, [
        oxm("OXM_OF_PACKET_TYPE", 44)
    ] }
    ConjId { ["conj_id"], 32, at(ACTSET_OUTPUT, 0, 32), Decimal, Any, Exact, ReadOnly, [
        nxm1("NXM_NX_CONJ_ID", 37)
    ] }
    TunId { ["tun_id", "tunnel_id"], 64, at(TUN_ID, 0, 64), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_TUN_ID", 16), oxm("OXM_OF_TUNNEL_ID", 38)
    ] }
    TunSrc { ["tun_src"], 32, at(TUN_IPV4, 32, 32), Ipv4, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_TUN_IPV4_SRC", 31)
    ] }
    TunDst { ["tun_dst"], 32, at(TUN_IPV4, 0, 32), Ipv4, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_TUN_IPV4_DST", 32)
    ] }
    TunIpv6Src { ["tun_ipv6_src"], 128, at(TUN_IPV6_SRC, 0, 128), Ipv6, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_TUN_IPV6_SRC", 109)
    ] }
    TunIpv6Dst { ["tun_ipv6_dst"], 128, at(TUN_IPV6_DST, 0, 128), Ipv6, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_TUN_IPV6_DST", 110)
    ] }
    TunFlags { ["tun_flags"], 1, at(TUN_MISC, 48, 1), TunFlags, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_TUN_FLAGS", 104).bits(16)
    ] }
    TunTtl { ["tun_ttl"], 8, at(TUN_MISC, 40, 8), Decimal, Any, Exact, ReadOnly, [] }
    TunTos { ["tun_tos"], 8, at(TUN_MISC, 32, 8), Decimal, Any, Exact, ReadOnly, [] }
    TunGbpId { ["tun_gbp_id"], 16, at(TUN_MISC, 16, 16), Decimal, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_TUN_GBP_ID", 38)
    ] }
    TunGbpFlags { ["tun_gbp_flags"], 8, at(TUN_MISC, 8, 8), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_TUN_GBP_FLAGS", 39)
    ] }
    TunErspanVer { ["tun_erspan_ver"], 4, at(TUN_PROTOCOL, 56, 4), Decimal, Any, Masked, ReadWrite, [
        nicira("NXOXM_ET_ERSPAN_VER", 12)
    ] }
    TunErspanDir { ["tun_erspan_dir"], 1, at(TUN_PROTOCOL, 48, 1), Decimal, Any, Masked, ReadWrite, [
        nicira("NXOXM_ET_ERSPAN_DIR", 13)
    ] }
    TunErspanIdx { ["tun_erspan_idx"], 20, at(TUN_PROTOCOL, 0, 20), Hex, Any, Masked, ReadWrite, [
        nicira("NXOXM_ET_ERSPAN_IDX", 11).bits(32)
    ] }
    TunErspanHwid { ["tun_erspan_hwid"], 6, at(TUN_PROTOCOL, 40, 6), Hex, Any, Masked, ReadWrite, [
        nicira("NXOXM_ET_ERSPAN_HWID", 14)
    ] }
    TunGtpuFlags { ["tun_gtpu_flags"], 8, at(TUN_PROTOCOL, 32, 8), Hex, Any, Masked, ReadOnly, [
        nicira("NXOXM_ET_GTPU_FLAGS", 15)
    ] }
    TunGtpuMsgtype { ["tun_gtpu_msgtype"], 8, at(TUN_MISC, 0, 8), Decimal, Any, Masked, ReadOnly, [
        nicira("NXOXM_ET_GTPU_MSGTYPE", 16)
    ] }
    Metadata { ["metadata"], 64, at(METADATA, 0, 64), Hex, Any, Masked, ReadWrite, [
        oxm("OXM_OF_METADATA", 2)
    ] }
    InPort { ["in_port", "in_port_oxm"], 32, at(IN_PORT, 32, 32), Port, Any, Exact, ReadWrite, [
        nxm0("NXM_OF_IN_PORT", 0).bits(16), oxm("OXM_OF_IN_PORT", 0)
    ] }
    InPhyPort { ["in_phy_port"], 32, at(IN_PHY_PORT, 0, 32), Port, InPort, Exact, ReadOnly, [] }
    SkbPriority { ["skb_priority"], 32, at(PKT_MARK, 0, 32), Hex, Any, Exact, ReadOnly, [] }
    PktMark { ["pkt_mark"], 32, at(PKT_MARK, 32, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_PKT_MARK", 33)
    ] }
    CtState { ["ct_state"], 8, at(CT_STATE, 32, 8), CtState, Any, Masked, ReadOnly, [
        nxm1("NXM_NX_CT_STATE", 105).bits(32)
    ] }
    CtZone { ["ct_zone"], 16, at(CT_STATE, 16, 16), Hex, Any, Exact, ReadOnly, [
        nxm1("NXM_NX_CT_ZONE", 106)
    ] }
    CtMark { ["ct_mark"], 32, at(CT_MARK, 32, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_CT_MARK", 107)
    ] }
    CtLabel { ["ct_label"], 128, at(CT_LABEL, 0, 128), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_CT_LABEL", 108)
    ] }
    CtNwProto { ["ct_nw_proto"], 8, at(CT_STATE, 0, 8), Decimal, Ct, Exact, ReadOnly, [
        nxm1("NXM_NX_CT_NW_PROTO", 119)
    ] }
    CtNwSrc { ["ct_nw_src"], 32, at(CT_IPV4, 32, 32), Ipv4, Ct, Masked, ReadOnly, [
        nxm1("NXM_NX_CT_NW_SRC", 120)
    ] }
    CtNwDst { ["ct_nw_dst"], 32, at(CT_IPV4, 0, 32), Ipv4, Ct, Masked, ReadOnly, [
        nxm1("NXM_NX_CT_NW_DST", 121)
    ] }
    CtIpv6Src { ["ct_ipv6_src"], 128, at(CT_IPV6_SRC, 0, 128), Ipv6, Ct, Masked, ReadOnly, [
        nxm1("NXM_NX_CT_IPV6_SRC", 122)
    ] }
    CtIpv6Dst { ["ct_ipv6_dst"], 128, at(CT_IPV6_DST, 0, 128), Ipv6, Ct, Masked, ReadOnly, [
        nxm1("NXM_NX_CT_IPV6_DST", 123)
    ] }
    CtTpSrc { ["ct_tp_src"], 16, at(CT_MARK, 16, 16), Decimal, Ct, Masked, ReadOnly, [
        nxm1("NXM_NX_CT_TP_SRC", 124)
    ] }
    CtTpDst { ["ct_tp_dst"], 16, at(CT_MARK, 0, 16), Decimal, Ct, Masked, ReadOnly, [
        nxm1("NXM_NX_CT_TP_DST", 125)
    ] }
    ActsetOutput { ["actset_output"], 32, at(ACTSET_OUTPUT, 32, 32), Port, Any, Exact, ReadOnly, [
        onf("ONFOXM_ET_ACTSET_OUTPUT", 43), oxm("OXM_OF_ACTSET_OUTPUT", 43)
    ] }
    Reg0 { ["reg0"], 32, at(REGS, 32, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG0", 0)
    ] }
    Reg1 { ["reg1"], 32, at(REGS, 0, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG1", 1)
    ] }
    Reg2 { ["reg2"], 32, at(REGS + 1, 32, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG2", 2)
    ] }
    Reg3 { ["reg3"], 32, at(REGS + 1, 0, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG3", 3)
    ] }
    Reg4 { ["reg4"], 32, at(REGS + 2, 32, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG4", 4)
    ] }
    Reg5 { ["reg5"], 32, at(REGS + 2, 0, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG5", 5)
    ] }
    Reg6 { ["reg6"], 32, at(REGS + 3, 32, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG6", 6)
    ] }
    Reg7 { ["reg7"], 32, at(REGS + 3, 0, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG7", 7)
    ] }
    Reg8 { ["reg8"], 32, at(REGS + 4, 32, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG8", 8)
    ] }
    Reg9 { ["reg9"], 32, at(REGS + 4, 0, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG9", 9)
    ] }
    Reg10 { ["reg10"], 32, at(REGS + 5, 32, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG10", 10)
    ] }
    Reg11 { ["reg11"], 32, at(REGS + 5, 0, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG11", 11)
    ] }
    Reg12 { ["reg12"], 32, at(REGS + 6, 32, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG12", 12)
    ] }
    Reg13 { ["reg13"], 32, at(REGS + 6, 0, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG13", 13)
    ] }
    Reg14 { ["reg14"], 32, at(REGS + 7, 32, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG14", 14)
    ] }
    Reg15 { ["reg15"], 32, at(REGS + 7, 0, 32), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_REG15", 15)
    ] }
    Xreg0 { ["xreg0"], 64, at(REGS, 0, 64), Hex, Any, Masked, ReadWrite, [
        pkt_reg("OXM_OF_PKT_REG0", 0)
    ] }
    Xreg1 { ["xreg1"], 64, at(REGS + 1, 0, 64), Hex, Any, Masked, ReadWrite, [
        pkt_reg("OXM_OF_PKT_REG1", 1)
    ] }
    Xreg2 { ["xreg2"], 64, at(REGS + 2, 0, 64), Hex, Any, Masked, ReadWrite, [
        pkt_reg("OXM_OF_PKT_REG2", 2)
    ] }
    Xreg3 { ["xreg3"], 64, at(REGS + 3, 0, 64), Hex, Any, Masked, ReadWrite, [
        pkt_reg("OXM_OF_PKT_REG3", 3)
    ] }
    Xreg4 { ["xreg4"], 64, at(REGS + 4, 0, 64), Hex, Any, Masked, ReadWrite, [
        pkt_reg("OXM_OF_PKT_REG4", 4)
    ] }
    Xreg5 { ["xreg5"], 64, at(REGS + 5, 0, 64), Hex, Any, Masked, ReadWrite, [
        pkt_reg("OXM_OF_PKT_REG5", 5)
    ] }
    Xreg6 { ["xreg6"], 64, at(REGS + 6, 0, 64), Hex, Any, Masked, ReadWrite, [
        pkt_reg("OXM_OF_PKT_REG6", 6)
    ] }
    Xreg7 { ["xreg7"], 64, at(REGS + 7, 0, 64), Hex, Any, Masked, ReadWrite, [
        pkt_reg("OXM_OF_PKT_REG7", 7)
    ] }
    Xxreg0 { ["xxreg0"], 128, at(REGS, 0, 128), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_XXREG0", 111)
    ] }
    Xxreg1 { ["xxreg1"], 128, at(REGS + 2, 0, 128), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_XXREG1", 112)
    ] }
    Xxreg2 { ["xxreg2"], 128, at(REGS + 4, 0, 128), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_XXREG2", 113)
    ] }
    Xxreg3 { ["xxreg3"], 128, at(REGS + 6, 0, 128), Hex, Any, Masked, ReadWrite, [
        nxm1("NXM_NX_XXREG3", 114)
    ] }
    EthSrc { ["eth_src", "dl_src"], 48, at(ETH_SRC, 16, 48), Ethernet, Ethernet, Masked, ReadWrite, [
        nxm0("NXM_OF_ETH_SRC", 2), oxm("OXM_OF_ETH_SRC", 4)
    ] }
    EthDst { ["eth_dst", "dl_dst"], 48, at(ETH_DST, 16, 48), Ethernet, Ethernet, Masked, ReadWrite, [
        nxm0("NXM_OF_ETH_DST", 1), oxm("OXM_OF_ETH_DST", 3)
    ] }
    EthType { ["eth_type", "dl_type"], 16, at(ETH_DST, 0, 16), Hex, Ethernet, Exact, ReadOnly, [
        nxm0("NXM_OF_ETH_TYPE", 3), oxm("OXM_OF_ETH_TYPE", 5)
    ] }
    VlanTci { ["vlan_tci"], 16, at(VLAN, 32, 16), Hex, Ethernet, Masked, ReadWrite, [
        nxm0("NXM_OF_VLAN_TCI", 4)
    ] }
    DlVlan { ["dl_vlan"], 12, at(VLAN, 32, 12), Decimal, Ethernet, Exact, ReadWrite, [] }
    DlVlanPcp { ["dl_vlan_pcp"], 3, at(VLAN, 45, 3), Decimal, Ethernet, Exact, ReadWrite, [] }
    VlanVid { ["vlan_vid"], 13, at(VLAN, 32, 13), Decimal, Ethernet, Masked, ReadWrite, [
        oxm("OXM_OF_VLAN_VID", 6)
    ] }
    VlanPcp { ["vlan_pcp"], 3, at(VLAN, 45, 3), Decimal, VlanVid, Exact, ReadWrite, [
        oxm("OXM_OF_VLAN_PCP", 7)
    ] }
    VlanTpid { ["vlan_tpid"], 16, at(VLAN, 48, 16), Hex, Ethernet, Exact, ReadOnly, [] }
    VlanTci1 { ["vlan_tci1"], 16, at(VLAN, 0, 16), Hex, Ethernet, Masked, ReadOnly, [] }
    VlanTpid1 { ["vlan_tpid1"], 16, at(VLAN, 16, 16), Hex, Ethernet, Exact, ReadOnly, [] }
    MplsLabel { ["mpls_label"], 20, at(MPLS, 44, 20), Decimal, Mpls, Exact, ReadWrite, [
        oxm("OXM_OF_MPLS_LABEL", 34).bits(32)
    ] }
    MplsTc { ["mpls_tc"], 3, at(MPLS, 41, 3), Decimal, Mpls, Exact, ReadWrite, [
        oxm("OXM_OF_MPLS_TC", 35)
    ] }
    MplsBos { ["mpls_bos"], 1, at(MPLS, 40, 1), Decimal, Mpls, Exact, ReadOnly, [
        oxm("OXM_OF_MPLS_BOS", 36)
    ] }
    MplsTtl { ["mpls_ttl"], 8, at(MPLS, 32, 8), Decimal, Mpls, Exact, ReadWrite, [
        nxm1("NXM_NX_MPLS_TTL", 30)
    ] }
    MplsLse1 { ["mpls_lse1"], 32, at(MPLS, 0, 32), Decimal, Mpls, Masked, ReadOnly, [] }
    MplsLse2 { ["mpls_lse2"], 32, at(MPLS_PBB, 32, 32), Decimal, Mpls, Masked, ReadOnly, [] }
    PbbIsid { ["pbb_isid"], 24, at(MPLS_PBB, 8, 24), Hex, Pbb, Masked, ReadOnly, [] }
    PbbUca { ["pbb_uca"], 1, at(MPLS_PBB, 0, 1), Decimal, Pbb, Exact, ReadOnly, [] }
    Ipv4Src { ["ip_src", "nw_src"], 32, at(IPV4, 32, 32), Ipv4, Ipv4, Masked, ReadWrite, [
        nxm0("NXM_OF_IP_SRC", 7), oxm("OXM_OF_IPV4_SRC", 11)
    ] }
    Ipv4Dst { ["ip_dst", "nw_dst"], 32, at(IPV4, 0, 32), Ipv4, Ipv4, Masked, ReadWrite, [
        nxm0("NXM_OF_IP_DST", 8), oxm("OXM_OF_IPV4_DST", 12)
    ] }
    Ipv6Src { ["ipv6_src"], 128, at(IPV6_SRC, 0, 128), Ipv6, Ipv6, Masked, ReadWrite, [
        nxm1("NXM_NX_IPV6_SRC", 19), oxm("OXM_OF_IPV6_SRC", 26)
    ] }
    Ipv6Dst { ["ipv6_dst"], 128, at(IPV6_DST, 0, 128), Ipv6, Ipv6, Masked, ReadWrite, [
        nxm1("NXM_NX_IPV6_DST", 20), oxm("OXM_OF_IPV6_DST", 27)
    ] }
    Ipv6Label { ["ipv6_label"], 20, at(IP_MISC, 44, 20), Hex, Ipv6, Masked, ReadWrite, [
        nxm1("NXM_NX_IPV6_LABEL", 27).bits(32), oxm("OXM_OF_IPV6_FLABEL", 28).bits(32)
    ] }
    IpProto { ["nw_proto", "ip_proto"], 8, at(IP_MISC, 0, 8), Decimal, Ip, Exact, ReadOnly, [
        nxm0("NXM_OF_IP_PROTO", 6), oxm("OXM_OF_IP_PROTO", 10)
    ] }
    NwTos { ["nw_tos"], 8, at(IP_MISC, 16, 8), Decimal, Ip, Exact, ReadWrite, [
        nxm0("NXM_OF_IP_TOS", 5)
    ] }
    IpDscp { ["ip_dscp"], 6, at(IP_MISC, 18, 6), Decimal, Ip, Exact, ReadWrite, [
        oxm("OXM_OF_IP_DSCP", 8)
    ] }
    IpEcn { ["nw_ecn", "ip_ecn"], 2, at(IP_MISC, 16, 2), Decimal, Ip, Exact, ReadWrite, [
        nxm1("NXM_NX_IP_ECN", 28), oxm("OXM_OF_IP_ECN", 9)
    ] }
    NwTtl { ["nw_ttl"], 8, at(IP_MISC, 24, 8), Decimal, Ip, Exact, ReadWrite, [
        nxm1("NXM_NX_IP_TTL", 29)
    ] }
    NwFrag { ["ip_frag", "nw_frag"], 2, at(IP_MISC, 32, 2), Frag, Ip, Masked, ReadOnly, [
        nxm1("NXM_NX_IP_FRAG", 26)
    ] }
    Ipv6Exthdr { ["ipv6_exthdr"], 9, at(ARP_SHA, 0, 9), Hex, Ipv6, Masked, ReadOnly, [] }
    ArpOp { ["arp_op"], 16, at(IP_MISC, 0, 16), Decimal, Arp, Exact, ReadWrite, [
        nxm0("NXM_OF_ARP_OP", 15), oxm("OXM_OF_ARP_OP", 21)
    ] }
    ArpSpa { ["arp_spa"], 32, at(IPV4, 32, 32), Ipv4, Arp, Masked, ReadWrite, [
        nxm0("NXM_OF_ARP_SPA", 16), oxm("OXM_OF_ARP_SPA", 22)
    ] }
    ArpTpa { ["arp_tpa"], 32, at(IPV4, 0, 32), Ipv4, Arp, Masked, ReadWrite, [
        nxm0("NXM_OF_ARP_TPA", 17), oxm("OXM_OF_ARP_TPA", 23)
    ] }
    ArpSha { ["arp_sha"], 48, at(ARP_SHA, 16, 48), Ethernet, Arp, Masked, ReadWrite, [
        nxm1("NXM_NX_ARP_SHA", 17), oxm("OXM_OF_ARP_SHA", 24)
    ] }
    ArpTha { ["arp_tha"], 48, at(ARP_THA, 16, 48), Ethernet, Arp, Masked, ReadWrite, [
        nxm1("NXM_NX_ARP_THA", 18), oxm("OXM_OF_ARP_THA", 25)
    ] }
    NshFlags { ["nsh_flags"], 8, at(NSH, 56, 8), Decimal, Nsh, Masked, ReadWrite, [
        nsh("NXOXM_NSH_FLAGS", 1)
    ] }
    NshTtl { ["nsh_ttl"], 8, at(NSH, 48, 8), Decimal, Nsh, Exact, ReadWrite, [
        nsh("NXOXM_NSH_TTL", 10)
    ] }
    NshMdtype { ["nsh_mdtype"], 8, at(NSH, 40, 8), Decimal, Nsh, Exact, ReadOnly, [
        nsh("NXOXM_NSH_MDTYPE", 2)
    ] }
    NshNp { ["nsh_np"], 8, at(NSH, 32, 8), Decimal, Nsh, Exact, ReadOnly, [
        nsh("NXOXM_NSH_NP", 3)
    ] }
    NshSpi { ["nsh_spi", "nsp"], 24, at(NSH, 8, 24), Hex, Nsh, Exact, ReadWrite, [
        nsh("NXOXM_NSH_SPI", 4).bits(32)
    ] }
    NshSi { ["nsh_si", "nsi"], 8, at(NSH, 0, 8), Decimal, Nsh, Exact, ReadWrite, [
        nsh("NXOXM_NSH_SI", 5)
    ] }
    NshC1 { ["nsh_c1", "nshc1"], 32, at(NSH_CONTEXT_1, 32, 32), Hex, Nsh, Masked, ReadWrite, [
        nsh("NXOXM_NSH_C1", 6)
    ] }
    NshC2 { ["nsh_c2", "nshc2"], 32, at(NSH_CONTEXT_1, 0, 32), Hex, Nsh, Masked, ReadWrite, [
        nsh("NXOXM_NSH_C2", 7)
    ] }
    NshC3 { ["nsh_c3", "nshc3"], 32, at(NSH_CONTEXT_3, 32, 32), Hex, Nsh, Masked, ReadWrite, [
        nsh("NXOXM_NSH_C3", 8)
    ] }
    NshC4 { ["nsh_c4", "nshc4"], 32, at(NSH_CONTEXT_3, 0, 32), Hex, Nsh, Masked, ReadWrite, [
        nsh("NXOXM_NSH_C4", 9)
    ] }
    TcpSrc { ["tcp_src", "tp_src"], 16, at(TRANSPORT, 48, 16), Decimal, Tcp, Masked, ReadWrite, [
        nxm0("NXM_OF_TCP_SRC", 9), oxm("OXM_OF_TCP_SRC", 13)
    ] }
    TcpDst { ["tcp_dst", "tp_dst"], 16, at(TRANSPORT, 32, 16), Decimal, Tcp, Masked, ReadWrite, [
        nxm0("NXM_OF_TCP_DST", 10), oxm("OXM_OF_TCP_DST", 14)
    ] }
    TcpFlags { ["tcp_flags"], 12, at(TRANSPORT, 16, 12), TcpFlags, Tcp, Masked, ReadOnly, [
        nxm1("NXM_NX_TCP_FLAGS", 34).bits(16), onf("ONFOXM_ET_TCP_FLAGS", 42).bits(16),
        oxm("OXM_OF_TCP_FLAGS", 42).bits(16)
    ] }
    UdpSrc { ["udp_src"], 16, at(TRANSPORT, 48, 16), Decimal, Udp, Masked, ReadWrite, [
        nxm0("NXM_OF_UDP_SRC", 11), oxm("OXM_OF_UDP_SRC", 15)
    ] }
    UdpDst { ["udp_dst"], 16, at(TRANSPORT, 32, 16), Decimal, Udp, Masked, ReadWrite, [
        nxm0("NXM_OF_UDP_DST", 12), oxm("OXM_OF_UDP_DST", 16)
    ] }
    SctpSrc { ["sctp_src"], 16, at(TRANSPORT, 48, 16), Decimal, Sctp, Masked, ReadWrite, [
        oxm("OXM_OF_SCTP_SRC", 17)
    ] }
    SctpDst { ["sctp_dst"], 16, at(TRANSPORT, 32, 16), Decimal, Sctp, Masked, ReadWrite, [
        oxm("OXM_OF_SCTP_DST", 18)
    ] }
    IcmpType { ["icmp_type"], 8, at(TRANSPORT, 48, 8), Decimal, Icmp, Exact, ReadWrite, [
        nxm0("NXM_OF_ICMP_TYPE", 13), oxm("OXM_OF_ICMPV4_TYPE", 19)
    ] }
    IcmpCode { ["icmp_code"], 8, at(TRANSPORT, 32, 8), Decimal, Icmp, Exact, ReadWrite, [
        nxm0("NXM_OF_ICMP_CODE", 14), oxm("OXM_OF_ICMPV4_CODE", 20)
    ] }
    Icmpv6Type { ["icmpv6_type"], 8, at(TRANSPORT, 48, 8), Decimal, Icmpv6, Exact, ReadWrite, [
        nxm1("NXM_NX_ICMPV6_TYPE", 21), oxm("OXM_OF_ICMPV6_TYPE", 29)
    ] }
    Icmpv6Code { ["icmpv6_code"], 8, at(TRANSPORT, 32, 8), Decimal, Icmpv6, Exact, ReadWrite, [
        nxm1("NXM_NX_ICMPV6_CODE", 22), oxm("OXM_OF_ICMPV6_CODE", 30)
    ] }
    NdTarget { ["nd_target"], 128, at(ND_TARGET, 0, 128), Ipv6, Nd, Masked, ReadWrite, [
        nxm1("NXM_NX_ND_TARGET", 23), oxm("OXM_OF_IPV6_ND_TARGET", 31)
    ] }
    NdSll { ["nd_sll"], 48, at(ARP_SHA, 16, 48), Ethernet, NdSolicit, Masked, ReadWrite, [
        nxm1("NXM_NX_ND_SLL", 24), oxm("OXM_OF_IPV6_ND_SLL", 32)
    ] }
    NdTll { ["nd_tll"], 48, at(ARP_THA, 16, 48), Ethernet, NdAdvert, Masked, ReadWrite, [
        nxm1("NXM_NX_ND_TLL", 25), oxm("OXM_OF_IPV6_ND_TLL", 33)
    ] }
    NdReserved { ["nd_reserved"], 32, at(TRANSPORT, 0, 32), Decimal, Nd, Exact, ReadWrite, [
        ericsson("ERICOXM_OF_ICMPV6_ND_RESERVED", 1)
    ] }
    NdOptionsType { ["nd_options_type"], 8, at(TRANSPORT, 40, 8), Decimal, Nd, Exact, ReadOnly, [
        ericsson("ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE", 2)
    ] }
    ; tunnel_options {
        TunMetadata0 0, TunMetadata1 1, TunMetadata2 2, TunMetadata3 3,
        TunMetadata4 4, TunMetadata5 5, TunMetadata6 6, TunMetadata7 7,
        TunMetadata8 8, TunMetadata9 9, TunMetadata10 10, TunMetadata11 11,
        TunMetadata12 12, TunMetadata13 13, TunMetadata14 14, TunMetadata15 15,
        TunMetadata16 16, TunMetadata17 17, TunMetadata18 18, TunMetadata19 19,
        TunMetadata20 20, TunMetadata21 21, TunMetadata22 22, TunMetadata23 23,
        TunMetadata24 24, TunMetadata25 25, TunMetadata26 26, TunMetadata27 27,
        TunMetadata28 28, TunMetadata29 29, TunMetadata30 30, TunMetadata31 31,
        TunMetadata32 32, TunMetadata33 33, TunMetadata34 34, TunMetadata35 35,
        TunMetadata36 36, TunMetadata37 37, TunMetadata38 38, TunMetadata39 39,
        TunMetadata40 40, TunMetadata41 41, TunMetadata42 42, TunMetadata43 43,
        TunMetadata44 44, TunMetadata45 45, TunMetadata46 46, TunMetadata47 47,
        TunMetadata48 48, TunMetadata49 49, TunMetadata50 50, TunMetadata51 51,
        TunMetadata52 52, TunMetadata53 53, TunMetadata54 54, TunMetadata55 55,
        TunMetadata56 56, TunMetadata57 57, TunMetadata58 58, TunMetadata59 59,
        TunMetadata60 60, TunMetadata61 61, TunMetadata62 62, TunMetadata63 63,
    }
}

const _: () = {
    let mut index = 0;
    while index < FIELDS.len() {
        assert!(FIELDS[index].slot.width == FIELDS[index].width, "a slot holds the whole field");
        index += 1;
    }
};
