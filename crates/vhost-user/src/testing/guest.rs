//! The memory and the virtio driver of a guest for tests.
//!
//! The driver reads and writes the file behind the memory, so it shares no code with the device,
//! which maps the file. Memory has two regions that are adjacent in the guest and far apart in the
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
    free: Vec<u16>,
    chains: BTreeMap<u16, DriverChain>,
    offered: u16,
    seen: u16,
}

/// A chain that is offered to the device and not yet returned.
#[derive(Debug)]
struct DriverChain {
    descriptors: Vec<u16>,
    /// Address and length of each part.
    parts: Vec<(u64, usize)>,
}

/// The form of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferLayout {
    /// Length of each part.
    pub parts: Vec<usize>,
    /// Set if the descriptors are in an indirect table.
    pub is_indirect: bool,
}

impl BufferLayout {
    /// Returns the layout of a buffer in one part.
    #[must_use]
    pub fn whole(length: usize) -> Self {
        Self { parts: vec![length], is_indirect: false }
    }

    fn length(&self) -> usize {
        self.parts.iter().sum()
    }
}

/// A frame that the guest received, with its header.
pub type ReceivedFrame = (NetHeader, Vec<u8>);

const GUEST_BASE: u64 = 0x4000_0000;
const USER_BASES: [u64; 2] = [0x7f00_0000_0000, 0x7e00_0000_0000];
const QUEUE_BYTES: u64 = 0x1_0000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const TABLES: u64 = 0x4000;
const TABLE_BYTES: u64 = 0x200;
const DATA: u64 = 0x10_0000;
/// Number of bytes of memory for the data of one descriptor.
const SLOT: u64 = 0x2_0000;
/// Length of the first region.
const BORDER: u64 = DATA + 0x400;

impl TestGuest {
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

    fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, address - GUEST_BASE).unwrap();
        bytes
    }

    fn read_u16(&self, address: u64) -> u16 {
        u16::from_le_bytes(self.read(address, 2).try_into().unwrap())
    }

    fn read_u32(&self, address: u64) -> u32 {
        u32::from_le_bytes(self.read(address, 4).try_into().unwrap())
    }

    pub(crate) const fn base(queue: u16) -> u64 {
        GUEST_BASE + QUEUE_BYTES * queue as u64
    }

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
    /// Panics if the layout is shorter than header and frame.
    pub fn send(
        &mut self,
        pair: u16,
        header: NetHeader,
        frame: &[u8],
        layout: &BufferLayout,
    ) -> bool {
        let bytes = [&header[..], frame].concat();
        assert_eq!(layout.length(), bytes.len(), "the layout is that of header and frame");
        self.offer(2 * pair + 1, layout, Some(&bytes))
    }

    /// Offers a receive buffer to the device; returns false if the queue is full.
    pub fn offer_buffer(&mut self, pair: u16, layout: &BufferLayout) -> bool {
        self.offer(2 * pair, layout, None)
    }

    fn offer(&mut self, queue: u16, layout: &BufferLayout, bytes: Option<&[u8]>) -> bool {
        let own = usize::from(queue);
        let wanted = if layout.is_indirect { 1 } else { layout.parts.len() };
        if self.queues[own].free.len() < wanted {
            return false;
        }
        let descriptors: Vec<u16> =
            (0..wanted).filter_map(|_| self.queues[own].free.pop()).collect();
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
        self.write_descriptors(queue, &descriptors, &parts, layout.is_indirect);
        let base = Self::base(queue);
        let offered = self.queues[own].offered;
        let entry = u64::from(offered % self.size);
        self.write(base + AVAILABLE + 4 + 2 * entry, &descriptors[0].to_le_bytes());
        self.write(base + AVAILABLE + 2, &offered.wrapping_add(1).to_le_bytes());
        let head = descriptors[0];
        let state = &mut self.queues[own];
        state.chains.insert(head, DriverChain { descriptors, parts });
        state.offered = offered.wrapping_add(1);
        self.kick(queue);
        true
    }

    fn write_descriptors(
        &self,
        queue: u16,
        descriptors: &[u16],
        parts: &[(u64, usize)],
        is_indirect: bool,
    ) {
        let (next, write, indirect) = (1_u16, 2, 4);
        let direction = if queue.is_multiple_of(2) { write } else { 0 };
        let record = |(address, length): (u64, usize), flags: u16, following: u16| {
            let mut bytes = address.to_le_bytes().to_vec();
            bytes.extend(u32::try_from(length).unwrap().to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend(following.to_le_bytes());
            bytes
        };
        let base = Self::base(queue);
        let table = base + TABLES + TABLE_BYTES * u64::from(descriptors[0]);
        for (index, part) in parts.iter().enumerate() {
            let flags = if index + 1 < parts.len() { direction | next } else { direction };
            let following = if is_indirect {
                u16::try_from(index + 1).unwrap()
            } else {
                descriptors.get(index + 1).copied().unwrap_or_default()
            };
            let place = if is_indirect {
                table + 16 * index as u64
            } else {
                base + 16 * u64::from(descriptors[index])
            };
            self.write(place, &record(*part, flags, following));
        }
        if is_indirect {
            let entry = record((table, 16 * parts.len()), indirect, 0);
            self.write(base + 16 * u64::from(descriptors[0]), &entry);
        }
    }

    /// Kicks the device if it requested a kick.
    fn kick(&self, queue: u16) {
        let base = Self::base(queue);
        let state = &self.queues[usize::from(queue)];
        let is_wanted = if self.features.contains(VirtioFeatures::EVENT_IDX) {
            let wanted = self.read_u16(base + USED + 4 + 8 * u64::from(self.size));
            wanted == state.offered.wrapping_sub(1)
        } else {
            self.read_u16(base + USED) & 1 == 0
        };
        if is_wanted {
            state.kick.write(1).unwrap();
        }
    }

    /// Takes the buffers that the device returned; returns the written bytes of each.
    fn take_returned(&mut self, queue: u16) -> Vec<Vec<u8>> {
        let base = Self::base(queue) + USED;
        let index = self.read_u16(base + 2);
        let mut returned = Vec::new();
        while self.queues[usize::from(queue)].seen != index {
            let seen = self.queues[usize::from(queue)].seen;
            let entry = base + 4 + 8 * u64::from(seen % self.size);
            let (head, written) = (self.read_u32(entry), self.read_u32(entry + 4));
            let state = &mut self.queues[usize::from(queue)];
            state.seen = seen.wrapping_add(1);
            let chain = state.chains.remove(&u16::try_from(head).unwrap());
            let chain = chain.expect("the device returns a chain that it has");
            state.free.extend(chain.descriptors);
            let bytes =
                chain.parts.iter().flat_map(|(address, length)| self.file_bytes(*address, *length));
            let mut bytes: Vec<u8> = bytes.collect();
            assert!(written as usize <= bytes.len(), "the device wrote no more than fits");
            bytes.truncate(written as usize);
            returned.push(bytes);
        }
        if self.features.contains(VirtioFeatures::EVENT_IDX) {
            // The driver requests a notification for the next buffer.
            let place = Self::base(queue) + AVAILABLE + 4 + 2 * u64::from(self.size);
            self.write(place, &index.to_le_bytes());
        }
        returned
    }

    fn file_bytes(&self, address: u64, length: usize) -> Vec<u8> {
        self.read(address, length)
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
        self.write(Self::base(queue) + AVAILABLE, &u16::from(is_suppressed).to_le_bytes());
    }

    /// Writes bytes into the memory of a queue, as a broken guest.
    ///
    /// The first 16 bytes of each descriptor come first, the available ring at 0x2000.
    pub fn corrupt(&self, queue: u16, offset: u64, bytes: &[u8]) {
        self.write(Self::base(queue) + offset, bytes);
    }
}
