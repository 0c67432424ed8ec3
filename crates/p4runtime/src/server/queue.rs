//! What waits for a controller that reads its stream: bounded by messages and by bytes.
//!
//! A controller that does not read costs what the bounds say and no more. Of notices of idle entries one
//! waits at most: entries that are due stay due.

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

/// What goes to a controller: a message, or why its stream ends.
pub(super) type Outgoing = Result<StreamMessageResponse, Status>;

/// The server's end.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    sender: mpsc::Sender<Waiting>,
    load: Arc<Load>,
    bytes_max: usize,
}

/// The controller's end.
#[derive(Debug)]
pub struct Queued {
    receiver: mpsc::Receiver<Waiting>,
    load: Arc<Load>,
}

#[derive(Debug)]
struct Waiting {
    message: Outgoing,
    bytes: usize,
    is_notice: bool,
}

/// What waits.
#[derive(Debug, Default)]
struct Load {
    bytes: AtomicUsize,
    has_notice: AtomicBool,
}

/// A message found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Both ends, for so many messages and bytes.
pub(super) fn queue(messages_max: usize, bytes_max: usize) -> (Queue, Queued) {
    let (sender, receiver) = mpsc::channel(messages_max);
    let load = Arc::<Load>::default();
    (Queue { sender, load: Arc::clone(&load), bytes_max }, Queued { receiver, load })
}

impl Queue {
    /// Adds a message.
    pub(super) fn push(&self, update: Update) -> Result<(), Full> {
        let is_notice = matches!(update, Update::IdleTimeoutNotification(_));
        let message = StreamMessageResponse { update: Some(update) };
        let bytes = message.encoded_len();
        // All who push hold one lock: what is read here only becomes less.
        if self.load.bytes.load(Ordering::Relaxed).saturating_add(bytes) > self.bytes_max {
            return Err(Full);
        }
        // What is sent may be read before `try_send` returns: the load has it by then.
        self.load.bytes.fetch_add(bytes, Ordering::Relaxed);
        let had_notice = is_notice && self.load.has_notice.swap(true, Ordering::Relaxed);
        let waiting = Waiting { message: Ok(message), bytes, is_notice };
        if self.sender.try_send(waiting).is_err() {
            self.load.bytes.fetch_sub(bytes, Ordering::Relaxed);
            if is_notice && !had_notice {
                self.load.has_notice.store(false, Ordering::Relaxed);
            }
            return Err(Full);
        }
        Ok(())
    }

    /// Says why the stream ends; a controller that does not read does not learn it.
    pub(super) fn end(&self, status: Status) {
        let last = Waiting { message: Err(status), bytes: 0, is_notice: false };
        let _ = self.sender.try_send(last);
    }

    /// Whether a notice would be heard before those that wait.
    pub(super) fn takes_notice(&self) -> bool {
        !self.load.has_notice.load(Ordering::Relaxed)
    }

    /// Waits until nobody reads any more.
    pub(super) async fn closed(&self) {
        self.sender.closed().await;
    }
}

impl Stream for Queued {
    type Item = Outgoing;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Outgoing>> {
        self.receiver.poll_recv(cx).map(|waiting| {
            let Waiting { message, bytes, is_notice } = waiting?;
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

    fn packet(bytes: usize) -> Update {
        Update::Packet(PacketIn { payload: vec![0; bytes], metadata: Vec::new() })
    }

    #[tokio::test]
    async fn what_waits_has_a_bound_in_bytes_and_room_again_when_it_is_read() {
        let (queue, mut queued) = queue(100, 4096);
        assert_eq!(queue.push(packet(3000)), Ok(()));
        assert_eq!(queue.push(packet(3000)), Err(Full));
        assert_eq!(queue.push(packet(500)), Ok(()));
        assert!(queued.next().await.unwrap().is_ok());
        assert_eq!(queue.push(packet(3000)), Ok(()));
    }

    #[tokio::test]
    async fn one_notice_waits_at_most() {
        let (queue, mut queued) = queue(100, 4096);
        let notice = Update::IdleTimeoutNotification(IdleTimeoutNotification::default());
        assert!(queue.takes_notice());
        queue.push(notice).unwrap();
        assert!(!queue.takes_notice());
        queued.next().await;
        assert!(queue.takes_notice());
    }

    #[tokio::test]
    async fn a_notice_that_found_no_room_does_not_wait() {
        let (queue, mut queued) = queue(1, 4096);
        queue.push(packet(8)).unwrap();
        let notice = || Update::IdleTimeoutNotification(IdleTimeoutNotification::default());
        assert_eq!(queue.push(notice()), Err(Full));
        assert!(queue.takes_notice());
        queued.next().await;
        assert_eq!(queue.push(notice()), Ok(()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_notice_that_is_read_at_once_does_not_wait_any_more() {
        let (queue, mut queued) = queue(100, 4096);
        let (told, mut heard) = mpsc::channel(1);
        tokio::spawn(async move {
            while queued.next().await.is_some() && told.send(()).await.is_ok() {}
        });
        for number in 0..20_000 {
            let notice = IdleTimeoutNotification::default();
            queue.push(Update::IdleTimeoutNotification(notice)).unwrap();
            heard.recv().await.unwrap();
            assert!(queue.takes_notice(), "notice {number}");
        }
    }
}
