//! Shorthands for Ethernet types and IP protocols, and the choice of one to print.

use crate::{FieldId, FlowKey, FlowMask};

/// A name for an Ethernet type, with or without an IP protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shorthand {
    /// The name of the protocol, such as `tcp`.
    pub(super) name: &'static str,
    /// The Ethernet type that the name means.
    pub(super) eth_type: u128,
    /// The IP protocol, if the name has one.
    pub(super) ip_proto: Option<u128>,
}

impl Shorthand {
    /// Returns the shorthand with the given name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        SHORTHANDS.iter().find(|shorthand| shorthand.name == name)
    }

    /// Returns the names of all protocols with a shorthand, such as `tcp`.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        SHORTHANDS.iter().map(|shorthand| shorthand.name)
    }

    /// Returns the shorthand that covers most of the type and protocol of a match.
    pub(super) fn of(key: &FlowKey, mask: &FlowMask) -> Option<&'static Self> {
        let is_exact = |field: FieldId| mask.field(field) == field.value_max();
        let covers = |shorthand: &&Self| {
            key.field(FieldId::EthType) == shorthand.eth_type
                && shorthand.ip_proto.is_none_or(|protocol| {
                    is_exact(FieldId::IpProto) && key.field(FieldId::IpProto) == protocol
                })
        };
        is_exact(FieldId::EthType).then(|| SHORTHANDS.iter().find(covers)).flatten()
    }
}

/// Returns the row of a shorthand such as `tcp`.
const fn shorthand(name: &'static str, eth_type: u128, ip_proto: Option<u128>) -> Shorthand {
    Shorthand { name, eth_type, ip_proto }
}

/// More specific shorthands are first; of synonyms, the printed one is first.
const SHORTHANDS: &[Shorthand] = &[
    shorthand("icmp", IPV4, Some(1)),
    shorthand("tcp", IPV4, Some(6)),
    shorthand("udp", IPV4, Some(17)),
    shorthand("sctp", IPV4, Some(132)),
    shorthand("icmp6", IPV6, Some(58)),
    shorthand("tcp6", IPV6, Some(6)),
    shorthand("udp6", IPV6, Some(17)),
    shorthand("sctp6", IPV6, Some(132)),
    shorthand("ip", IPV4, None),
    shorthand("ipv4", IPV4, None),
    shorthand("ip4", IPV4, None),
    shorthand("ipv6", IPV6, None),
    shorthand("ip6", IPV6, None),
    shorthand("arp", 0x0806, None),
    shorthand("rarp", 0x8035, None),
    shorthand("mpls", 0x8847, None),
    shorthand("mplsm", 0x8848, None),
];

const IPV4: u128 = 0x0800;
const IPV6: u128 = 0x86dd;
