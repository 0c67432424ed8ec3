//! A transmit queue for an output that several threads may share, and that has some offloads.
//!
//! A device or a guest often has fewer queues than there are packet threads. A thread that finds its output
//! in use keeps copies of a few packets and sends them with the next flush, so no thread waits for another.
//! An output may lack an offload, lose it while packets wait, or refuse it for one packet. The
//! transmit queue completes such packets in software.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use shunt_pipeline::DatapathPort;
use shunt_shared_memory::{SendEnd, SentFrames};

use super::{Capabilities, CopyCounters, FrameCopies, TxEnd, TxQueue};
use crate::packet::{
    buffer::{BURST, Packet, Pool},
    virtio::finish,
};

/// A queue of a device or guest, which several packet threads may share.
pub(super) trait SharedOutput: Send {
    /// Reads the current offloads of the output.
    fn refresh(&mut self) {}

    /// Returns the offloads that the output can apply to `packet`.
    fn capabilities_for(&self, packet: &Packet) -> Capabilities;

    /// Sends packets, first to last, until the output takes no more; never blocks.
    fn send<'a>(&mut self, packets: impl ExactSizeIterator<Item = &'a Packet>) -> SentFrames;
}

/// The transmit queue of one packet thread.
pub(super) struct SharedTx<O> {
    /// The output of the protocol.
    output: O,
    /// The state of the end of the queue.
    end: TxEnd,
    /// Copies of packets that wait for the output, the oldest first.
    backlog: VecDeque<Packet>,
    /// The packets that software made of the oldest waiting packet, which was refused.
    ///
    /// The queue sends these packets before the backlog. Together these packets count as one packet
    /// of the backlog.
    completed: VecDeque<Packet>,
    /// The buffer pool of the copies.
    pool: Pool,
    /// Scratch: the packets that software makes of a packet that the output refuses.
    made: Vec<Packet>,
    /// Number of packets that transmit queues took and the output did not get.
    lost: Arc<AtomicU64>,
    /// The counters of copies: into the output, and into buffers of the queue.
    copies: Arc<CopyCounters>,
    /// Copies that are not in `copies` yet.
    uncounted: FrameCopies,
}

/// Maximum number of packets in the backlog while another thread uses the output.
const BACKLOG_MAX: usize = 256;

impl<O: SharedOutput> SharedTx<O> {
    /// Creates a queue; `lost` counts packets that could not be sent.
    pub(super) fn new(output: O, lost: Arc<AtomicU64>, copies: Arc<CopyCounters>) -> Self {
        let backlog = VecDeque::with_capacity(BACKLOG_MAX);
        let (pool, made) = (Pool::new(), Vec::with_capacity(BURST));
        let completed = VecDeque::new();
        let (end, uncounted) = (TxEnd::Full, FrameCopies::default());
        Self { output, end, backlog, completed, pool, made, lost, copies, uncounted }
    }

    /// Sends packets that need no work in software; returns the number taken.
    ///
    /// The result is an error if the output takes no further packet.
    fn send_run(&mut self, packets: &[Packet]) -> (usize, Result<(), TxEnd>) {
        if self.waiting() > 0 {
            // Packets must not overtake the waiting packets.
            return self.keep(packets);
        }
        let SentFrames { frames, end } = self.output.send(packets.iter());
        packets.iter().take(frames).for_each(|packet| self.uncounted.record(packet.len()));
        match end {
            SendEnd::All => (frames, Ok(())),
            SendEnd::Full => (frames, Err(TxEnd::Full)),
            SendEnd::Refused => (frames, Err(TxEnd::Refused)),
            SendEnd::Busy => self.keep(packets),
        }
    }

    /// Copies packets to the backlog; returns the number of packets copied.
    ///
    /// The result is an error if the backlog or the pool has no room for all packets.
    fn keep(&mut self, packets: &[Packet]) -> (usize, Result<(), TxEnd>) {
        for (kept, packet) in packets.iter().enumerate() {
            if self.backlog.len() + usize::from(!self.completed.is_empty()) >= BACKLOG_MAX {
                return (kept, Err(TxEnd::Full));
            }
            let Some(copy) = self.pool.copy(packet, None) else {
                return (kept, Err(TxEnd::Crowded));
            };
            self.uncounted.record(copy.len());
            self.backlog.push_back(copy);
        }
        (packets.len(), Ok(()))
    }

    /// Does the work that the output lacks (`has`) in software, and sends the packets.
    fn send_completed(&mut self, packet: &Packet, has: Capabilities) -> Result<(), TxEnd> {
        let copy = self.pool.copy(packet, None).ok_or(TxEnd::Crowded)?;
        self.uncounted.record(copy.len());
        let completed = finish(copy, &has, &mut self.pool, &mut self.made);
        let mut made = std::mem::take(&mut self.made);
        let (_, result) = match completed {
            Ok(()) => self.send_run(&made),
            Err(_) => (0, Err(TxEnd::Refused)),
        };
        made.drain(..).for_each(|packet| self.pool.put_back(packet));
        self.made = made;
        result
    }

