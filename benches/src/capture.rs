//! Captures of UDP flows, the same for every switch that is measured.

use std::{fs, io, path::Path};

/// Bytes of each frame, without the frame check sequence: the shortest that Ethernet allows.
pub const FRAME_BYTES: usize = 60;

/// Writes a capture of `packets` packets drawn uniformly from `flows` UDP flows.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write_udp_flows(path: &Path, packets: usize, flows: u32) -> io::Result<()> {
    let mut capture = Capture::with_room(packets);
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for _ in 0..packets {
        let flow = u32::try_from(random.next() % u64::from(flows)).unwrap_or_default();
        capture.push(&frame(flow));
    }
    capture.write(path)
}

/// A capture in memory, whose packets came at no time.
#[derive(Debug)]
pub struct Capture(Vec<u8>);

impl Capture {
    /// Without a packet, and with room for so many of the shortest.
    #[must_use]
    pub fn with_room(packets: usize) -> Self {
        let mut file = Vec::with_capacity(24 + packets * (16 + FRAME_BYTES));
        file.extend([0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        file.extend([0xff, 0xff, 0, 0, 1, 0, 0, 0]);
        Self(file)
    }

    /// Adds a frame.
    pub fn push(&mut self, frame: &[u8]) {
        let length = u32::try_from(frame.len()).unwrap_or_default().to_le_bytes();
        self.0.extend([0; 8]);
        self.0.extend(length);
        self.0.extend(length);
        self.0.extend(frame);
    }

    /// Writes it to a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, &self.0)
    }
}

/// A UDP datagram of flow number `flow`, without a UDP checksum.
#[must_use]
pub fn frame(flow: u32) -> [u8; FRAME_BYTES] {
    let port = u16::try_from(1024 + flow % 60_000).unwrap_or_default();
    let source = 0x0a00_0000 | flow & 0x00ff_ffff;
    udp_frame(source.to_be_bytes(), [192, 168, 7, 9], [port, 2000])
}

/// A UDP datagram between two addresses and ports, without a UDP checksum.
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

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or_default()
}

/// A small generator of numbers that look random, the same in every run.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}
