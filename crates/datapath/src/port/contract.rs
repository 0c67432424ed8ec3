//! The traits that every kind of port implements.

use std::{io, os::fd::BorrowedFd, sync::Arc, time::Duration};

use shunt_pipeline::{DatapathPort, Time};

use super::{
    DeviceLosses, DeviceReader, DeviceReading, DriverInfo, HostDevice, HostDeviceSetting,
    HostDeviceState, LinkMode, MtuRefusal, PortCopies, PortError, StoredDescriptor,
};
use crate::{
    metrics::{Counter, RxLoss},
    packet::{
        buffer::{Packet, Pool},
        virtio::VirtioHeader,
    },
};

/// A port of the datapath, owned by the control thread.
pub trait Port: Send {
    /// Returns the capabilities of the port.
    fn capabilities(&self) -> Capabilities;

    /// Creates one pair of queues for each of `threads` packet threads.
    ///
    /// Queues are created once. For another number of threads, the caller closes and opens the port
    /// again.
    ///
    /// # Errors
    ///
    /// If the device refuses, with the system's reason, and if queues were created before.
    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError>;

    /// Creates the queues, with each receive queue of the device as a separate value.
    ///
    /// A receive queue can then move to another packet thread. By default, the queues are those of
    /// [`Self::split`], and begin at its threads.
    ///
    /// # Errors
    ///
    /// Like [`Self::split`].
    fn split_by_queue(&mut self, threads: u16) -> Result<SplitQueues, PortError> {
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        for (thread, queues) in self.split(threads)?.into_iter().enumerate() {
            let first = FirstThread::At(thread);
            rx.extend(queues.rx.map(|queue| AssignedRxQueue { first, queue }));
            tx.push(queues.tx);
        }
        Ok(SplitQueues { rx, tx })
    }

    /// Returns whether the link is up.
    fn link_up(&self) -> bool;

    /// Returns the reason why the link is down, if the port knows it.
    fn link_reason(&self) -> Option<String> {
        None
    }

    /// Returns the device of the host that the port serves.
    ///
    /// By default, the other methods about a device use this device.
    fn host_device(&self) -> Option<&HostDevice> {
        None
    }

    /// Returns the reason why the port no longer serves its device, such as a new name.
    fn lost(&self) -> Option<String> {
        self.host_device()?.lost()
    }

    /// Returns the result of [`Self::lost`], by a reading of the device.
    fn lost_by(&self, reading: &DeviceReading) -> Option<String> {
        reading.lost.clone()
    }

    /// Returns a reader of the device; `None` without a device of the host.
    fn device_reader(&self) -> Option<DeviceReader> {
        self.host_device()?.reader()
    }

    /// Removes a device when the port closes, if it would otherwise outlive the port.
    ///
    /// # Errors
    ///
    /// If the device refuses.
    fn remove_device(&self) -> Result<(), PortError> {
        Ok(())
    }

    /// Returns the MTU: the longest packet without its Ethernet header.
    ///
    /// `None` if the device has no such limit. The limit does not apply to packets that are still
    /// to be segmented.
    fn mtu(&self) -> Option<u32> {
        None
    }

    /// Returns the MTU that was refused when the port was opened.
    fn mtu_refusal(&self) -> Option<MtuRefusal> {
        self.host_device()?.mtu_refusal
    }

    /// Returns work that changes the device while packets pass.
    ///
    /// `None` if the port must be opened again for the change, or has no device of the host.
    fn change_device(&self, setting: HostDeviceSetting) -> Option<DeviceWork> {
        self.host_device()?.change_work(setting)
    }

    /// Returns the state of the device; `None` without a device of the host.
    ///
    /// The call costs three system calls.
    fn device_state(&self) -> Option<HostDeviceState> {
        self.host_device()?.state()
    }

    /// Returns the speed and the duplex mode of the link.
    ///
    /// The driver of the device answers, which may take longer than other system calls.
    fn link_mode(&self) -> LinkMode {
        self.host_device().map_or_else(LinkMode::default, HostDevice::link_mode)
    }

    /// Returns the driver of the device, as it was when the port was opened.
    fn driver(&self) -> Option<&Arc<DriverInfo>> {
        self.host_device()?.driver.as_ref()
    }

    /// Returns the NUMA node of the device, as it was when the port was opened.
    ///
    /// `None` for a device without a node, such as a virtual device.
    fn numa_node(&self) -> Option<u32> {
        self.host_device()?.numa_node
    }

    /// Returns the MAC address: locally administered if the port has no device.
    ///
    /// For a device, it is the address that the device had when the port was opened.
    fn mac(&self) -> [u8; 6];

