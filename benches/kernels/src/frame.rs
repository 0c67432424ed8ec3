//! Frames of UDP flows and the keys of the frames: the same in every process.

use shunt_flow::{
    FlowKey, PortNo,
    extract::{VlanLimit, extract},
};

/// Bytes of each frame without the frame check sequence: the Ethernet minimum.
pub const FRAME_BYTES: usize = 60;

/// Returns a UDP datagram of flow number `flow`, without a UDP checksum.
#[must_use]
pub fn frame(flow: u32) -> [u8; FRAME_BYTES] {
    let port = u16::try_from(1024 + flow % 60_000).unwrap_or_default();
    let source = 0x0a00_0000 | flow & 0x00ff_ffff;
    udp_frame(source.to_be_bytes(), [192, 168, 7, 9], [port, 2000])
}

/// Returns a UDP datagram between two addresses and ports, without a UDP checksum.
#[must_use]
pub fn udp_frame(source: [u8; 4], target: [u8; 4], ports: [u16; 2]) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..30].copy_from_slice(&source);
    frame[30..34].copy_from_slice(&target);
    frame[34..36].copy_from_slice(&ports[0].to_be_bytes());
    frame[36..38].copy_from_slice(&ports[1].to_be_bytes());
    frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Returns the Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or_default()
}

/// Returns the key of a frame that arrived on port 1.
#[must_use]
pub fn key(frame: &[u8]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    extract(frame, VlanLimit::One, &mut key);
    key.set_bridge(1);
    key.set_in_port(PortNo::new(1));
    key
}
