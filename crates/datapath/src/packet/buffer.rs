//! Packets, and the pool of their buffers.
//!
//! A packet is a frame in a buffer, with headroom for tags and encapsulation, so adding or removing
//! a header moves one offset. Buffers have two sizes: almost every frame fits a small buffer, and
//! packets that are still to be segmented need a large buffer.
//!
//! A pool belongs to one thread and needs no lock. The free lists are stacks, because the buffer
//! that was returned last is still in the CPU cache. The size of a buffer, 2176 bytes and the
//! allocator's header, is not a multiple of a page, so the starts of buffers are spread over the
//! cache sets.

use std::fmt;

use shunt_pipeline::DatapathPort;

use crate::packet::virtio::VirtioHeader;

/// Maximum number of packets in a burst. A thread takes messages between bursts.
///
/// The limit bounds the time until a thread adopts a version, because a system call that sends 32
/// frames takes tens of microseconds.
pub const BURST: usize = 32;

/// A frame in a buffer with headroom, and the metadata of its ingress port.
pub struct Packet {
    /// The headroom, the frame, and unused room.
    buffer: Box<[u8]>,
    /// Offset of the frame in the buffer.
    start: u32,
    /// Length of the frame in bytes.
    length: u32,
    /// The port on which the packet arrived.
    pub ingress: DatapathPort,
    /// The checksum and the segmentation that are still to be done.
    pub virtio: VirtioHeader,
}

// The packets of a burst fit into 32 cache lines of the processor.
const _: () = assert!(size_of::<Packet>() <= 64);

impl Packet {
    /// Bytes kept free before a received frame, for tags and encapsulation.
    pub const HEADROOM: usize = 128;

    /// Returns the frame from the Ethernet header on, without the check sequence.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        let start = self.start as usize;
        &self.buffer[start..start + self.length as usize]
    }

    /// Returns the frame for writing.
    #[must_use]
    pub fn frame_mut(&mut self) -> &mut [u8] {
        let start = self.start as usize;
        &mut self.buffer[start..start + self.length as usize]
    }

    /// Returns the length of the frame in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length as usize
    }

    /// Returns whether the packet has a large buffer.
    pub(crate) const fn is_large(&self) -> bool {
        self.buffer.len() > Self::HEADROOM + Pool::SMALL
    }

    /// Returns whether the frame is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the length of the longest frame on the wire.
    ///
    /// The result is the frame itself, or its first segment.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        if self.virtio.is_segmented() {
            self.virtio.header_length as usize + self.virtio.gso_size as usize
        } else {
            self.len()
        }
    }

    /// Extends the frame by `count` bytes of unspecified content at the front.
    ///
    /// The offsets of [`Self::virtio`] are adjusted. Returns `false` and changes nothing if the
    /// headroom is shorter.
    #[must_use]
    pub fn push_front(&mut self, count: usize) -> bool {
        if count > self.start as usize {
            return false;
        }
        let Ok(bytes) = u16::try_from(count) else { return false };
        self.start -= u32::from(bytes);
        self.length += u32::from(bytes);
        self.virtio.moved_back(bytes);
        true
    }

    /// Removes the first `count` bytes of the frame, or all bytes if there are fewer.
    ///
    /// The offsets of [`Self::virtio`] are adjusted. If the checksum field is removed, no checksum
    /// is computed.
    pub fn pop_front(&mut self, count: usize) {
        debug_assert!(count <= self.len(), "a frame of {} bytes cannot lose {count}", self.len());
        let count = count.min(self.len());
        #[expect(clippy::cast_possible_truncation, reason = "the count is at most the length")]
        let bytes = count as u32;
        self.start += bytes;
        self.length -= bytes;
        self.virtio.moved_forward(count);
    }

    /// Truncates the frame to at most `length` bytes.
    ///
    /// A truncated frame is only a sample: it can no longer be checksummed or segmented, so its
    /// virtio header is cleared.
    pub fn truncate(&mut self, length: usize) {
        if length < self.len() {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the new length is less than the old one"
            )]
            let length = length as u32;
            self.length = length;
            self.virtio = VirtioHeader::default();
        }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("ingress", &self.ingress)
            .field("length", &self.length)
            .field("virtio", &self.virtio)
            .finish_non_exhaustive()
    }
}

/// The free buffers of one thread, in two sizes. A warm pool allocates nothing.
///
/// At most [`Self::SMALL_MAX`] and [`Self::LARGE_MAX`] buffers are in use at a time, so a thread
/// that keeps packets runs out of buffers before the machine runs out of memory.
///
/// If a buffer moves to another thread, that thread must give a buffer of the same size in return,
/// so that the counts of both pools stay right.
#[derive(Debug)]
pub struct Pool {
    /// The buffers for frames of at most [`Self::SMALL`] bytes.
    small: FreeList,
    /// The buffers for longer frames.
    large: FreeList,
}

