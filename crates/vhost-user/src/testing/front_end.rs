//! A front-end for tests, which sends the messages that start a device.

use std::{
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use shunt_shared_memory::send_with_descriptors;

use super::TestGuest;

/// The connection of a front-end to a back-end.
#[derive(Debug)]
pub struct TestFrontEnd {
    stream: UnixStream,
}

/// The order in which a front-end sends its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOrder {
    /// The order of QEMU.
    ///
    /// QEMU enables queues before it sets features, and sets call descriptors after kick
    /// descriptors.
    Qemu,
    /// The order of DPDK's `virtio_user`: call descriptors first, enabled queues last.
    Dpdk,
}

impl TestFrontEnd {
    /// Creates a front-end on a connected socket.
    ///
    /// # Panics
    ///
    /// Panics if the socket has no timeouts.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream }
    }

    /// Sends a request.
    ///
    /// # Errors
    ///
    /// If the back-end has closed the connection.
    pub fn send(
        &self,
        request: u32,
        flags: u32,
        payload: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap();
        let header = [request, 1 | flags, length].into_iter().flat_map(u32::to_le_bytes);
        let bytes: Vec<u8> = header.chain(payload.iter().copied()).collect();
        send_with_descriptors(&self.stream, &bytes, descriptors).map(drop)
    }

    /// Receives the number in a reply.
    ///
    /// # Errors
    ///
    /// If the back-end closes the connection, or does not reply.
    pub fn reply(&mut self, request: u32) -> io::Result<u64> {
        let mut bytes = [0; 20];
        self.stream.read_exact(&mut bytes)?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(4), word(8)), (request, 5, 8), "the header of the reply");
        Ok(u64::from_le_bytes(bytes[12..].try_into().unwrap()))
    }

    /// Sends a request and waits for its acknowledgement.
    ///
    /// # Errors
    ///
    /// As [`Self::reply`].
    pub fn ask(
        &mut self,
        request: u32,
        payload: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<u64> {
        self.send(request, 8, payload, descriptors)?;
        self.reply(request)
    }

    /// Sends a request with a specific reply; returns the number in the reply.
    ///
    /// # Errors
    ///
    /// As [`Self::reply`].
    pub fn get(&mut self, request: u32, payload: &[u8]) -> io::Result<u64> {
        self.send(request, 0, payload, &[])?;
        self.reply(request)
    }

    /// Starts the device for a guest.
    ///
    /// # Errors
    ///
    /// If the back-end closes the connection.
    ///
    /// # Panics
    ///
    /// Panics if the back-end does not offer a feature that the guest accepts, or refuses a
    /// message.
    pub fn start(&mut self, guest: &TestGuest, order: MessageOrder) -> io::Result<()> {
        let offered = self.get(GET_FEATURES, &[])?;
        let features = guest.features.bits();
        assert_eq!(features & !offered, 0, "the guest takes what is offered");
        self.get(GET_PROTOCOL_FEATURES, &[])?;
        self.accept(SET_PROTOCOL_FEATURES, &(1_u64 | 1 << 3).to_le_bytes(), &[])?;
        self.get(GET_QUEUE_NUM, &[])?;
        self.accept(SET_OWNER, &[], &[])?;
        let count = u16::try_from(guest.queues.len()).unwrap();
        if order == MessageOrder::Qemu {
            (0..count).try_for_each(|queue| self.enable(queue, true))?;
        } else {
            (0..count).try_for_each(|queue| self.set_call(guest, queue))?;
        }
        self.accept(SET_FEATURES, &features.to_le_bytes(), &[])?;
        self.set_memory(guest)?;
        for queue in 0..count {
            self.start_queue(guest, queue)?;
            if order == MessageOrder::Qemu {
                self.set_call(guest, queue)?;
            }
        }
        if order == MessageOrder::Dpdk {
            (0..count).try_for_each(|queue| self.enable(queue, true))?;
        }
        Ok(())
    }

    /// Passes the memory of a guest.
    ///
    /// # Errors
    ///
    /// If the back-end closes the connection.
    ///
    /// # Panics
    ///
    /// Panics if the back-end refuses the memory.
    pub fn set_memory(&mut self, guest: &TestGuest) -> io::Result<()> {
        let regions = guest.regions();
        let mut payload = vec![2, 0, 0, 0, 0, 0, 0, 0];
        for region in &regions {
            let numbers =
                [region.guest_address, region.length, region.user_address, region.file_offset];
            payload.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
        }
        self.accept(SET_MEM_TABLE, &payload, &[guest.file.as_fd(), guest.file.as_fd()])
    }

    /// Starts a queue at base 0.
    ///
    /// A front-end starts at base 0 if it does not know the index at which the last back-end
    /// stopped.
    ///
    /// # Errors
    ///
    /// If the back-end closes the connection.
    ///
    /// # Panics
    ///
    /// Panics if the back-end refuses a message.
    pub fn start_queue(&mut self, guest: &TestGuest, queue: u16) -> io::Result<()> {
        self.accept(SET_VRING_NUM, &pair(queue, guest.size.into()), &[])?;
        self.accept(SET_VRING_BASE, &pair(queue, 0), &[])?;
        let address = TestGuest::address(queue);
        let mut payload = pair(queue, 0).to_vec();
        let numbers = [address.descriptors, address.used, address.available, 0];
        payload.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
        self.accept(SET_VRING_ADDR, &payload, &[])?;
        let kick = guest.queues[usize::from(queue)].kick.as_fd();
        self.accept(SET_VRING_KICK, &u64::from(queue).to_le_bytes(), &[kick])
    }

    /// Sets the eventfd of the guest by which the device signals a queue.
    fn set_call(&mut self, guest: &TestGuest, queue: u16) -> io::Result<()> {
        let call = guest.queues[usize::from(queue)].call.as_fd();
        self.accept(SET_VRING_CALL, &u64::from(queue).to_le_bytes(), &[call])
    }

    /// Enables or disables a queue.
    ///
    /// # Errors
    ///
    /// If the back-end closes the connection.
    ///
    /// # Panics
    ///
    /// Panics if the back-end refuses the message.
    pub fn enable(&mut self, queue: u16, is_enabled: bool) -> io::Result<()> {
        self.accept(SET_VRING_ENABLE, &pair(queue, is_enabled.into()), &[])
    }

    /// Stops a queue; returns the index at which the queue continues.
    ///
    /// # Errors
    ///
    /// If the back-end closes the connection.
    pub fn stop_queue(&mut self, queue: u16) -> io::Result<u32> {
        let reply = self.get(GET_VRING_BASE, &pair(queue, 0))?;
        Ok(u32::try_from(reply >> 32).unwrap())
    }

    /// Sends a request that the device must accept.
    fn accept(
        &mut self,
        request: u32,
        payload: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        assert_eq!(self.ask(request, payload, descriptors)?, 0, "request {request} is accepted");
        Ok(())
    }
}

/// Returns the payload of a queue and a number.
fn pair(queue: u16, number: u32) -> [u8; 8] {
    (u64::from(queue) | u64::from(number) << 32).to_le_bytes()
}

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;