    /// Returns the counters of the device, which packet threads do not count.
    ///
    /// The losses of a device before its port are as old as the last [`Self::note_losses`].
    fn counters(&self) -> PortCounters;

    /// Returns the copies that the queues made of frames.
    ///
    /// A copy is a transfer of a frame between two buffers by code of the switch, and none by the
    /// kernel. The type [`QueueCopies`](super::QueueCopies) counts the copies.
    fn copies(&self) -> PortCopies;

    /// Records the losses of the device.
    ///
    /// One request to the system reads the losses of all devices.
    fn note_losses(&self, losses: &DeviceLosses) {
        let _ = losses;
    }

    /// Returns further counters of the device that are not 0.
    ///
    /// The driver chooses the names of the counters.
    fn driver_counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Returns work on the device that is due.
    ///
    /// The caller asks about twice per second. [`Self::stored_descriptors`] may have changed after
    /// the work.
    fn maintenance(&mut self, now: Time) -> Option<PortWork> {
        let _ = now;
        None
    }

    /// Returns copies of the descriptors of the queues, for a later process.
    ///
    /// Empty for a port that a later process must open again.
    fn stored_descriptors(&self) -> Vec<StoredDescriptor> {
        Vec::new()
    }

    /// Returns whether stored descriptors must be discarded before the split.
    ///
    /// True if the port has refused stored descriptors that keep its device in use.
    fn must_discard_stored(&self) -> bool {
        false
    }

    /// Ends the use of the device, although copies of the descriptors may be stored.
    ///
    /// Called before the port closes, unless the process ends with the port.
    fn release_device(&self) {}
}

/// Work of a port on its device, for a thread that may block.
pub type PortWork = Box<dyn FnOnce() + Send>;

/// A change of a device, for a thread that may block.
///
/// The work fails if the system refuses the change.
pub type DeviceWork = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// The receive queue and the transmit queue of one port for one packet thread.
pub struct Queues {
    /// The receive queue; `None` if this thread receives nothing from the port.
    pub rx: Option<Box<dyn RxQueue>>,
    /// The transmit queue of the port.
    pub tx: Box<dyn TxQueue>,
}

/// The queues of a port for all packet threads.
pub struct SplitQueues {
    /// The receive queues; the position is the number of the queue.
    pub rx: Vec<AssignedRxQueue>,
    /// The transmit queue of each packet thread.
    pub tx: Vec<Box<dyn TxQueue>>,
}

/// A receive queue, and the packet thread that gets it first.
pub struct AssignedRxQueue {
    /// The thread that gets the queue first.
    pub first: FirstThread,
    /// The receive queue to assign.
    pub queue: Box<dyn RxQueue>,
}

/// The packet thread that gets a new receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstThread {
    /// The thread at this position among the threads of the port.
    ///
    /// For ports that have a queue for each thread, and for those that belong to one thread.
    At(usize),
    /// The thread with the least load, by the choice of the caller.
    LeastLoaded,
}

/// A receive queue of a port.
pub trait RxQueue: Send {
    /// Appends at most [`BURST`](crate::BURST) packets to `burst`; never blocks.
    /// The caller sets their `ingress`.
    ///
    /// # Errors
    ///
    /// If the device was removed or is broken. The queue then receives no more packets, and the
    /// control thread opens the port again.
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError>;

    /// Records that the first `count` frames are finished, including refused frames.
    ///
    /// All copies of a finished packet were dropped, punted, or passed to transmit queues that were
    /// flushed. The caller calls this when the count grows.
    fn finished(&mut self, count: u64) {
        let _ = count;
    }

