//! The receive queue of a packet thread.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use nix::sys::epoll::Epoll;

use super::{
    queue::{RingQueue, SocketQueue},
    ring::RingLayout,
    socket::PacketSocket,
    switchover::{SwitchingReader, Switchover},
};
use crate::{
    packet::buffer::{BURST, Packet, Pool},
    port::{CopyCounters, PortError, RxQueue, RxReport, sys},
};

/// Number of receives without a frame between two checks that the device exists.
/// Each check costs two system calls.
const CHECK_ONE_IN: u32 = 64;

/// The state of a receive queue that control and packet thread share.
pub(super) struct SharedRx {
    /// The mode of the queue, and a ring that changes its owner.
    pub(super) switchover: Arc<Switchover<RingQueue>>,
    /// The epoll set of socket and ring: readable while a frame waits in one of them.
    pub(super) events: Epoll,
    /// Number of received frames that fit a short slot.
    /// Only the packet thread writes this number.
    short_frames: AtomicU64,
    /// The counters of copied frames.
    pub(super) copies: Arc<CopyCounters>,
}

impl SharedRx {
    /// Creates the state that the receive queues share.
    pub(super) const fn new(
        switchover: Arc<Switchover<RingQueue>>,
        events: Epoll,
        copies: Arc<CopyCounters>,
    ) -> Self {
        Self { switchover, events, short_frames: AtomicU64::new(0), copies }
    }

    /// Returns the number of received frames that fit a short slot.
    pub(super) fn short_frames(&self) -> u64 {
        self.short_frames.load(Relaxed)
    }
}

/// The receive queue of a packet thread: reads a socket, a ring, or both.
pub(super) struct PacketRx {
    /// The reader of the socket and the ring.
    reader: SwitchingReader<SocketQueue, RingQueue>,
    /// The state that the control thread also uses.
    shared: Arc<SharedRx>,
    /// The socket that receives while there is no ring.
    socket: Arc<PacketSocket>,
    /// The name of the device, for errors.
    device: String,
    /// Number of receives without a frame since the last check.
    empty: u32,
}

impl PacketRx {
    /// Creates the receive queue of a socket of the device.
    pub(super) fn new(socket: &Arc<PacketSocket>, shared: &Arc<SharedRx>, device: &str) -> Self {
        let queue = SocketQueue::new(Arc::clone(socket), Arc::clone(&shared.copies));
        Self {
            reader: SwitchingReader::new(Arc::clone(&shared.switchover), queue),
            shared: Arc::clone(shared),
            socket: Arc::clone(socket),
            device: device.to_owned(),
            empty: 0,
        }
    }

    /// Checks the device after every [`CHECK_ONE_IN`] empty polls.
    fn check_device(&mut self) -> Result<(), PortError> {
        self.empty += 1;
        if self.empty < CHECK_ONE_IN {
            return Ok(());
        }
        self.empty = 0;
        self.check()
    }
}

impl RxQueue for PacketRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let mut report = RxReport::default();
        report.is_drained = self.reader.receive(pool, burst, BURST, &mut report);
        if burst.is_empty() && report.refused == 0 {
            self.check_device()?;
            return Ok(report);
        }
        let is_short = |packet: &&Packet| packet.len() <= RingLayout::SHORT_FRAME;
        let count = burst.iter().filter(is_short).count();
        let before = self.shared.short_frames.load(Relaxed);
        self.shared.short_frames.store(before.wrapping_add(count as u64), Relaxed);
        Ok(report)
    }

    fn check(&mut self) -> Result<(), PortError> {
        self.reader.settle_idle();
        match sys::bound_device(self.socket.fd()) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(PortError::DeviceGone { name: self.device.clone() }),
            Err(source) => Err(PortError::System {
                doing: "read the state of",
                name: self.device.clone(),
                source,
            }),
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.events.0.as_fd())
    }
}
