//! An open port of the NIC, with its representor if it has one.

use std::sync::Arc;

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use shunt_datapath::{
    BURST, Packet, Pool, PortError, RxQueue, TxQueue,
    packet::virtio::finish,
    port::{Capabilities, Port, Queues, RxReport, pair::RING},
};

use super::flow_order::FlowOrder;
use crate::counters::{NicDropReason, NicPortLosses};

/// An open port, owned by the packet thread of the NIC.
#[derive(Debug)]
pub(crate) struct OpenPort {
    pub(crate) port: PortSide,
    /// The representor of the port.
    /// Packets that miss leave by the representor, and packets from it leave by the port.
    pub(crate) representor: Option<PortSide>,
    /// The held and diverted packets, to keep flows in order.
    ///
    /// The order is `None` if no switch reports its progress with the packets of the representor.
    pub(crate) order: Option<FlowOrder>,
    /// The packets that were lost at the port.
    pub(crate) losses: Arc<NicPortLosses>,
}

/// The queues of a port or of a representor.
pub(crate) struct PortSide {
    rx: Vec<Option<Box<dyn RxQueue>>>,
    tx: Vec<Box<dyn TxQueue>>,
    /// Number of frames that each transmit queue has taken.
    sent: Vec<u64>,
    /// Number of frames that each receive queue may still hold from before the drain.
    undrained: Vec<usize>,
    capabilities: Capabilities,
    /// Keeps the device open while its queues are in use.
    _device: Option<Box<dyn Port>>,
}

impl std::fmt::Debug for PortSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side").field("queues", &self.tx.len()).finish_non_exhaustive()
    }
}

impl OpenPort {
    /// Returns the queues of the port and of its representor.
    pub(crate) fn sides(&self) -> impl Iterator<Item = &PortSide> {
        std::iter::once(&self.port).chain(&self.representor)
    }

    /// Returns the order of the flows, and the losses of the port.
    pub(crate) fn order_and_losses(&mut self) -> (Option<&mut FlowOrder>, &NicPortLosses) {
        (self.order.as_mut(), &self.losses)
    }

    /// Flushes all transmit queues.
    pub(crate) fn flush(&mut self) {
        let sides = std::iter::once(&mut self.port).chain(&mut self.representor);
        sides.flat_map(|side| &mut side.tx).for_each(|tx| tx.flush());
    }
}

impl PortSide {
    /// Creates the queues of a device that other code opened.
    pub(crate) fn of(queues: Vec<Queues>, capabilities: Capabilities) -> Self {
        let (rx, tx): (Vec<_>, Vec<_>) =
            queues.into_iter().map(|queues| (queues.rx, queues.tx)).unzip();
        let (sent, undrained) = (vec![0; tx.len()], vec![0; rx.len()]);
        Self { rx, tx, sent, undrained, capabilities, _device: None }
    }

    /// Opens a device with one receive and one transmit queue.
    pub(crate) fn open(mut device: Box<dyn Port>) -> Result<Self, PortError> {
        let (queues, capabilities) = (device.split(1)?, device.capabilities());
        Ok(Self { _device: Some(device), ..Self::of(queues, capabilities) })
    }

    /// Returns the number of receive queues of the port.
    pub(crate) const fn queues_count(&self) -> usize {
        self.rx.len()
    }

    /// Returns whether every active receive queue has a descriptor to wait for.
    pub(crate) fn can_wait(&self) -> bool {
        self.rx.iter().flatten().all(|rx| rx.wait_fd().is_some())
    }

    /// Adds the descriptors of the receive queues to `epoll`.
    pub(crate) fn register(&self, epoll: &Epoll) -> nix::Result<()> {
        let mut fds = self.rx.iter().flatten().filter_map(|rx| rx.wait_fd());
        fds.try_for_each(|fd| epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0)))
    }

    /// Removes the descriptors of the receive queues from `epoll`.
    pub(crate) fn unregister(&self, epoll: &Epoll) {
        for fd in self.rx.iter().flatten().filter_map(|rx| rx.wait_fd()) {
            // A descriptor that is not registered needs no removal.
            let _ = epoll.delete(fd);
        }
    }

    /// Returns whether a receive queue has ended or failed.
    pub(crate) fn has_ended(&self, queue: usize) -> bool {
        self.rx.get(queue).is_none_or(Option::is_none)
    }

    /// Returns the number of frames that a transmit queue has taken.
    pub(crate) fn sent(&self, queue: usize) -> u64 {
        self.sent.get(queue).copied().unwrap_or_default()
    }

    /// Begins to receive all frames that the receive queues have now.
    pub(crate) fn begin_drain(&mut self) {
        self.undrained.fill(RING);
    }

    /// Returns whether all frames from before the drain are received.
    pub(crate) fn is_drained(&self) -> bool {
        self.rx.iter().zip(&self.undrained).all(|(rx, left)| rx.is_none() || *left == 0)
    }

    /// Receives a burst from a queue.
    ///
    /// A receive queue that has ended or failed is not polled again. The report has the frames that
    /// the queue lost.
    pub(crate) fn receive(
        &mut self,
        queue: usize,
        epoll: &Epoll,
        pool: &mut Pool,
        burst: &mut Vec<Packet>,
    ) -> Result<RxReport, PortError> {
        let Some(Some(rx)) = self.rx.get_mut(queue) else { return Ok(RxReport::default()) };
        let result = rx.rx(pool, burst);
        if let Some(left) = self.undrained.get_mut(queue) {
            let refused = result.as_ref().map_or(0, |report| report.refused as usize);
            let count = burst.len() + refused;
            // If a queue returns less than a burst, it is empty now.
            *left = if count < BURST { 0 } else { left.saturating_sub(count) };
        }
        if result.as_ref().is_ok_and(|report| !report.exhausted) {
            return result;
        }
        // The descriptor of the failed queue may stay readable, and would then end every wait.
        if let Some(fd) = rx.wait_fd() {
            let _ = epoll.delete(fd);
        }
        self.rx[queue] = None;
        result
    }

    /// Sends a packet by one of the queues.
    /// `frames` is working memory for the frames of the packet.
    ///
    /// # Errors
    ///
    /// Returns the drop reason if the packet, or one of its frames, was not sent.
    pub(crate) fn send(
        &mut self,
        queue: usize,
        packet: Packet,
        pool: &mut Pool,
        frames: &mut Vec<Packet>,
    ) -> Result<(), NicDropReason> {
        let Some(tx) = self.tx.get_mut(queue) else {
            pool.put_back(packet);
            return Err(NicDropReason::NoPort);
        };
        if finish(packet, &self.capabilities, pool, frames).is_err() {
            return Err(NicDropReason::Unsendable);
        }
        let (mut tried, mut sent) = (0, 0);
        while tried < frames.len() {
            let taken = tx.tx(&frames[tried..]);
            // The queue refused the first remaining frame, and may accept the next one.
            tried += taken.max(1);
            sent += taken;
        }
        self.sent[queue] += sent as u64;
        let is_sent = sent == frames.len();
        frames.drain(..).for_each(|packet| pool.put_back(packet));
        if is_sent { Ok(()) } else { Err(NicDropReason::Refused) }
    }
}
