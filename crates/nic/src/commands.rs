//! Commands for the packet thread of a NIC: packet-outs of the controller, and ports to add or
//! remove.
//!
//! Each command sets the signal that wakes the thread. Commands are rare, so one system call per
//! command is acceptable. The queue needs no `shunt_datapath::Waker` and no doorbell.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

use parking_lot::Mutex;
use shunt_datapath::{Pool, Signal};
use shunt_p4runtime::{program::PACKET_OUT, server::PacketError, value, wire::p4::v1::PacketOut};

use crate::{error::AddPortError, ports::open_port::OpenPort};

/// Maximum number of packet-outs in the queue.
const PACKETS_MAX: usize = 4096;

/// The commands that wait for the packet thread, and the signal that wakes it.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    state: Mutex<QueueState>,
    wake: Signal,
}

/// The queued commands of the NIC thread.
#[derive(Debug, Default)]
struct QueueState {
    /// The ports that will exist after all queued commands have run.
    ports: BTreeSet<u16>,
    waiting: VecDeque<NicCommand>,
    packets_count: usize,
    /// True after the thread has ended.
    is_closed: bool,
}

/// A command for the packet thread.
#[derive(Debug)]
pub(crate) enum NicCommand {
    /// Send a packet-out of the controller.
    Send(OutgoingPacket),
    /// Add a port to the NIC.
    Add(u16, Box<OpenPort>),
    /// Remove a port, and return it to the sender of the command.
    Remove(u16, SyncSender<Box<OpenPort>>),
}

/// A packet from the controller.
#[derive(Debug)]
pub(crate) struct OutgoingPacket {
    pub(crate) port: u16,
    /// True if the packet is looked up in the stages, and not sent to the port.
    pub(crate) is_resubmitted: bool,
    pub(crate) payload: Vec<u8>,
}

impl CommandQueue {
    /// Returns an empty queue. Fails if the system has no descriptor for the signal.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { state: Mutex::default(), wake: Signal::new()? })
    }

    /// Queues a packet-out of the controller.
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
        state.waiting.push_back(NicCommand::Send(OutgoingPacket { port, is_resubmitted, payload }));
        drop(state);
        self.wake();
        Ok(())
    }

    /// Queues a port to add.
    pub(crate) fn add(&self, number: u16, port: Box<OpenPort>) -> Result<(), AddPortError> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(AddPortError::Stopped);
        }
        if !state.ports.insert(number) {
            return Err(AddPortError::NumberTaken);
        }
        state.waiting.push_back(NicCommand::Add(number, port));
        drop(state);
        self.wake();
        Ok(())
    }

    /// Queues a port to remove.
    ///
    /// The returned receiver gets the port, or an error if the thread has ended.
    pub(crate) fn remove(&self, number: u16) -> Receiver<Box<OpenPort>> {
        let (sender, receiver) = sync_channel(1);
        let mut state = self.state.lock();
        if !state.is_closed && state.ports.remove(&number) {
            state.waiting.push_back(NicCommand::Remove(number, sender));
        }
        drop(state);
        self.wake();
        receiver
    }

    /// Moves all commands to `into`, which must be empty.
    pub(crate) fn take(&self, into: &mut VecDeque<NicCommand>) {
        let mut state = self.state.lock();
        state.packets_count = 0;
        std::mem::swap(into, &mut state.waiting);
    }

    /// Closes the queue: drops the queued commands, and refuses new commands.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.ports.clear();
        let dropped = std::mem::take(&mut state.waiting);
        // Closing ports takes time, so the commands are dropped after the lock is released.
        drop(state);
        drop(dropped);
    }

    /// Wakes the packet thread of the NIC.
    pub(crate) fn wake(&self) {
        self.wake.set();
    }

    /// Clears the signal after the packet thread has woken.
    pub(crate) fn clear_wake(&self) {
        self.wake.clear();
    }
}

impl AsFd for CommandQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use shunt_p4runtime::wire::p4::v1::PacketMetadata;

    use super::*;

    #[test]
    fn the_queue_of_packet_outs_is_bounded() {
        let commands = CommandQueue::new().unwrap();
        commands.state.lock().ports.insert(1);
        let fields = PACKET_OUT.fields.iter().zip([1, 0, 0]);
        let metadata = fields
            .map(|(field, value)| PacketMetadata { metadata_id: field.id, value: vec![value] })
            .collect();
        let packet = PacketOut { payload: vec![7; 60], metadata };
        for _ in 0..PACKETS_MAX {
            assert_eq!(commands.send(&packet), Ok(()));
        }
        assert_eq!(commands.send(&packet), Err(PacketError::Busy));
        let mut taken = VecDeque::new();
        commands.take(&mut taken);
        assert_eq!((taken.len(), commands.send(&packet)), (PACKETS_MAX, Ok(())));
    }
}
