//! A memif port: a memory interface to VPP, DPDK or another program of this host.
//!
//! Packet threads copy frames from and to memory that both programs share. The crate `shunt-memif` has
//! the protocol and the rings; here are the packets. Memif has no offloads, so a packet is completed in
//! software before it is sent. A peer often has fewer rings than there are packet threads, so threads
//! share them (`shared_output.rs`).

use std::{
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use shunt_memif::{
    MemifInterface, MemifLink, MemifReceiver, MemifSendEnd, MemifSender, MemifSink, MemifWorker,
};
pub use shunt_memif::{MemifOptions, MemifRole, MemifSecret, QUEUES_MAX};
use shunt_pipeline::DatapathPort;

use super::{
    Capabilities, Port, PortCounters, PortError, Queues, RxQueue, RxReport,
    shared_output::{OutputEnd, SharedOutput, SharedTx},
    spec::local_mac,
};
use crate::{
    metrics::RxLoss,
    packet::buffer::{BURST, Packet, Pool},
};

/// A memif port.
#[derive(Debug)]
pub struct Memif {
    options: MemifOptions,
    mac: [u8; 6],
    /// Runs from [`Port::split`] on.
    interface: Option<MemifInterface>,
    /// Packets that were taken, and that the peer did not get.
    lost: Arc<AtomicU64>,
}

impl Memif {
    /// Creates a port with a MAC address derived from `seed`.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range.
    pub fn new(options: MemifOptions, seed: u64) -> Result<Self, PortError> {
        options.check()?;
        Ok(Self { options, mac: local_mac(seed), interface: None, lost: Arc::default() })
    }
}

/// Complete packets of any length: a long one takes several buffers.
const CAPABILITIES: Capabilities =
    Capabilities { frame_max: Pool::LARGE, can_wait: true, ..Capabilities::WIRE };

impl Port for Memif {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        if self.interface.is_some() {
            let name = self.options.socket.display().to_string();
            return Err(PortError::AlreadySplit { name });
        }
        let (interface, workers) = MemifInterface::start(self.options.clone(), threads)?;
        self.interface = Some(interface);
        let queues = |MemifWorker { receiver, sender }| Queues {
            rx: Some(Box::new(MemifRx(receiver))),
            tx: Box::new(SharedTx::new(MemifOutput(sender), Arc::clone(&self.lost))),
        };
        Ok(workers.into_iter().map(queues).collect())
    }

    fn link_up(&self) -> bool {
        self.interface.as_ref().is_some_and(|interface| interface.link().is_up())
    }

    fn link_reason(&self) -> Option<String> {
        let link = self.interface.as_ref().map(MemifInterface::link);
        link.filter(|link| !link.is_up()).as_ref().map(MemifLink::to_string)
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn counters(&self) -> PortCounters {
        PortCounters { rx_dropped: 0, tx_dropped: self.lost.load(Relaxed) }
    }
}

struct MemifRx(MemifReceiver);

impl RxQueue for MemifRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let before = burst.len();
        let mut sink = MemifBurst { pool, burst, report: RxReport::default(), packet: None };
        let polled = self.0.receive(BURST, &mut sink);
        let MemifBurst { burst, mut report, .. } = sink;
        let known = burst.len() - before + report.refused as usize;
        // Frames without a byte.
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

/// Takes frames of the peer as packets.
struct MemifBurst<'a> {
    pool: &'a mut Pool,
    burst: &'a mut Vec<Packet>,
    report: RxReport,
    /// The packet of the last buffer.
    packet: Option<Packet>,
}

impl MemifSink for MemifBurst<'_> {
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        self.packet = self.pool.take(length, DatapathPort::default());
        if self.packet.is_none() {
            self.report.refuse(RxLoss::without_buffer(length));
        }
        self.packet.as_mut().map(Packet::frame_mut)
    }

    fn take(&mut self) {
        self.burst.extend(self.packet.take());
    }
}

/// The ring to the peer for the packets of one thread.
struct MemifOutput(MemifSender);

impl SharedOutput for MemifOutput {
    fn capabilities_for(&self, _packet: &Packet) -> Capabilities {
        CAPABILITIES
    }

    fn send<'a>(
        &mut self,
        packets: impl ExactSizeIterator<Item = &'a Packet>,
    ) -> (usize, OutputEnd) {
        let sent = self.0.send(packets.map(Packet::frame));
        let end = match sent.end {
            MemifSendEnd::All => OutputEnd::All,
            MemifSendEnd::Busy => OutputEnd::Busy,
            MemifSendEnd::Full => OutputEnd::Full,
            MemifSendEnd::Refused => OutputEnd::Refused,
        };
        (sent.frames, end)
    }
}
