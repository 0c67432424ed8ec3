//! The packet of a trace, and the changes that actions make to it.
//!
//! If the trace has a frame, actions change the frame, which is then parsed again. If it has only
//! fields, actions change the flow key. A header behind a popped label then keeps the fields that
//! the user gave.

use shunt_flow::{
    FlowKey,
    extract::{VlanLimit, extract},
    layout::word,
    rewrite::{self, ChecksumState, MplsHeader},
};
use shunt_pipeline::{Continuation, DatapathAction};

/// The packet of a trace: its key, and its frame if the request has one.
#[derive(Clone)]
pub(crate) struct TracedPacket {
    /// The header fields of the packet.
    pub(crate) key: FlowKey,
    /// The frame, if the request has one.
    frame: Option<Vec<u8>>,
    /// Maximum number of VLAN tags that are parsed.
    limit: VlanLimit,
}

/// Length in bytes of a VLAN tag, and of an MPLS label.
const SHIM: usize = 4;
/// Length in bytes of an Ethernet header with one VLAN tag.
const TAGGED_HEADER: usize = 18;
/// Index of the word with the VLAN tags.
const VLAN: usize = word::VLAN as usize;

impl TracedPacket {
    /// Returns a packet with the fields of `key`;
    /// the headers of a frame take precedence.
    pub(crate) fn new(key: FlowKey, frame: Option<Vec<u8>>, limit: VlanLimit) -> Self {
        let mut packet = Self { key, frame, limit };
        packet.parse();
        packet
    }

    /// Returns the length of the frame, if the packet has one.
    pub(crate) fn length(&self) -> Option<usize> {
        self.frame.as_ref().map(Vec::len)
    }

    /// Returns whether the outermost VLAN tag is an 802.1Q tag.
    pub(crate) const fn has_customer_tag(&self) -> bool {
        self.key.words()[VLAN] >> 48 == 0x8100
    }

    /// Applies an action; returns `false` if the headers do not allow it.
    pub(crate) fn change(&mut self, action: &DatapathAction) -> bool {
        let is_done = match &mut self.frame {
            Some(frame) => change_frame(frame, &mut self.key, self.limit, action),
            None => {
                action.change_key(&mut self.key);
                true
            }
        };
        self.parse();
        is_done
    }

    /// Returns the packet as it continues after a recirculation.
    pub(crate) fn entering(&self, continuation: &Continuation) -> Self {
        let mut packet = self.clone();
        if let (Some(frame), Some(copy)) = (&mut packet.frame, continuation.ttl_copy()) {
            let layers = extract(frame, self.limit, &mut packet.key);
            if let Some(payload) = layers.payload() {
                rewrite::copy_ttl(frame, payload, copy);
            }
        }
        packet.parse();
        continuation.enter(&mut packet.key);
        packet
    }

    /// Extracts the flow key of the frame again.
    fn parse(&mut self) {
        if let Some(frame) = &self.frame {
            extract(frame, self.limit, &mut self.key);
        }
    }
}

/// Applies an action that changes the frame; returns whether it does.
fn change_frame(
    frame: &mut Vec<u8>,
    key: &mut FlowKey,
    limit: VlanLimit,
    action: &DatapathAction,
) -> bool {
    let layers = extract(frame, limit, key);
    match action {
        DatapathAction::SetHeader(set) => {
            rewrite::set_header(frame, &layers, key, set, ChecksumState::Complete);
        }
        DatapathAction::PushVlan { tpid, tci } => {
            frame.splice(..0, [0; SHIM]);
            rewrite::push_vlan(frame, *tpid, *tci);
        }
        DatapathAction::PopVlan => {
            if frame.len() < TAGGED_HEADER {
                return false;
            }
            rewrite::pop_vlan(frame);
            frame.drain(..SHIM);
        }
        DatapathAction::PushMpls { lse, ethertype } => {
            let Some(payload) = layers.payload() else { return false };
            frame.splice(..0, [0; SHIM]);
            rewrite::push_mpls(frame, payload, MplsHeader { ether_type: *ethertype, entry: *lse });
        }
        DatapathAction::PopMpls { ethertype } => {
            let payload = layers.payload().filter(|payload| payload + SHIM <= frame.len());
            let Some(payload) = payload else { return false };
            rewrite::pop_mpls(frame, payload, *ethertype);
            frame.drain(..SHIM);
        }
        _ => {}
    }
    true
}
