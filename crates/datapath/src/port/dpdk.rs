//! A DPDK port: a network card or a virtual device that a driver of DPDK has.
//!
//! The crate `shunt-dpdk` has the device, and this module has the packets and their offloads. Each
//! frame is copied once in each direction, between a buffer of DPDK and a buffer of the thread's
//! pool. So a packet of a DPDK port can wait, and leave by a port of any kind.
//!
//! A device has no descriptor that announces packets, so a thread with a DPDK port polls without
//! end. If a device has fewer transmit queues than there are threads, threads share queues
//! (`shared_output.rs`).
//!
//! The port completes checksums and segments packets that the device cannot complete or segment.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use shunt_dpdk::{
    BurstEnd, DeviceCounters, DeviceLimits, DeviceSettings, DpdkDevice, DpdkQueues, DpdkReceiver,
    DpdkSender, Eal, EalOptions, FrameChecksum, FrameOffload, FrameSegments, Transport,
};
use shunt_pipeline::DatapathPort;
use shunt_shared_memory::{SendEnd, SentFrames};

use super::{
    AssignedRxQueue, Capabilities, CopyCounters, FirstThread, FrameCopies, Port, PortCopies,
    PortCounters, PortError, QueueCopies, Queues, RxQueue, RxReport, SplitQueues, TxQueue,
    shared_output::{SharedOutput, SharedTx},
    spec::local_mac,
};
use crate::{
    metrics::RxLoss,
    packet::{
        buffer::{BURST, Packet, Pool},
        segment::payload,
        virtio::VirtioHeader,
    },
};

/// A port for a device that DPDK drives in this process.
#[derive(Debug)]
pub struct Dpdk {
    /// The device that DPDK drives.
    device: DpdkDevice,
    /// Number of receive queues; `None` for one for each thread.
    rx_queues: Option<u16>,
    /// The configured MTU; `None` leaves the MTU of the device.
    mtu: Option<u16>,
    /// The MAC address of the port.
    mac: [u8; 6],
    /// Number of packets that the port took and the device did not get.
    lost: Arc<AtomicU64>,
    /// The copies of the queues.
    copies: QueueCopies,
}

impl Dpdk {
    /// Attaches the device of `devargs`; the first call starts DPDK.
    ///
    /// `rx_queues` is `None` for one receive queue per packet thread. `mtu` is `None` to keep the
    /// MTU of the device. A device without a MAC address gets one that is derived from `seed`.
    ///
    /// # Errors
    ///
    /// If DPDK does not start, or the device cannot be attached. The error says how to mend it.
    pub fn open(
        devargs: &str,
        rx_queues: Option<u16>,
        mtu: Option<u32>,
        eal: &EalOptions,
        seed: u64,
    ) -> Result<Self, PortError> {
        let device = DpdkDevice::attach(Eal::start(eal)?, devargs)?;
        let mac = device.mac().unwrap_or_else(|| local_mac(seed));
        let mtu = mtu.map(|mtu| u16::try_from(mtu).unwrap_or(u16::MAX));
        let (lost, copies) = (Arc::default(), QueueCopies::default());
        Ok(Self { device, rx_queues, mtu, mac, lost, copies })
    }

    /// Starts the device with its queues, and divides them among the threads.
    fn start(&mut self, threads: u16) -> Result<StartedQueues, PortError> {
        let settings = DeviceSettings { rx_queues: self.rx_queues, threads, mtu: self.mtu };
        let DpdkQueues { receivers, senders } = self.device.start(settings)?;
        let count = usize::from(threads).max(1);
        // Many devices have one queue, so the first queue of each device goes to another thread.
        let first = FIRST_THREAD.fetch_add(receivers.len(), Relaxed);
        let receivers = receivers.into_iter().enumerate();
        let receivers =
            receivers.map(|(queue, receiver)| (first.wrapping_add(queue) % count, receiver));
        let limits = self.device.limits();
        let senders: Vec<_> = senders.into_iter().map(|own| Arc::new(Mutex::new(own))).collect();
        let tx = (0..count).map(|thread| {
            let sender = Arc::clone(&senders[thread % senders.len()]);
            let output = DpdkOutput { sender, limits };
            let (lost, copies) = (Arc::clone(&self.lost), self.copies.add_tx());
            let queue: Box<dyn TxQueue> = Box::new(SharedTx::new(output, lost, copies));
            queue
        });
        Ok(StartedQueues { receivers: receivers.collect(), tx: tx.collect() })
    }
}

