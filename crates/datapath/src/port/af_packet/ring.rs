//! A receive ring of `TPACKET_V2`: memory into which the kernel writes received frames.
//!
//! The ring is an array of slots. The kernel fills a slot and passes it to the reader by a bit of
//! the slot's status word. The reader returns the slot by clearing the word. In between, the kernel
//! does not write to the slot, so the frame can be borrowed as a slice. Dropping a [`Slot`] returns
//! the slot.
//!
//! A frame that is longer than a slot is truncated. In a ring of short slots the kernel also puts the
//! whole frame into the receive queue of the socket (`PACKET_COPY_THRESH`), in the order of the
//! slots. So the ring needs memory only for short frames, and long frames take memory only while
//! they wait. The receive queue must be long enough, which needs `CAP_NET_ADMIN`. Without this
//! capability, each slot has room for the longest packet that is still to be segmented.
//!
//! Slots never cross the end of a block, and the number of pages of a block is a power of two. A
//! block of 1 MiB with 15 long slots wastes less than 300 bytes, but a block for each long slot
//! would waste half of its memory.
//!
//! A process that inherits the socket maps the same ring. The kernel does not reveal its position
//! in the ring, so the reader searches the slot that was filled first ([`Ring::find_next`]).
//!
//! Source: Linux `Documentation/networking/packet_mmap.rst`.
#![expect(unsafe_code, reason = "the memory is shared with the kernel")]

use std::{
    ffi::c_void,
    fmt, io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
    slice,
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Release},
    },
};

use super::{message::tag, port::AfPacket};
use crate::{
    packet::{buffer::Pool, virtio::VirtioHeader},
    port::sys,
};

/// The sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingLayout {
    /// Number of bytes of a block.
    block: usize,
    /// Number of memory blocks in the ring.
    blocks: usize,
    /// Number of slots of a block.
    slots_per_block: usize,
    /// Number of bytes of a slot.
    slot: usize,
}

impl RingLayout {
    /// Slots for frames of Ethernet with an MTU of 1500: 1 MiB, 512 frames.
    ///
    /// Longer frames wait in the receive queue of the socket.
    pub(super) const SHORT_SLOTS: Self =
        Self { block: 1 << 16, blocks: 16, slots_per_block: 32, slot: 2048 };

    /// Slots for packets still to be segmented: 16 MiB, 240 packets.
    pub(super) const LONG_SLOTS: Self = Self {
        block: 1 << 20,
        blocks: 16,
        slots_per_block: 15,
        // The most bytes of which 15 slots fit into a block, aligned as the kernel requires.
        slot: (1 << 20) / 15 / 16 * 16,
    };

    /// Longest frame that fits a short slot.
    pub(super) const SHORT_FRAME: usize = Self::SHORT_SLOTS.slot - FRONT;

    /// Returns the layout of a ring with at least `slots` slots; `None`: the default.
    ///
    /// Slots are short if the socket has a long receive queue. The number of slots is rounded up to
    /// whole blocks.
    pub(super) fn of(has_long_queue: bool, slots: Option<u32>) -> Self {
        let layout = if has_long_queue { Self::SHORT_SLOTS } else { Self::LONG_SLOTS };
        slots.map_or(layout, |slots| layout.with_slots(slots))
    }

    /// Returns the layout with another number of slots.
    fn with_slots(self, slots: u32) -> Self {
        let slots = (slots as usize).clamp(1, AfPacket::SLOTS_MAX as usize);
        Self { blocks: slots.div_ceil(self.slots_per_block), ..self }
    }

    /// Returns the bytes of the ring.
    const fn bytes(self) -> usize {
        self.block * self.blocks
    }

    /// Returns the number of slots.
    const fn slots(self) -> usize {
        self.blocks * self.slots_per_block
    }

    /// Returns whether long frames have no slot.
    pub(super) const fn is_short(self) -> bool {
        self.slot == Self::SHORT_SLOTS.slot
    }
}

/// Writes the numbers of blocks, of bytes of a block, and of bytes of a slot.
/// The layout is written as `16x65536x2048`, for example.
impl fmt::Display for RingLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.blocks, self.block, self.slot)
    }
}

