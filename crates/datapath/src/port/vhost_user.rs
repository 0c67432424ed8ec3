//! A vhost-user port: the network card of a virtual machine.
//!
//! The hypervisor shares the memory of its guest with this process. The crate `shunt-vhost-user`
//! implements the protocol and the queues; this module implements the offloads of packets.
//!
//! The switch passes the virtio header of a packet on unchanged, so a packet of 64 KiB goes from
//! one guest to another as a whole. A guest may lack an offload, and a guest with other offloads
//! may connect later. So the port takes every packet, and completes packets for which the current
//! guest lacks an offload (`shared_output.rs`).

use std::{
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use shunt_shared_memory::{PolledFrames, SentFrames};
pub use shunt_vhost_user::SocketMode;
use shunt_vhost_user::{
    Backend, FrameReceiver, FrameSender, FrameSink, GuestLink, NetHeader, VirtioFeatures, Worker,
    takes_segmentation,
};

use super::{
    Capabilities, PortError, QueueCopies, Queues,
    shared_memory::{
        SharedFrameSource, SharedMemoryPort, SharedMemoryProtocol, TakenFrames, thread_queues,
    },
    shared_output::SharedOutput,
};
use crate::packet::{
    buffer::{BURST, Packet, Pool},
    virtio::VirtioHeader,
};

/// A vhost-user port.
pub type VhostUser = SharedMemoryPort<VhostUserSocket>;

/// The socket of a vhost-user port.
#[derive(Debug)]
pub struct VhostUserSocket {
    /// The path of the socket.
    path: PathBuf,
    /// The role at the socket: server or client.
    mode: SocketMode,
}

impl VhostUser {
    /// Creates a port with a MAC address derived from `seed`.
    ///
    /// The network card of the guest has another MAC address, which the hypervisor sets.
    #[must_use]
    pub fn new(path: &Path, mode: SocketMode, seed: u64) -> Self {
        Self::with_protocol(VhostUserSocket { path: path.to_owned(), mode }, seed)
    }
}

impl SharedMemoryProtocol for VhostUserSocket {
    type Interface = Backend;

    const CAPABILITIES: Capabilities = Capabilities {
        tx_checksum: true,
        tx_segmentation: true,
        tx_tunnel_segmentation: false,
        frame_max: Pool::LARGE,
        can_wait: true,
    };

    fn socket(&self) -> &Path {
        &self.path
    }

    fn start(
        &self,
        threads: u16,
        lost: &Arc<AtomicU64>,
        copies: &mut QueueCopies,
    ) -> Result<(Backend, Vec<Queues>), PortError> {
        let (backend, workers) = Backend::start(&self.path, self.mode, threads)?;
        let queues = |Worker { receiver, sender }| {
            thread_queues(receiver, VhostUserOutput::new(sender), lost, copies)
        };
        Ok((backend, workers.into_iter().map(queues).collect()))
    }

    fn down_reason(backend: &Backend) -> Option<String> {
        Some(backend.link()).filter(|link| !link.is_up()).as_ref().map(GuestLink::to_string)
    }

    fn wait_for_link(backend: &Backend, is_up: bool, timeout: Duration) -> bool {
        backend.wait_for_link(timeout, |link| link.is_up() == is_up)
    }
}

impl SharedFrameSource for FrameReceiver {
    fn take_frames(&mut self, frames: &mut TakenFrames<'_>) -> PolledFrames {
        self.receive(BURST, frames)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.wait_fd()
    }
}

impl FrameSink for TakenFrames<'_> {
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        self.packet_buffer(length)
    }

    fn take(&mut self, header: NetHeader) {
        let Some(mut packet) = self.filled_packet() else { return };
        let [flags, rest @ .., _, _] = in_byte_order(header);
        // A driver must not set this flag, so the flag does not prove a valid checksum.
        let flags = flags & !VirtioHeader::DATA_VALID;
        let mut encoded = [flags; VirtioHeader::ENCODED];
        encoded.iter_mut().skip(1).zip(rest).for_each(|(to, from)| *to = from);
        match VirtioHeader::receive(encoded, packet.frame()) {
            Ok(virtio) => {
                packet.virtio = virtio;
                self.push(packet);
            }
            Err(_) => self.refuse(packet),
        }
    }
}

/// Converts the virtio header between little-endian and the host's byte order.
fn in_byte_order(header: NetHeader) -> NetHeader {
    let mut converted = header;
    let (words, _) = converted.as_chunks_mut::<2>();
    for word in words.iter_mut().skip(1) {
        *word = u16::from_le_bytes(*word).to_ne_bytes();
    }
    converted
}

/// The queue for the packets that one packet thread sends to a guest.
struct VhostUserOutput {
    /// The sender of the guest's receive queue.
    sender: FrameSender,
    /// The features of the guest at the last [`SharedOutput::refresh`].
    features: VirtioFeatures,
}

impl VhostUserOutput {
    /// Creates the output with the features of the sender.
    fn new(sender: FrameSender) -> Self {
        let features = sender.features();
        Self { sender, features }
    }
}

impl SharedOutput for VhostUserOutput {
    fn refresh(&mut self) {
        self.features = self.sender.features();
    }

    fn capabilities_for(&self, packet: &Packet) -> Capabilities {
        let gso_type = packet.virtio.gso_type;
        Capabilities {
            tx_checksum: self.features.contains(VirtioFeatures::GUEST_CSUM),
            tx_segmentation: gso_type == 0 || takes_segmentation(self.features, gso_type),
            tx_tunnel_segmentation: false,
            frame_max: Pool::LARGE,
            can_wait: true,
        }
    }

    fn send<'a>(&mut self, packets: impl ExactSizeIterator<Item = &'a Packet>) -> SentFrames {
        self.sender.send(packets.map(as_frame))
    }
}

/// Returns the virtio header and the frame of a packet for a guest.
fn as_frame(packet: &Packet) -> (NetHeader, &[u8]) {
    (packet.virtio.encode_for_guest(), packet.frame())
}
