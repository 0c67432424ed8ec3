//! A port that discards packets and receives none: for benches, and for policies that drop packets.

use super::{
    Capabilities, Port, PortCopies, PortCounters, PortError, Queues, TxQueue, spec::local_mac,
};
use crate::packet::buffer::{Packet, Pool};

/// A port that discards packets.
#[derive(Debug)]
pub struct Null {
    /// The MAC address of the port.
    mac: [u8; 6],
}

impl Null {
    /// Creates a port with a MAC address derived from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { mac: local_mac(seed) }
    }
}

impl Port for Null {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            tx_checksum: true,
            tx_segmentation: true,
            tx_tunnel_segmentation: true,
            frame_max: Pool::LARGE,
            can_wait: true,
        }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        Ok((0..threads).map(|_| Queues { rx: None, tx: Box::new(NullTx) }).collect())
    }

    fn link_up(&self) -> bool {
        true
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }

    fn copies(&self) -> PortCopies {
        PortCopies::default()
    }
}

/// A transmit queue that takes every packet; the caller keeps the buffers.
struct NullTx;

impl TxQueue for NullTx {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        packets.len()
    }

    fn flush(&mut self) {}
}
