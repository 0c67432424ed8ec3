//! A packet that says when it was sent, and by which rule it left.

use std::time::Duration;

use super::super::tables::SOURCE;
use crate::{capture, wire::Frame};

/// UDP port of the packets that carry numbers.
const NUMBERED: u16 = 2001;
/// UDP port of all others.
const OTHERS: u16 = 2000;

/// Where the payload of a UDP datagram begins.
const PAYLOAD: usize = 42;

/// Which of two ways out a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    A,
    B,
}

/// A packet that came out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Its number: packets are numbered as they are sent.
    pub(crate) number: u64,
    /// When it was sent, since the traffic began.
    pub(crate) sent: Duration,
    /// Where it came out.
    pub(crate) way: Way,
    /// What the rule wrote into its destination address, see [`label`].
    pub(crate) label: u32,
}

/// The packet of a flow; all flows have the source that the tables know.
pub(crate) fn plain(flow: u32) -> Frame {
    capture::udp_frame(SOURCE, address(flow), [port(flow), OTHERS])
}

/// The packet of a flow with a number.
pub(crate) fn numbered(flow: u32, number: u64, sent: Duration) -> Frame {
    let mut frame = capture::udp_frame(SOURCE, address(flow), [port(flow), NUMBERED]);
    let sent = u64::try_from(sent.as_nanos()).unwrap_or(u64::MAX);
    frame[PAYLOAD..PAYLOAD + 8].copy_from_slice(&number.to_be_bytes());
    frame[PAYLOAD + 8..PAYLOAD + 16].copy_from_slice(&sent.to_be_bytes());
    frame
}

/// What a packet that came out says; `None` if it carries no number.
pub(crate) fn read(frame: &Frame, way: Way) -> Option<Arrival> {
    let word = |at: usize| {
        let bytes = frame.get(at..at + 8)?;
        Some(u64::from_be_bytes(bytes.try_into().ok()?))
    };
    let is_numbered = frame[36..38] == NUMBERED.to_be_bytes();
    let label = u32::from_be_bytes([frame[2], frame[3], frame[4], frame[5]]);
    let (number, sent) = (word(PAYLOAD)?, Duration::from_nanos(word(PAYLOAD + 8)?));
    is_numbered.then_some(Arrival { number, sent, way, label })
}

/// An action that writes a label into packets.
pub(crate) fn label(label: u32) -> String {
    format!("set_field:{}->eth_dst", label_address(label))
}

/// The address that says a label.
pub(crate) fn label_address(label: u32) -> String {
    let [a, b, c, d] = label.to_be_bytes();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// The destination of a flow: each has its own, from 10.0.0.0.
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
    fn a_packet_says_what_was_written_into_it() {
        let sent = Duration::from_nanos(123_456_789);
        let mut frame = numbered(7, 42, sent);
        let arrival = read(&frame, Way::B).unwrap();
        assert_eq!((arrival.number, arrival.sent, arrival.way), (42, sent, Way::B));
        assert_eq!(label(0x0102_0304), "set_field:02:00:01:02:03:04->eth_dst");
        frame[..6].copy_from_slice(&[2, 0, 1, 2, 3, 4]);
        assert_eq!(read(&frame, Way::A).unwrap().label, 0x0102_0304);
        assert!(read(&plain(7), Way::A).is_none());
    }
}
