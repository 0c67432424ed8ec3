//! Datapath actions: the few simple steps that a packet thread executes.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo, layout::word};

use crate::{
    action::{PacketInReason, SampleAction},
    continuations::continuation::Continuation,
    id::{BridgeId, Cookie, DatapathPort, QueueId, TableId},
    meters::meter::Meter,
};

/// Index of the word with the VLAN tags.
const VLAN: usize = word::VLAN as usize;
/// Index of the word with the first two MPLS labels.
const MPLS: usize = word::MPLS as usize;
/// Index of the word with the third label.
const MPLS_THIRD: usize = word::MPLS_PBB as usize;

/// The first half of a word.
const UPPER: u64 = 0xffff_ffff_0000_0000;

/// One action of the datapath, which needs no table and no lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatapathAction {
    /// Write these bits of header fields, and update the checksums.
    SetHeader(Match),
    /// Insert a VLAN tag after the MAC addresses.
    PushVlan {
        /// Ethernet type of the tag.
        tpid: u16,
        /// Priority, present bit and VLAN id.
        tci: u16,
    },
    /// Remove the outermost VLAN tag.
    PopVlan,
    /// Send a copy of the packet, with all earlier changes.
    Output {
        /// The port on which the copy is sent.
        port: DatapathPort,
        /// The egress queue of the port.
        queue: QueueId,
        /// True if a packet that arrived on this port is not sent back on it.
        unless_ingress: bool,
        /// Length to truncate the copy to.
        max_len: Option<u32>,
    },
    /// Send a copy back on the ingress port.
    OutputIngress {
        /// The egress queue of the port.
        queue: QueueId,
        /// Length to truncate the copy to.
        max_len: Option<u32>,
    },
    /// Pass a meter: above its rate, the packet is dropped or its DSCP changes.
    Meter(Arc<Meter>),
    /// Execute these actions on a copy of the packet; at most 64 copies nest.
    Copy(Arc<[Self]>),
    /// Send a copy to the control plane: to controllers, or to a protocol.
    Punt(Arc<Punt>),
    /// Insert an MPLS label stack entry after the Ethernet type.
    PushMpls {
        /// Label, traffic class, bottom of stack, TTL.
        lse: u32,
        /// The Ethernet type of the packet after the action.
        ethertype: u16,
    },
    /// Remove the outermost MPLS label stack entry.
    PopMpls {
        /// The Ethernet type of the packet after the action.
        ethertype: u16,
    },
    /// Parse a copy of the packet again, look it up, and run this continuation.
    ///
    /// The continuation depends on headers that were not parsed before.
    Recirculate(Arc<Continuation>),
    /// Parse a copy of the packet again, and run the continuation for its length.
    CheckLength {
        /// Maximum length, in bytes, of a frame that continues with `other`.
        length: u16,
        /// The continuation after a longer frame.
        larger: Arc<Continuation>,
        /// The continuation after a frame of at most `length` bytes.
        other: Arc<Continuation>,
    },
    /// Copy the headers of a packet for collectors, for packets chosen at random.
    ///
    /// The packet is neither sent nor changed.
    Sample(Arc<SampleRequest>),
}

impl DatapathAction {
    /// Applies the action to the key of a packet, if it changes headers.
    ///
    /// After a pop, the next label has the value that the key has for it.
    pub fn change_key(&self, key: &mut FlowKey) {
        match self {
            Self::SetHeader(set) => {
                let (value, mask) = (set.key(), FlowMask::from(set.mask()));
                let words = value.words().iter().zip(mask.words());
                for (word, (value, mask)) in key.words_mut().iter_mut().zip(words) {
                    *word = *word & !mask | value;
                }
            }
            Self::PushVlan { tpid, tci } => {
                let tags = &mut key.words_mut()[VLAN];
                *tags = u64::from(*tpid) << 48 | u64::from(*tci) << 32 | *tags >> 32;
            }
            Self::PopVlan => key.words_mut()[VLAN] <<= 32,
            Self::PushMpls { lse, ethertype } => {
                let words = key.words_mut();
                words[MPLS_THIRD] = words[MPLS] << 32 | words[MPLS_THIRD] & !UPPER;
                words[MPLS] = u64::from(*lse) << 32 | words[MPLS] >> 32;
                key.set_field(FieldId::EthType, u128::from(*ethertype));
            }
            Self::PopMpls { ethertype } => {
                let words = key.words_mut();
                words[MPLS] = words[MPLS] << 32 | words[MPLS_THIRD] >> 32;
                words[MPLS_THIRD] &= !UPPER;
                key.set_field(FieldId::EthType, u128::from(*ethertype));
            }
            _ => {}
        }
    }

    /// Returns whether the action recirculates the packet, also inside of a copy.
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

/// The request of a rule to sample packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleRequest {
    /// The bridge of the rule, which has the set of collectors.
    pub bridge: BridgeId,
    /// The action of the rule.
    pub action: SampleAction,
}

/// The receiver of a packet that leaves for the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PuntReceiver {
    /// The controllers of the bridge.
    #[default]
    Controllers,
    /// The LACP actor of the bond of this port.
    Lacp(PortNo),
    /// The BFD session of this port.
    Bfd(PortNo),
    /// Multicast snooping, for a message of IGMP or MLD.
    Multicast {
        /// The port on which the message arrived.
        port: PortNo,
        /// The VLAN of the message; 0: without a tag.
        vlan: u16,
    },
}

/// A packet without another matching rule than the table-miss rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableMiss {
    /// No rule matches; only OpenFlow 1.0 sends such packets to controllers.
    NoRule,
    /// The table-miss rule matches, and sends the packet (OpenFlow 1.3.5, 5.4).
    Rule,
}

/// The metadata of a packet-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Punt {
    /// The receiver; fields after `bridge` are for controllers alone.
    pub receiver: PuntReceiver,
    /// The bridge; its controllers receive the packet-in.
    pub bridge: BridgeId,
    /// The reason of the packet-in.
    pub reason: PacketInReason,
    /// The kind of table miss that caused the packet-in.
    /// `None` if an action of another rule or of a packet-out did.
    pub miss: Option<TableMiss>,
    /// The table of the rule that sends the packet-in.
    pub table: TableId,
    /// The cookie of the rule that sends the packet-in; all ones without a rule.
    pub cookie: Cookie,
    /// Only controllers with this id receive the packet-in.
    pub controller_id: u16,
    /// Number of bytes of the packet that were requested.
    pub max_len: u16,
    /// User data of the rule.
    pub userdata: Box<[u8]>,
    /// Pipeline fields of the packet (in_port, metadata, registers, tunnel).
    pub metadata: Match,
    /// The continuation with which a controller resumes the packet.
    /// `None` if the packet does not pause.
    pub continuation: Option<Arc<Continuation>>,
}

/// A packet on its way to the control plane.
#[derive(Clone, Debug)]
pub struct PuntedPacket {
    /// The metadata of the packet-in.
    pub punt: Arc<Punt>,
    /// The frame, with the changes of actions before the packet-in.
    pub frame: Vec<u8>,
}
