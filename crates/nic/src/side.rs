//! The two sides of a port of the NIC: the port itself, and its representor if it has one.

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use shunt_datapath::{
    Packet, Pool, PortError, RxQueue, TxQueue,
    packet::virtio::finish,
    port::{Capabilities, Port, Queues},
};

use crate::drops::DropReason;

/// A port of the NIC, as its thread has it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) port: Side,
    /// Where packets without an entry leave, and where those come from that the port is to send.
    pub(crate) representor: Option<Side>,
}

/// What stands at one side.
pub(crate) struct Side {
    rx: Vec<Option<Box<dyn RxQueue>>>,
    tx: Vec<Box<dyn TxQueue>>,
    capabilities: Capabilities,
    /// A device lives as long as its port.
    _device: Option<Box<dyn Port>>,
}

impl std::fmt::Debug for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side").field("queues", &self.tx.len()).finish_non_exhaustive()
    }
}

impl Opened {
    /// Both sides.
    pub(crate) fn sides(&self) -> impl Iterator<Item = &Side> {
        std::iter::once(&self.port).chain(&self.representor)
    }

    /// Pushes out what is pending.
    pub(crate) fn flush(&mut self) {
        let sides = std::iter::once(&mut self.port).chain(&mut self.representor);
        sides.flat_map(|side| &mut side.tx).for_each(|tx| tx.flush());
    }
}

impl Side {
    /// Queues of a port that others hold.
    pub(crate) fn of(queues: Vec<Queues>, capabilities: Capabilities) -> Self {
        let (rx, tx) = queues.into_iter().map(|queues| (queues.rx, queues.tx)).unzip();
        Self { rx, tx, capabilities, _device: None }
    }

    /// A device, by one queue.
    pub(crate) fn open(mut device: Box<dyn Port>) -> Result<Self, PortError> {
        let (queues, capabilities) = (device.split(1)?, device.capabilities());
        Ok(Self { _device: Some(device), ..Self::of(queues, capabilities) })
    }

    /// Number of its queues.
    pub(crate) const fn queues_count(&self) -> usize {
        self.rx.len()
    }

    /// Whether every queue that is still asked has a descriptor to wait for.
    pub(crate) fn can_wait(&self) -> bool {
        self.rx.iter().flatten().all(|rx| rx.wait_fd().is_some())
    }

    /// Wakes whoever waits for `epoll` when there is something to receive.
    pub(crate) fn register(&self, epoll: &Epoll) -> nix::Result<()> {
        let mut fds = self.rx.iter().flatten().filter_map(|rx| rx.wait_fd());
        fds.try_for_each(|fd| epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0)))
    }

    /// Takes its descriptors out of `epoll`.
    pub(crate) fn unregister(&self, epoll: &Epoll) {
        for fd in self.rx.iter().flatten().filter_map(|rx| rx.wait_fd()) {
            // One that is not there need not be taken out.
            let _ = epoll.delete(fd);
        }
    }

    /// Takes a burst from a queue. One that is over, or broken, is not asked any more.
    pub(crate) fn receive(
        &mut self,
        queue: usize,
        epoll: &Epoll,
        (pool, burst): (&mut Pool, &mut Vec<Packet>),
    ) -> Result<(), PortError> {
        let Some(Some(rx)) = self.rx.get_mut(queue) else { return Ok(()) };
        let result = rx.rx(pool, burst);
        if result.as_ref().is_ok_and(|report| !report.exhausted) {
            return Ok(());
        }
        // Its descriptor may be readable for ever, and would end every sleep.
        if let Some(fd) = rx.wait_fd() {
            let _ = epoll.delete(fd);
        }
        self.rx[queue] = None;
        result.map(drop)
    }

    /// Sends a packet by one of the queues; `whole` is room for its frames.
    ///
    /// # Errors
    ///
    /// Why it was not sent, or not all of it.
    pub(crate) fn send(
        &mut self,
        queue: usize,
        packet: Packet,
        (pool, whole): (&mut Pool, &mut Vec<Packet>),
    ) -> Result<(), DropReason> {
        let Some(tx) = self.tx.get_mut(queue) else {
            pool.give(packet);
            return Err(DropReason::NoPort);
        };
        if finish(packet, &self.capabilities, pool, whole).is_err() {
            return Err(DropReason::Unsendable);
        }
        let (mut tried, mut sent) = (0, 0);
        while tried < whole.len() {
            let taken = tx.tx(&whole[tried..]);
            // The first of those left is not taken: the next may be.
            tried += taken.max(1);
            sent += taken;
        }
        let is_sent = sent == whole.len();
        whole.drain(..).for_each(|packet| pool.give(packet));
        if is_sent { Ok(()) } else { Err(DropReason::Refused) }
    }
}
