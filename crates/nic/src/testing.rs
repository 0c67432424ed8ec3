//! Processes single frames by the stages of a NIC, without ports and threads.

#![expect(clippy::expect_used, reason = "a panic is a finding of the fuzzer")]

use shunt_datapath::Pool;
use shunt_flow::{FlowKey, PortNo};
use shunt_pipeline::DatapathPort;

use crate::{
    chain::{NicChain, NicVerdict, NicWalk},
    packets::{parse_frame, rewrite},
    thread::REASON_UNPARSED,
};

/// The outcome of a frame that arrives on a NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NicOutcome {
    /// The NIC sends the frame.
    Sent {
        /// The number of the output port.
        port: u16,
        /// The frame that is sent.
        frame: Vec<u8>,
    },
    /// The NIC drops the frame.
    Dropped,
    /// The NIC sends the frame to the controller.
    HandedOver {
        /// The number of the ingress port.
        ingress_port: u16,
        /// The reason: 0 for a miss, 1 for an unknown header, 2 for an entry that punts.
        reason: u8,
        /// The tag with which the frame matched no entry.
        miss_tag: u16,
        /// The last stage in which an entry matched, counted from 1; 0 if none matched.
        last_stage: u8,
        /// The frame that is sent to the controller.
        frame: Vec<u8>,
    },
}

/// Returns the outcome of a frame that arrives on a port.
///
/// # Panics
///
/// Panics if the frame is larger than a buffer, or if the buffer has no room for a tag.
#[must_use]
pub fn outcome_of(chain: &NicChain, ingress_port: u16, frame: &[u8]) -> NicOutcome {
    let mut pool = Pool::new();
    let packet = pool.take(frame.len(), DatapathPort::new(ingress_port.into()));
    let mut packet = packet.expect("a frame is no larger than a buffer");
    packet.frame_mut().copy_from_slice(frame);
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo::new(ingress_port.into()));
    let handed_over = |reason, miss_tag, last_stage| NicOutcome::HandedOver {
        ingress_port,
        reason,
        miss_tag,
        last_stage,
        frame: frame.to_vec(),
    };
    let Some(layers) = parse_frame(packet.frame(), &mut key) else {
        return handed_over(REASON_UNPARSED, 0, 0);
    };
    let mut walk = NicWalk::default();
    match chain.walk(&key, &mut walk) {
        NicVerdict::Drop => NicOutcome::Dropped,
        NicVerdict::Punt { reason, miss_tag, last_stage } => {
            handed_over(reason, miss_tag, last_stage)
        }
        NicVerdict::Forward { port } => {
            let has_room = rewrite(&mut packet, &layers, &mut key, chain.writes(&walk));
            assert!(has_room, "a new buffer has room for a tag");
            NicOutcome::Sent { port, frame: packet.frame().to_vec() }
        }
    }
}
