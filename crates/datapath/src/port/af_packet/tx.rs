//! The transmit queue of a packet socket: one system call for each burst.

use std::{ffi::c_uint, io, os::fd::AsFd, sync::Arc};

use super::socket::PacketSocket;
use crate::{
    packet::buffer::Packet,
    port::{
        TxEnd, TxQueue,
        error::{GONE_CODES, tx_end_of},
        sys,
    },
};

/// The transmit queue of a packet socket.
pub(in crate::port) struct PacketTx {
    /// The packet socket to which frames are sent.
    socket: Arc<PacketSocket>,
    /// The reason why the queue took no more packets.
    end: TxEnd,
}

impl PacketTx {
    /// Opens a packet socket that sends by a device and receives nothing.
    pub(in crate::port) fn open(device: c_uint) -> io::Result<Self> {
        let fd = sys::packet_socket()?;
        sys::set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
        sys::bind_packet_sender(fd.as_fd(), device)?;
        Ok(Self::new(Arc::new(PacketSocket::from(fd))))
    }

    /// Creates a queue that sends by a socket.
    pub(super) const fn new(socket: Arc<PacketSocket>) -> Self {
        Self { socket, end: TxEnd::Full }
    }
}

impl TxQueue for PacketTx {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        let mut taken = 0;
        while let Some(rest) = packets.get(taken..).filter(|rest| !rest.is_empty()) {
            match sys::send_packets(self.socket.fd(), rest) {
                Ok(0) => {
                    self.end = TxEnd::Full;
                    break;
                }
                Ok(sent) => taken += sent,
                Err(error) => {
                    // ENOBUFS: the queueing discipline or the driver dropped this packet alone.
                    self.end = tx_end_of(&error, &GONE_CODES, TxEnd::Crowded);
                    break;
                }
            }
        }
        taken
    }

    fn tx_end(&self) -> TxEnd {
        self.end
    }

    fn flush(&mut self) {}
}