/// Longest ring header and virtio header before a frame.
const FRONT: usize = 256;
/// Longest frame of an MTU of 1500 without the tag that the kernel removes.
const ETHERNET_FRAME: usize = 1518;
const _: () = assert!(Pool::LARGE + FRONT <= RingLayout::LONG_SLOTS.slot);
const _: () = assert!(ETHERNET_FRAME <= RingLayout::SHORT_FRAME);
const _: () = assert!(size_of::<libc::tpacket2_hdr>() + VirtioHeader::ENCODED <= FRONT);

/// A receive ring, mapped.
pub(super) struct Ring {
    /// The address of the mapping.
    base: NonNull<u8>,
    /// The sizes of the ring and its slots.
    layout: RingLayout,
    /// The slot that the kernel fills next.
    next: usize,
    /// False until an inherited ring has shown a filled slot next to an empty slot.
    is_next_known: bool,
}

// SAFETY: the mapping belongs to this value alone and is not bound to the thread that created it.
unsafe impl Send for Ring {}

impl Ring {
    /// Creates and maps the ring of a packet socket.
    ///
    /// The socket has `PACKET_VNET_HDR` and `TPACKET_V2` set.
    pub(super) fn new(socket: BorrowedFd<'_>, layout: RingLayout) -> io::Result<Self> {
        #[expect(clippy::cast_possible_truncation, reason = "all are below 2^25: see SLOTS_MAX")]
        let request = libc::tpacket_req {
            tp_block_size: layout.block as u32,
            tp_block_nr: layout.blocks as u32,
            tp_frame_size: layout.slot as u32,
            tp_frame_nr: layout.slots() as u32,
        };
        sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        Self::map(socket, layout)
    }

    /// Maps the ring that an earlier process has created for the socket.
    ///
    /// `layout` must be the layout with which the earlier process created the ring. The kernel refuses
    /// only a layout of another size. The caller compares `layout` with the layout in the name of
    /// the stored socket (`AfPacket::check_inherited`).
    pub(super) fn inherit(socket: BorrowedFd<'_>, layout: RingLayout) -> io::Result<Self> {
        let mut ring = Self::map(socket, layout)?;
        ring.is_next_known = false;
        Ok(ring)
    }