/// The queues of a started device.
struct StartedQueues {
    /// The receivers, each with the thread that gets it first.
    receivers: Vec<(usize, DpdkReceiver)>,
    /// The transmit queue of each thread.
    tx: Vec<Box<dyn TxQueue>>,
}

/// Number of receive queues of all ports so far: gives the next queue its thread.
static FIRST_THREAD: AtomicUsize = AtomicUsize::new(0);

impl Port for Dpdk {
    fn capabilities(&self) -> Capabilities {
        let DeviceLimits { tcp_checksum, udp_checksum, tcp_segments, .. } = self.device.limits();
        // The transmit queue completes packets in software if the device lacks an offload.
        Capabilities {
            tx_checksum: tcp_checksum || udp_checksum,
            tx_segmentation: tcp_segments,
            tx_tunnel_segmentation: false,
            frame_max: self.device.frame_max(),
            can_wait: false,
        }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        let StartedQueues { receivers, tx } = self.start(threads)?;
        let mut receiving: Vec<Vec<DpdkReceiver>> = tx.iter().map(|_| Vec::new()).collect();
        for (thread, receiver) in receivers {
            receiving[thread].push(receiver);
        }
        let queues = receiving.into_iter().zip(tx).map(|(receivers, tx)| {
            let rx =
                (!receivers.is_empty()).then(|| DpdkRx::boxed(receivers, self.copies.add_rx()));
            Queues { rx, tx }
        });
        Ok(queues.collect())
    }

    fn split_by_queue(&mut self, threads: u16) -> Result<SplitQueues, PortError> {
        let StartedQueues { receivers, tx } = self.start(threads)?;
        let rx = receivers.into_iter().map(|(_, receiver)| AssignedRxQueue {
            first: FirstThread::LeastLoaded,
            queue: DpdkRx::boxed(vec![receiver], self.copies.add_rx()),
        });
        Ok(SplitQueues { rx: rx.collect(), tx })
    }

    fn link_up(&self) -> bool {
        self.device.link_is_up()
    }

    fn link_reason(&self) -> Option<String> {
        (!self.device.link_is_up()).then(|| "the driver reports no link".to_owned())
    }

    fn lost(&self) -> Option<String> {
        let name = self.device.name();
        self.device.is_removed().then(|| format!("the DPDK device {name} was removed"))
    }

    fn mtu(&self) -> Option<u32> {
        Some(self.device.mtu().into())
    }

    fn numa_node(&self) -> Option<u32> {
        self.device.limits().numa_node()
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn counters(&self) -> PortCounters {
        let DeviceCounters { rx_dropped, tx_dropped } = self.device.counters();
        PortCounters { rx_dropped, tx_dropped: tx_dropped + self.lost.load(Relaxed) }
    }

    fn copies(&self) -> PortCopies {
        self.copies.total()
    }

    fn driver_counters(&self) -> Vec<(String, u64)> {
        self.device.driver_counters()
    }
}

/// The receive queues of a device that one thread has.
struct DpdkRx {
    /// The receivers of the thread, one per device queue.
    receivers: Vec<DpdkReceiver>,
    /// The queue that is polled next.
    next: usize,
    /// Number of consecutive queues that were found empty.
    empty: usize,
    /// The counters of copied frames.
    copies: Arc<CopyCounters>,
}

impl DpdkRx {
    /// Returns a receive queue that polls some queues of the device.
    fn boxed(receivers: Vec<DpdkReceiver>, copies: Arc<CopyCounters>) -> Box<dyn RxQueue> {
        Box::new(Self { receivers, next: 0, empty: 0, copies })
    }
}

/// Longest time without a poll of a queue that moves to another thread.
///
/// In this time, 744 of the shortest frames arrive at 10 Gbit/s.
const PAUSE_MAX: Duration = Duration::from_micros(50);

impl RxQueue for DpdkRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let (mut report, mut copies) = (RxReport::default(), FrameCopies::default());
        let queues = self.receivers.len();
        let receiver = &mut self.receivers[self.next];
        self.next = (self.next + 1) % queues;
        let frames = receiver.receive(BURST);
        for position in 0..frames.len() {
            let Some((length, is_verified)) = frames.describe(position) else { break };
            let Some(mut packet) = pool.take(length, DatapathPort::default()) else {
                report.refuse(RxLoss::without_buffer(length));
                continue;
            };
            if !frames.read(position, packet.frame_mut()) {
                pool.put_back(packet);
                report.refuse(RxLoss::Refused);
                continue;
            }
            copies.record(length);
            packet.virtio.data_valid = is_verified;
            burst.push(packet);
        }
        self.copies.add(copies);
        self.empty = if frames.len() < BURST { (self.empty + 1).min(queues) } else { 0 };
        report.is_drained = self.empty == queues;
        Ok(report)
    }

    fn may_overflow(&self, pause: Duration) -> bool {
        pause >= PAUSE_MAX
    }
}

