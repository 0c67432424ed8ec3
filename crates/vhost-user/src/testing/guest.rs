//! The memory and the virtio driver of a guest for tests.
//!
//! The driver reads and writes the file behind the memory, so it shares no code with the device,
//! which maps the file. The guest has split or packed rings, by its features. Memory has two regions that are adjacent in the guest and far apart in the
//! front-end. The border between the regions divides the first buffer of the first queue.

use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt};

use nix::sys::{
    eventfd::{EfdFlags, EventFd},
    memfd::{MFdFlags, memfd_create},
};

use crate::{
    features::VirtioFeatures,
    message::{RegionMessage, VringAddress},
    net_queue::NetHeader,
};

/// A guest with a driver for some queue pairs.
#[derive(Debug)]
pub struct TestGuest {
    pub(crate) file: File,
    pub(crate) features: VirtioFeatures,
    pub(crate) size: u16,
    pub(crate) queues: Vec<DriverQueue>,
}

/// A queue, as its driver sees it.
#[derive(Debug)]
pub(crate) struct DriverQueue {
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    /// Descriptors that no chain has; of a packed ring, numbers that no chain has.
    pub(super) free: Vec<u16>,
    /// Chains that are offered to the device and not yet returned, by their number.
    pub(super) chains: BTreeMap<u16, DriverChain>,
    /// Number of offered chains; of a packed ring, of their descriptors.
    pub(super) offered: u32,
    /// Number of chains that were taken back; of a packed ring, of their descriptors.
    pub(super) seen: u32,
}

/// A chain that is offered to the device and not yet returned.
#[derive(Debug)]
pub(super) struct DriverChain {
    pub(super) descriptors: Vec<u16>,
    /// Address and length of each part.
    pub(super) parts: Vec<(u64, usize)>,
}

/// The form of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferLayout {
    /// Length of each part.
    pub parts: Vec<usize>,
    /// True if the descriptors are in an indirect table.
    pub is_indirect: bool,
}

impl BufferLayout {
    /// Returns the layout of a buffer in one part.
    #[must_use]
    pub fn whole(length: usize) -> Self {
        Self { parts: vec![length], is_indirect: false }
    }

    /// Returns the total length of the parts.
    fn length(&self) -> usize {
        self.parts.iter().sum()
    }
}

/// A frame that the guest received, with its header.
pub type ReceivedFrame = (NetHeader, Vec<u8>);

/// Guest physical address of the first byte of the memory.
const GUEST_BASE: u64 = 0x4000_0000;
/// Addresses of the two memory regions in the front-end.
const USER_BASES: [u64; 2] = [0x7f00_0000_0000, 0x7e00_0000_0000];
/// Bytes of memory for the rings and tables of a queue.
const QUEUE_BYTES: u64 = 0x1_0000;
/// The available ring; of a packed ring, the driver area.
pub(super) const AVAILABLE: u64 = 0x2000;
/// The used ring; of a packed ring, the device area.
pub(super) const USED: u64 = 0x3000;
/// Offset of the tables of indirect descriptors, after the start of a queue.
const TABLES: u64 = 0x4000;
/// Bytes of a table of indirect descriptors.
const TABLE_BYTES: u64 = 0x200;
/// Offset of the buffers, after all queues.
const DATA: u64 = 0x10_0000;
/// Number of bytes of memory for the data of one descriptor.
const SLOT: u64 = 0x2_0000;
/// Length of the first region.
const BORDER: u64 = DATA + 0x400;

impl TestGuest {
    /// All features of a guest with split rings.
    pub const SPLIT: VirtioFeatures = Self::PACKED.without(VirtioFeatures::RING_PACKED);
    /// All features of a guest with packed rings.
    pub const PACKED: VirtioFeatures = VirtioFeatures::OFFERED.without(VirtioFeatures::LOG_ALL);

    /// Creates a guest with queue pairs; each queue has `size` descriptors, at most 32.
    ///
    /// # Panics
    ///
    /// Panics if the system has no memory for the guest.
    #[must_use]
    pub fn new(pairs: u16, size: u16, features: VirtioFeatures) -> Self {
        let file = File::from(memfd_create(c"guest", MFdFlags::MFD_CLOEXEC).unwrap());
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = || EventFd::from_flags(flags).unwrap();
        let queue = |_| DriverQueue {
            kick: event(),
            call: event(),
            free: (0..size).rev().collect(),
            chains: BTreeMap::new(),
            offered: 0,
            seen: 0,
        };
        let queues: Vec<_> = (0..2 * pairs).map(queue).collect();
        let guest = Self { file, features, size, queues };
        guest.file.set_len(guest.length()).unwrap();
        guest
    }

