//! The traits that every kind of port implements.

use std::os::fd::BorrowedFd;

use super::PortError;
use crate::packet::buffer::{Packet, Pool};

/// A port of the datapath, as the control thread holds it.
pub trait Port: Send {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Makes the queues of `threads` packet threads: one pair each. They are made once: to spread a
    /// port over another number of threads, it is opened anew.
    ///
    /// # Errors
    ///
    /// When the device refuses, with the system's own reason, and the second time.
    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError>;

    /// Whether its link is up.
    fn link_up(&self) -> bool;

    /// Hardware address; a locally administered one where the port has no device.
    fn mac(&self) -> [u8; 6];

    /// What the device itself counted, beyond what packet threads count.
    fn counters(&self) -> PortCounters;
}

/// The two ends of one port that one packet thread owns.
pub struct Queues {
    /// Where packets come from; `None` where this thread receives nothing from the port.
    pub rx: Option<Box<dyn RxQueue>>,
    /// Where packets go.
    pub tx: Box<dyn TxQueue>,
}

/// Where packets come from.
pub trait RxQueue: Send {
    /// Appends at most [`BURST`](crate::BURST) packets to `burst`; never blocks. Their `ingress` is
    /// set by the caller.
    ///
    /// # Errors
    ///
    /// When the device is gone or broken: the queue gives nothing from then on, and the control
    /// thread opens the port anew.
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError>;

    /// A descriptor that becomes readable when there is something to receive; `None`: poll.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// What one receive did besides appending packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxReport {
    /// Frames that were not taken: longer than the port's limit, cut by the system, with an offload
    /// descriptor that contradicts the frame, or received while the pool was empty.
    pub refused: u32,
    /// Nothing will ever come again (a file replayed once).
    pub exhausted: bool,
}

/// Where packets go.
pub trait TxQueue: Send {
    /// Sends packets from the front; answers how many it took. The caller keeps the buffers, and
    /// drops and counts what was not taken.
    fn tx(&mut self, packets: &[Packet]) -> usize;

    /// Why the last [`Self::tx`] took no more, if it left something.
    fn tx_end(&self) -> TxEnd {
        TxEnd::Full
    }

    /// Pushes out what is pending; called on every turn, idle ones too.
    fn flush(&mut self);
}

/// Why a transmit queue took no more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxEnd {
    /// There is no room, or the device is down or gone: none of those left would be sent.
    Full,
    /// There was no room for the first of those left. There may be for the next one: what is full
    /// may be a queue that only some packets go to.
    Crowded,
    /// The device will never send the first of those left: it is longer than its MTU, say.
    Refused,
}

/// What a port can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Takes packets whose transport checksum is still to be made.
    pub tx_checksum: bool,
    /// Takes TCP and UDP packets still to be segmented.
    pub tx_segmentation: bool,
    /// Longest frame, Ethernet header included; the device itself may refuse shorter ones.
    pub frame_max: usize,
    /// Whether every receive queue has a [`RxQueue::wait_fd`].
    pub can_wait: bool,
}

impl Capabilities {
    /// What a wire takes: whole frames, nothing of which is still to be made.
    pub(crate) const WIRE: Self =
        Self { tx_checksum: false, tx_segmentation: false, frame_max: usize::MAX, can_wait: false };
}

/// What a device counted by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets that the device dropped before they were received.
    pub rx_dropped: u64,
    /// Packets that were taken and could not be sent.
    pub tx_dropped: u64,
}