/// A transmit queue of a device for the packets of one thread.
struct DpdkOutput {
    /// The transmit queue, which threads may share; each thread only tries the lock.
    sender: Arc<Mutex<DpdkSender>>,
    /// The limits of the device on frames to send.
    limits: DeviceLimits,
}

impl SharedOutput for DpdkOutput {
    fn capabilities_for(&self, packet: &Packet) -> Capabilities {
        let limits = self.limits;
        let checksum = checksum(packet);
        let has = |tcp, udp| match checksum.map(|checksum| checksum.transport) {
            Some(Transport::Tcp) => tcp,
            Some(Transport::Udp) => udp,
            None => false,
        };
        Capabilities {
            tx_checksum: has(limits.tcp_checksum, limits.udp_checksum),
            tx_segmentation: has(limits.tcp_segments, false),
            tx_tunnel_segmentation: false,
            frame_max: Pool::LARGE,
            can_wait: false,
        }
    }

    fn send<'a>(&mut self, packets: impl ExactSizeIterator<Item = &'a Packet>) -> SentFrames {
        let Some(mut sender) = self.sender.try_lock() else {
            return SentFrames::none(SendEnd::Busy);
        };
        let (frames, end) = sender.send(packets.map(|packet| (packet.frame(), offload(packet))));
        let end = match end {
            BurstEnd::All => SendEnd::All,
            BurstEnd::Full => SendEnd::Full,
            BurstEnd::Refused => SendEnd::Refused,
        };
        SentFrames { frames, end }
    }
}

/// Returns the offloads that a packet requires of the device.
fn offload(packet: &Packet) -> FrameOffload {
    let VirtioHeader { needs_checksum, header_length, gso_size, checksum_start, .. } =
        packet.virtio;
    if !needs_checksum {
        return FrameOffload::default();
    }
    let checksum = checksum(packet);
    let segments = packet.virtio.is_segmented().then(|| FrameSegments {
        l4_length: header_length.saturating_sub(checksum_start),
        size: gso_size,
    });
    FrameOffload { checksum, segments }
}

/// Returns the checksum that a device can complete.
///
/// `None` for other checksums, such as those inside a tunnel.
fn checksum(packet: &Packet) -> Option<FrameChecksum> {
    let VirtioHeader { needs_checksum, checksum_start, checksum_offset, .. } = packet.virtio;
    let (transport, protocol) = match checksum_offset {
        16 => (Transport::Tcp, 6),
        6 => (Transport::Udp, 17),
        _ => return None,
    };
    let frame = packet.frame();
    let (at, ethertype) = payload(frame)?;
    let header = frame.get(at..)?;
    let (is_ipv6, length, found) = match ethertype {
        0x0800 => (false, usize::from(header.first()? & 0x0f) * 4, *header.get(9)?),
        0x86dd => (true, 40, *header.get(6)?),
        _ => return None,
    };
    let start = usize::from(checksum_start);
    if !needs_checksum || found != protocol || at.checked_add(length) != Some(start) {
        return None;
    }
    let (l2_length, l3_length) = (u16::try_from(at).ok()?, u16::try_from(length).ok()?);
    // A buffer of DPDK has 7 and 9 bits for these lengths.
    let fits = l2_length < 1 << 7 && l3_length < 1 << 9;
    fits.then_some(FrameChecksum { transport, is_ipv6, l2_length, l3_length })
}
