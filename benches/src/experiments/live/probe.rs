//! A packet that contains its sending time, and the number of the rule that forwarded it.

use std::time::Duration;

use super::super::tables::SOURCE;
use crate::{capture, wire::Frame};

/// UDP port of numbered packets.
const NUMBERED: u16 = 2001;
/// UDP port of all other packets.
const OTHERS: u16 = 2000;

/// Offset of the UDP payload.
const PAYLOAD: usize = 42;

/// One of the two output ports of the changing rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    A,
    B,
}

/// A packet that left the switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Number of the packet, in sending order.
    pub(crate) number: u64,
    /// Sending time, relative to the start of the traffic.
    pub(crate) sent: Duration,
    /// Exit by which the packet left.
    pub(crate) exit: Exit,
    /// The number that the rule wrote into the destination address, see [`label`].
    pub(crate) label: u32,
}

/// Returns the packet of a flow, with the source address that the tables match.
pub(crate) fn plain_packet(flow: u32) -> Frame {
    capture::udp_frame(SOURCE, address(flow), [port(flow), OTHERS])
}

/// Returns a numbered packet of a flow.
pub(crate) fn numbered_packet(flow: u32, number: u64, sent: Duration) -> Frame {
    let mut frame = capture::udp_frame(SOURCE, address(flow), [port(flow), NUMBERED]);
    let sent = u64::try_from(sent.as_nanos()).unwrap_or(u64::MAX);
    frame[PAYLOAD..PAYLOAD + 8].copy_from_slice(&number.to_be_bytes());
    frame[PAYLOAD + 8..PAYLOAD + 16].copy_from_slice(&sent.to_be_bytes());
    frame
}

/// Parses a packet that left the switch;
/// returns `None` if the packet has no number.
pub(crate) fn read(frame: &Frame, exit: Exit) -> Option<Arrival> {
    let word = |at: usize| {
        let bytes = frame.get(at..at + 8)?;
        Some(u64::from_be_bytes(bytes.try_into().ok()?))
    };
    let is_numbered = frame[36..38] == NUMBERED.to_be_bytes();
    let label = u32::from_be_bytes([frame[2], frame[3], frame[4], frame[5]]);
    let (number, sent) = (word(PAYLOAD)?, Duration::from_nanos(word(PAYLOAD + 8)?));
    is_numbered.then_some(Arrival { number, sent, exit, label })
}

/// Returns an action that writes a label into packets.
pub(crate) fn label(label: u32) -> String {
    format!("set_field:{}->eth_dst", label_address(label))
}

/// Returns the address that encodes a label.
pub(crate) fn label_address(label: u32) -> String {
    let [a, b, c, d] = label.to_be_bytes();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Returns the destination of a flow: a unique address, starting at 10.0.0.0.
fn address(flow: u32) -> [u8; 4] {
    (0x0a00_0000 | flow & 0x00ff_ffff).to_be_bytes()
}

fn port(flow: u32) -> u16 {
    u16::try_from(1024 + flow % 60_000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_carries_its_number_and_label() {
        let sent = Duration::from_nanos(123_456_789);
        let mut frame = numbered_packet(7, 42, sent);
        let arrival = read(&frame, Exit::B).unwrap();
        assert_eq!((arrival.number, arrival.sent, arrival.exit), (42, sent, Exit::B));
        assert_eq!(label(0x0102_0304), "set_field:02:00:01:02:03:04->eth_dst");
        frame[..6].copy_from_slice(&[2, 0, 1, 2, 3, 4]);
        assert_eq!(read(&frame, Exit::A).unwrap().label, 0x0102_0304);
        assert!(read(&plain_packet(7), Exit::A).is_none());
    }
}
