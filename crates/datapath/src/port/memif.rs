//! A memif port: a memory interface to VPP, DPDK or another program of this host.
//!
//! The crate `shunt-memif` implements the protocol and the rings. Memif has no offloads, so
//! checksums and segments of a packet are completed in software before it is sent.

use std::{
    os::fd::BorrowedFd,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use shunt_memif::{MemifInterface, MemifLink, MemifReceiver, MemifSender, MemifSink, MemifWorker};
pub use shunt_memif::{MemifOptions, MemifRole, MemifSecret, QUEUES_MAX};
use shunt_shared_memory::{PolledFrames, SentFrames};

use super::{
    Capabilities, PortError, QueueCopies, Queues,
    shared_memory::{
        SharedFrameSource, SharedMemoryPort, SharedMemoryProtocol, TakenFrames, thread_queues,
    },
    shared_output::SharedOutput,
};
use crate::packet::buffer::{BURST, Packet, Pool};

/// A memif port.
pub type Memif = SharedMemoryPort<MemifOptions>;

impl Memif {
    /// Creates a port with a MAC address derived from `seed`.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range.
    pub fn new(options: MemifOptions, seed: u64) -> Result<Self, PortError> {
        options.check()?;
        Ok(Self::with_protocol(options, seed))
    }
}

impl SharedMemoryProtocol for MemifOptions {
    type Interface = MemifInterface;

    /// The port sends packets of any length: a long packet takes several buffers.
    const CAPABILITIES: Capabilities =
        Capabilities { frame_max: Pool::LARGE, can_wait: true, ..Capabilities::WIRE };

    fn socket(&self) -> &Path {
        &self.socket
    }

    fn start(
        &self,
        threads: u16,
        lost: &Arc<AtomicU64>,
        copies: &mut QueueCopies,
    ) -> Result<(MemifInterface, Vec<Queues>), PortError> {
        let (interface, workers) = MemifInterface::start(self.clone(), threads)?;
        let queues =
            |MemifWorker { receiver, sender }| thread_queues(receiver, sender, lost, copies);
        Ok((interface, workers.into_iter().map(queues).collect()))
    }

    fn down_reason(interface: &MemifInterface) -> Option<String> {
        Some(interface.link()).filter(|link| !link.is_up()).as_ref().map(MemifLink::to_string)
    }

    fn wait_for_link(interface: &MemifInterface, is_up: bool, timeout: Duration) -> bool {
        interface.wait_for_link(timeout, |link| link.is_up() == is_up)
    }
}

impl SharedFrameSource for MemifReceiver {
    fn take_frames(&mut self, frames: &mut TakenFrames<'_>) -> PolledFrames {
        self.receive(BURST, frames)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.wait_fd()
    }
}

impl MemifSink for TakenFrames<'_> {
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        self.packet_buffer(length)
    }

    fn take(&mut self) {
        if let Some(packet) = self.filled_packet() {
            self.push(packet);
        }
    }
}

/// The ring for the packets that one packet thread sends to the peer.
impl SharedOutput for MemifSender {
    fn capabilities_for(&self, _packet: &Packet) -> Capabilities {
        MemifOptions::CAPABILITIES
    }

    fn send<'a>(&mut self, packets: impl ExactSizeIterator<Item = &'a Packet>) -> SentFrames {
        Self::send(self, packets.map(Packet::frame))
    }
}
