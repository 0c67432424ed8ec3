//! What becomes of a frame, without ports and threads.

#![expect(clippy::expect_used, reason = "what fails here is a finding")]

use shunt_datapath::Pool;
use shunt_flow::{FlowKey, PortNo};
use shunt_pipeline::DatapathPort;

use crate::{
    chain::{Chain, Verdict, Walk},
    packets::{rewrite, take_apart},
    thread::REASON_UNPARSED,
};

/// Where a frame ends up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It leaves.
    Left {
        /// By this port.
        port: u16,
        /// As this frame.
        frame: Vec<u8>,
    },
    /// It goes nowhere.
    Dropped,
    /// It goes to the controller.
    HandedOver {
        /// Where it came in.
        ingress_port: u16,
        /// 0 no entry was found, 1 it cannot be taken apart, 2 an entry says so.
        reason: u8,
        /// The tag that no entry was found for.
        miss_tag: u16,
        /// The last stage that had an entry, from 1; 0: none.
        last_stage: u8,
        /// As this frame.
        frame: Vec<u8>,
    },
}

/// What becomes of a frame that came in by a port.
///
/// # Panics
///
/// When the frame is larger than a buffer, or its buffer has no room for a tag.
#[must_use]
pub fn fate(chain: &Chain, ingress_port: u16, frame: &[u8]) -> Fate {
    let mut pool = Pool::new();
    let packet = pool.take(frame.len(), DatapathPort::new(ingress_port.into()));
    let mut packet = packet.expect("a frame is no larger than a buffer");
    packet.frame_mut().copy_from_slice(frame);
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo::new(ingress_port.into()));
    let handed_over = |reason, miss_tag, last_stage| Fate::HandedOver {
        ingress_port,
        reason,
        miss_tag,
        last_stage,
        frame: frame.to_vec(),
    };
    let Some(layers) = take_apart(packet.frame(), &mut key) else {
        return handed_over(REASON_UNPARSED, 0, 0);
    };
    let mut walk = Walk::default();
    match chain.walk(&key, &mut walk) {
        Verdict::Drop => Fate::Dropped,
        Verdict::Punt { reason, miss_tag, last_stage } => handed_over(reason, miss_tag, last_stage),
        Verdict::Forward { port } => {
            let has_room = rewrite(&mut packet, &layers, &mut key, chain.writes(&walk));
            assert!(has_room, "a new buffer has room for a tag");
            Fate::Left { port, frame: packet.frame().to_vec() }
        }
    }
}
