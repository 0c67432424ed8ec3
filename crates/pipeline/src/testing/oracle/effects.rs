//! The observable results of a packet.

use shunt_flow::{
    FieldId, FlowKey, PortNo,
    layout::{FLOW_WORDS, word},
};

use super::{LearnEffect, Refreshed};
use crate::{
    action::PacketInReason,
    id::{BridgeId, Cookie, DatapathPort, GroupId, QueueId, TableId},
    testing::frame::Frame,
    traversals::{
        datapath_action::{Punt, PuntReceiver},
        traversal::TraversalError,
    },
};

/// The observable results of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketEffects {
    /// Packets that leave, in order; empty after an error.
    pub outcomes: Vec<Outcome>,
    /// The reason why the switch itself dropped the packet.
    pub error: Option<TraversalError>,
    /// The drop reasons of copies of the packet that had been parsed again.
    pub later_errors: Vec<TraversalError>,
    /// The lookups, in order for each parse of the packet.
    pub visited: Vec<Visited>,
    /// The groups that chose buckets, with the bucket; `None`: all.
    pub groups: Vec<(BridgeId, GroupId, Option<usize>)>,
    /// The mirrors that copied the packet, in order.
    pub mirrored: Vec<String>,
    /// True if a meter dropped the packet, or a copy of the packet.
    pub was_metered: bool,
    /// Rules that the packet's learn actions make.
    pub learned: Vec<LearnEffect>,
    /// The rules that the packet refreshes.
    pub refreshed: Vec<Refreshed>,
    /// Number of copies without an output, including the packet itself.
    ///
    /// Copies that meters drop are not counted.
    pub dropped: usize,
}

/// One lookup of a packet in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visited {
    /// The bridge and the table.
    pub place: (BridgeId, TableId),
    /// The rule that matched, if any.
    pub rule: Option<crate::RuleId>,
    /// Length of the frame at the last parse before the lookup.
    pub length: usize,
}

/// A copy of the packet that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A frame to a port.
    ///
    /// The fields are the port, its egress queue, the length to truncate to, the header words, and
    /// the length of the frame before truncation.
    Sent(DatapathPort, QueueId, Option<u32>, Vec<u64>, usize),
    /// A packet-in to controllers, with these header words.
    Punted(Punted, Vec<u64>),
    /// A frame to the LACP actor of a port, with these header words.
    ToLacp(BridgeId, PortNo, Vec<u64>),
    /// A message of IGMP or MLD, with these header words.
    ///
    /// The message arrived on this port in this VLAN.
    ToSnooping(BridgeId, PortNo, u16, Vec<u64>),
    /// A packet to the BFD session of a port, with these header words.
    ToBfd(BridgeId, PortNo, Vec<u64>),
}

/// The content of a packet-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Punted {
    /// The bridge and the table that sent the packet-in.
    pub(super) place: (BridgeId, TableId),
    pub(super) reason: PacketInReason,
    pub(super) cookie: Cookie,
    pub(super) controller_id: u16,
    /// Maximum number of bytes of the frame that the controller gets.
    pub(super) max_len: u16,
    pub(super) userdata: Vec<u8>,
    /// The values of the pipeline fields that the packet-in reports.
    pub(super) state: Vec<u128>,
}

impl Outcome {
    /// Returns the outcome of a sent packet.
    pub(in crate::testing) fn sent(
        port: DatapathPort,
        queue: QueueId,
        max_len: Option<u32>,
        frame: &Frame,
    ) -> Self {
        Self::Sent(port, queue, max_len, Self::headers(&frame.view()), frame.len())
    }

    /// Returns the outcome of a packet-in.
    pub(in crate::testing) fn punted(punt: &Punt, frame: &Frame) -> Self {
        let headers = Self::headers(&frame.view());
        match punt.receiver {
            PuntReceiver::Controllers => Self::Punted(Punted::of(punt), headers),
            PuntReceiver::Lacp(port) => Self::ToLacp(punt.bridge, port, headers),
            PuntReceiver::Multicast { port, vlan } => {
                Self::ToSnooping(punt.bridge, port, vlan, headers)
            }
            PuntReceiver::Bfd(port) => Self::ToBfd(punt.bridge, port, headers),
        }
    }

    /// Returns the words of a key with the headers of a frame.
    pub(in crate::testing) fn headers(key: &FlowKey) -> Vec<u64> {
        key.words()[usize::from(word::ETH_DST)..FLOW_WORDS].to_vec()
    }
}

impl Punted {
    /// Returns the content of a packet-in.
    pub(in crate::testing) fn of(punt: &Punt) -> Self {
        Self {
            place: (punt.bridge, punt.table),
            reason: punt.reason,
            cookie: punt.cookie,
            controller_id: punt.controller_id,
            max_len: punt.max_len,
            userdata: punt.userdata.to_vec(),
            state: state(&punt.metadata.key()),
        }
    }
}

/// Returns the pipeline fields that a packet-in reports.
pub(super) fn state(key: &FlowKey) -> Vec<u128> {
    let fields = [
        FieldId::InPort,
        FieldId::Metadata,
        FieldId::TunId,
        FieldId::Xxreg0,
        FieldId::Xxreg1,
        FieldId::Xxreg2,
        FieldId::Xxreg3,
        FieldId::PktMark,
    ];
    fields.iter().map(|field| key.field(*field)).collect()
}
