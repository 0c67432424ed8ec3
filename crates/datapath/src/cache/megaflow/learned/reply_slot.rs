//! A slot for the replies of the trainer thread, which is allocated once.
//!
//! A packet thread has one slot for each kind of request, and one request at a time in each slot.
//! So a request allocates no memory, in contrast to a channel for each request. Only the trainer
//! waits for the lock of a slot, and holds it while it moves a reply.

use std::sync::Arc;

use parking_lot::Mutex;

/// A slot for the reply to one request at a time.
#[derive(Debug)]
pub(crate) struct ReplySlot<T>(Arc<Mutex<Option<Reply<T>>>>);

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply<T> {
    /// The reply to the request.
    Sent(T),
    /// The sender was dropped without a reply: the trainer thread has panicked.
    Lost,
}

/// The sender of the reply to one request; dropping it ends the request.
#[derive(Debug)]
pub(crate) struct ReplySender<T>(Option<Arc<Mutex<Option<Reply<T>>>>>);

impl<T> Default for ReplySlot<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }
}

impl<T> ReplySlot<T> {
    /// Begins a request; the sender must send its reply.
    ///
    /// The sender of the last request must have been dropped, or have sent its reply.
    pub(crate) fn begin(&self) -> ReplySender<T> {
        // The end of a request that the trainer refused.
        self.0.lock().take();
        ReplySender(Some(Arc::clone(&self.0)))
    }

    /// Holds the reply back, and its sender waits, until the guard is dropped.
    #[cfg(test)]
    pub(super) fn hold_back(&self) -> parking_lot::MutexGuard<'_, Option<Reply<T>>> {
        self.0.lock()
    }

    /// Takes the end of the request; `None` if it has not ended.
    pub(crate) fn take(&self) -> Option<Reply<T>> {
        self.0.try_lock()?.take()
    }
}

impl<T> ReplySender<T> {
    /// Sends the reply.
    pub(crate) fn send(mut self, reply: T) {
        self.end(Reply::Sent(reply));
    }

    /// Ends the request, if it has not ended.
    fn end(&mut self, reply: Reply<T>) {
        if let Some(slot) = self.0.take() {
            *slot.lock() = Some(reply);
        }
    }
}

impl<T> Drop for ReplySender<T> {
    fn drop(&mut self) {
        self.end(Reply::Lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_ends_once() {
        let slot = ReplySlot::default();
        assert_eq!(slot.take(), None);
        for number in 0..3 {
            let sender = slot.begin();
            assert_eq!(slot.take(), None, "no reply was sent");
            sender.send(number);
            assert_eq!(slot.take(), Some(Reply::Sent(number)));
            assert_eq!(slot.take(), None);
            drop(slot.begin());
            assert_eq!(slot.take(), Some(Reply::Lost));
        }
        drop(slot.begin());
        let sender = slot.begin();
        assert_eq!(slot.take(), None, "the end of the refused request is not a reply");
        drop(slot);
        sender.send(7);
    }
}
