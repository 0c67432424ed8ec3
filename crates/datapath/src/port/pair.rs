//! Two connected ports in one process: each end receives the packets that the other sends.
//!
//! A pair needs no privileges and no kernel, and loses no packet while its ring has room. Tests of
//! the whole packet path therefore use pairs. A pair carries virtio headers, so these tests also
//! cover packets that must still be segmented.
//!
//! Each end has one ring per packet thread in each direction. The sender copies a frame into a
//! buffer of its own pool, because its caller keeps the packet. The receiver takes this buffer
//! without a second copy, and returns a buffer of the same size from its own pool. So the number of
//! buffers of every pool stays the same.

use std::sync::{Arc, Weak};

use rtrb::{Consumer, Producer, RingBuffer};

use super::{
    Capabilities, CopyCounters, FrameCopies, Port, PortCopies, PortCounters, PortError,
    QueueCopies, Queues, RxQueue, RxReport, TxQueue, spec::local_mac,
};
use crate::{
    metrics::RxLoss,
    packet::buffer::{BURST, Packet, Pool},
};

/// Number of packets that one ring holds.
pub const RING: usize = 1024;
// A sender takes back all returned buffers before each burst. Between two bursts, the receiver
// returns at most the buffers of a full ring and of a burst.
const BACK: usize = RING + BURST;

/// One end of a pair.
pub struct Pair {
    /// The name of this end.
    name: &'static str,
    /// The MAC address of this end.
    mac: [u8; 6],
    /// Number of packet threads that get queues.
    threads: u16,
    /// The queues between the two ends, not split yet.
    queues: Vec<Queues>,
    /// A reference that is alive while the other end has queues.
    peer: Weak<()>,
    /// The copies of the queues.
    copies: QueueCopies,
}

/// Creates two ends, each with queues for `threads` packet threads.
///
/// Thread i of one end receives the packets that thread i of the other end sends. The MAC addresses
/// are derived from `seed` and `seed + 1`.
#[must_use]
pub fn pair(threads: u16, seed: u64) -> (Pair, Pair) {
    let alive = [Arc::new(()), Arc::new(())];
    let end = |index: usize, name| Pair {
        name,
        mac: local_mac(seed.wrapping_add(index as u64)),
        threads,
        queues: Vec::with_capacity(threads.into()),
        peer: Arc::downgrade(&alive[1 - index]),
        copies: QueueCopies::default(),
    };
    let (mut left, mut right) = (end(0, "the first of a pair"), end(1, "the second of a pair"));
    for _ in 0..threads {
        let (left_tx, right_rx) = ring(&alive[0], &alive[1], left.copies.add_tx());
        let (right_tx, left_rx) = ring(&alive[1], &alive[0], right.copies.add_tx());
        left.queues.push(Queues { rx: Some(Box::new(left_rx)), tx: Box::new(left_tx) });
        right.queues.push(Queues { rx: Some(Box::new(right_rx)), tx: Box::new(right_tx) });
    }
    (left, right)
}

/// Creates the two ends of one direction.
fn ring(sender: &Arc<()>, receiver: &Arc<()>, copies: Arc<CopyCounters>) -> (PairTx, PairRx) {
    let (tx, rx) = RingBuffer::new(RING);
    let (back_tx, back_rx) = RingBuffer::new(BACK);
    (
        PairTx { ring: tx, back: back_rx, pool: Pool::new(), copies, _alive: Arc::clone(sender) },
        PairRx { ring: rx, back: back_tx, _alive: Arc::clone(receiver) },
    )
}

impl Port for Pair {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            tx_checksum: true,
            tx_segmentation: true,
            tx_tunnel_segmentation: true,
            frame_max: Pool::LARGE,
            can_wait: false,
        }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        let name = || self.name.to_owned();
        if threads != self.threads {
            return Err(PortError::OtherThreads {
                name: name(),
                made: self.threads,
                wanted: threads,
            });
        }
        if self.queues.is_empty() {
            return Err(PortError::AlreadySplit { name: name() });
        }
        Ok(std::mem::take(&mut self.queues))
    }

    fn link_up(&self) -> bool {
        self.peer.strong_count() > 0
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }

    fn copies(&self) -> PortCopies {
        self.copies.total()
    }
}

/// The transmit queue of one end of a pair.
struct PairTx {
    /// The ring of packets to the other end.
    ring: Producer<Packet>,
    /// Buffers that the receiver returns in exchange for sent buffers.
    back: Consumer<Packet>,
    /// The buffers for copies of packets.
    pool: Pool,
    /// The counters of these copies.
    copies: Arc<CopyCounters>,
    /// Kept so that the other end sees that this end has queues.
    _alive: Arc<()>,
}

impl PairTx {
    /// Copies packets to the ring; returns the number taken.
    fn send(&mut self, packets: &[Packet], copies: &mut FrameCopies) -> usize {
        let mut taken = 0;
        for burst in packets.chunks(BURST) {
            while let Ok(buffer) = self.back.pop() {
                self.pool.put_back(buffer);
            }
            for packet in burst {
                if self.ring.slots() == 0 || self.ring.is_abandoned() {
                    return taken;
                }
                let Some(copy) = self.pool.copy(packet, None) else { return taken };
                copies.record(packet.len());
                if let Err(rtrb::PushError::Full(copy)) = self.ring.push(copy) {
                    self.pool.put_back(copy);
                    return taken;
                }
                taken += 1;
            }
        }
        taken
    }
}

impl TxQueue for PairTx {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        let mut copies = FrameCopies::default();
        let taken = self.send(packets, &mut copies);
        self.copies.add(copies);
        taken
    }

    fn flush(&mut self) {}
}

/// The receive queue of one end of a pair.
struct PairRx {
    /// The ring of packets from the other end.
    ring: Consumer<Packet>,
    /// Returns buffers to the sender.
    back: Producer<Packet>,
    /// Kept so that the other end sees that this end has queues.
    _alive: Arc<()>,
}

impl PairRx {
    /// Returns a buffer to the sender.
    fn send_back(&mut self, buffer: Packet) {
        // The ring is full only if the sender has ended, and then the buffer is not needed.
        let sent = self.back.push(buffer);
        debug_assert!(
            sent.is_ok() || self.back.is_abandoned(),
            "the ring back to the sender has room for all buffers"
        );
    }
}

impl RxQueue for PairRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let mut report = RxReport::default();
        // The flag is read before the ring, so that packets sent before the other end closed are
        // still received.
        let abandoned = self.ring.is_abandoned();
        for _ in 0..BURST {
            let Ok(packet) = self.ring.pop() else {
                report.exhausted = abandoned;
                break;
            };
            match pool.take(packet.len(), packet.ingress) {
                Some(own) => {
                    self.send_back(own);
                    burst.push(packet);
                }
                None => {
                    report.refuse(RxLoss::NoBuffer);
                    self.send_back(packet);
                }
            }
        }
        Ok(report)
    }
}
