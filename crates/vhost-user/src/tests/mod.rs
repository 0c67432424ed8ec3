//! Tests of whole devices, with a guest that shares no code with the devices.

mod connections;
mod guests;
mod migration;
mod moves;
mod packed_rings;
mod threads;

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use crate::{
    FrameSink, NetHeader,
    device::VhostDevice,
    message::{VhostRequest, VringDescriptor},
    queues::DeviceQueues,
    testing::TestGuest,
};

/// A sink that keeps all frames.
#[derive(Debug, Default)]
struct KeptFrames {
    buffer: Vec<u8>,
    frames: Vec<(NetHeader, Vec<u8>)>,
}

impl FrameSink for KeptFrames {
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        self.buffer.resize(length, 0);
        Some(&mut self.buffer)
    }

    fn take(&mut self, header: NetHeader) {
        self.frames.push((header, self.buffer.clone()));
    }
}

/// Duplicates a descriptor.
fn duplicate(descriptor: &impl AsFd) -> OwnedFd {
    descriptor.as_fd().try_clone_to_owned().unwrap()
}

/// Attaches a new device to a guest that may have run before, as a front-end does.
fn attach(queues: &Arc<DeviceQueues>, guest: &TestGuest) -> VhostDevice {
    let mut device = VhostDevice::new(Arc::clone(queues));
    let mut handle =
        |request, descriptors: Vec<OwnedFd>| assert!(device.handle(request, descriptors).is_ok());
    handle(VhostRequest::SetFeatures(guest.features.bits()), Vec::new());
    let files = guest.regions().iter().map(|_| duplicate(&guest.file)).collect();
    handle(VhostRequest::SetMemTable(guest.regions().to_vec()), files);
    for (queue, driver) in (0_u16..).zip(&guest.queues) {
        let address = TestGuest::address(queue);
        let queue = u32::from(queue);
        let vring = VringDescriptor { queue, has_descriptor: true };
        handle(VhostRequest::SetVringNum { queue, size: guest.size.into() }, Vec::new());
        handle(VhostRequest::SetVringBase { queue, base: 0 }, Vec::new());
        handle(VhostRequest::SetVringAddr { queue, address }, Vec::new());
        handle(VhostRequest::SetVringKick(vring), vec![duplicate(&driver.kick)]);
        handle(VhostRequest::SetVringCall(vring), vec![duplicate(&driver.call)]);
        handle(VhostRequest::SetVringEnable { queue, is_enabled: true }, Vec::new());
    }
    device
}
