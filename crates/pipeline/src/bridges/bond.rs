//! Bonds: ports that NORMAL, floods and mirrors use as one.
//!
//! See `bond_mode` in `ovs-vswitchd.conf.db(5)`. Each member keeps its own number, and an output to this
//! number leaves on this member. One member of a bond is active.
//!
//! * In the mode `active-backup`, NORMAL and floods send on the active member alone, and NORMAL
//!   drops the packets that arrive on another member.
//! * In the mode `balance-slb`, a hash of source address and VLAN chooses one of 256 buckets, and each
//!   bucket has a member that sends its packets ([`BondBalance`]). NORMAL drops group addresses that arrive
//!   on a member that is not active, because the network sends a copy of each to every member.
//! * In the mode `balance-tcp`, the hash covers the addresses and ports of a connection. This mode
//!   needs LACP.
//! * With LACP, the protocol decides which packets NORMAL takes ([`LacpAdmission`]). Frames of slow protocols
//!   that arrive on a member go to the LACP actor of the bond, and never to the tables.
//!
//! The caller chooses the active member and the members of buckets.

use std::sync::Arc;

use shunt_flow::PortNo;

use super::{
    output_counter::{OutputCounter, OutputHit},
    port::PortInfo,
};

/// The bond of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondMember {
    /// Name of the bond.
    pub bond: Arc<str>,
    /// True for the active member: at most one member of a bond.
    pub is_active: bool,
    /// The members that send, if the bond balances.
    ///
    /// `None` in the mode `active-backup`. All members of a bond have an equal balance.
    pub balance: Option<Arc<BondBalance>>,
    /// The packets of this member that LACP lets NORMAL take.
    pub lacp: LacpAdmission,
}

/// The packets of a member that LACP lets NORMAL take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LacpAdmission {
    /// The bond does not use LACP: the mode of the bond decides.
    #[default]
    Off,
    /// The bond works without a partner (`lacp-fallback-ab`): the mode decides.
    Fallback,
    /// The partner uses this member: `NORMAL` accepts its packets.
    All,
    /// The partner does not use this member: `NORMAL` drops its packets.
    None,
}

impl LacpAdmission {
    /// Returns whether the bond uses LACP.
    #[must_use]
    pub const fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }
}

/// The fields of a packet that choose its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BondHash {
    /// The source address and the VLAN (`balance-slb`).
    Source,
    /// The VLAN and the connection (`balance-tcp`).
    ///
    /// A connection is its IP addresses, protocol and ports.
    /// For packets other than IP, the hash covers the MAC addresses and the Ethernet type.
    Connection,
}

/// The members that send the packets of a bond that balances.
#[derive(Debug, PartialEq, Eq)]
pub struct BondBalance {
    /// The header fields that choose a bucket.
    hash: BondHash,
    /// The start value of the hash.
    basis: u32,
    /// The member of each bucket.
    members: Box<BondBuckets>,
    /// The counters of the buckets.
    counters: BondCounters,
}

/// The member that sends the packets of each bucket.
///
/// `None` if no member is enabled.
pub type BondBuckets = [Option<PortNo>; BondBalance::BUCKETS];

/// The counters of the packets that each bucket of a bond has sent.
#[derive(Clone, Debug)]
pub struct BondCounters(Arc<[Arc<OutputCounter>]>);

impl BondCounters {
    /// Creates the counters of a bond.
    #[must_use]
    pub fn new(bond: &str) -> Self {
        let counter = |bucket| Arc::new(OutputCounter::new(&format!("{bond} {bucket}")));
        Self((0..BondBalance::BUCKETS).map(counter).collect())
    }

    /// Returns the bytes that each bucket has sent.
    pub fn bytes(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|counter| counter.totals().bytes)
    }
}

impl PartialEq for BondCounters {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for BondCounters {}

impl BondBalance {
    /// Number of buckets of a bond.
    pub const BUCKETS: usize = 256;

    /// Creates the balance of a bond from the member of each bucket.
    ///
    /// Each hash begins with `basis` (`bond-hash-basis`).
    #[must_use]
    pub fn new(hash: BondHash, basis: u32, members: BondBuckets, counters: BondCounters) -> Self {
        Self { hash, basis, members: Box::new(members), counters }
    }

    /// Returns the bucket of a source address in a VLAN; 0: without a tag.
    ///
    /// The bond balances by [`BondHash::Source`].
    ///
    /// Open vSwitch 3.1 on x86-64 has the same hash, so `bond/hash` of both switches gives the
    /// same bucket: MurmurHash3 (Austin Appleby) of the address and the VLAN above it.
    #[must_use]
    pub fn bucket(mac: [u8; 6], vlan: u16, basis: u32) -> u8 {
        let key = mac.iter().fold(u64::from(vlan), |key, byte| key << 8 | u64::from(*byte));
        let [low, high] = [key & 0xffff_ffff, key >> 32];
        let mut hash = [low, high].into_iter().fold(basis, |hash, part| {
            let part = u32::try_from(part).unwrap_or_default();
            let mixed = part.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
            (hash ^ mixed).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
        });
        hash ^= 8; // Length of the key in bytes.
        hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
        (hash ^ hash >> 16).to_be_bytes()[3]
    }

    /// Returns the member that sends the packets of an address in a VLAN.
    ///
    /// The bond balances by [`BondHash::Source`].
    #[must_use]
    pub fn member(&self, mac: [u8; 6], vlan: u16) -> Option<PortNo> {
        self.sender(Self::bucket(mac, vlan, self.basis)).map(|(number, _)| number)
    }

    /// Returns the fields that choose the bucket.
    #[must_use]
    pub const fn hash(&self) -> BondHash {
        self.hash
    }

    /// Returns the number with which each hash begins.
    pub(crate) const fn basis(&self) -> u32 {
        self.basis
    }

    /// Returns the member that sends the packets of a bucket, and their counter.
    pub(crate) fn sender(&self, bucket: u8) -> Option<(PortNo, OutputHit)> {
        let bucket = usize::from(bucket);
        let counter = self.counters.0.get(bucket)?;
        Some(((*self.members.get(bucket)?)?, OutputHit(Arc::clone(counter))))
    }

    /// Returns the member of each bucket, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) const fn members(&self) -> &BondBuckets {
        &self.members
    }
}

impl PortInfo {
    /// Returns the name of the bond of the port.
    pub(crate) fn bond_name(&self) -> Option<&str> {
        self.bond.as_ref().map(|member| &*member.bond)
    }

    /// Returns whether the port is a member of a bond, but not its active member.
    pub(crate) fn is_backup(&self) -> bool {
        self.bond.as_ref().is_some_and(|member| !member.is_active)
    }

    /// Returns whether frames that the bridge has sent may come back on the port.
    ///
    /// If the bond balances without LACP, the network floods a frame of one member to the other
    /// members. An LACP partner uses the members as one link, and sends no frame back.
    pub(crate) fn receives_copies(&self) -> bool {
        self.bond
            .as_ref()
            .is_some_and(|member| member.balance.is_some() && member.lacp != LacpAdmission::All)
    }

    /// Returns whether the port is a member of a bond with LACP.
    pub(crate) fn has_lacp(&self) -> bool {
        self.bond.as_ref().is_some_and(|member| member.lacp.is_on())
    }

    /// Returns whether `other` is the same port, or a member of the same bond.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        self.number == other.number || self.bond.is_some() && self.bond_name() == other.bond_name()
    }

    /// Returns whether `name` is the name of the port or of its bond.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.bond_name() == Some(name)
    }
}
