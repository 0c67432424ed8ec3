//! The packet of a trace as a user writes it: fields, a frame in hexadecimal, or both.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, PortNo,
    extract::VlanLimit,
    text::{PortNames, parse_match},
};
use shunt_pipeline::BridgeId;

use crate::trace::{error::TraceError, packet::TracedPacket};

/// A packet in the words of a user.
pub(super) struct WrittenFlow {
    pub(super) key: FlowKey,
    /// Ingress port, if one is given.
    pub(super) in_port: Option<PortNo>,
    pub(super) frame: Option<Vec<u8>>,
}

impl WrittenFlow {
    /// Returns the packet at the ingress of a bridge.
    pub(super) fn packet(mut self, id: BridgeId, limit: VlanLimit) -> TracedPacket {
        self.key.set_bridge(u64::from(id.number()));
        TracedPacket::new(self.key, self.frame, limit)
    }
}

pub(super) fn read_flow(text: &str, names: &dyn PortNames) -> Result<WrittenFlow, TraceError> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    // No match consists of hexadecimal digits alone.
    let is_frame = |word: &&str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let frame = words.pop_if(|word| is_frame(&&**word)).map(read_frame).transpose()?;
    let matching = parse_match(&words.join(","), names)?;
    let is_named = FlowMask::from(matching.mask()).field(FieldId::InPort) != 0;
    let in_port = is_named.then(|| matching.key().in_port());
    let mut key = matching.key();
    if frame.is_some() {
        key = FlowKey::ZERO;
        key.set_in_port(matching.key().in_port());
    }
    Ok(WrittenFlow { key, in_port, frame })
}

/// Parses a frame in hexadecimal.
fn read_frame(word: &str) -> Result<Vec<u8>, TraceError> {
    let bytes =
        (0..word.len()).step_by(2).map(|at| u8::from_str_radix(word.get(at..at + 2)?, 16).ok());
    let bytes = bytes.collect::<Option<Vec<u8>>>().filter(|bytes| bytes.len() >= FRAME_LEN_MIN);
    bytes.ok_or_else(|| TraceError::Packet(word.to_owned()))
}

/// Minimum length of a frame: an Ethernet header.
const FRAME_LEN_MIN: usize = 14;
