//! Mirrors: copies of the packets of a bridge for analysis (`Mirror` in `ovs-vswitchd.conf.db(5)`).
//!
//! A mirror selects packets by the port on which they arrive or leave, and by their VLAN. The
//! mirror sends a copy of each selected packet to one port (SPAN), or floods the copy in one VLAN
//! (RSPAN). Ports and bonds are named, so a mirror also uses a port that is added later.

use std::collections::BTreeSet;

/// A mirror of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The name: unique in its bridge.
    pub name: String,
    /// The ports of the packets that are copied.
    pub ports: MirroredPorts,
    /// The VLANs of the packets to copy, 0 for packets without a tag; empty: all.
    pub vlans: BTreeSet<u16>,
    /// The destination of the copies.
    pub output: MirrorOutput,
    /// The most bytes of a copy; longer copies are truncated. `None`: all bytes.
    pub snaplen: Option<u32>,
}

/// The ports of the packets that a mirror copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirroredPorts {
    /// All received and sent packets of every port (`select_all`).
    All,
    /// Packets of the named ports.
    Named {
        /// Packets that arrive on these ports (`select_src_port`).
        received: BTreeSet<String>,
        /// Packets that leave on these ports (`select_dst_port`).
        sent: BTreeSet<String>,
    },
}

/// The destination of the copies of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorOutput {
    /// To a port, which is then reserved for copies (`output_port`).
    Port(String),
    /// To every port of a VLAN, with the tag of this VLAN (`output_vlan`).
    Vlan(u16),
}

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
