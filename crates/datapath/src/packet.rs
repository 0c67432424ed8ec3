//! Packets, and the pool that their buffers come from and go back to.

use std::fmt;

use shunt_pipeline::DatapathPort;

/// Packets handled together: between two of these a thread takes messages.
///
/// 32 bounds the time until a thread adopts a version: a system call that sends 32 frames takes
/// tens of microseconds.
pub const BURST: usize = 32;

/// One packet: a frame in a buffer with room in front, and what its port said of it.
pub struct Packet {
    buffer: Box<[u8]>,
    start: u32,
    length: u32,
    /// The port that it came in by.
    pub ingress: DatapathPort,
    /// Checksums and segments that are still to be made.
    pub offload: Offload,
}

/// What is still to be done to a packet before it is on a wire: `struct virtio_net_hdr`, decoded
/// (Virtual I/O Device 1.2, 5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The transport checksum is only the sum of the pseudo-header; from `checksum_start` on the
    /// rest is to be added and stored at `checksum_start + checksum_offset`.
    pub needs_checksum: bool,
    /// The checksums were verified by whoever handed the packet over.
    pub data_valid: bool,
    /// `gso_type` as on the wire of virtio; 0: the packet is one segment.
    pub gso_type: u8,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Length of the headers that each segment repeats.
    pub header_length: u16,
    /// Where the checksummed part begins.
    pub checksum_start: u16,
    /// Where in it the checksum lies.
    pub checksum_offset: u16,
}

impl Packet {
    /// Bytes kept free in front of a received frame, for tags and encapsulation.
    pub const HEADROOM: usize = 128;

    /// The frame, from the Ethernet header on, without the frame check sequence.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        let start = self.start as usize;
        &self.buffer[start..start + self.length as usize]
    }

    /// The frame, to write.
    #[must_use]
    pub fn frame_mut(&mut self) -> &mut [u8] {
        let start = self.start as usize;
        &mut self.buffer[start..start + self.length as usize]
    }

    /// Length of the frame in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether the frame is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("ingress", &self.ingress)
            .field("length", &self.length)
            .field("offload", &self.offload)
            .finish_non_exhaustive()
    }
}

/// Free buffers of one thread, in two sizes. Taking and giving back allocate nothing once warm.
#[derive(Debug, Default)]
pub struct Pool {
    small: Vec<Box<[u8]>>,
    large: Vec<Box<[u8]>>,
}

impl Pool {
    /// Longest frame of a small buffer.
    pub const SMALL: usize = 2048;
    /// Longest frame at all: a segmented packet of 64 KiB and its headers.
    pub const LARGE: usize = 65536 + 256;

    /// A packet with a frame of `length` bytes of unspecified content; `None` above
    /// [`Self::LARGE`].
    pub fn take(&mut self, length: usize, ingress: DatapathPort) -> Option<Packet> {
        let (list, size) = if length <= Self::SMALL {
            (&mut self.small, Self::SMALL)
        } else if length <= Self::LARGE {
            (&mut self.large, Self::LARGE)
        } else {
            return None;
        };
        let buffer =
            list.pop().unwrap_or_else(|| vec![0; Packet::HEADROOM + size].into_boxed_slice());
        #[expect(clippy::cast_possible_truncation, reason = "at most LARGE")]
        Some(Packet {
            buffer,
            start: Packet::HEADROOM as u32,
            length: length as u32,
            ingress,
            offload: Offload::default(),
        })
    }

    /// Takes a packet's buffer back.
    pub fn give(&mut self, packet: Packet) {
        let list = if packet.buffer.len() == Packet::HEADROOM + Self::SMALL {
            &mut self.small
        } else {
            &mut self.large
        };
        list.push(packet.buffer);
    }
}
