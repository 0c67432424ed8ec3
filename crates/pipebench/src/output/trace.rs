//! A workload in memory, for benches: a replay needs no computation.
//!
//! Packets with the same flow and length share one frame, and all frames are contiguous in memory.
//! Each packet of a trace takes 24 bytes.

use std::{collections::BTreeMap, ops::Range};

use crate::{
    FrameError,
    traffic::{Flow, ScheduledPacket},
};

/// Packets in the order of their times, with their frames.
#[derive(Clone, Debug, Default)]
pub struct PacketTrace {
    /// The bytes of all frames, one after the other.
    arena: Vec<u8>,
    /// The range of each frame in `arena`.
    frames: Vec<Range<usize>>,
    packets: Vec<TracePacket>,
}

/// Time, flow and length of one packet of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePacket {
    /// Time of the packet since the start of the trace.
    pub time_ns: u64,
    /// The index of its flow.
    pub flow: u32,
    /// The index of its frame.
    frame: u32,
}

impl PacketTrace {
    /// Creates a trace from the packets of a schedule.
    ///
    /// # Errors
    ///
    /// If a flow has no frame.
    pub fn new(
        flows: &[Flow],
        packets: impl IntoIterator<Item = ScheduledPacket>,
    ) -> Result<Self, FrameError> {
        let mut trace = Self::default();
        let mut known = BTreeMap::new();
        let mut buffer = Vec::new();
        for packet in packets {
            let place = (packet.flow, packet.bytes);
            let frame = match known.get(&place) {
                Some(frame) => *frame,
                None => {
                    packet.write_frame(flows, &mut buffer)?;
                    let frame = trace.add_frame(&buffer);
                    known.insert(place, frame);
                    frame
                }
            };
            trace.packets.push(TracePacket { time_ns: packet.time_ns, flow: packet.flow, frame });
        }
        Ok(trace)
    }

    /// Adds the bytes of a frame, and returns its number.
    fn add_frame(&mut self, bytes: &[u8]) -> u32 {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        #[expect(clippy::expect_used, reason = "that many frames would fill 64 GiB")]
        let index = u32::try_from(self.frames.len()).expect("a trace has fewer than 2^32 frames");
        self.frames.push(start..self.arena.len());
        index
    }

    /// Returns the packets in the order of their times.
    #[must_use]
    pub fn packets(&self) -> &[TracePacket] {
        &self.packets
    }

    /// Returns the frame of a packet of this trace.
    #[must_use]
    pub fn frame(&self, packet: TracePacket) -> &[u8] {
        let range = usize::try_from(packet.frame).ok().and_then(|index| self.frames.get(index));
        range.and_then(|range| self.arena.get(range.clone())).unwrap_or_default()
    }

    /// Returns the number of distinct frames.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames.len()
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::{FieldId, FlowKey, PortNo, extract};

    use super::*;

    #[test]
    fn trace_holds_each_frame_once() {
        let flow = |port: u16| {
            let mut key = FlowKey::ZERO;
            for (field, value) in [(FieldId::EthType, 0x0800), (FieldId::IpProto, 17)] {
                key.set_field(field, value);
            }
            key.set_field(FieldId::UdpDst, port.into());
            Flow::new(&key, 0)
        };
        let flows = [flow(1), flow(2)];
        let packet = |time_ns, flow, bytes| ScheduledPacket { time_ns, flow, bytes };
        let packets = [packet(0, 0, 64), packet(1, 1, 64), packet(5, 0, 64), packet(9, 0, 1518)];
        let trace = PacketTrace::new(&flows, packets).unwrap();
        assert_eq!((trace.packets().len(), trace.frames()), (4, 3));
        for (packet, played) in packets.iter().zip(trace.packets()) {
            let frame = trace.frame(*played);
            let mut key = FlowKey::ZERO;
            key.set_in_port(PortNo::new(0));
            extract::extract(frame, extract::VlanLimit::One, &mut key);
            assert_eq!((played.time_ns, played.flow), (packet.time_ns, packet.flow));
            assert_eq!(frame.len(), usize::from(packet.bytes) - 4);
            assert_eq!(key.field(FieldId::UdpDst), u128::from(packet.flow) + 1);
        }
    }
}
