//! A vhost-user port: the network card of a virtual machine.
//!
//! The hypervisor shares the memory of its guest, and packet threads copy frames from and to it. The crate
//! `shunt-vhost-user` has the protocol and the queues; here are the packets and their offloads.
//!
//! The virtio header of a packet passes through unchanged, so a packet of 64 KiB goes from one guest to
//! another as a whole. A guest may lack an offload, and another one may connect later. So the port takes
//! every packet, and completes those that the guest of the moment does not take.
//!
//! A guest often has fewer queues than there are packet threads. A thread that finds its queue in use keeps
//! copies of a few packets and sends them with the next flush, so no thread waits for another.

use std::{
    collections::VecDeque,
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
    Capabilities, Port, PortCounters, PortError, Queues, RxQueue, RxReport, TxEnd, TxQueue,
    spec::local_mac,
};
use crate::{
    metrics::RxLoss,
    packet::{
        buffer::{BURST, Packet, Pool},
        virtio::{VirtioHeader, finish},
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
            tx: Box::new(VhostUserTx::new(sender, Arc::clone(&self.lost))),
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

struct VhostUserTx {
    sender: FrameSender,
    end: TxEnd,
    /// Copies of packets that wait for the queue, oldest first.
    backlog: VecDeque<Packet>,
    /// Buffers of the copies.
    pool: Pool,
    /// The packets made of one that the guest does not take.
    made: Vec<Packet>,
    lost: Arc<AtomicU64>,
}

/// Maximum number of packets that wait for a queue that another thread uses.
const BACKLOG_MAX: usize = 256;

impl VhostUserTx {
    fn new(sender: FrameSender, lost: Arc<AtomicU64>) -> Self {
        let backlog = VecDeque::with_capacity(BACKLOG_MAX);
        let (pool, made) = (Pool::new(), Vec::with_capacity(BURST));
        Self { sender, end: TxEnd::Full, backlog, pool, made, lost }
    }

    /// Sends packets that the guest takes as they are; returns the number taken.
    ///
    /// The result is an error if no further packet can be sent.
    fn send_run(&mut self, packets: &[Packet]) -> (usize, Result<(), TxEnd>) {
        if !self.backlog.is_empty() {
            // None of these overtakes those that wait.
            return self.keep(packets);
        }
        let sent = self.sender.send(packets.iter().map(as_frame));
        match sent.end {
            SendEnd::All => (sent.frames, Ok(())),
            SendEnd::Full => (sent.frames, Err(TxEnd::Full)),
            SendEnd::Refused => (sent.frames, Err(TxEnd::Refused)),
            SendEnd::Busy => self.keep(packets),
        }
    }

    /// Copies packets to the backlog; returns the number of those that found room.
    ///
    /// The result is an error if not all did.
    fn keep(&mut self, packets: &[Packet]) -> (usize, Result<(), TxEnd>) {
        for (kept, packet) in packets.iter().enumerate() {
            if self.backlog.len() >= BACKLOG_MAX {
                return (kept, Err(TxEnd::Full));
            }
            let Some(copy) = self.pool.copy(packet, None) else {
                return (kept, Err(TxEnd::Crowded));
            };
            self.backlog.push_back(copy);
        }
        (packets.len(), Ok(()))
    }

    /// Completes a packet in software, and sends the result.
    fn send_completed(&mut self, packet: &Packet, features: VirtioFeatures) -> Result<(), TxEnd> {
        let capabilities = Capabilities {
            tx_checksum: features.contains(VirtioFeatures::GUEST_CSUM),
            tx_segmentation: !packet.virtio.is_segmented()
                || takes_segmentation(features, packet.virtio.gso_type),
            frame_max: Pool::LARGE,
            can_wait: true,
        };
        let copy = self.pool.copy(packet, None).ok_or(TxEnd::Crowded)?;
        let completed = finish(copy, &capabilities, &mut self.pool, &mut self.made);
        let mut made = std::mem::take(&mut self.made);
        let (_, result) = match completed {
            Ok(()) => self.send_run(&made),
            Err(_) => (0, Err(TxEnd::Refused)),
        };
        made.drain(..).for_each(|packet| self.pool.give(packet));
        self.made = made;
        result
    }

    /// Sends the backlog, as far as the queue is free.
    fn send_backlog(&mut self) {
        while !self.backlog.is_empty() {
            let sent = self.sender.send(self.backlog.iter().map(as_frame));
            for packet in self.backlog.drain(..sent.frames) {
                self.pool.give(packet);
            }
            let lost = match sent.end {
                SendEnd::Busy => return,
                SendEnd::All => 0,
                // The guest that takes no more, or that has changed, never gets them.
                SendEnd::Refused => 1,
                SendEnd::Full => self.backlog.len(),
            };
            self.lost.fetch_add(lost as u64, Relaxed);
            for packet in self.backlog.drain(..lost) {
                self.pool.give(packet);
            }
        }
    }
}

impl Drop for VhostUserTx {
    /// Counts the packets that still wait.
    fn drop(&mut self) {
        self.lost.fetch_add(self.backlog.len() as u64, Relaxed);
    }
}

impl TxQueue for VhostUserTx {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        self.send_backlog();
        let features = self.sender.features();
        let mut taken = 0;
        while let Some(first) = packets.get(taken) {
            let rest = &packets[taken..];
            let run = rest.iter().take_while(|packet| takes(features, packet)).count();
            let (count, result) = if run > 0 {
                self.send_run(&rest[..run])
            } else {
                let result = self.send_completed(first, features);
                (usize::from(result.is_ok()), result)
            };
            taken += count;
            if let Err(end) = result {
                self.end = end;
                break;
            }
        }
        taken
    }

    fn tx_end(&self) -> TxEnd {
        self.end
    }

    fn flush(&mut self) {
        self.send_backlog();
    }

    fn is_pending(&self) -> bool {
        !self.backlog.is_empty()
    }
}

/// Returns a packet as the frame of a guest.
fn as_frame(packet: &Packet) -> (NetHeader, &[u8]) {
    (in_byte_order(packet.virtio.encode_with_buffers()), packet.frame())
}

/// Returns whether a guest takes a packet as it is.
const fn takes(features: VirtioFeatures, packet: &Packet) -> bool {
    let VirtioHeader { needs_checksum, gso_type, .. } = packet.virtio;
    (!needs_checksum || features.contains(VirtioFeatures::GUEST_CSUM))
        && (gso_type == 0 || takes_segmentation(features, gso_type))
}