    /// Maps the ring of a socket into memory.
    fn map(socket: BorrowedFd<'_>, layout: RingLayout) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (flags, fd) = (libc::MAP_SHARED | libc::MAP_POPULATE, socket.as_raw_fd());
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { libc::mmap(ptr::null_mut(), layout.bytes(), protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast())
            .ok_or_else(|| io::Error::other("the kernel mapped the memory at address 0"))?;
        Ok(Self { base, layout, next: 0, is_next_known: true })
    }

    /// Returns whether the position of the kernel in the ring is known.
    pub(super) const fn is_next_known(&self) -> bool {
        self.is_next_known
    }

    /// Looks for the slot that was filled first; returns whether it was found.
    ///
    /// The slot is not found while no slot is filled, or while the kernel fills slots too fast.
    pub(super) fn find_next(&mut self) -> bool {
        let first = first_slot(self.slots(), |slot| {
            self.next = slot;
            self.is_filled().then(|| self.time())
        });
        self.is_next_known = matches!(first, Some(FirstSlot::AfterEmpty(_)));
        self.next = match first {
            Some(FirstSlot::AfterEmpty(slot) | FirstSlot::Oldest(slot)) => slot,
            None => 0,
        };
        first.is_some()
    }

    /// Returns whether the reader owns the next slot.
    pub(super) fn is_filled(&self) -> bool {
        // Acquire: pairs with the kernel's barrier between filling a slot and passing it on.
        self.status().load(Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Returns the time at which the frame of the next slot was received.
    fn time(&self) -> (u32, u32) {
        // SAFETY: the slot begins with this header, since `layout` is the layout of the ring: `new`
        // has set it, or the caller of `inherit` has checked it. The reader owns the slot.
        let header = unsafe { self.slot().cast::<libc::tpacket2_hdr>().read() };
        (header.tp_sec, header.tp_nsec)
    }

    /// Returns the next slot that the kernel has filled.
    pub(super) fn next(&mut self) -> Option<Slot<'_>> {
        self.is_filled().then(|| Slot { ring: self })
    }

    /// Returns the number of slots.
    pub(super) const fn slots(&self) -> usize {
        self.layout.slots()
    }

    /// Returns the address of the next slot.
    fn slot(&self) -> NonNull<u8> {
        let RingLayout { block, slots_per_block, slot, .. } = self.layout;
        let offset = self.next / slots_per_block * block + self.next % slots_per_block * slot;
        // SAFETY: `next` is below the number of slots, so the slot lies inside the mapping.
        unsafe { self.base.add(offset) }
    }

    /// Returns the status word of the next slot.
    /// The status word names the current owner of the slot.
    fn status(&self) -> &AtomicU32 {
        // SAFETY: a slot begins with its status word, aligned to 16, and lives as long as the ring;
        // both sides access the word atomically. `slot` returns the address of a slot, since
        // `layout` is the layout of the ring: `new` has set it, or the caller of `inherit` has
        // checked it.
        unsafe { AtomicU32::from_ptr(self.slot().as_ptr().cast()) }
    }
}

/// The slot of a ring that the kernel filled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstSlot {
    /// The slot with this index, which follows an empty slot.
    AfterEmpty(usize),
    /// The slot with this index, which has the oldest frame of a full ring.
    Oldest(usize),
}

/// Number of scans of a ring for its first slot.
const SCANS_MAX: u32 = 4;

/// Returns the slot that was filled first.
///
/// `None` if no slot is filled, or if the first slot is uncertain. `read` returns the time of the
/// frame in a slot, or `None` for an empty slot.
///
/// Filled slots are consecutive, so the first filled slot follows an empty slot. The kernel may
/// fill two slots at the same time and release the second slot first. Then several filled slots
/// follow empty slots, and the times of their frames decide, as for a full ring.
///
/// The kernel also fills slots during the scan. If a slot was read as empty, and is filled before
/// the next slot is read, the next slot looks like the first filled slot. So the slot before the
/// found slot is read again, and the scan is repeated if that slot is filled now.
fn first_slot<T: Ord + Copy>(
    slots: usize,
    mut read: impl FnMut(usize) -> Option<T>,
) -> Option<FirstSlot> {
    for _ in 0..SCANS_MAX {
        let (mut first, mut oldest) = (None::<(T, usize)>, None::<(T, usize)>);
        let mut before = read(slots - 1);
        for slot in 0..slots {
            let time = read(slot);
            let filled = time.map(|time| (time, slot));
            let is_first = before.is_none();
            oldest = oldest.into_iter().chain(filled).min();
            first = first.into_iter().chain(filled.filter(|_| is_first)).min();
            before = time;
        }
        let Some((_, first)) = first else {
            return oldest.map(|(_, slot)| FirstSlot::Oldest(slot));
        };
        if read((first + slots - 1) % slots).is_none() {
            return Some(FirstSlot::AfterEmpty(first));
        }
    }
    None
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: base and length belong to the mapping, and no slot outlives the ring.
        unsafe { libc::munmap(self.base.as_ptr().cast::<c_void>(), self.layout.bytes()) };
    }
}

/// A slot that the kernel has filled, until it is dropped.
pub(super) struct Slot<'a> {
    /// The ring that contains the slot.
    ring: &'a mut Ring,
}

/// A received frame and its metadata.
pub(super) struct Filled<'a> {
    /// The virtio header, which the kernel wrote before the frame.
    pub(super) virtio_header: [u8; VirtioHeader::ENCODED],
    /// The frame, without the VLAN tag that the kernel removed.
    pub(super) frame: &'a [u8],
    /// The removed tag: its TPID and its TCI.
    pub(super) tag: Option<[u8; 4]>,
}

/// The frame in a slot of the receive ring.
pub(super) enum SlotContent<'a> {
    /// The slot holds the whole frame.
    Whole(Filled<'a>),
    /// The frame is the next frame in the receive queue, after its virtio header.
    Queued {
        /// Length of the frame without the removed tag.
        length: usize,
        /// The removed tag: its TPID and its TCI.
        tag: Option<[u8; 4]>,
    },
    /// The frame was truncated.
    ///
    /// The frame is longer than any packet, or the receive queue was full.
    Truncated {
        /// Length of the frame without the removed tag.
        length: usize,
    },
    /// The kernel wrote an invalid offset.
    Invalid,
}

