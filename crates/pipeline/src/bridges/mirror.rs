//! Mirrors: copies of the packets of a bridge for analysis (`Mirror` in `ovs-vswitchd.conf.db(5)`).
//!
//! A mirror selects packets by the port on which they arrive or leave, and by their VLAN. It sends a
//! copy of each to one port (SPAN), or floods it in one VLAN (RSPAN). Ports and bonds are named, so a
//! port that is added later is used from then on.

use std::{
    collections::BTreeSet,
    hash::{Hash, Hasher},
    sync::Arc,
};

use crate::packet_count::{PacketCount, PacketTotals};

/// A mirror of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The name: unique in its bridge.
    pub name: String,
    /// The ports of the packets that are copied.
    pub ports: MirroredPorts,
    /// The VLANs of the packets that are copied, 0 for packets without one; empty: all.
    pub vlans: BTreeSet<u16>,
    /// Where the copies go.
    pub output: MirrorOutput,
    /// The most bytes of a copy; longer copies are truncated. `None`: all bytes.
    pub snaplen: Option<u32>,
}

/// The ports of the packets that a mirror copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirroredPorts {
    /// Every port, received and sent packets (`select_all`).
    All,
    /// Ports by their names.
    Named {
        /// Packets that arrive on these ports (`select_src_port`).
        received: BTreeSet<String>,
        /// Packets that leave on these ports (`select_dst_port`).
        sent: BTreeSet<String>,
    },
}

/// Where the copies of a mirror go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorOutput {
    /// To a port, which is then reserved for copies (`output_port`).
    Port(String),
    /// To every port of a VLAN, with the tag of this VLAN (`output_vlan`).
    Vlan(u16),
}

/// The counter of the packets that a mirror has copied.
///
/// It lasts while the bridge has a mirror with this name.
#[derive(Debug)]
pub struct MirrorCounter {
    name: String,
    count: PacketCount,
}

/// A mirror that copied a packet; equal to another hit of the same mirror.
#[derive(Clone, Debug)]
pub struct MirrorHit(pub(crate) Arc<MirrorCounter>);

impl Mirror {
    /// The most mirrors of a bridge.
    pub const COUNT_MAX: usize = 32;

    /// Returns the names of the ports that the mirror uses, each once.
    #[must_use]
    pub fn port_names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        if let MirroredPorts::Named { received, sent } = &self.ports {
            names.extend(received.iter().chain(sent).map(String::as_str));
        }
        if let MirrorOutput::Port(name) = &self.output {
            names.insert(name);
        }
        names
    }
}

impl MirrorCounter {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), count: PacketCount::default() }
    }

    /// Returns the name of the mirror.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the numbers of copied packets and of their bytes.
    ///
    /// The bytes are those of the packets before they were truncated.
    #[must_use]
    pub fn totals(&self) -> PacketTotals {
        self.count.totals()
    }
}

impl MirrorHit {
    /// Returns the name of the mirror.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Counts copies.
    pub(crate) fn credit(&self, packets: u64, bytes: u64) {
        self.0.count.credit(packets, bytes);
    }
}

impl PartialEq for MirrorHit {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for MirrorHit {}

impl Hash for MirrorHit {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}
