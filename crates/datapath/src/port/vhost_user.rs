//! A vhost-user port: the network card of a virtual machine.
//!
//! The hypervisor shares the memory of its guest, and packet threads copy frames from and to it. The crate
//! `shunt-vhost-user` has the protocol and the queues; here are the packets and their offloads.
//!
//! The virtio header of a packet passes through unchanged, so a packet of 64 KiB goes from one guest to
//! another as a whole. A guest may lack an offload, and another one may connect later. So the port takes
//! every packet, and completes those that the guest of the moment does not take (`shared_output.rs`).

use std::{
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use shunt_pipeline::DatapathPort;
pub use shunt_vhost_user::SocketMode;
use shunt_vhost_user::{
    Backend, FrameReceiver, FrameSender, FrameSink, GuestLink, NetHeader, SendEnd, VirtioFeatures,
    Worker, takes_segmentation,
};

use super::{
    Capabilities, Port, PortCounters, PortError, Queues, RxQueue, RxReport,
    shared_output::{OutputEnd, SharedOutput, SharedTx},
    spec::local_mac,
};
use crate::{
    metrics::RxLoss,
    packet::{
        buffer::{BURST, Packet, Pool},
        virtio::VirtioHeader,
    },
};

/// A vhost-user port.
#[derive(Debug)]
pub struct VhostUser {
    path: PathBuf,
    mode: SocketMode,
    mac: [u8; 6],
    /// Runs from [`Port::split`] on.
    backend: Option<Backend>,
    /// Packets that were taken, and that the guest did not get.
    lost: Arc<AtomicU64>,
}

impl VhostUser {
    /// Creates a port with a MAC address derived from `seed`.
    ///
    /// The hypervisor gives the guest's card its own address.
    #[must_use]
    pub fn new(path: &Path, mode: SocketMode, seed: u64) -> Self {
        let (path, mac, lost) = (path.to_owned(), local_mac(seed), Arc::default());
        Self { path, mode, mac, backend: None, lost }
    }
}

impl Port for VhostUser {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            tx_checksum: true,
            tx_segmentation: true,
            frame_max: Pool::LARGE,
            can_wait: true,
        }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        if self.backend.is_some() {
            return Err(PortError::AlreadySplit { name: self.path.display().to_string() });
        }
        let (backend, workers) = Backend::start(&self.path, self.mode, threads)?;
        self.backend = Some(backend);
        let queues = |Worker { receiver, sender }| Queues {
            rx: Some(Box::new(VhostUserRx(receiver))),
            tx: Box::new(SharedTx::new(VhostUserOutput::new(sender), Arc::clone(&self.lost))),
        };
        Ok(workers.into_iter().map(queues).collect())
    }

    fn link_up(&self) -> bool {
        self.backend.as_ref().is_some_and(|backend| backend.link().is_up())
    }

    fn link_reason(&self) -> Option<String> {
        let link = self.backend.as_ref().map(Backend::link);
        link.filter(|link| !link.is_up()).as_ref().map(GuestLink::to_string)
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn counters(&self) -> PortCounters {
        PortCounters { rx_dropped: 0, tx_dropped: self.lost.load(Relaxed) }
    }
}

struct VhostUserRx(FrameReceiver);

impl RxQueue for VhostUserRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let before = burst.len();
        let mut sink = BurstSink { pool, burst, report: RxReport::default(), packet: None };
        let polled = self.0.receive(BURST, &mut sink);
        let BurstSink { burst, mut report, .. } = sink;
        let known = burst.len() - before + report.refused as usize;
        // Frames without a header, and those of a queue that the guest has disabled.
        for _ in known..polled.frames {
            report.refuse(RxLoss::Refused);
        }
        report.must_poll = polled.may_have_more;
        report.is_drained = !polled.may_have_more;
        Ok(report)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.wait_fd())
    }
}

/// Takes frames of a guest as packets.
struct BurstSink<'a> {
    pool: &'a mut Pool,
    burst: &'a mut Vec<Packet>,
    report: RxReport,
    /// The packet of the last buffer.
    packet: Option<Packet>,
}

impl FrameSink for BurstSink<'_> {
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        self.packet = self.pool.take(length, DatapathPort::default());
        if self.packet.is_none() {
            self.report.refuse(RxLoss::without_buffer(length));
        }
        self.packet.as_mut().map(Packet::frame_mut)
    }

    fn take(&mut self, header: NetHeader) {
        let Some(mut packet) = self.packet.take() else { return };
        let [flags, rest @ .., _, _] = in_byte_order(header);
        // A driver must not set this flag, so it proves nothing.
        let flags = flags & !VirtioHeader::DATA_VALID;
        let mut encoded = [flags; VirtioHeader::ENCODED];
        encoded.iter_mut().skip(1).zip(rest).for_each(|(to, from)| *to = from);
        match VirtioHeader::receive(encoded, packet.frame()) {
            Ok(virtio) => {
                packet.virtio = virtio;
                self.burst.push(packet);
            }
            Err(_) => {
                self.pool.give(packet);
                self.report.refuse(RxLoss::Refused);
            }
        }
    }
}

/// Converts a header between little-endian and the byte order of this machine.
fn in_byte_order(header: NetHeader) -> NetHeader {
    let mut converted = header;
    let (words, _) = converted.as_chunks_mut::<2>();
    for word in words.iter_mut().skip(1) {
        *word = u16::from_le_bytes(*word).to_ne_bytes();
    }
    converted
}

/// The queue of a guest for the packets of one thread.
struct VhostUserOutput {
    sender: FrameSender,
    /// The features of the guest at the last look.
    features: VirtioFeatures,
}

impl VhostUserOutput {
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
            frame_max: Pool::LARGE,
            can_wait: true,
        }
    }

    fn send<'a>(
        &mut self,
        packets: impl ExactSizeIterator<Item = &'a Packet>,
    ) -> (usize, OutputEnd) {
        let sent = self.sender.send(packets.map(as_frame));
        let end = match sent.end {
            SendEnd::All => OutputEnd::All,
            SendEnd::Busy => OutputEnd::Busy,
            SendEnd::Full => OutputEnd::Full,
            SendEnd::Refused => OutputEnd::Refused,
        };
        (sent.frames, end)
    }
}

/// Returns a packet as the frame of a guest.
fn as_frame(packet: &Packet) -> (NetHeader, &[u8]) {
    (in_byte_order(packet.virtio.encode_with_buffers()), packet.frame())
}