impl Pool {
    /// Maximum frame length of a small buffer.
    pub const SMALL: usize = 2048;
    /// Maximum frame length: a packet of 64 KiB to segment, and its headers.
    pub const LARGE: usize = 65536 + 256;
    /// Maximum number of small buffers in use: 17 MiB.
    pub const SMALL_MAX: usize = 8192;
    /// Maximum number of large buffers in use: 16 MiB.
    pub const LARGE_MAX: usize = 256;

    /// Number of small buffers that waiting packets leave free.
    ///
    /// Bursts and copies need these buffers.
    const SMALL_KEPT: usize = 1024;
    /// Number of large buffers that waiting packets leave free.
    ///
    /// Two bursts, and the same number of copies, need these buffers.
    const LARGE_KEPT: usize = 4 * BURST;

    /// Creates a pool without buffers.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            small: FreeList::new(Self::SMALL, Self::SMALL_MAX),
            large: FreeList::new(Self::LARGE, Self::LARGE_MAX),
        }
    }

    /// Returns a packet with a frame of `length` bytes of unspecified content.
    ///
    /// `None` if `length` exceeds [`Self::LARGE`], or if too many buffers of that size are in use.
    pub fn take(&mut self, length: usize, ingress: DatapathPort) -> Option<Packet> {
        let list = if length <= Self::SMALL {
            &mut self.small
        } else if length <= Self::LARGE {
            &mut self.large
        } else {
            return None;
        };
        #[expect(clippy::cast_possible_truncation, reason = "the length is at most LARGE")]
        Some(Packet {
            buffer: list.take()?,
            start: Packet::HEADROOM as u32,
            length: length as u32,
            ingress,
            virtio: VirtioHeader::default(),
        })
    }

    /// Copies a packet, or its first `max_len` bytes, to another buffer.
    ///
    /// `None` if too many buffers are in use.
    pub fn copy(&mut self, packet: &Packet, max_len: Option<usize>) -> Option<Packet> {
        let length = max_len.map_or(packet.len(), |max| packet.len().min(max));
        let mut copy = self.take(length, packet.ingress)?;
        copy.frame_mut().copy_from_slice(&packet.frame()[..length]);
        if length == packet.len() {
            copy.virtio = packet.virtio;
        }
        Some(copy)
    }

    /// Returns the number of frames of this length for which buffers are left.
    #[must_use]
    pub const fn left(&self, length: usize) -> usize {
        if length <= Self::SMALL { self.small.available() } else { self.large.available() }
    }

    /// Returns whether a burst may find no buffers.
    ///
    /// A receive queue may take a buffer of each size for a frame.
    #[inline]
    pub(crate) const fn is_low(&self) -> bool {
        self.small.available() <= BURST || self.large.available() <= BURST
    }

    /// Returns whether enough buffers are left for a packet to keep its buffer long.
    pub(crate) const fn may_keep(&self, packet: &Packet) -> bool {
        self.left_to_keep(packet) > 0
    }

    /// Returns how many more packets of this size may keep their buffers for long.
    pub(crate) const fn left_to_keep(&self, packet: &Packet) -> usize {
        if packet.is_large() {
            self.large.available().saturating_sub(Self::LARGE_KEPT - 1)
        } else {
            self.small.available().saturating_sub(Self::SMALL_KEPT - 1)
        }
    }

    /// Returns the buffer of a packet to the pool.
    pub fn put_back(&mut self, packet: Packet) {
        let list = if packet.is_large() { &mut self.large } else { &mut self.small };
        list.put_back(packet.buffer);
    }

    /// Returns the number of buffers in use.
    #[must_use]
    pub const fn out(&self) -> usize {
        self.small.out + self.large.out
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

/// The buffers of one size: a stack of free buffers, and the number in use.
struct FreeList {
    /// The free buffers; the last one is used next.
    free: Vec<Box<[u8]>>,
    /// Length of each buffer.
    size: usize,
    /// Number of buffers in use.
    out: usize,
    /// Maximum number of buffers in use.
    max: usize,
}

impl FreeList {
    /// Creates a pool; `frame` is in bytes, and `max` limits the buffers.
    const fn new(frame: usize, max: usize) -> Self {
        Self { free: Vec::new(), size: Packet::HEADROOM + frame, out: 0, max }
    }

    /// Returns the number of buffers that can still be taken.
    #[inline]
    const fn available(&self) -> usize {
        self.max.saturating_sub(self.out)
    }

    /// Takes a free buffer, or allocates one up to the limit.
    fn take(&mut self) -> Option<Box<[u8]>> {
        if self.out == self.max {
            return None;
        }
        self.out += 1;
        Some(self.free.pop().unwrap_or_else(|| vec![0; self.size].into_boxed_slice()))
    }

    /// Keeps a buffer for reuse, unless the list is full.
    fn put_back(&mut self, buffer: Box<[u8]>) {
        self.out = self.out.saturating_sub(1);
        if self.free.len() < self.max {
            self.free.push(buffer);
        }
    }
}

impl fmt::Debug for FreeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeList")
            .field("free", &self.free.len())
            .field("out", &self.out)
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: DatapathPort = DatapathPort::new(7);

    /// Returns a packet with a frame.
    fn packet(pool: &mut Pool, frame: &[u8]) -> Packet {
        let mut packet = pool.take(frame.len(), PORT).unwrap();
        packet.frame_mut().copy_from_slice(frame);
        packet
    }

    /// Returns the metadata of a partial checksum.
    fn partial(start: u16) -> VirtioHeader {
        VirtioHeader {
            needs_checksum: true,
            checksum_start: start,
            checksum_offset: 16,
            ..VirtioHeader::default()
        }
    }

    #[test]
    fn a_pool_reuses_the_last_returned_buffer() {
        let mut pool = Pool::new();
        for length in [60, Pool::SMALL, Pool::SMALL + 1, Pool::LARGE] {
            let (first, second) =
                (pool.take(length, PORT).unwrap(), pool.take(length, PORT).unwrap());
            let address = second.buffer.as_ptr();
            pool.put_back(first);
            pool.put_back(second);
            let warm = pool.take(length, PORT).unwrap();
            assert_eq!(warm.buffer.as_ptr(), address);
            assert_eq!(warm.len(), length);
            pool.put_back(warm);
        }
        assert_eq!(pool.out(), 0);
    }

    #[test]
    fn pool_hands_out_no_more_than_maximum() {
        let mut pool = Pool::new();
        let mut out: Vec<_> =
            (0..Pool::LARGE_MAX).map(|_| pool.take(Pool::LARGE, PORT).unwrap()).collect();
        assert!(pool.take(Pool::LARGE, PORT).is_none());
        assert!(pool.take(60, PORT).is_some(), "the other size has a maximum of its own");
        pool.put_back(out.pop().unwrap());
        assert!(pool.take(Pool::LARGE, PORT).is_some());
        assert!(pool.take(Pool::LARGE + 1, PORT).is_none());
    }

    #[test]
    fn frame_grows_into_headroom_and_no_further() {
        let mut pool = Pool::new();
        let mut tagged = packet(&mut pool, b"frame");
        assert!(tagged.push_front(4));
        assert_eq!((tagged.len(), &tagged.frame()[4..]), (9, &b"frame"[..]));
        assert!(!tagged.push_front(Packet::HEADROOM - 3));
        assert_eq!(tagged.len(), 9, "nothing is changed");
        assert!(tagged.push_front(Packet::HEADROOM - 4));
        tagged.pop_front(Packet::HEADROOM);
        assert_eq!(tagged.frame(), b"frame");
        tagged.pop_front(5);
        assert!(tagged.is_empty());
    }

    #[test]
    fn a_pushed_header_moves_the_checksum_along() {
        let mut pool = Pool::new();
        let mut pushed = packet(&mut pool, &[0; 60]);
        pushed.virtio = VirtioHeader {
            gso_type: VirtioHeader::GSO_TCPV4,
            gso_size: 10,
            header_length: 54,
            ..partial(34)
        };
        assert!(pushed.push_front(4));
        assert_eq!((pushed.virtio.checksum_start, pushed.virtio.header_length), (38, 58));
        assert_eq!(pushed.wire_len(), 68);
        pushed.pop_front(4);
        assert_eq!((pushed.virtio.checksum_start, pushed.virtio.header_length), (34, 54));
    }

    #[test]
    fn a_truncated_checksum_needs_no_completion() {
        let mut pool = Pool::new();
        let mut popped = packet(&mut pool, &[0; 60]);
        popped.virtio = partial(34);
        popped.pop_front(35);
        assert_eq!(popped.virtio, VirtioHeader::default());

        let mut cut = packet(&mut pool, &[0; 60]);
        cut.virtio = partial(34);
        cut.truncate(60);
        assert_eq!(cut.virtio, partial(34), "nothing was cut");
        cut.truncate(59);
        assert_eq!((cut.len(), cut.virtio), (59, VirtioHeader::default()));
    }

    #[test]
    fn a_copy_is_the_frame_or_its_beginning() {
        let mut pool = Pool::new();
        let mut original = packet(&mut pool, b"twelve bytes");
        original.virtio = partial(2);
        let whole = pool.copy(&original, None).unwrap();
        assert_eq!(
            (whole.frame(), whole.virtio, whole.ingress),
            (original.frame(), partial(2), PORT)
        );
        let cut = pool.copy(&original, Some(6)).unwrap();
        assert_eq!((cut.frame(), cut.virtio), (&b"twelve"[..], VirtioHeader::default()));
        let same = pool.copy(&original, Some(100)).unwrap();
        assert_eq!(same.frame(), original.frame());
    }
}
