//! The state of one connection: settings from the front-end, and the queues that they start.
//!
//! The messages of a front-end arrive in many orders: QEMU enables queues before it sets features,
//! and DPDK sets addresses before kicks. So a message only changes the state, and
//! [`VhostDevice::restart`] starts each queue as soon as its state is complete. The message with
//! the kick descriptor starts a queue. The device does not wait for the first kick, because a guest
//! that was running before this back-end kicks only for new frames.
//!
//! Source: vhost-user protocol, "Ring states" and "Front-end message types".

use std::{collections::BTreeMap, fs::File, os::fd::OwnedFd, sync::Arc};

use shunt_shared_memory::{accept_event, notify};

use crate::{
    error::{ProtocolError, RingError},
    features::{PROTOCOL_OFFERED, QUEUE_PAIRS_MAX, VirtioFeatures},
    memory::{DirtyLog, GuestMemory},
    message::{RegionMessage, VhostReply, VhostRequest, VringAddress, VringDescriptor},
    net_queue::GuestLimits,
    queues::{DeviceQueues, QUEUES_MAX, QueueFailure, RunningQueue, is_from_guest},
    ring::{Direction, QueueSettings, Virtqueue},
};

/// The device as one front-end sees it.
#[derive(Debug)]
pub(crate) struct VhostDevice {
    queues: Arc<DeviceQueues>,
    features: VirtioFeatures,
    memory: Arc<GuestMemory>,
    /// The log of changed pages, which is used with `VHOST_F_LOG_ALL`.
    log: Option<Arc<DirtyLog>>,
    mtu: Option<u16>,
    vrings: BTreeMap<u16, Vring>,
}

/// The state of a queue that the front-end has set.
#[derive(Debug, Default)]
struct Vring {
    size: u32,
    address: Option<VringAddress>,
    /// The position at which a stopped queue continues.
    base: u32,
    is_started: bool,
    is_enabled: bool,
    kick: Option<Arc<File>>,
    call: Option<Arc<File>>,
    error: Option<Arc<File>>,
    failure: Option<RingError>,
}

impl VhostDevice {
    /// Returns a device without memory and rings, before features are negotiated.
    pub(crate) fn new(queues: Arc<DeviceQueues>) -> Self {
        let (features, memory) = (VirtioFeatures::default(), Arc::default());
        Self { queues, features, memory, log: None, mtu: None, vrings: BTreeMap::new() }
    }

