//! The code that vhost-user and memif ports share: a port of shared memory.
//!
//! Packet threads copy frames from and to memory that this process shares with another process, the
//! peer. The crates `shunt-vhost-user` and `shunt-memif` implement the protocols and the rings;
//! this module converts frames to packets. A peer often has fewer rings than there are packet
//! threads, so threads share rings (`shared_output.rs`).

use std::{
    fmt,
    os::fd::BorrowedFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use shunt_pipeline::DatapathPort;
use shunt_shared_memory::PolledFrames;

use super::{
    Capabilities, CopyCounters, FrameCopies, Port, PortCopies, PortCounters, PortError,
    QueueCopies, Queues, RxQueue, RxReport,
    shared_output::{SharedOutput, SharedTx},
    spec::local_mac,
};
use crate::{
    metrics::RxLoss,
    packet::buffer::{Packet, Pool},
};

/// A protocol by which two processes share memory, with the settings of one port.
pub trait SharedMemoryProtocol: fmt::Debug + Send {
    /// The end of the connection in this process, which runs until it is dropped.
    type Interface: fmt::Debug + Send;

    /// The capabilities of all ports of the protocol.
    const CAPABILITIES: Capabilities;

    /// Returns the path of the Unix socket of the port.
    fn socket(&self) -> &Path;

    /// Starts the interface; returns it with the queues of `threads` packet threads.
    ///
    /// Transmit queues count in `lost` the packets that they took and the peer did not get. All
    /// queues count in `copies`.
    ///
    /// # Errors
    ///
    /// If the socket is not usable.
    fn start(
        &self,
        threads: u16,
        lost: &Arc<AtomicU64>,
        copies: &mut QueueCopies,
    ) -> Result<(Self::Interface, Vec<Queues>), PortError>;

    /// Returns the reason why the link is down; `None` while it is up.
    fn down_reason(interface: &Self::Interface) -> Option<String>;

    /// Waits for at most `timeout` until the link is up (or down, if `is_up` is false).
    /// Returns whether the link reached that state.
    fn wait_for_link(interface: &Self::Interface, is_up: bool, timeout: Duration) -> bool;
}

/// A vhost-user or memif port, given by its protocol `P`.
#[derive(Debug)]
pub struct SharedMemoryPort<P: SharedMemoryProtocol> {
    /// The protocol with its settings.
    protocol: P,
    /// The MAC address of the port.
    mac: [u8; 6],
    /// The connection; `None` before [`Port::split`].
    interface: Option<P::Interface>,
    /// Number of packets that transmit queues took and the peer did not get.
    lost: Arc<AtomicU64>,
    /// The copies of the queues.
    copies: QueueCopies,
}

impl<P: SharedMemoryProtocol> SharedMemoryPort<P> {
    /// Creates a port with a MAC address derived from `seed`.
    pub(super) fn with_protocol(protocol: P, seed: u64) -> Self {
        let (lost, copies) = (Arc::default(), QueueCopies::default());
        Self { protocol, mac: local_mac(seed), interface: None, lost, copies }
    }

    /// Waits for at most `timeout` until the link is up (or down, if `is_up` is false).
    /// Returns whether the link reached that state.
    ///
    /// A port without queues is down.
    pub fn wait_for_link(&self, is_up: bool, timeout: Duration) -> bool {
        match &self.interface {
            Some(interface) => P::wait_for_link(interface, is_up, timeout),
            None => !is_up,
        }
    }
}

impl<P: SharedMemoryProtocol> Port for SharedMemoryPort<P> {
    fn capabilities(&self) -> Capabilities {
        P::CAPABILITIES
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        if self.interface.is_some() {
            let name = self.protocol.socket().display().to_string();
            return Err(PortError::AlreadySplit { name });
        }
        let (interface, queues) = self.protocol.start(threads, &self.lost, &mut self.copies)?;
        self.interface = Some(interface);
        Ok(queues)
    }

    fn link_up(&self) -> bool {
        self.interface.as_ref().is_some_and(|interface| P::down_reason(interface).is_none())
    }

    fn link_reason(&self) -> Option<String> {
        self.interface.as_ref().and_then(P::down_reason)
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn counters(&self) -> PortCounters {
        PortCounters { tx_dropped: self.lost.load(Relaxed), ..PortCounters::default() }
    }

    fn copies(&self) -> PortCopies {
        self.copies.total()
    }
}

/// The rings from which one packet thread takes the frames of a peer.
pub(super) trait SharedFrameSource: Send {
    /// Takes at most [`BURST`](crate::packet::buffer::BURST) frames; never waits.
    fn take_frames(&mut self, frames: &mut TakenFrames<'_>) -> PolledFrames;

    /// Returns a file descriptor that is readable while frames may wait.
    ///
    /// The descriptor is reliable after a poll that took all frames.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// Returns the receive and the transmit queue of one packet thread.
pub(super) fn thread_queues(
    source: impl SharedFrameSource + 'static,
    output: impl SharedOutput + 'static,
    lost: &Arc<AtomicU64>,
    copies: &mut QueueCopies,
) -> Queues {
    let rx = SharedMemoryRx { source, copies: copies.add_rx() };
    let tx = SharedTx::new(output, Arc::clone(lost), copies.add_tx());
    Queues { rx: Some(Box::new(rx)), tx: Box::new(tx) }
}

/// The receive queue of one packet thread.
struct SharedMemoryRx<S> {
    /// The rings of the peer.
    source: S,
    /// The counters of copied frames.
    copies: Arc<CopyCounters>,
}

impl<S: SharedFrameSource> RxQueue for SharedMemoryRx<S> {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let before = burst.len();
        let (report, copies) = (RxReport::default(), FrameCopies::default());
        let mut taken = TakenFrames { pool, burst, report, copies, packet: None };
        let polled = self.source.take_frames(&mut taken);
        let TakenFrames { burst, mut report, copies, .. } = taken;
        self.copies.add(copies);
        let known = burst.len() - before + report.refused as usize;
        // Also refused: empty frames, frames without a header, and frames of a disabled queue.
        for _ in known..polled.frames {
            report.refuse(RxLoss::Refused);
        }
        report.must_poll = polled.may_have_more;
        report.is_drained = !polled.may_have_more;
        Ok(report)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.source.descriptor())
    }
}

/// Converts the frames of a peer to packets of a burst.
pub(super) struct TakenFrames<'a> {
    /// The pool of packet buffers.
    pool: &'a mut Pool,
    /// The burst to which packets are added.
    burst: &'a mut Vec<Packet>,
    /// The report of this receive call.
    report: RxReport,
    /// The copies of this receive call.
    copies: FrameCopies,
    /// The packet with the buffer that [`Self::packet_buffer`] returned last.
    packet: Option<Packet>,
}

impl TakenFrames<'_> {
    /// Returns memory for a frame of `length` bytes; `None` if the frame is refused.
    pub(super) fn packet_buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        self.packet = self.pool.take(length, DatapathPort::default());
        if self.packet.is_none() {
            self.report.refuse(RxLoss::without_buffer(length));
        }
        self.packet.as_mut().map(Packet::frame_mut)
    }

    /// Takes the packet of the last [`Self::packet_buffer`], which now has its frame.
    pub(super) fn filled_packet(&mut self) -> Option<Packet> {
        self.packet.take().inspect(|packet| self.copies.record(packet.len()))
    }

    /// Adds a packet to the burst.
    pub(super) fn push(&mut self, packet: Packet) {
        self.burst.push(packet);
    }

    /// Refuses the frame of a packet.
    pub(super) fn refuse(&mut self, packet: Packet) {
        self.pool.put_back(packet);
        self.report.refuse(RxLoss::Refused);
    }
}
