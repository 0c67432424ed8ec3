//! The memory that a client creates: one region with all rings, followed by all buffers.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
};
use shunt_shared_memory::{MapError, SharedMapping};

use crate::{
    error::{MemifError, MemifProtocolError},
    message::{RingDirection, RingMessage},
    options::MemifOptions,
    ring::{BufferOwner, COOKIE, Regions, ring_bytes},
};

/// The positions of rings and buffers in the region of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLayout {
    /// The binary logarithm of the number of descriptors of a ring.
    pub(crate) ring_log2: u8,
    /// Length of a buffer, in bytes.
    pub(crate) buffer_bytes: u16,
    /// Number of rings from client to server.
    pub(crate) to_server: u16,
    /// Number of rings from server to client.
    pub(crate) to_client: u16,
}

impl MemoryLayout {
    /// Returns the layout for the options of an interface.
    pub(crate) const fn of(options: &MemifOptions) -> Self {
        let MemifOptions { ring_log2, buffer_bytes, queues, .. } = *options;
        Self { ring_log2, buffer_bytes, to_server: queues, to_client: queues }
    }

    /// Checks that 32-bit offsets reach every byte of the region.
    pub(crate) fn check(&self) -> Result<(), MemifError> {
        let bytes = self.bytes();
        if bytes > u64::from(u32::MAX) { Err(MemifError::TooLarge { bytes }) } else { Ok(()) }
    }

    /// Returns the size of all rings in bytes.
    fn rings(&self) -> u64 {
        u64::from(self.to_server) + u64::from(self.to_client)
    }

    /// Returns the total length of the buffers of a ring, in bytes.
    fn buffers_bytes(&self) -> u64 {
        u64::from(self.buffer_bytes) << self.ring_log2
    }

    /// Returns the length of the region, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.rings() * (ring_bytes(self.ring_log2) as u64 + self.buffers_bytes())
    }

    /// Returns the messages that describe all rings.
    pub(crate) fn ring_messages(&self) -> impl Iterator<Item = RingMessage> + use<> {
        let to_server = (0..self.to_server).map(|index| (RingDirection::ToServer, index));
        let to_client = (0..self.to_client).map(|index| (RingDirection::ToClient, index));
        let layout = *self;
        to_server.chain(to_client).map(move |(direction, index)| RingMessage {
            direction,
            index,
            region: 0,
            offset: layout.ring_offset(direction, index),
            log2_size: layout.ring_log2,
        })
    }

    /// Returns the position of a ring among all rings of the region.
    fn position(&self, direction: RingDirection, index: u16) -> u64 {
        let before = match direction {
            RingDirection::ToServer => 0,
            RingDirection::ToClient => self.to_server,
        };
        u64::from(before) + u64::from(index)
    }

    /// Returns the offset of a ring in the memory.
    fn ring_offset(&self, direction: RingDirection, index: u16) -> u32 {
        offset(self.position(direction, index) * ring_bytes(self.ring_log2) as u64)
    }

    /// Returns the buffers of a ring, as their owner addresses them.
    pub(crate) fn buffers(&self, direction: RingDirection, index: u16) -> BufferOwner {
        let rings = self.rings() * ring_bytes(self.ring_log2) as u64;
        let before = self.position(direction, index) * self.buffers_bytes();
        BufferOwner::Own { offset: offset(rings + before), length: self.buffer_bytes.into() }
    }
}

/// Converts an offset to 32 bits, which `MemoryLayout::check` guarantees to fit.
fn offset(offset: u64) -> u32 {
    debug_assert!(u32::try_from(offset).is_ok(), "a checked layout has offsets of at most 32 bits");
    u32::try_from(offset).unwrap_or(u32::MAX)
}

/// The region of a client, with initialised and empty rings.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    file: File,
    pub(crate) regions: Regions,
}

impl ClientMemory {
    /// Creates the region, as a sealed file in memory.
    ///
    /// # Errors
    ///
    /// If the system does not have enough memory.
    pub(crate) fn new(layout: &MemoryLayout) -> Result<Self, MemifProtocolError> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"memif", flags).map_err(io::Error::from)?);
        file.set_len(layout.bytes())?;
        // The seals ensure that neither side can make memory accesses of the other side fail.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(io::Error::from)?;
        let mapping = SharedMapping::new(&file, 0, layout.bytes())?;
        for ring in layout.ring_messages() {
            let start = usize::try_from(ring.offset).unwrap_or(usize::MAX);
            if !mapping.write(start, &COOKIE.to_ne_bytes()) {
                return Err(MapError::Length(layout.bytes()).into());
            }
        }
        Ok(Self { file, regions: [mapping].into() })
    }

    /// Returns the file of the region.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_and_buffers_share_no_byte() {
        let layout = MemoryLayout { ring_log2: 3, buffer_bytes: 100, to_server: 2, to_client: 1 };
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for ring in layout.ring_messages() {
            ranges.push((ring.offset.into(), ring_bytes(3) as u64));
            let BufferOwner::Own { offset, length } = layout.buffers(ring.direction, ring.index)
            else {
                panic!("a client owns its buffers");
            };
            ranges.push((offset.into(), u64::from(length) * 8));
        }
        ranges.sort_unstable();
        let mut end = 0;
        for (start, length) in ranges {
            assert_eq!(start, end, "no byte is shared or unused");
            end = start + length;
        }
        assert_eq!(end, layout.bytes());
        ClientMemory::new(&layout).unwrap();
    }

    #[test]
    fn a_layout_beyond_its_offsets_is_refused() {
        let layout =
            MemoryLayout { ring_log2: 14, buffer_bytes: 65535, to_server: 2, to_client: 2 };
        assert!(matches!(layout.check(), Err(MemifError::TooLarge { .. })));
        MemoryLayout { to_server: 1, ..layout }.check().unwrap();
    }
}
