//! The fields that pipeline tables match and write, by name.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};
use shunt_flow::FieldId;
use shunt_flow::text::nearest_of;

use crate::UnknownName;

/// A field that tables match or write.
///
/// A field is a header field, metadata of the switch, or an effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Field(Box<str>);

impl Field {
    /// Returns the field of this name.
    ///
    /// # Errors
    ///
    /// If the name is unknown: the error has the nearest known name.
    pub fn new(name: &str) -> Result<Self, UnknownName> {
        let name =
            OTHER_NAMES.iter().find(|(other, _)| *other == name).map_or(name, |(_, name)| name);
        let register = name.strip_prefix(REGISTER).is_some_and(|role| !role.is_empty());
        if register || KNOWN.iter().any(|(known, _)| *known == name) {
            return Ok(Self(name.into()));
        }
        let names = KNOWN.iter().map(|(known, _)| *known);
        let known = "the names of OpenFlow, such as eth_dst, ip_src, tp_dst, and reg:ROLE";
        Err(UnknownName::new("field", name, nearest_of(name, names), std::iter::once(known)))
    }

    /// Returns the name of the field.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns the header field that rules match for this field, for TCP over IPv4.
    #[must_use]
    pub fn driven(&self) -> Option<FieldId> {
        KNOWN.iter().find(|(known, _)| **known == *self.0).and_then(|(_, field)| *field)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::new(&name).map_err(de::Error::custom)
    }
}

/// Prefix of the name of a register.
const REGISTER: &str = "reg:";

/// Other names of fields, which `ovs-ofctl` and others use.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("dl_src", "eth_src"),
    ("dl_dst", "eth_dst"),
    ("dl_type", "eth_type"),
    ("dl_vlan", "vlan_vid"),
    ("nw_src", "ip_src"),
    ("nw_dst", "ip_dst"),
    ("ipv4_src", "ip_src"),
    ("ipv4_dst", "ip_dst"),
    ("nw_proto", "ip_proto"),
    ("nw_ttl", "ip_ttl"),
    ("tcp_src", "tp_src"),
    ("udp_src", "tp_src"),
    ("tcp_dst", "tp_dst"),
    ("udp_dst", "tp_dst"),
];

/// Known names of fields, with the header field if workloads can vary it.
const KNOWN: &[(&str, Option<FieldId>)] = &[
    ("eth_type", Some(FieldId::EthType)),
    ("eth_src", Some(FieldId::EthSrc)),
    ("eth_dst", Some(FieldId::EthDst)),
    ("ip_proto", Some(FieldId::IpProto)),
    ("ip_src", Some(FieldId::Ipv4Src)),
    ("ip_dst", Some(FieldId::Ipv4Dst)),
    ("tp_src", Some(FieldId::TcpSrc)),
    ("tp_dst", Some(FieldId::TcpDst)),
    ("in_port", None),
    ("vlan_tci", None),
    ("vlan_vid", None),
    ("vlan_pcp", None),
    ("vlan_present", None),
    ("outer_vid", None),
    ("vrf", None),
    ("mpls_label", None),
    ("mpls_tc", None),
    ("mpls_bos", None),
    ("ip_dscp", None),
    ("ip_ecn", None),
    ("ip_ttl", None),
    ("ipv6_src", None),
    ("ipv6_dst", None),
    ("ipv6_flabel", None),
    ("icmp_type", None),
    ("icmp_code", None),
    ("nd_target", None),
    ("nd_sll", None),
    ("nd_tll", None),
    ("tcp_flags", None),
    ("arp_op", None),
    ("arp_spa", None),
    ("arp_tpa", None),
    ("arp_sha", None),
    ("arp_tha", None),
    ("ct_state", None),
    ("ct_zone", None),
    ("ct_mark", None),
    ("ct_label", None),
    ("tun_id", None),
    ("tun_src", None),
    ("tun_dst", None),
    ("metadata", None),
    ("pkt_mark", None),
    ("vlan_push", None),
    ("vlan_pop", None),
    ("mpls_push", None),
    ("mpls_pop", None),
    ("group", None),
    ("meter", None),
    ("learn", None),
    ("recirc", None),
    ("ct_commit", None),
    ("actionset:group", None),
    ("actionset:output", None),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_field_gets_a_suggestion() {
        let error = Field::new("ip_scr").unwrap_err();
        assert_eq!(error.nearest.as_deref(), Some("ip_src"));
        assert!(Field::new("reg:role").is_ok() && Field::new("reg:").is_err());
    }

    #[test]
    fn other_field_names_map_to_openflow_names() {
        for (other, name) in OTHER_NAMES {
            assert_eq!(Field::new(other).unwrap().name(), *name);
        }
    }

    #[test]
    fn eight_fields_can_be_matched() {
        assert_eq!(KNOWN.iter().filter(|(_, field)| field.is_some()).count(), 8);
    }
}
