//! What waits to be sent.

use std::collections::VecDeque;

use shunt_pipeline::Time;

/// Bytes up to which messages are sent together.
const CHUNK: usize = 1 << 14;

/// Bytes that a peer has to take within the time that it is given, where so many wait for it: one
/// that takes a byte now and then does not read.
const PIECE: usize = 1 << 16;

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
    /// When the peer was last given a piece to take.
    progress: Time,
    /// Bytes of that piece that it has not taken.
    owed: usize,
    events_dropped: u64,
}

impl Output {
    pub(super) const fn new(now: Time) -> Self {
        Self {
            messages: VecDeque::new(),
            sent: 0,
            waiting: 0,
            progress: now,
            owed: 0,
            events_dropped: 0,
        }
    }

    /// Queues a message that must arrive.
    pub(super) fn send(&mut self, message: Vec<u8>, now: Time) {
        self.waiting += message.len();
        if self.owed == 0 {
            self.give_piece(now);
        }
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
        self.sent += count;
        self.waiting = self.waiting.saturating_sub(count);
        self.owed = self.owed.saturating_sub(count);
        if self.owed == 0 {
            self.give_piece(now);
        }
        if self.messages.front().is_some_and(|message| message.len() <= self.sent) {
            self.messages.pop_front();
            self.sent = 0;
        }
    }

    /// Bytes that wait.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    const fn give_piece(&mut self, now: Time) {
        self.owed = if self.waiting < PIECE { self.waiting } else { PIECE };
        self.progress = now;
    }

    /// Since when the peer owes it to take what waits for it, or a good piece of that.
    pub(super) fn stalled_since(&self) -> Option<Time> {
        (self.waiting > 0).then_some(self.progress)
    }

    /// Events that were dropped.
    pub(super) const fn events_dropped(&self) -> u64 {
        self.events_dropped
    }
}
