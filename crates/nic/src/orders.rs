//! What the packet thread is told: packets of the controller to send, ports that come and go.

use std::{
    collections::{BTreeSet, VecDeque},
    os::fd::{AsFd, BorrowedFd},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;
use shunt_datapath::Pool;
use shunt_p4runtime::{program::PACKET_OUT, server::PacketError, value, wire::p4::v1::PacketOut};

use crate::{error::OrderError, side::Opened};

/// Packets of the controller that wait for the thread.
const PACKETS_MAX: usize = 4096;

/// What waits for the thread, and what wakes it.
#[derive(Debug)]
pub(crate) struct Orders {
    state: Mutex<State>,
    wake: EventFd,
}

#[derive(Debug, Default)]
struct State {
    /// The ports that there are once all is done that waits.
    ports: BTreeSet<u16>,
    waiting: VecDeque<Order>,
    packets_count: usize,
    /// The thread has ended: nothing is done any more.
    is_closed: bool,
}

/// Something for the thread to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send a packet of the controller.
    Send(Outgoing),
    /// There is another port.
    Add(u16, Box<Opened>),
    /// A port goes; whoever wants it closed waits for it.
    Remove(u16, SyncSender<Box<Opened>>),
}

/// A packet from the controller.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) port: u16,
    /// It goes through the stages.
    pub(crate) is_resubmitted: bool,
    pub(crate) payload: Vec<u8>,
}

impl Orders {
    pub(crate) fn new() -> nix::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self { state: Mutex::default(), wake: EventFd::from_flags(flags)? })
    }

    /// Has a packet of the controller sent.
    pub(crate) fn send(&self, packet: &PacketOut) -> Result<(), PacketError> {
        let number = |field: u32| {
            let given = packet.metadata.iter().find(|given| given.metadata_id == field);
            given.and_then(|given| value::decode(&given.value))
        };
        let [egress, ingress, resubmit] = PACKET_OUT.fields else {
            return Err(PacketError::Port);
        };
        let is_resubmitted = number(resubmit.id).is_some_and(|number| number != 0);
        let port = number(if is_resubmitted { ingress.id } else { egress.id });
        if packet.payload.is_empty() || packet.payload.len() > Pool::LARGE {
            return Err(PacketError::Frame);
        }
        let mut state = self.state.lock();
        let port = port.and_then(|port| u16::try_from(port).ok());
        let port = port.filter(|port| state.ports.contains(port)).ok_or(PacketError::Port)?;
        if state.packets_count >= PACKETS_MAX {
            return Err(PacketError::Busy);
        }
        state.packets_count += 1;
        let payload = packet.payload.clone();
        state.waiting.push_back(Order::Send(Outgoing { port, is_resubmitted, payload }));
        drop(state);
        self.wake();
        Ok(())
    }

    /// Has a port added.
    pub(crate) fn add(&self, number: u16, port: Box<Opened>) -> Result<(), OrderError> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(OrderError::Stopped);
        }
        if !state.ports.insert(number) {
            return Err(OrderError::NumberTaken);
        }
        state.waiting.push_back(Order::Add(number, port));
        drop(state);
        self.wake();
        Ok(())
    }

    /// Has a port removed. The receiver gets it, or an error if the thread has ended.
    pub(crate) fn remove(&self, number: u16) -> Receiver<Box<Opened>> {
        let (sender, receiver) = sync_channel(1);
        let mut state = self.state.lock();
        if !state.is_closed && state.ports.remove(&number) {
            state.waiting.push_back(Order::Remove(number, sender));
        }
        drop(state);
        self.wake();
        receiver
    }

    /// Takes all that waits; `into` is empty.
    pub(crate) fn take(&self, into: &mut VecDeque<Order>) {
        let mut state = self.state.lock();
        state.packets_count = 0;
        std::mem::swap(into, &mut state.waiting);
    }

    /// The thread ends: what waits is dropped, and so is what comes.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.ports.clear();
        let dropped = std::mem::take(&mut state.waiting);
        // Ports take the system a while to close.
        drop(state);
        drop(dropped);
    }

    /// Ends the sleep of the thread.
    pub(crate) fn wake(&self) {
        // A counter that is full wakes as well.
        let _ = self.wake.write(1);
    }

    /// The thread is awake.
    pub(crate) fn awake(&self) {
        let _ = self.wake.read();
    }
}

impl AsFd for Orders {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use shunt_p4runtime::wire::p4::v1::PacketMetadata;

    use super::*;

    #[test]
    fn so_many_packets_wait_and_no_more() {
        let orders = Orders::new().unwrap();
        orders.state.lock().ports.insert(1);
        let fields = PACKET_OUT.fields.iter().zip([1, 0, 0]);
        let metadata = fields
            .map(|(field, value)| PacketMetadata { metadata_id: field.id, value: vec![value] })
            .collect();
        let packet = PacketOut { payload: vec![7; 60], metadata };
        for _ in 0..PACKETS_MAX {
            assert_eq!(orders.send(&packet), Ok(()));
        }
        assert_eq!(orders.send(&packet), Err(PacketError::Busy));
        let mut taken = VecDeque::new();
        orders.take(&mut taken);
        assert_eq!((taken.len(), orders.send(&packet)), (PACKETS_MAX, Ok(())));
    }
}
