//! Packets from the controller, on their way to the packet thread.

use std::{
    collections::{BTreeSet, VecDeque},
    os::fd::{AsFd, BorrowedFd},
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;
use shunt_datapath::Pool;
use shunt_p4runtime::{program::PACKET_OUT, value, wire::p4::v1::PacketOut};

/// Packets of the controller that wait for the thread.
const OUTBOX_MAX: usize = 4096;

/// Packets from the controller, on their way to the thread.
#[derive(Debug)]
pub(crate) struct Outbox {
    ports: BTreeSet<u16>,
    waiting: Mutex<VecDeque<Outgoing>>,
    wake: EventFd,
}

/// A packet from the controller.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) port: u16,
    /// It goes through the stages.
    pub(crate) is_resubmitted: bool,
    pub(crate) payload: Vec<u8>,
}

impl Outbox {
    /// For a NIC with these ports.
    pub(crate) fn new(ports: BTreeSet<u16>) -> nix::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self { ports, waiting: Mutex::default(), wake: EventFd::from_flags(flags)? })
    }

    pub(crate) fn post(&self, packet: &PacketOut) -> Result<(), &'static str> {
        let number = |field: u32| {
            let given = packet.metadata.iter().find(|given| given.metadata_id == field);
            given.and_then(|given| value::decode(&given.value))
        };
        let [egress, ingress, resubmit] = PACKET_OUT.fields else { return Err("no program") };
        let is_resubmitted = number(resubmit.id).is_some_and(|number| number != 0);
        let port = number(if is_resubmitted { ingress.id } else { egress.id });
        let port = port.and_then(|port| u16::try_from(port).ok());
        let port = port.filter(|port| self.ports.contains(port)).ok_or("there is no such port")?;
        if packet.payload.is_empty() || packet.payload.len() > Pool::LARGE {
            return Err("the payload is no frame");
        }
        let mut waiting = self.waiting.lock();
        if waiting.len() >= OUTBOX_MAX {
            return Err("too many packets wait");
        }
        waiting.push_back(Outgoing { port, is_resubmitted, payload: packet.payload.clone() });
        drop(waiting);
        self.wake();
        Ok(())
    }

    /// Takes all that wait; `into` is empty.
    pub(crate) fn take(&self, into: &mut VecDeque<Outgoing>) {
        std::mem::swap(into, &mut self.waiting.lock());
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

impl AsFd for Outbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
