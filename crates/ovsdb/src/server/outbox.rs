//! The bounded queue of messages to a client.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

/// The sending end of the message queue of a client, for the server.
#[derive(Debug)]
pub struct Outbox {
    sender: mpsc::UnboundedSender<Vec<u8>>,
    /// Number of bytes that wait in the queue.
    queued: Arc<AtomicUsize>,
    /// Maximum number of waiting bytes, unless a single message is longer.
    bytes_max: usize,
}

/// The receiving end of the message queue of a client, for its connection.
#[derive(Debug)]
pub struct ClientQueue {
    receiver: mpsc::UnboundedReceiver<Vec<u8>>,
    /// Number of bytes that wait in the queue.
    queued: Arc<AtomicUsize>,
}

impl Outbox {
    /// Creates a queue for a number of bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> (Self, ClientQueue) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let queue = ClientQueue { receiver, queued: Arc::clone(&queued) };
        (Self { sender, queued, bytes_max }, queue)
    }

    /// Adds the text of a message.
    ///
    /// Returns false if the queue has no room: the client reads too slowly.
    pub(super) fn send(&self, text: String) -> bool {
        let bytes = text.into_bytes();
        let length = bytes.len();
        // Relaxed: the count guards no other memory.
        let queued = self.queued.fetch_add(length, Ordering::Relaxed);
        let has_room = queued == 0 || queued.saturating_add(length) <= self.bytes_max;
        has_room && self.sender.send(bytes).is_ok()
    }

    /// Returns whether the connection of the client has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl ClientQueue {
    /// Returns the next message, or `None` when the server has ended the session.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        self.receiver.recv().await
    }

    /// Returns the next message if the queue has one.
    pub fn try_next(&mut self) -> Option<Vec<u8>> {
        let message = self.receiver.try_recv().ok()?;
        self.written(message.len());
        Some(message)
    }

    /// Records that a message was written, which makes room for other messages.
    pub fn written(&self, bytes: usize) {
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
    }
}
