//! What a translation decided: the few simple actions that a packet thread executes.

use std::sync::Arc;

use shunt_flow::Match;

use crate::{
    action::PacketInReason,
    continuations::continuation::Continuation,
    id::{BridgeId, Cookie, DatapathPort, TableId},
    meters::meter::Meter,
};

/// One step of what happens to a packet, free of tables and of everything that must be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatapathAction {
    /// Write these bits of these header fields; checksums follow.
    SetHeader(Match),
    /// Insert a VLAN tag behind the MAC addresses.
    PushVlan {
        /// Its Ethernet type.
        tpid: u16,
        /// Priority, present bit and VLAN id.
        tci: u16,
    },
    /// Remove the outermost VLAN tag.
    PopVlan,
    /// Send a copy of the packet as it is now.
    Output {
        /// Where to.
        port: DatapathPort,
        /// Not if the packet came in by this very port.
        unless_ingress: bool,
        /// Length to cut the copy to.
        max_len: Option<u32>,
    },
    /// Send a copy back out of the port that it came in by.
    OutputIngress {
        /// Length to cut the copy to.
        max_len: Option<u32>,
    },
    /// Pass a meter: the packet ends here if it comes too fast, or its DSCP changes.
    Meter(Arc<Meter>),
    /// Do this to a copy of the packet; at most 64 deep.
    Copy(Arc<[Self]>),
    /// Send a copy to the controllers of a bridge.
    Punt(Arc<Punt>),
    /// Insert an MPLS label stack entry behind the Ethernet type.
    PushMpls {
        /// Label, traffic class, bottom of stack, TTL.
        lse: u32,
        /// The Ethernet type from then on.
        ethertype: u16,
    },
    /// Remove the outermost MPLS label stack entry.
    PopMpls {
        /// The Ethernet type from then on.
        ethertype: u16,
    },
    /// Parse a copy of the packet as it is now and look it up again, to go on as this says: the
    /// headers that decide how were not parsed so far.
    Recirculate(Arc<Continuation>),
    /// As [`Self::Recirculate`], in one of two ways, by the length of the frame.
    CheckLength {
        /// The most bytes of a frame that is not larger.
        length: u16,
        /// How a frame goes on that is larger.
        larger: Arc<Continuation>,
        /// How any other does.
        other: Arc<Continuation>,
    },
}

impl DatapathAction {
    /// Whether it, or what it does to a copy, has the packet parsed again.
    #[must_use]
    pub fn recirculates(&self) -> bool {
        let mut ahead = Vec::new();
        let mut next = Some(self);
        while let Some(action) = next {
            match action {
                Self::Recirculate(_) | Self::CheckLength { .. } => return true,
                Self::Copy(actions) => ahead.extend(actions.iter()),
                _ => {}
            }
            next = ahead.pop();
        }
        false
    }
}

/// What a packet-in says besides the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Punt {
    /// Whose controllers hear of it.
    pub bridge: BridgeId,
    /// Why.
    pub reason: PacketInReason,
    /// The table of the rule that sent it.
    pub table: TableId,
    /// The cookie of that rule; all ones for none.
    pub cookie: Cookie,
    /// Only controllers with this id.
    pub controller_id: u16,
    /// Bytes of the packet that were asked for.
    pub max_len: u16,
    /// Bytes from the rule.
    pub userdata: Box<[u8]>,
    /// Pipeline fields of the packet at this point (in_port, metadata, registers, tunnel).
    pub metadata: Match,
    /// How the packet goes on when a controller sends it back; `None`: it does not wait for that.
    pub continuation: Option<Arc<Continuation>>,
}

/// A packet on its way to the controllers.
#[derive(Clone, Debug)]
pub struct PacketIn {
    /// What was said of it.
    pub punt: Arc<Punt>,
    /// The frame, as it was at that point.
    pub frame: Vec<u8>,
}