impl Slot<'_> {
    /// Returns the content of the slot.
    pub(super) fn content(&self) -> SlotContent<'_> {
        let slot = self.ring.slot();
        // SAFETY: the slot begins with this header, written before the slot was passed to the
        // reader; the kernel does not write to it until it is returned. `slot` returns
        // the address of a slot, since `layout` is the layout of the ring: `new` has set it, or the
        // caller of `inherit` has checked it.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        let tag = tag(header.tp_status, header.tp_vlan_tpid, header.tp_vlan_tci);
        if header.tp_status & libc::TP_STATUS_COPY != 0 {
            return SlotContent::Queued { length: header.tp_len as usize, tag };
        }
        if header.tp_snaplen < header.tp_len {
            return SlotContent::Truncated { length: header.tp_len as usize };
        }
        let (start, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let front = start.saturating_sub(VirtioHeader::ENCODED);
        let is_inside =
            front >= size_of::<libc::tpacket2_hdr>() && start + length <= self.ring.layout.slot;
        if !is_inside {
            return SlotContent::Invalid;
        }
        // SAFETY: `front` is inside the slot.
        let bytes = unsafe { slot.add(front) };
        // SAFETY: virtio header and frame lie inside the slot, as checked above with the layout of the
        // ring; the kernel does not write while the reader owns the slot.
        let bytes =
            unsafe { slice::from_raw_parts(bytes.as_ptr(), VirtioHeader::ENCODED + length) };
        match bytes.split_first_chunk() {
            Some((virtio_header, frame)) => {
                SlotContent::Whole(Filled { virtio_header: *virtio_header, frame, tag })
            }
            None => SlotContent::Invalid,
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        // Release: pairs with the kernel's barrier between reading the status word and filling the
        // slot again.
        self.ring.status().store(libc::TP_STATUS_KERNEL, Release);
        self.ring.next = (self.ring.next + 1) % self.ring.layout.slots();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of a ring of eight slots that the kernel fills during a scan.
    struct FillingRing {
        times: [Option<u32>; 8],
        /// The slot and the time of the next frame.
        next: (usize, u32),
    }

    impl FillingRing {
        /// Returns an empty ring of which `next` is filled first.
        fn new(next: usize) -> Self {
            Self { times: [None; 8], next: (next, 0) }
        }

        /// Fills some slots, as the kernel does.
        fn fill(&mut self, count: usize) {
            for _ in 0..count {
                let (slot, time) = self.next;
                if self.times[slot].is_some() {
                    return;
                }
                self.times[slot] = Some(time);
                self.next = ((slot + 1) % self.times.len(), time + 1);
            }
        }

        /// Returns the first slot, while the kernel fills slots.
        ///
        /// After `reads` reads of slots, the kernel fills `count` slots at once.
        fn first(&mut self, reads: usize, count: usize) -> Option<FirstSlot> {
            let mut left = reads;
            first_slot(self.times.len(), |slot| {
                if left == 0 {
                    self.fill(count);
                }
                left = left.wrapping_sub(1);
                self.times[slot]
            })
        }
    }

    /// Covers each first slot, each time of filling, and each number of filled slots.
    #[test]
    fn slots_filled_during_scan_hide_no_frame() {
        for next in 0..8 {
            for (filled, reads, count) in
                (0..8).flat_map(|f| (0..20).flat_map(move |r| (0..8 - f).map(move |c| (f, r, c))))
            {
                let mut ring = FillingRing::new(next);
                ring.fill(filled);
                let found = ring.first(reads, count);
                let is_right = found == Some(FirstSlot::AfterEmpty(next));
                let is_empty = found.is_none() && filled == 0;
                assert!(is_right || is_empty, "{next} {filled} {reads} {count}: {found:?}");
            }
        }
    }

    #[test]
    fn a_full_ring_begins_with_its_oldest_frame() {
        let mut ring = FillingRing::new(5);
        ring.fill(8);
        assert_eq!(ring.first(0, 0), Some(FirstSlot::Oldest(5)));
        ring.times[5] = None;
        assert_eq!(ring.first(0, 0), Some(FirstSlot::AfterEmpty(6)));
    }

    /// The kernel may release a slot after the next slot.
    #[test]
    fn oldest_frame_after_empty_slot_is_first() {
        let mut ring = FillingRing::new(6);
        ring.fill(5);
        ring.times[0] = None;
        assert_eq!(ring.first(0, 0), Some(FirstSlot::AfterEmpty(6)));
    }
}
