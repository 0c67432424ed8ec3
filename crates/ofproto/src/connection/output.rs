//! What waits to be sent.

use std::collections::VecDeque;

use shunt_pipeline::Time;

/// Bytes up to which messages are sent together.
const CHUNK: usize = 1 << 14;

/// A queue of messages towards the peer.
///
/// Replies always fit: the connection makes none while the queue is long. Events do not, and are
/// dropped.
#[derive(Debug)]
pub(super) struct Output {
    messages: VecDeque<Vec<u8>>,
    /// Bytes of the first message that are sent already.
    sent: usize,
    /// Bytes that are not.
    waiting: usize,
    /// When the peer last took something, or had nothing to take.
    progress: Time,
    events_dropped: u64,
}

impl Output {
    pub(super) const fn new(now: Time) -> Self {
        Self { messages: VecDeque::new(), sent: 0, waiting: 0, progress: now, events_dropped: 0 }
    }

    /// Queues a message that must arrive.
    pub(super) fn send(&mut self, message: Vec<u8>, now: Time) {
        if self.waiting == 0 {
            self.progress = now;
        }
        self.waiting += message.len();
        match self.messages.back_mut() {
            Some(last) if last.len() < CHUNK => last.extend_from_slice(&message),
            _ => self.messages.push_back(message),
        }
    }

    /// Queues a message unless `waiting_max` bytes wait already.
    pub(super) fn send_event(&mut self, message: Vec<u8>, waiting_max: usize, now: Time) {
        if self.waiting < waiting_max {
            self.send(message, now);
        } else {
            self.events_dropped += 1;
        }
    }

    /// The bytes to send next; `None` if nothing waits.
    pub(super) fn front(&self) -> Option<&[u8]> {
        self.messages.front()?.get(self.sent..)
    }

    /// Takes note that the peer took `count` bytes of [`Self::front`].
    pub(super) fn consume(&mut self, count: usize, now: Time) {
        self.progress = now;
        self.sent += count;
        self.waiting = self.waiting.saturating_sub(count);
        if self.messages.front().is_some_and(|message| message.len() <= self.sent) {
            self.messages.pop_front();
            self.sent = 0;
        }
    }

    /// Bytes that wait.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Since when the peer has taken nothing of what waits for it.
    pub(super) fn stalled_since(&self) -> Option<Time> {
        (self.waiting > 0).then_some(self.progress)
    }

    /// Events that were dropped.
    pub(super) const fn events_dropped(&self) -> u64 {
        self.events_dropped
    }
}
