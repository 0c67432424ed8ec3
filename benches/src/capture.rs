//! Captures of UDP flows, identical for every measured switch.

use std::{fs, io, path::Path};

pub use shunt_kernels::frame::{FRAME_BYTES, frame, udp_frame};

/// Writes a capture of `packets` packets sampled uniformly from `flows` UDP flows.
///
/// # Errors
///
/// If the file cannot be written.
pub fn write_udp_flows(path: &Path, packets: usize, flows: u32) -> io::Result<()> {
    let mut capture = Capture::with_room(packets);
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for _ in 0..packets {
        let flow = u32::try_from(random.next() % u64::from(flows)).unwrap_or_default();
        capture.push(&frame(flow));
    }
    capture.write(path)
}

/// A capture in memory, with all timestamps zero.
#[derive(Debug)]
pub struct Capture(Vec<u8>);

impl Capture {
    /// Creates an empty capture with space for `packets` packets of minimum size.
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

    /// Writes the capture to a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, &self.0)
    }
}

/// A small pseudo-random number generator with a fixed seed.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}
