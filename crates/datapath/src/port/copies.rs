//! Counters of the copies that ports make of frames.
//!
//! A *copy* is one transfer of the bytes of a frame between two buffers, by code of the switch in a
//! port. A transfer of a part of the bytes is a copy, too. Transfers by the kernel, a driver or
//! another process are none. Neither is the work of software for a missing offload: checksums and
//! segments.
//!
//! Each buffer has an owner, and a frame is copied when it passes to a buffer of another owner:
//!
//! | owner of the buffer | ports | copies on receive | copies on send |
//! | --- | --- | --- | --- |
//! | the pool of a packet thread | [`null`](super::null) | | 0 |
//! | the pool of the sender | [`pair`](super::pair) | 0: the buffer moves | 1 |
//! | the memory of a capture file | [`pcap`](super::pcap) | 1 | 1 |
//! | the kernel, by a system call | [`af_packet`](super::af_packet), [`tap`](super::tap) | 0 | 0 |
//! | a receive ring of the kernel | [`af_packet`](super::af_packet) under load | 1 | |
//! | a UMEM | [`af_xdp`](super::af_xdp) | 1 | 1 |
//! | a guest | [`vhost_user`](super::vhost_user) | 1 | 1 |
//! | another program | [`memif`](super::memif) | 1 | 1 |
//! | a driver of DPDK (mbuf) | `dpdk` | 1 | 1 |
//!
//! Three more copies are counted. A frame that the kernel writes into two buffers, because it is
//! longer than [`Pool::SMALL`](crate::packet::buffer::Pool::SMALL), has its start copied. A packet
//! that waits for a shared output is copied to a buffer of the queue. So is a packet that software
//! completes for its output.

use std::{
    iter::Sum,
    ops::{Add, AddAssign},
    sync::Arc,
};

use crate::metrics::Counter;

/// A number of copies, and the bytes that they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCopies {
    /// Number of copies; a frame that was copied twice counts twice.
    pub frames: u64,
    /// Number of copied bytes.
    pub bytes: u64,
}

impl FrameCopies {
    /// Records a copy of `length` bytes.
    #[inline]
    pub const fn record(&mut self, length: usize) {
        self.frames += 1;
        self.bytes += length as u64;
    }
}

impl Add for FrameCopies {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { frames: self.frames + other.frames, bytes: self.bytes + other.bytes }
    }
}

impl AddAssign for FrameCopies {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for FrameCopies {
    fn sum<I: Iterator<Item = Self>>(copies: I) -> Self {
        copies.fold(Self::default(), Self::add)
    }
}

/// The copies that the queues of a port made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCopies {
    /// The copies of received frames.
    pub rx: FrameCopies,
    /// The copies of sent frames.
    pub tx: FrameCopies,
}

impl AddAssign for PortCopies {
    fn add_assign(&mut self, other: Self) {
        self.rx += other.rx;
        self.tx += other.tx;
    }
}

/// The copies of one queue, on a separate cache line.
///
/// The queue adds the copies of a burst at once. Only the thread that has the queue writes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CopyCounters {
    /// Number of copies.
    frames: Counter,
    /// Number of copied bytes.
    bytes: Counter,
}

impl CopyCounters {
    /// Adds the copies of a burst.
    #[inline]
    pub fn add(&self, copies: FrameCopies) {
        if copies.frames > 0 {
            self.frames.add(copies.frames);
            self.bytes.add(copies.bytes);
        }
    }

    /// Returns the copies so far.
    #[must_use]
    pub fn total(&self) -> FrameCopies {
        FrameCopies { frames: self.frames.get(), bytes: self.bytes.get() }
    }
}

/// The counters of all queues of a port that copy frames.
#[derive(Debug, Default)]
pub struct QueueCopies {
    /// The counters of the receive queues.
    rx: Vec<Arc<CopyCounters>>,
    /// The counters of the transmit queues.
    tx: Vec<Arc<CopyCounters>>,
}

impl QueueCopies {
    /// Returns the counters of a new receive queue.
    pub fn add_rx(&mut self) -> Arc<CopyCounters> {
        Self::add_to(&mut self.rx)
    }

    /// Returns the counters of a new transmit queue.
    pub fn add_tx(&mut self) -> Arc<CopyCounters> {
        Self::add_to(&mut self.tx)
    }

    /// Appends new counters to a list.
    fn add_to(queues: &mut Vec<Arc<CopyCounters>>) -> Arc<CopyCounters> {
        let counters = Arc::<CopyCounters>::default();
        queues.push(Arc::clone(&counters));
        counters
    }

    /// Returns the copies of all queues together.
    #[must_use]
    pub fn total(&self) -> PortCopies {
        let sum = |queues: &[Arc<CopyCounters>]| queues.iter().map(|own| own.total()).sum();
        PortCopies { rx: sum(&self.rx), tx: sum(&self.tx) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_all_queues_are_added() {
        let mut queues = QueueCopies::default();
        let (first, second, sender) = (queues.add_rx(), queues.add_rx(), queues.add_tx());
        assert_eq!(queues.total(), PortCopies::default());
        for (counters, lengths) in [(&first, &[60, 61][..]), (&second, &[9000]), (&sender, &[])] {
            let mut burst = FrameCopies::default();
            lengths.iter().for_each(|length| burst.record(*length));
            counters.add(burst);
        }
        sender.add(FrameCopies { frames: 2, bytes: 5 });
        sender.add(FrameCopies { frames: 1, bytes: 7 });
        let mut total = queues.total();
        assert_eq!(total.rx, FrameCopies { frames: 3, bytes: 9121 });
        assert_eq!(total.tx, FrameCopies { frames: 3, bytes: 12 });
        total += PortCopies { rx: total.tx, tx: total.rx };
        assert_eq!((total.rx, total.tx.bytes), (total.tx, 9133));
    }
}
