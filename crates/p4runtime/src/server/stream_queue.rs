//! The queue of a controller's stream, limited in messages and bytes.
//!
//! The limits bound the memory for a controller that does not read. At most one idle notification
//! waits; idle entries without a notification stay due.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

use crate::wire::p4::v1::{StreamMessageResponse, stream_message_response::Update};

/// A message for a controller, or the status that ends its stream.
pub(super) type StreamResult = Result<StreamMessageResponse, Status>;

/// The sending end of a stream queue, for the server.
#[derive(Clone, Debug)]
pub(super) struct StreamQueue {
    sender: mpsc::Sender<QueuedMessage>,
    load: Arc<QueueLoad>,
    bytes_max: usize,
}

/// The receiving end of a stream queue, from which the controller is served.
#[derive(Debug)]
pub struct StreamReceiver {
    receiver: mpsc::Receiver<QueuedMessage>,
    load: Arc<QueueLoad>,
}

/// A message that waits for its stream, with its length in bytes.
#[derive(Debug)]
struct QueuedMessage {
    message: StreamResult,
    bytes: usize,
    is_notice: bool,
}

/// Bytes of the waiting messages, and whether an idle notification waits.
#[derive(Debug, Default)]
struct QueueLoad {
    bytes: AtomicUsize,
    has_notice: AtomicBool,
}

/// The error of a message for which the queue of a stream has no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

/// Creates both ends of a queue with these limits.
pub(super) fn stream_queue(messages_max: usize, bytes_max: usize) -> (StreamQueue, StreamReceiver) {
    let (sender, receiver) = mpsc::channel(messages_max);
    let load = Arc::<QueueLoad>::default();
    (StreamQueue { sender, load: Arc::clone(&load), bytes_max }, StreamReceiver { receiver, load })
}

impl StreamQueue {
    /// Adds a message to the queue.
    pub(super) fn push(&self, update: Update) -> Result<(), QueueFull> {
        let is_notice = matches!(update, Update::IdleTimeoutNotification(_));
        let message = StreamMessageResponse { update: Some(update) };
        let bytes = message.encoded_len();
        // All callers hold the same lock, so the number of queued bytes can only decrease
        // meanwhile.
        if self.load.bytes.load(Ordering::Relaxed).saturating_add(bytes) > self.bytes_max {
            return Err(QueueFull);
        }
        // The message may be read before `try_send` returns, so it is counted first.
        self.load.bytes.fetch_add(bytes, Ordering::Relaxed);
        let had_notice = is_notice && self.load.has_notice.swap(true, Ordering::Relaxed);
        let message = QueuedMessage { message: Ok(message), bytes, is_notice };
        if self.sender.try_send(message).is_err() {
            self.load.bytes.fetch_sub(bytes, Ordering::Relaxed);
            if is_notice && !had_notice {
                self.load.has_notice.store(false, Ordering::Relaxed);
            }
            return Err(QueueFull);
        }
        Ok(())
    }

    /// Adds the status that ends the stream.
    ///
    /// A controller that does not read may miss the status.
    pub(super) fn end(&self, status: Status) {
        let last = QueuedMessage { message: Err(status), bytes: 0, is_notice: false };
        let _ = self.sender.try_send(last);
    }

    /// Returns whether no idle notification is waiting.
    pub(super) fn accepts_notice(&self) -> bool {
        !self.load.has_notice.load(Ordering::Relaxed)
    }

    /// Waits until the receiver is dropped.
    pub(super) async fn closed(&self) {
        self.sender.closed().await;
    }
}

impl Stream for StreamReceiver {
    type Item = StreamResult;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StreamResult>> {
        self.receiver.poll_recv(cx).map(|message| {
            let QueuedMessage { message, bytes, is_notice } = message?;
            self.load.bytes.fetch_sub(bytes, Ordering::Relaxed);
            if is_notice {
                self.load.has_notice.store(false, Ordering::Relaxed);
            }
            Some(message)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;
    use crate::wire::p4::v1::{IdleTimeoutNotification, PacketIn};

    /// Returns a packet-in of some bytes.
    fn packet(bytes: usize) -> Update {
        Update::Packet(PacketIn { payload: vec![0; bytes], metadata: Vec::new() })
    }

    #[tokio::test]
    async fn the_queue_is_limited_in_bytes() {
        let (stream_queue, mut receiver) = stream_queue(100, 4096);
        assert_eq!(stream_queue.push(packet(3000)), Ok(()));
        assert_eq!(stream_queue.push(packet(3000)), Err(QueueFull));
        assert_eq!(stream_queue.push(packet(500)), Ok(()));
        assert!(receiver.next().await.unwrap().is_ok());
        assert_eq!(stream_queue.push(packet(3000)), Ok(()));
    }

    #[tokio::test]
    async fn one_idle_notification_waits_at_most() {
        let (stream_queue, mut receiver) = stream_queue(100, 4096);
        let notice = Update::IdleTimeoutNotification(IdleTimeoutNotification::default());
        assert!(stream_queue.accepts_notice());
        stream_queue.push(notice).unwrap();
        assert!(!stream_queue.accepts_notice());
        receiver.next().await;
        assert!(stream_queue.accepts_notice());
    }

    #[tokio::test]
    async fn a_dropped_notification_does_not_wait() {
        let (stream_queue, mut receiver) = stream_queue(1, 4096);
        stream_queue.push(packet(8)).unwrap();
        let notice = || Update::IdleTimeoutNotification(IdleTimeoutNotification::default());
        assert_eq!(stream_queue.push(notice()), Err(QueueFull));
        assert!(stream_queue.accepts_notice());
        receiver.next().await;
        assert_eq!(stream_queue.push(notice()), Ok(()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_notification_read_at_once_does_not_wait() {
        let (stream_queue, mut receiver) = stream_queue(100, 4096);
        let (signal, mut signals) = mpsc::channel(1);
        tokio::spawn(async move {
            while receiver.next().await.is_some() && signal.send(()).await.is_ok() {}
        });
        for number in 0..20_000 {
            let notice = IdleTimeoutNotification::default();
            stream_queue.push(Update::IdleTimeoutNotification(notice)).unwrap();
            signals.recv().await.unwrap();
            assert!(stream_queue.accepts_notice(), "notice {number}");
        }
    }
}