    /// Returns whether the queues have the packed format.
    pub(super) const fn is_packed(&self) -> bool {
        self.features.contains(VirtioFeatures::RING_PACKED)
    }

    /// Returns the length of the memory.
    fn length(&self) -> u64 {
        DATA + SLOT * u64::from(self.size) * self.queues.len() as u64
    }

    /// Returns the memory regions.
    pub(crate) fn regions(&self) -> [RegionMessage; 2] {
        let region = |start: u64, end: u64, user_address| RegionMessage {
            guest_address: GUEST_BASE + start,
            length: end - start,
            user_address,
            file_offset: start,
        };
        let [first, second] = USER_BASES;
        [region(0, BORDER, first), region(BORDER, self.length(), second)]
    }

    /// Returns the addresses of a queue in the front-end.
    pub(crate) fn address(queue: u16) -> VringAddress {
        let base = USER_BASES[0] + QUEUE_BYTES * u64::from(queue);
        VringAddress { descriptors: base, available: base + AVAILABLE, used: base + USED }
    }

    /// Writes bytes at an address of the guest.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, address - GUEST_BASE).unwrap();
    }

    /// Reads bytes of the guest's memory.
    pub(super) fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, address - GUEST_BASE).unwrap();
        bytes
    }

    /// Reads two bytes of guest memory, the low one first.
    /// Panics outside of the memory.
    pub(super) fn read_u16(&self, address: u64) -> u16 {
        u16::from_le_bytes(self.read(address, 2).try_into().unwrap())
    }

    /// Reads four bytes of guest memory, the low one first. Panics outside of it.
    pub(super) fn read_u32(&self, address: u64) -> u32 {
        u32::from_le_bytes(self.read(address, 4).try_into().unwrap())
    }

    /// Returns the address of the rings of a queue.
    pub(crate) const fn base(queue: u16) -> u64 {
        GUEST_BASE + QUEUE_BYTES * queue as u64
    }

    /// Returns the address of the buffer of a descriptor.
    fn slot(&self, queue: u16, descriptor: u16) -> u64 {
        let slot = u64::from(queue) * u64::from(self.size) + u64::from(descriptor);
        GUEST_BASE + DATA + SLOT * slot
    }

    /// Offers a frame to the device, and kicks if the device requested a kick.
    ///
    /// Returns false if the queue is full.
    ///
    /// # Panics
    ///
    /// Panics if the length of the layout is not that of header and frame.
    pub fn send(
        &mut self,
        pair: u16,
        header: NetHeader,
        frame: &[u8],
        layout: &BufferLayout,
    ) -> bool {
        let bytes = [&header[..], frame].concat();
        assert_eq!(layout.length(), bytes.len(), "the layout has the length of header and frame");
        self.offer(2 * pair + 1, layout, Some(&bytes))
    }

    /// Offers a receive buffer to the device; returns false if the queue is full.
    pub fn offer_buffer(&mut self, pair: u16, layout: &BufferLayout) -> bool {
        self.offer(2 * pair, layout, None)
    }

    /// Offers a buffer to the device; returns false without a free descriptor.
    fn offer(&mut self, queue: u16, layout: &BufferLayout, bytes: Option<&[u8]>) -> bool {
        let wanted = if layout.is_indirect { 1 } else { layout.parts.len() };
        let descriptors = if self.is_packed() {
            self.packed_descriptors(queue, wanted)
        } else {
            self.split_descriptors(queue, wanted)
        };
        let Some(descriptors) = descriptors else { return false };
        let mut within = 0;
        let parts: Vec<(u64, usize)> = layout
            .parts
            .iter()
            .enumerate()
            .map(|(index, length)| {
                if layout.is_indirect {
                    let address = self.slot(queue, descriptors[0]) + within;
                    within += *length as u64;
                    (address, *length)
                } else {
                    (self.slot(queue, descriptors[index]), *length)
                }
            })
            .collect();
        let mut rest = bytes.unwrap_or_default();
        for (address, length) in &parts {
            let (part, behind) = rest.split_at(rest.len().min(*length));
            self.write(*address, part);
            rest = behind;
        }
        let chain = DriverChain { descriptors, parts };
        let is_wanted = if self.is_packed() {
            self.offer_packed(queue, chain, layout.is_indirect)
        } else {
            self.offer_split(queue, chain, layout.is_indirect)
        };
        if is_wanted {
            self.queues[usize::from(queue)].kick.write(1).unwrap();
        }
        true
    }

    /// Returns the address of the indirect table of a descriptor.
    pub(super) fn table(queue: u16, descriptor: u16) -> u64 {
        Self::base(queue) + TABLES + TABLE_BYTES * u64::from(descriptor)
    }

    /// Returns the flag of buffers that the device writes.
    pub(super) fn direction(queue: u16) -> u16 {
        /// The flag of a buffer that the device writes.
        const WRITE: u16 = 2;
        if queue.is_multiple_of(2) { WRITE } else { 0 }
    }

    /// Takes the buffers that the device returned; returns the written bytes of each.
    fn take_returned(&mut self, queue: u16) -> Vec<Vec<u8>> {
        let mut returned = Vec::new();
        while let Some((chain, written)) = self.next_returned(queue) {
            let bytes =
                chain.parts.iter().flat_map(|(address, length)| self.read(*address, *length));
            let mut bytes: Vec<u8> = bytes.collect();
            assert!(written as usize <= bytes.len(), "the device wrote no more than fits");
            bytes.truncate(written as usize);
            returned.push(bytes);
        }
        if self.features.contains(VirtioFeatures::EVENT_IDX) {
            if self.is_packed() {
                self.request_packed_call(queue);
            } else {
                self.request_split_call(queue);
            }
        }
        returned
    }

    /// Takes the next returned chain with the number of its written bytes, or `None`.
    fn next_returned(&mut self, queue: u16) -> Option<(DriverChain, u32)> {
        if self.is_packed() { self.next_packed(queue) } else { self.next_split(queue) }
    }

    /// Takes the frames that the device has put into receive buffers.
    ///
    /// # Panics
    ///
    /// Panics if the device broke a rule.
    pub fn take_received(&mut self, pair: u16) -> Vec<ReceivedFrame> {
        let mut buffers = self.take_returned(2 * pair).into_iter();
        let mut frames = Vec::new();
        while let Some(mut bytes) = buffers.next() {
            let count = u16::from_le_bytes([bytes[10], bytes[11]]);
            for _ in 1..count {
                bytes.extend(buffers.next().expect("all buffers of a frame are returned together"));
            }
            let header: NetHeader = bytes[..12].try_into().unwrap();
            frames.push((header, bytes.split_off(12)));
        }
        frames
    }

    /// Returns the number of frames that the device has taken since the last call.
    pub fn take_sent(&mut self, pair: u16) -> usize {
        self.take_returned(2 * pair + 1).len()
    }

    /// Returns the number of notifications from the device since the last call.
    #[must_use]
    pub fn take_calls(&self, queue: u16) -> u64 {
        self.queues[usize::from(queue)].call.read().unwrap_or(0)
    }

    /// Returns the number of kicks that the device has not read, and resets it.
    #[must_use]
    pub fn take_kicks(&self, queue: u16) -> u64 {
        self.queues[usize::from(queue)].kick.read().unwrap_or(0)
    }

    /// Suppresses notifications from the device, or requests them.
    /// The flag has an effect only without `VIRTIO_F_EVENT_IDX`.
    pub fn suppress_calls(&self, queue: u16, is_suppressed: bool) {
        let offset = if self.is_packed() { 2 } else { 0 };
        let flags = u16::from(is_suppressed).to_le_bytes();
        self.write(Self::base(queue) + AVAILABLE + offset, &flags);
    }

    /// Writes bytes into the memory of a queue, as a broken guest.
    ///
    /// The descriptors, of 16 bytes each, come first, the available ring at 0x2000.
    pub fn corrupt(&self, queue: u16, offset: u64, bytes: &[u8]) {
        self.write(Self::base(queue) + offset, bytes);
    }

    /// Returns a descriptor of a queue, as bytes.
    #[cfg(test)]
    pub(crate) fn descriptor(&self, queue: u16, index: u16) -> Vec<u8> {
        self.read(Self::base(queue) + 16 * u64::from(index), 16)
    }

    /// Returns the contents of the whole memory.
    #[cfg(test)]
    pub(crate) fn contents(&self) -> Vec<u8> {
        self.read(GUEST_BASE, usize::try_from(self.length()).unwrap())
    }
}
