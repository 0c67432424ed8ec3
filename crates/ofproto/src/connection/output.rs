//! The output queue of a connection.

use std::collections::VecDeque;

use shunt_pipeline::Time;

/// Messages are merged into buffers of at least this many bytes.
const CHUNK: usize = 1 << 14;

/// Bytes that a peer must read within the stall timeout, if as many bytes wait.
///
/// A peer that reads fewer bytes in this time is stalled.
const PROGRESS_LEN: usize = 1 << 16;

/// A queue of messages to the peer.
///
/// Replies always fit, because the connection handles no request while the queue is long. An event
/// that does not fit is dropped.
#[derive(Debug)]
pub(super) struct Output {
    /// The encoded messages, oldest first.
    messages: VecDeque<Vec<u8>>,
    /// Bytes of the first buffer that are already sent.
    sent: usize,
    /// Bytes that are not sent yet.
    waiting: usize,
    /// Time at which the current stall period began.
    progress: Time,
    /// Bytes that the peer must still read in the current stall period.
    progress_left: usize,
    /// Number of queued and dropped packet-ins.
    packet_ins: PacketInCounts,
}

/// Packet-ins of a connection, or of all connections of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketInCounts {
    /// Number of packet-ins that were queued for a peer.
    pub sent: u64,
    /// Number of packet-ins dropped because the peer reads too slowly.
    pub dropped_unread: u64,
    /// Number of packet-ins that the connection missed because they arrived too fast.
    ///
    /// The number includes packet-ins that the peer has not subscribed to.
    pub dropped_missed: u64,
}

impl PacketInCounts {
    /// Returns the number of dropped packet-ins.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped_unread.saturating_add(self.dropped_missed)
    }

    /// Adds the counts of another connection.
    pub const fn add(&mut self, other: &Self) {
        self.sent = self.sent.saturating_add(other.sent);
        self.dropped_unread = self.dropped_unread.saturating_add(other.dropped_unread);
        self.dropped_missed = self.dropped_missed.saturating_add(other.dropped_missed);
    }
}

impl Output {
    /// Returns an empty output queue. `now` counts as the last progress.
    pub(super) const fn new(now: Time) -> Self {
        Self {
            messages: VecDeque::new(),
            sent: 0,
            waiting: 0,
            progress: now,
            progress_left: 0,
            packet_ins: PacketInCounts { sent: 0, dropped_unread: 0, dropped_missed: 0 },
        }
    }

    /// Queues a message, which is never dropped.
    pub(super) fn send(&mut self, message: Vec<u8>, now: Time) {
        self.waiting += message.len();
        if self.progress_left == 0 {
            self.start_progress(now);
        }
        match self.messages.back_mut() {
            Some(last) if last.len() < CHUNK => last.extend_from_slice(&message),
            _ => self.messages.push_back(message),
        }
    }

    /// Returns the bytes to send next; `None` if the queue is empty.
    pub(super) fn front(&self) -> Option<&[u8]> {
        self.messages.front()?.get(self.sent..)
    }

    /// Records that the peer read `count` bytes of [`Self::front`].
    pub(super) fn consume(&mut self, count: usize, now: Time) {
        self.sent += count;
        self.waiting = self.waiting.saturating_sub(count);
        self.progress_left = self.progress_left.saturating_sub(count);
        if self.progress_left == 0 {
            self.start_progress(now);
        }
        if self.messages.front().is_some_and(|message| message.len() <= self.sent) {
            self.messages.pop_front();
            self.sent = 0;
        }
    }

    /// Returns the number of unsent bytes.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Starts a period in which the peer must read some bytes.
    const fn start_progress(&mut self, now: Time) {
        self.progress_left = if self.waiting < PROGRESS_LEN { self.waiting } else { PROGRESS_LEN };
        self.progress = now;
    }

    /// Returns the start of the current stall period; `None` if nothing waits.
    pub(super) fn stalled_since(&self) -> Option<Time> {
        (self.waiting > 0).then_some(self.progress)
    }

    /// Returns the counts of packet-ins.
    pub(super) const fn packet_ins(&self) -> PacketInCounts {
        self.packet_ins
    }

    /// Returns the counts of packet-ins, to change them.
    pub(super) const fn packet_ins_mut(&mut self) -> &mut PacketInCounts {
        &mut self.packet_ins
    }
}
