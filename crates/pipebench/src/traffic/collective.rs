//! Collective operations: hosts that exchange data in rounds, as in the training of neural networks.
//!
//! In an *all-to-all* exchange, each host sends to all other hosts. In a *ring*, each host sends to
//! the next host. A flow keeps its addresses and ports in all rounds, because hosts keep their
//! queue pairs. Each flow has one packet in each round.

use shunt_flow::{FieldId, FlowKey, PortNo};

use super::flow::Flow;

/// The pattern that determines to which hosts a host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectivePattern {
    /// Each host sends to all other hosts.
    AllToAll,
    /// Each host sends to the next host.
    Ring,
}

/// Number of racks; each rack has an ingress port.
const RACKS: u32 = 8;
/// The address 10.0.0.0, from which on racks have prefixes.
/// Each prefix has [`RACK_BITS`] host bits.
const HOSTS_FROM: u32 = 0x0a00_0000;
/// Number of host bits of the prefix of a rack.
const RACK_BITS: u32 = 21;
/// The UDP port of RDMA over Converged Ethernet (RoCEv2).
const RDMA_PORT: u32 = 4791;
/// The first of the source ports, which differ between the flows of a host.
const SOURCE_PORTS_FROM: u32 = 49_152;
/// Number of source ports.
const SOURCE_PORTS_COUNT: u32 = 16_384;

impl CollectivePattern {
    /// All words of [`Self::find`].
    pub const WORDS: &[&str] = &["all-to-all", "ring"];

    /// Returns the pattern that a word names; `None` for another word.
    #[must_use]
    pub fn find(word: &str) -> Option<Self> {
        match word {
            "all-to-all" => Some(Self::AllToAll),
            "ring" => Some(Self::Ring),
            _ => None,
        }
    }

    /// Returns the word of the pattern.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::AllToAll => "all-to-all",
            Self::Ring => "ring",
        }
    }

    /// Returns the smallest number of hosts with at least `flows` flows.
    #[must_use]
    pub fn hosts(self, flows: u32) -> u32 {
        match self {
            Self::Ring => flows.max(2),
            Self::AllToAll => {
                let root = flows.isqrt();
                (root.max(2)..).find(|hosts| hosts.saturating_mul(hosts - 1) >= flows).unwrap_or(2)
            }
        }
    }
}

/// Returns the rules of racks with two uplinks each.
///
/// A hash of the headers selects the uplink, so each flow needs its own cache entry.
#[must_use]
pub fn collective_rules() -> Vec<String> {
    let rule = |rack: u32| {
        let prefix = std::net::Ipv4Addr::from(HOSTS_FROM | (rack << RACK_BITS));
        let (first, second) = (rack + 1, RACKS + rack + 1);
        format!(
            "table=0,priority=100,udp,nw_dst={prefix}/{},\
             actions=bundle(symmetric_l3l4+udp,0,hrw,ofport,members:{first},{second})",
            32 - RACK_BITS
        )
    };
    (0..RACKS).map(rule).collect()
}

/// Generates the flows of a pattern, first those to the next hosts.
#[must_use]
pub fn collective_flows(flows: u32, pattern: CollectivePattern) -> Vec<Flow> {
    let hosts = pattern.hosts(flows);
    let flow = |number: u32| {
        let (step, host) = (1 + number / hosts, number % hosts);
        Flow::new(&key(host, (host + step) % hosts, step), 0)
    };
    (0..flows).map(flow).collect()
}

/// Returns the key of a flow in one step of the collective operation.
fn key(source: u32, destination: u32, step: u32) -> FlowKey {
    let address = |host: u32| HOSTS_FROM | ((host % RACKS) << RACK_BITS) | (1 + host / RACKS);
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo::new(1 + source % RACKS));
    for (field, value) in [
        (FieldId::EthSrc, 0x0200_0000_0001),
        (FieldId::EthDst, 0x0200_0000_0002),
        (FieldId::EthType, 0x0800),
        (FieldId::NwTtl, 64),
        (FieldId::IpProto, 17),
        (FieldId::Ipv4Src, address(source).into()),
        (FieldId::Ipv4Dst, address(destination).into()),
        (FieldId::UdpSrc, (SOURCE_PORTS_FROM + step % SOURCE_PORTS_COUNT).into()),
        (FieldId::UdpDst, RDMA_PORT.into()),
    ] {
        key.set_field(field, value);
    }
    key
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Returns the number of flows of each source, and of each destination.
    fn degrees(flows: &[Flow]) -> [BTreeMap<u128, u32>; 2] {
        [FieldId::Ipv4Src, FieldId::Ipv4Dst].map(|field| {
            let mut degrees = BTreeMap::new();
            for flow in flows {
                *degrees.entry(flow.key().field(field)).or_insert(0) += 1;
            }
            degrees
        })
    }

    #[test]
    fn a_ring_has_one_flow_for_each_host() {
        let flows = collective_flows(1000, CollectivePattern::Ring);
        for degrees in degrees(&flows) {
            assert!(degrees.len() == 1000 && degrees.values().all(|degree| *degree == 1));
        }
        // The flows of all hosts form one cycle.
        let next = |flow: &Flow| {
            let key = flow.key();
            (key.field(FieldId::Ipv4Src), key.field(FieldId::Ipv4Dst))
        };
        let next: BTreeMap<u128, u128> = flows.iter().map(next).collect();
        let (start, second) = next.iter().next().map(|(from, to)| (*from, *to)).unwrap();
        let (mut at, mut length) = (second, 1);
        while at != start {
            (at, length) = (next[&at], length + 1);
        }
        assert_eq!(length, 1000);
    }

    #[test]
    fn all_hosts_send_to_all_others() {
        let flows = collective_flows(10 * 9, CollectivePattern::AllToAll);
        for degrees in degrees(&flows) {
            assert!(degrees.len() == 10 && degrees.values().all(|degree| *degree == 9));
        }
        for flows in [1, 2, 89, 91, 10_000_000] {
            let hosts = CollectivePattern::AllToAll.hosts(flows);
            assert!(hosts * (hosts - 1) >= flows && (hosts - 1) * (hosts - 2) < flows.max(2));
        }
    }

    #[test]
    fn flows_have_own_headers_and_rule() {
        for pattern in [CollectivePattern::Ring, CollectivePattern::AllToAll] {
            let flows = collective_flows(5000, pattern);
            let differ: std::collections::HashSet<_> =
                flows.iter().map(|flow| *flow.headers()).collect();
            assert_eq!((flows.len(), differ.len()), (5000, 5000));
        }
        assert_eq!(collective_rules().len(), 8);
        assert!(collective_rules()[7].contains("nw_dst=10.224.0.0/11"));
    }
}