    /// Handles a request of the front-end; returns the reply, if the request has one.
    ///
    /// # Errors
    ///
    /// If the request breaks the protocol, or the system refuses it.
    pub(crate) fn handle(
        &mut self,
        request: VhostRequest,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Option<VhostReply>, ProtocolError> {
        match request {
            VhostRequest::GetFeatures => return number(VirtioFeatures::OFFERED.bits()),
            VhostRequest::GetProtocolFeatures => return number(PROTOCOL_OFFERED),
            VhostRequest::GetQueueNum => return number(QUEUE_PAIRS_MAX.into()),
            VhostRequest::GetMaxMemSlots => return number(GuestMemory::REGIONS_MAX as u64),
            VhostRequest::SetFeatures(features) => self.set_features(features)?,
            VhostRequest::SetProtocolFeatures(features) => {
                if features & !PROTOCOL_OFFERED != 0 {
                    return Err(ProtocolError::NotOffered(features & !PROTOCOL_OFFERED));
                }
            }
            VhostRequest::SetOwner => {}
            VhostRequest::ResetOwner => self.stop(),
            VhostRequest::SetMemTable(regions) => self.set_regions(regions, descriptors)?,
            VhostRequest::SetLogBase { length, offset } => {
                self.set_log(length, offset, descriptors)?;
                return Ok(Some(VhostReply::Empty));
            }
            // The front-end looks into the log by itself, and needs no event.
            VhostRequest::SetLogFd => {}
            VhostRequest::SendRarp { mac } => self.queues.announce(mac),
            VhostRequest::NetSetMtu(mtu) => self.set_mtu(mtu)?,
            VhostRequest::AddMemReg(region) => self.add_region(region, descriptors)?,
            VhostRequest::RemMemReg(region) => {
                let mut memory = GuestMemory::clone(&self.memory);
                memory.remove(&region)?;
                self.set_memory(memory);
            }
            VhostRequest::SetVringNum { queue, size } => self.vring(queue)?.1.size = size,
            VhostRequest::SetVringAddr { queue, address } => {
                let (queue, vring) = self.vring(queue)?;
                vring.address = Some(address);
                self.restart(queue);
            }
            VhostRequest::SetVringBase { queue, base } => self.vring(queue)?.1.base = base,
            VhostRequest::GetVringBase { queue } => return self.stop_vring(queue),
            VhostRequest::SetVringKick(vring) => {
                let kick = event(vring, descriptors)?;
                let (queue, vring) = self.vring(vring.queue)?;
                (vring.kick, vring.is_started, vring.failure) = (kick, true, None);
                self.restart(queue);
            }
            VhostRequest::SetVringCall(vring) => {
                let call = event(vring, descriptors)?;
                let (queue, vring) = self.vring(vring.queue)?;
                vring.call = call;
                self.adjust(queue);
            }
            VhostRequest::SetVringErr(vring) => {
                let error = event(vring, descriptors)?;
                self.vring(vring.queue)?.1.error = error;
            }
            VhostRequest::SetVringEnable { queue, is_enabled } => {
                let (queue, vring) = self.vring(queue)?;
                vring.is_enabled = is_enabled;
                self.adjust(queue);
            }
        }
        Ok(None)
    }

    /// Returns the state of a queue, if the number is valid.
    fn vring(&mut self, queue: u32) -> Result<(u16, &mut Vring), ProtocolError> {
        let number = u16::try_from(queue).ok().filter(|number| *number < QUEUES_MAX);
        let number = number.ok_or(ProtocolError::NoSuchQueue { queue, max: QUEUES_MAX })?;
        Ok((number, self.vrings.entry(number).or_default()))
    }

    /// Sets the features that the guest has accepted.
    fn set_features(&mut self, bits: u64) -> Result<(), ProtocolError> {
        let features = VirtioFeatures::from_bits(bits);
        let excess = features.without(VirtioFeatures::OFFERED);
        if excess != VirtioFeatures::default() {
            return Err(ProtocolError::NotOffered(excess.bits()));
        }
        self.features = features;
        self.queues.set_features(features);
        self.apply_log();
        Ok(())
    }

    /// Replaces the memory of the guest.
    fn set_regions(
        &mut self,
        regions: Vec<RegionMessage>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), ProtocolError> {
        let mut memory = GuestMemory::default();
        for (region, file) in regions.into_iter().zip(descriptors) {
            memory.add(region, &file)?;
        }
        self.set_memory(memory);
        Ok(())
    }

    /// Adds a region to the memory of the guest.
    fn add_region(
        &mut self,
        region: RegionMessage,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), ProtocolError> {
        let mut memory = GuestMemory::clone(&self.memory);
        for file in descriptors {
            memory.add(region, &file)?;
        }
        self.set_memory(memory);
        Ok(())
    }

    /// Replaces the memory of the guest.
    ///
    /// When the function returns, no queue uses the old memory.
    fn set_memory(&mut self, memory: GuestMemory) {
        self.memory = Arc::new(memory);
        for vring in self.vrings.values_mut() {
            // The missing part of the queue, or the missing buffer, may be in the new memory.
            vring.failure = vring.failure.filter(|error| {
                !matches!(error, RingError::Unmapped { .. } | RingError::Buffer { .. })
            });
        }
        self.apply_log();
    }

    /// Replaces the log of changed pages.
    ///
    /// When the function returns, no queue uses the old log.
    fn set_log(
        &mut self,
        length: u64,
        offset: u64,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), ProtocolError> {
        for file in descriptors {
            self.log = Some(Arc::new(DirtyLog::new(&file, length, offset)?));
        }
        self.apply_log();
        Ok(())
    }

    /// Restarts all queues; with the log, if the front-end has requested that.
    fn apply_log(&mut self) {
        let is_logged = self.features.contains(VirtioFeatures::LOG_ALL);
        let mut memory = GuestMemory::clone(&self.memory);
        memory.set_log(self.log.clone().filter(|_| is_logged));
        self.memory = Arc::new(memory);
        self.restart_all();
    }

    /// Sets the MTU of the guest.
    fn set_mtu(&mut self, mtu: u64) -> Result<(), ProtocolError> {
        let bytes = u16::try_from(mtu).ok().filter(|bytes| *bytes >= MTU_MIN);
        self.mtu = Some(bytes.ok_or(ProtocolError::Mtu(mtu))?);
        self.restart_all();
        Ok(())
    }

    /// Restarts all queues, because their memory has changed.
    fn restart_all(&mut self) {
        let queues: Vec<u16> = self.vrings.keys().copied().collect();
        queues.into_iter().for_each(|queue| self.restart(queue));
    }

    /// Starts a queue with its settings, if they are complete; otherwise stops it.
    fn restart(&mut self, queue: u16) {
        let Some(vring) = self.vrings.get_mut(&queue) else { return };
        let is_ready = vring.is_started && vring.failure.is_none() && vring.size > 0;
        let address = vring.address.filter(|_| is_ready && !self.memory.is_empty());
        let mut failure = None;
        self.queues.change(queue, |before| {
            vring.base = before.map_or(vring.base, |running| running.ring.base());
            let memory = Arc::clone(&self.memory);
            let settings = QueueSettings {
                address: address?,
                size: vring.size,
                direction: direction(queue),
                features: self.features,
                base: vring.base,
            };
            match Virtqueue::new(memory, settings) {
                Ok(ring) => {
                    let is_enabled = vring.is_effective(self.features);
                    let running = RunningQueue {
                        ring,
                        limits: GuestLimits::new(self.features, self.mtu),
                        is_enabled,
                        kick: vring.kick.clone(),
                        call: vring.call.clone(),
                    };
                    // An earlier back-end may have returned buffers, and ended before it notified
                    // the guest.
                    running.notify();
                    Some(running)
                }
                Err(error) => {
                    failure = Some(error);
                    None
                }
            }
        });
        if let Some(error) = failure {
            self.queues.report(QueueFailure { queue, error, base: None });
        }
    }

    /// Passes a changed enable state and call descriptor to a running queue.
    fn adjust(&mut self, queue: u16) {
        let Some(vring) = self.vrings.get(&queue) else { return };
        let is_enabled = vring.is_effective(self.features);
        self.queues.change(queue, |running| {
            let running =
                running.map(|own| RunningQueue { is_enabled, call: vring.call.clone(), ..own });
            // The guest may wait for an event on the new call descriptor.
            running.inspect(RunningQueue::notify)
        });
    }

    /// Stops a queue; replies with the position at which the queue continues.
    fn stop_vring(&mut self, queue: u32) -> Result<Option<VhostReply>, ProtocolError> {
        let queues = Arc::clone(&self.queues);
        let (number, vring) = self.vring(queue)?;
        (vring.is_started, vring.kick, vring.failure) = (false, None, None);
        queues.change(number, |running| {
            vring.base = running.map_or(vring.base, |running| running.ring.base());
            None
        });
        Ok(Some(VhostReply::VringState { queue, base: vring.base }))
    }

    /// Records that a worker stopped a queue; returns whether the failure is new.
    pub(crate) fn fail(&mut self, failure: QueueFailure) -> bool {
        let Some(vring) = self.vrings.get_mut(&failure.queue) else { return false };
        if let Some(error) = &vring.error {
            notify(error);
        }
        vring.base = failure.base.unwrap_or(vring.base);
        vring.failure.replace(failure.error).is_none()
    }

    /// Returns the first queue that was stopped because the guest broke a rule.
    pub(crate) fn failure(&self) -> Option<QueueFailure> {
        let failure = |(queue, vring): (&u16, &Vring)| {
            Some(QueueFailure { queue: *queue, error: vring.failure?, base: Some(vring.base) })
        };
        self.vrings.iter().find_map(failure)
    }

    /// Stops all queues of the device.
    pub(crate) fn stop(&mut self) {
        for (queue, vring) in &mut self.vrings {
            vring.is_started = false;
            self.queues.change(*queue, |running| {
                vring.base = running.map_or(vring.base, |running| running.ring.base());
                None
            });
        }
    }
}

impl Vring {
    /// Returns whether the queue passes frames.
    /// Without `VHOST_USER_F_PROTOCOL_FEATURES`, a queue needs no message that enables it.
    const fn is_effective(&self, features: VirtioFeatures) -> bool {
        self.is_enabled || !features.contains(VirtioFeatures::PROTOCOL_FEATURES)
    }
}

impl Drop for VhostDevice {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The smallest MTU of IPv4, in bytes (RFC 791).
const MTU_MIN: u16 = 68;

/// Returns the direction of the data in the buffers of a queue.
pub(crate) const fn direction(queue: u16) -> Direction {
    if is_from_guest(queue) { Direction::FromGuest } else { Direction::ToGuest }
}

/// Replies with a number.
fn number(number: u64) -> Result<Option<VhostReply>, ProtocolError> {
    Ok(Some(VhostReply::Number(number)))
}

/// Returns the event descriptor of a message; `None` if its reader is to poll.
fn event(
    vring: VringDescriptor,
    descriptors: Vec<OwnedFd>,
) -> Result<Option<Arc<File>>, ProtocolError> {
    let Some(event) = descriptors.into_iter().next().filter(|_| vring.has_descriptor) else {
        return Ok(None);
    };
    Ok(Some(Arc::new(accept_event(event)?)))
}
