//! The packet of a trace as a user writes it: fields, a frame in hexadecimal, or both.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo,
    extract::VlanLimit,
    field::Format,
    layout::FieldSlot,
    prerequisite,
    text::{PortNames, parse_match},
};
use shunt_pipeline::BridgeId;

use crate::trace::{error::TraceError, packet::TracedPacket};

/// A packet as a user writes it.
pub(super) struct WrittenFlow {
    /// The header fields of the packet.
    pub(super) key: FlowKey,
    /// Ingress port, if the flow names a port.
    pub(super) in_port: Option<PortNo>,
    /// The frame, if the user gave one.
    pub(super) frame: Option<Vec<u8>>,
    /// Fields with a mask, each with the bits that its mask leaves out.
    pub(super) unknown: Vec<(FieldId, u128)>,
}

impl WrittenFlow {
    /// Returns the packet at the ingress of a bridge.
    pub(super) fn packet(mut self, id: BridgeId, limit: VlanLimit) -> TracedPacket {
        self.key.set_bridge(u64::from(id.number()));
        TracedPacket::new(self.key, self.frame, limit)
    }
}

/// Parses a flow as a user writes it.
pub(super) fn read_flow(text: &str, names: &dyn PortNames) -> Result<WrittenFlow, TraceError> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    // A text of hexadecimal digits alone is never a match.
    let is_frame = |word: &&str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let frame = words.pop_if(|word| is_frame(&&**word)).map(read_frame).transpose()?;
    let matching = parse_match(&words.join(","), names)?;
    let is_named = FlowMask::from(matching.mask()).field(FieldId::InPort) != 0;
    let in_port = is_named.then(|| matching.key().in_port());
    let mut key = matching.key();
    let mut unknown = unknown_bits(&matching);
    if frame.is_some() {
        key = FlowKey::ZERO;
        key.set_in_port(matching.key().in_port());
        unknown.clear();
    }
    Ok(WrittenFlow { key, in_port, frame, unknown })
}

/// Returns the masked fields of a match,
/// each with the bits that its mask leaves out.
///
/// For flags such as `tcp_flags`, bits outside the mask count as known and not set.
fn unknown_bits(matching: &Match) -> Vec<(FieldId, u128)> {
    let (key, mask) = (matching.key(), FlowMask::from(matching.mask()));
    let named = || {
        let fields = FieldId::all().filter(|field| mask.field(*field) != 0);
        fields.filter(|field| prerequisite::is_met(*field, &key, &mask))
    };
    let is_whole = |field: FieldId| mask.field(field) == field.value_max();
    // A VLAN ID is a part of the TCI, so the TCI is not a separate unknown field.
    let has_whole_part = |field: FieldId| {
        named().any(|part| part != field && is_whole(part) && contains(field, part))
    };
    let masked = named().filter(|field| !is_whole(*field) && !is_flags(*field));
    let masked = masked.filter(|field| !has_whole_part(*field));
    masked.map(|field| (field, field.value_max() & !mask.field(field))).collect()
}

/// Returns whether the bits of a field are flags.
fn is_flags(field: FieldId) -> bool {
    match field.info().format {
        Format::Frag | Format::TcpFlags | Format::TunFlags | Format::CtState => true,
        Format::Decimal
        | Format::Hex
        | Format::Ethernet
        | Format::Ipv4
        | Format::Ipv6
        | Format::Port
        | Format::PacketType => false,
    }
}

/// Returns whether the field `part` lies within the bits of `field`.
fn contains(field: FieldId, part: FieldId) -> bool {
    let bits = |slot: FieldSlot| {
        let start = u32::from(slot.word) * u64::BITS + u32::from(slot.shift);
        (start, start + u32::from(slot.width))
    };
    let ((start, end), (part_start, part_end)) = (bits(field.slot()), bits(part.slot()));
    start <= part_start && part_end <= end
}

/// Parses a frame in hexadecimal.
fn read_frame(word: &str) -> Result<Vec<u8>, TraceError> {
    let bytes =
        (0..word.len()).step_by(2).map(|at| u8::from_str_radix(word.get(at..at + 2)?, 16).ok());
    let bytes = bytes.collect::<Option<Vec<u8>>>().filter(|bytes| bytes.len() >= FRAME_LEN_MIN);
    bytes.ok_or_else(|| TraceError::Packet(word.to_owned()))
}

/// Minimum length of a frame in bytes: an Ethernet header.
const FRAME_LEN_MIN: usize = 14;
