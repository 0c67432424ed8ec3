//! Actions that choose by a hash of the packet.

use shunt_flow::PortNo;

use super::Subfield;

/// The fields that a hash is made of (`nx_hash_fields`).
///
/// Symmetric hashes are the same for both directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashFields {
    /// `eth_src`: the source MAC address.
    EthSrc,
    /// `symmetric_l4`: MAC addresses, type, VLAN, addresses, and ports of TCP and SCTP.
    SymmetricL4,
    /// `symmetric_l3l4`: addresses, and ports of TCP and SCTP.
    SymmetricL3L4,
    /// `symmetric_l3l4+udp`: addresses, and ports of TCP, SCTP and UDP.
    SymmetricL3L4Udp,
    /// The hash of `nw_src`, the source address.
    NwSrc,
    /// The hash of `nw_dst`, the destination address.
    NwDst,
    /// The hash `symmetric_l3` of the addresses.
    SymmetricL3,
}

/// The arguments of a `multipath` action (`nx_action_multipath`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MultipathAction {
    /// The header fields that the hash covers.
    pub fields: HashFields,
    /// Initial value of the hash.
    pub basis: u16,
    /// The algorithm that chooses a link by the hash.
    pub algorithm: MultipathAlgorithm,
    /// The highest number of a link.
    pub link_max: u16,
    /// The argument of `iter_hash`.
    pub argument: u32,
    /// The bits to which the number of the link is written.
    pub target: Subfield,
}

/// The algorithm of `multipath` (`nx_mp_algorithm`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MultipathAlgorithm {
    /// The algorithm `modulo_n`.
    ModuloN,
    /// The algorithm `hash_threshold` (RFC 2992).
    HashThreshold,
    /// `hrw`: highest random weight (RFC 2991).
    HighestRandomWeight,
    /// The algorithm `iter_hash`.
    IterativeHash,
}

/// The arguments of a `bundle` or `bundle_load` action (`nx_action_bundle`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BundleAction {
    /// The header fields that the hash covers.
    pub fields: HashFields,
    /// Initial value of the hash.
    pub basis: u16,
    /// The algorithm that chooses a port.
    pub algorithm: BundleAlgorithm,
    /// The ports to choose from.
    pub members: Box<[PortNo]>,
    /// The bits to which the port number is written.
    /// `None`: the action sends the packet to the chosen port.
    pub target: Option<Subfield>,
}

/// The algorithm of `bundle` (`nx_bd_algorithm`).
/// The two algorithms of `bundle` choose among the ports with their link up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BundleAlgorithm {
    /// The algorithm `active_backup`: the first live port.
    ActiveBackup,
    /// The algorithm `hrw`: the highest random weight.
    HighestRandomWeight,
}