    /// Checks that the device still exists; called at intervals, also on an idle queue.
    ///
    /// Only queues that do not become readable when their device is removed need this check.
    ///
    /// # Errors
    ///
    /// If the device was removed or is broken, as [`Self::rx`].
    fn check(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Returns whether the device may lose packets if no thread polls the queue.
    ///
    /// `pause` is the time since the last poll. A queue that can read the fill level of its ring
    /// decides by this level. Other queues have a limit for the pause.
    fn may_overflow(&self, pause: Duration) -> bool {
        pause >= POLL_PAUSE_MAX
    }

    /// Returns a descriptor that is readable while packets wait or the queue is broken.
    ///
    /// `None` means that the queue must be polled.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Longest time without a poll of a receive queue that moves to another thread.
///
/// In this time, a queue with a million packets in a second receives half of a ring of 1024 frames.
pub(crate) const POLL_PAUSE_MAX: Duration = Duration::from_micros(500);

/// The result of one receive, apart from the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxReport {
    /// Number of refused frames, for all reasons.
    /// A frame is refused if it is longer than the port's limit, if the system truncated it, or if
    /// its virtio header contradicts it. A frame that arrives while the pool is empty is also
    /// refused.
    pub refused: u32,
    /// Number of refused frames for which the pool had no buffer.
    pub no_buffer: u32,
    /// Number of refused frames that did not fit a queue of the system.
    pub ring_full: u32,
    /// True if no packet will be received any more (a file that is replayed once).
    pub exhausted: bool,
    /// True if the queue was empty at the end: another poll would find no packet.
    pub is_drained: bool,
    /// True if the queue must be polled again although it returned no packet.
    ///
    /// [`RxQueue::wait_fd`] then need not announce the next packet.
    pub must_poll: bool,
}

impl RxLoss {
    /// Returns the reason why the pool has no buffer for a frame of `length` bytes.
    pub(crate) const fn without_buffer(length: usize) -> Self {
        if length > Pool::LARGE { Self::Refused } else { Self::NoBuffer }
    }
}

impl RxReport {
    /// Records a refused frame.
    pub(crate) const fn refuse(&mut self, reason: RxLoss) {
        self.refused += 1;
        match reason {
            RxLoss::NoBuffer => self.no_buffer += 1,
            RxLoss::RingFull => self.ring_full += 1,
            // Queues do not police; packet threads do.
            RxLoss::Refused | RxLoss::Policed => {}
        }
    }

    /// Adds the refused frames to counters by reason.
    #[cold]
    pub(crate) fn count(&self, lost: &[Counter; RxLoss::COUNT]) {
        let Self { refused, no_buffer, ring_full, .. } = *self;
        lost[RxLoss::NoBuffer as usize].add(no_buffer.into());
        lost[RxLoss::RingFull as usize].add(ring_full.into());
        lost[RxLoss::Refused as usize].add((refused - no_buffer - ring_full).into());
    }
}

/// A transmit queue of a port.
pub trait TxQueue: Send {
    /// Sends packets from the front of the slice; returns the number of packets taken.
    ///
    /// The caller keeps the buffers. The caller drops and counts the packets that were not taken.
    fn tx(&mut self, packets: &[Packet]) -> usize;

    /// Returns the reason why the last [`Self::tx`] did not take all packets.
    fn tx_end(&self) -> TxEnd {
        TxEnd::Full
    }

    /// Sends pending packets.
    ///
    /// Called at the end of each poll loop iteration in which the queue took packets, and of later
    /// iterations while [`Self::is_pending`] returns true.
    fn flush(&mut self);

    /// Returns whether packets wait for another [`Self::flush`].
    fn is_pending(&self) -> bool {
        false
    }

    /// Returns whether packets of the port `ingress` wait for another flush.
    ///
    /// A queue that does not know the ports of its packets returns true if any packet waits.
    fn holds_packets_of(&self, ingress: DatapathPort) -> bool {
        let _ = ingress;
        self.is_pending()
    }
}

/// The reason why a transmit queue took no more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxEnd {
    /// The queue is full, and takes none of the remaining packets.
    Full,
    /// The device is down or was removed.
    /// The queue takes none of the remaining packets.
    Down,
    /// The queue had no room for the first remaining packet.
    /// The port may have room for the next packet, because only some packets use the full queue.
    Crowded,
    /// The device will never send the first remaining packet.
    /// For example, the packet exceeds the MTU.
    Refused,
}

/// Capabilities of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// True if the device completes transport checksums.
    pub tx_checksum: bool,
    /// True if the device segments TCP and UDP packets.
    pub tx_segmentation: bool,
    /// True if the device also segments packets in a UDP tunnel.
    pub tx_tunnel_segmentation: bool,
    /// Longest frame, Ethernet header included.
    /// The device itself may refuse shorter frames.
    pub frame_max: usize,
    /// True if every receive queue has a [`RxQueue::wait_fd`].
    pub can_wait: bool,
}

impl Capabilities {
    /// The capabilities of a port that sends only complete frames, without offloads.
    pub(crate) const WIRE: Self = Self {
        tx_checksum: false,
        tx_segmentation: false,
        tx_tunnel_segmentation: false,
        frame_max: usize::MAX,
        can_wait: false,
    };

    /// Returns whether the device makes the segments of a packet.
    pub(crate) const fn segments(&self, virtio: &VirtioHeader) -> bool {
        self.tx_segmentation && (virtio.tunnel.is_none() || self.tx_tunnel_segmentation)
    }
}

/// Counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets that the device dropped before they were received.
    pub rx_dropped: u64,
    /// Packets that the device accepted and could not send.
    pub tx_dropped: u64,
}
