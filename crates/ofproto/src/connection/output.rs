//! The output queue of a connection.

use std::collections::VecDeque;

use shunt_pipeline::Time;

/// Messages are merged into buffers of at least this many bytes.
const CHUNK: usize = 1 << 14;

/// Bytes that a peer must read within the stall timeout, if that many wait.
///
/// A peer that reads a byte now and then does not count as reading.
const PROGRESS_LEN: usize = 1 << 16;

/// A queue of messages to the peer.
///
/// Replies always fit, because the connection handles no request while the queue is long. Events
/// may not fit, and are then dropped.
#[derive(Debug)]
pub(super) struct Output {
    messages: VecDeque<Vec<u8>>,
    /// Bytes of the first buffer that are already sent.
    sent: usize,
    /// Bytes that are not sent yet.
    waiting: usize,
    /// Time at which the current stall period began.
    progress: Time,
    /// Bytes that the peer must still read in the current stall period.
    progress_left: usize,
    events_dropped: u64,
}

impl Output {
    pub(super) const fn new(now: Time) -> Self {
        Self {
            messages: VecDeque::new(),
            sent: 0,
            waiting: 0,
            progress: now,
            progress_left: 0,
            events_dropped: 0,
        }
    }

    /// Queues a message that must arrive.
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

    /// Queues a message unless `waiting_max` bytes are waiting.
    pub(super) fn send_event(&mut self, message: Vec<u8>, waiting_max: usize, now: Time) {
        if self.waiting < waiting_max {
            self.send(message, now);
        } else {
            self.events_dropped += 1;
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

    const fn start_progress(&mut self, now: Time) {
        self.progress_left = if self.waiting < PROGRESS_LEN { self.waiting } else { PROGRESS_LEN };
        self.progress = now;
    }

    /// Returns the start of the current stall period; `None` if nothing waits.
    pub(super) fn stalled_since(&self) -> Option<Time> {
        (self.waiting > 0).then_some(self.progress)
    }

    /// Returns the number of dropped events.
    pub(super) const fn events_dropped(&self) -> u64 {
        self.events_dropped
    }
}
