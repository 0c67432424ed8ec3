//! Functions for fuzz targets, which accept any bytes.

use std::{fs::File, os::fd::OwnedFd, sync::Arc};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{BufferLayout, TestGuest};
use crate::{
    FrameSink, NetHeader, RingError, Worker,
    device::{VhostDevice, direction},
    features::VirtioFeatures,
    memory::GuestMemory,
    message::{MessageHeader, VhostRequest},
    net_queue::GuestLimits,
    queues::{DeviceQueues, RunningQueue},
    ring::{QueueSettings, Virtqueue},
};

/// A sink that counts frames and checks their lengths.
#[derive(Default)]
struct CountingSink {
    buffer: Vec<u8>,
    frames: usize,
}

impl FrameSink for CountingSink {
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        if length > LENGTH_MAX {
            return None;
        }
        self.buffer.resize(length, 0);
        Some(&mut self.buffer)
    }

    fn take(&mut self, _header: NetHeader) {
        self.frames += 1;
    }
}

/// Maximum length of a frame that the sink accepts.
const LENGTH_MAX: usize = 1 << 17;

/// Handles messages from any bytes: length, request and payload of each.
///
/// Descriptors are files of a few pages. After each message frames are moved through the queues.
///
/// # Panics
///
/// Panics if a property of the device does not hold.
pub fn fuzz_messages(mut data: &[u8]) {
    let Ok(queues) = DeviceQueues::new(2) else { return };
    let queues = Arc::new(queues);
    let mut device = VhostDevice::new(Arc::clone(&queues));
    let mut workers = [0, 1].map(|worker| Worker::new(&queues, worker));
    while let Some(([request, length], rest)) = data.split_first_chunk() {
        let (payload, behind) = rest.split_at(rest.len().min((*length).into()));
        data = behind;
        let header: Vec<u8> = payload.iter().copied().chain([0; MessageHeader::BYTES]).collect();
        let _ = header.first_chunk().map(|header| MessageHeader::parse(*header));
        let Ok(request) = VhostRequest::parse((*request).into(), payload) else { continue };
        let files = (0..request.descriptors()).filter_map(|_| guest_file());
        let _ = device.handle(request, files.collect());
        for worker in &mut workers {
            worker.receiver.receive(4, &mut CountingSink::default());
            worker.sender.send([(NetHeader::default(), &[7; 60][..])]);
        }
        for failure in queues.take_failures() {
            device.fail(failure);
        }
    }
}

/// Returns a small file, as a front-end passes it.
fn guest_file() -> Option<OwnedFd> {
    let file = File::from(memfd_create(c"fuzz", MFdFlags::MFD_CLOEXEC).ok()?);
    file.set_len(1 << 14).ok()?;
    Some(file.into())
}

/// Moves frames through split queues after the guest has overwritten parts of them.
///
/// The data are changes of the memory of a queue: the offset, the length and the bytes of each.
///
/// # Panics
///
/// Panics if a property of the device does not hold.
pub fn fuzz_ring(data: &[u8]) {
    fuzz_queues(TestGuest::SPLIT, data);
}

/// Moves frames through packed queues that the guest has partly overwritten.
///
/// The data are changes of the memory of a queue: the offset, the length and the bytes of each.
///
/// # Panics
///
/// Panics if a property of the device does not hold.
pub fn fuzz_packed_ring(data: &[u8]) {
    fuzz_queues(TestGuest::PACKED, data);
}

/// Moves frames through queues of these features, corrupted by `data`.
fn fuzz_queues(features: VirtioFeatures, mut data: &[u8]) {
    let mut guest = TestGuest::new(1, 8, features);
    for length in [70, 1500, 64] {
        guest.offer_buffer(0, &BufferLayout::whole(length));
        let layout = BufferLayout { parts: vec![12, length], is_indirect: length == 64 };
        guest.send(0, NetHeader::default(), &vec![1; length], &layout);
    }
    let mut memory = GuestMemory::default();
    for region in guest.regions() {
        if memory.add(region, &guest.file).is_err() {
            return;
        }
    }
    let memory = Arc::new(memory);
    let open = |queue| -> Result<RunningQueue, RingError> {
        let settings = QueueSettings {
            address: TestGuest::address(queue),
            size: guest.size.into(),
            direction: direction(queue),
            features,
            base: 0,
        };
        let ring = Virtqueue::new(Arc::clone(&memory), settings)?;
        let limits = GuestLimits::new(features, None);
        Ok(RunningQueue { ring, limits, is_enabled: true, kick: None, call: None })
    };
    let (Ok(mut to_guest), Ok(mut from_guest)) = (open(0), open(1)) else { return };
    loop {
        let mut sink = CountingSink::default();
        let (taken, result) = from_guest.take(32, &mut sink);
        assert!(sink.frames <= taken && taken <= 32, "no frame is taken twice");
        from_guest.publish();
        let (sent, put) = to_guest.put([(NetHeader::default(), &[3; 700][..]); 2].into_iter());
        assert!(sent <= 2, "no frame is sent twice");
        to_guest.publish();
        let kick = from_guest.ring.request_kick();
        if result.is_err() || put.is_err() || kick.is_err() {
            return;
        }
        let Some(([control, low, high, length], rest)) = data.split_first_chunk() else { return };
        let (bytes, behind) = rest.split_at(rest.len().min((*length).into()));
        // The offset is within the rings and the tables, which are the first 32 KiB.
        let offset = u16::from_le_bytes([*low, *high]) & 0x7fff;
        guest.corrupt((*control % 2).into(), offset.into(), bytes);
        data = behind;
        if control & 2 != 0 {
            // The back-end is killed, and another back-end starts.
            let (Ok(first), Ok(second)) = (open(0), open(1)) else { return };
            (to_guest, from_guest) = (first, second);
        }
    }
}
