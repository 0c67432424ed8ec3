//! The receive queue and the transmit queue of the port [`AfXdp`](super::AfXdp).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
    socket::{getsockopt, sockopt::SocketError},
};
use shunt_pipeline::DatapathPort;

use super::{
    busy_poll::NapiTrigger,
    frames::{Receiver, RxFrame, Sender},
};
use crate::metrics::RxLoss;
use crate::packet::buffer::{BURST, Packet, Pool};
use crate::port::{
    CopyCounters, FrameCopies, PortError, RxQueue, RxReport, TxEnd, TxQueue,
    contract::POLL_PAUSE_MAX,
};

/// Number of receives without a frame between two checks that the device exists.
/// Each check costs a system call for each socket.
const CHECK_ONE_IN: u32 = 64;

/// A receive queue of an `af_xdp` port.
pub(super) struct XdpRx {
    /// The receivers of the queue, one per socket.
    receivers: Vec<Receiver>,
    /// The epoll set of all sockets; `None` for a single socket, and with busy polling.
    ready: Option<Epoll>,
    /// The reason why the driver receives frames.
    trigger: NapiTrigger,
    /// The name of the network device.
    device: String,
    /// The socket that is read first in the next burst.
    next: usize,
    /// Number of receives without a frame since the last check.
    empty: u32,
    /// The counters of copied frames.
    copies: Arc<CopyCounters>,
}

impl XdpRx {
    /// Creates the queue of the sockets that one thread reads.
    pub(super) fn new(
        receivers: Vec<Receiver>,
        trigger: NapiTrigger,
        device: String,
        copies: Arc<CopyCounters>,
    ) -> io::Result<Self> {
        let ready = if receivers.len() > 1 && trigger == NapiTrigger::Interrupt {
            let ready = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            for receiver in &receivers {
                ready.add(receiver.socket(), EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            }
            Some(ready)
        } else {
            None
        };
        Ok(Self { receivers, ready, trigger, device, next: 0, empty: 0, copies })
    }

    /// Checks the device after some polls without a packet.
    fn check_device(&mut self) -> Result<(), PortError> {
        self.empty += 1;
        if self.empty < CHECK_ONE_IN {
            return Ok(());
        }
        self.empty = 0;
        self.check()
    }
}

impl RxQueue for XdpRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let (mut report, mut left) = (RxReport::default(), BURST);
        let mut copies = FrameCopies::default();
        let count = self.receivers.len();
        for offset in 0..count {
            let Some(receiver) = self.receivers.get_mut((self.next + offset) % count) else {
                break;
            };
            let before = left;
            while left > 0
                && let Some(frame) = receiver.next()
            {
                left -= 1;
                match copy_frame(&frame, pool) {
                    Ok(packet) => {
                        copies.record(packet.len());
                        burst.push(packet);
                    }
                    Err(reason) => report.refuse(reason),
                }
            }
            if left < before {
                receiver.publish();
            }
        }
        self.copies.add(copies);
        self.next = (self.next + 1) % count.max(1);
        if left == BURST {
            if self.trigger == NapiTrigger::BusyPoll {
                self.receivers.iter().for_each(Receiver::poll_device);
            }
            self.check_device()?;
        }
        Ok(report)
    }

    fn check(&mut self) -> Result<(), PortError> {
        for receiver in &self.receivers {
            // The kernel sets the error when the device is removed.
            if getsockopt(&receiver.socket(), SocketError).is_ok_and(|code| code != 0) {
                return Err(PortError::DeviceGone { name: self.device.clone() });
            }
        }
        Ok(())
    }

    fn may_overflow(&self, pause: Duration) -> bool {
        pause >= POLL_PAUSE_MAX || self.receivers.iter().any(Receiver::is_half_full)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.trigger == NapiTrigger::BusyPoll {
            return None;
        }
        match &self.ready {
            Some(ready) => Some(ready.0.as_fd()),
            None => self.receivers.first().map(Receiver::socket),
        }
    }
}

/// Copies a frame into a packet, which has a large buffer for several parts.
fn copy_frame(frame: &RxFrame<'_>, pool: &mut Pool) -> Result<Packet, RxLoss> {
    let length = frame.length().ok_or(RxLoss::Refused)?;
    let packet = pool.take(length, DatapathPort::default());
    let mut packet = packet.ok_or_else(|| RxLoss::without_buffer(length))?;
    let mut rest = packet.frame_mut();
    // No part is wrong, because the frame has a length, which is that of all parts.
    for part in frame.parts().flatten() {
        let (target, left) = rest.split_at_mut(part.len());
        target.copy_from_slice(part);
        rest = left;
    }
    Ok(packet)
}

/// A transmit queue of an `af_xdp` port.
pub(super) struct XdpTx {
    /// The sending half of the socket.
    sender: Sender,
    /// Longest frame that the device sends, updated with the MTU.
    frame_max: Arc<AtomicU32>,
    /// The reason why the queue took no more packets.
    end: TxEnd,
    /// The counters of copied frames.
    copies: Arc<CopyCounters>,
}

impl XdpTx {
    /// Creates the queue of a socket.
    pub(super) const fn new(
        sender: Sender,
        frame_max: Arc<AtomicU32>,
        copies: Arc<CopyCounters>,
    ) -> Self {
        Self { sender, frame_max, end: TxEnd::Full, copies }
    }
}

impl TxQueue for XdpTx {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        if self.sender.is_device_down() {
            self.end = TxEnd::Down;
            return 0;
        }
        self.sender.reclaim();
        let frame_max = self.frame_max.load(Relaxed) as usize;
        let (mut taken, mut copies) = (0, FrameCopies::default());
        for packet in packets {
            if packet.len() > frame_max {
                self.end = TxEnd::Refused;
                break;
            }
            if !self.sender.push(packet.frame(), packet.ingress) {
                self.end = TxEnd::Full;
                break;
            }
            copies.record(packet.len());
            taken += 1;
        }
        self.sender.publish();
        self.copies.add(copies);
        taken
    }

    fn tx_end(&self) -> TxEnd {
        self.end
    }

    fn flush(&mut self) {
        self.sender.flush();
    }

    fn is_pending(&self) -> bool {
        self.sender.is_pending()
    }

    fn holds_packets_of(&self, ingress: DatapathPort) -> bool {
        self.sender.holds_packets_of(ingress)
    }
}