    /// Sends the waiting packets until another thread uses the output.
    fn send_waiting(&mut self) {
        while self.waiting() > 0 {
            let oldest = match self.completed.is_empty() {
                true => &mut self.backlog,
                false => &mut self.completed,
            };
            let SentFrames { frames, end } = self.output.send(oldest.iter());
            for packet in oldest.drain(..frames) {
                self.uncounted.record(packet.len());
                self.pool.put_back(packet);
            }
            match end {
                SendEnd::Busy => return,
                SendEnd::All => {}
                SendEnd::Refused if self.complete_first() => {}
                // The packet is complete already, so the output would refuse it again.
                SendEnd::Refused => self.lose(1),
                SendEnd::Full => self.lose(self.waiting()),
            }
        }
    }

    /// Computes the checksums and segments of the first packet of the backlog.
    ///
    /// Returns false if the first waiting packet is already complete.
    fn complete_first(&mut self) -> bool {
        if !self.completed.is_empty() {
            return false;
        }
        let Some(first) = self.backlog.pop_front_if(|packet| needs_work(packet)) else {
            return false;
        };
        match finish(first, &Capabilities::WIRE, &mut self.pool, &mut self.made) {
            Ok(()) => self.completed.extend(self.made.drain(..)),
            // `finish` has returned the buffer to the pool.
            Err(_) => {
                self.lost.fetch_add(1, Relaxed);
            }
        }
        true
    }

    /// Drops at most `count` waiting packets, oldest first, and counts them as lost.
    fn lose(&mut self, count: usize) {
        let count = count.min(self.waiting());
        let oldest = self.completed.drain(..count.min(self.completed.len()));
        let further = count - oldest.len();
        oldest.chain(self.backlog.drain(..further)).for_each(|packet| self.pool.put_back(packet));
        self.lost.fetch_add(count as u64, Relaxed);
    }
}

impl<O> SharedTx<O> {
    /// Counts the copies since the last call.
    fn count_copies(&mut self) {
        self.copies.add(std::mem::take(&mut self.uncounted));
    }

    /// Returns the number of waiting packets.
    fn waiting(&self) -> usize {
        self.completed.len() + self.backlog.len()
    }
}

impl<O> Drop for SharedTx<O> {
    /// Counts the packets that still wait as lost.
    fn drop(&mut self) {
        self.lost.fetch_add(self.waiting() as u64, Relaxed);
    }
}

impl<O: SharedOutput> TxQueue for SharedTx<O> {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        self.send_waiting();
        self.output.refresh();
        let mut taken = 0;
        while let Some(first) = packets.get(taken) {
            let rest = &packets[taken..];
            let takes = |packet: &&Packet| takes(&self.output, packet);
            let run = rest.iter().take_while(takes).count();
            let (mut count, mut result) = if run > 0 {
                self.send_run(&rest[..run])
            } else {
                let result = self.send_completed(first, self.output.capabilities_for(first));
                (usize::from(result.is_ok()), result)
            };
            // A driver may refuse a packet in spite of the announced offload, for example for long
            // headers.
            if let (Err(TxEnd::Refused), Some(refused)) = (&result, rest.get(count))
                && run > 0
                && needs_work(refused)
            {
                result = self.send_completed(refused, Capabilities::WIRE);
                count += usize::from(result.is_ok());
            }
            taken += count;
            if let Err(end) = result {
                self.end = end;
                break;
            }
        }
        self.count_copies();
        taken
    }

    fn tx_end(&self) -> TxEnd {
        self.end
    }

    fn flush(&mut self) {
        self.send_waiting();
        self.count_copies();
    }

    fn is_pending(&self) -> bool {
        self.waiting() > 0
    }

    fn holds_packets_of(&self, ingress: DatapathPort) -> bool {
        self.completed.iter().chain(&self.backlog).any(|packet| packet.ingress == ingress)
    }
}

/// Returns whether a packet needs a checksum or segments before it is sent.
const fn needs_work(packet: &Packet) -> bool {
    packet.virtio.needs_checksum || packet.virtio.is_segmented()
}

/// Returns whether an output has all offloads that a packet needs.
fn takes(output: &impl SharedOutput, packet: &Packet) -> bool {
    if !needs_work(packet) {
        return true;
    }
    let capabilities = output.capabilities_for(packet);
    (!packet.virtio.needs_checksum || capabilities.tx_checksum)
        && (!packet.virtio.is_segmented() || capabilities.segments(&packet.virtio))
}

#[cfg(test)]
mod tests;
