//! What no connection may miss: that a port came, went or changed, that a rule went.
//!
//! Each connection has a bounded queue of its own, out of which it takes as much as its peer has
//! room for. Who tells of many things waits for the slowest peer; a peer that takes nothing at all is
//! given up by its connection, so nobody waits for ever. A part of each queue is kept free for what
//! cannot wait.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::connection::Event;

/// Events that may lie before one connection.
const NOTICES_MAX: usize = 1024;

/// Of these, places that only [`Notices::insist`] takes.
const KEPT_FREE: usize = 256;

/// The queues of all connections of a bridge.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<Vec<mpsc::Sender<Event>>>);

impl Notices {
    /// The queue of a new connection; it ends when the connection is too far behind.
    pub(super) fn subscribe(&self) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::channel(NOTICES_MAX);
        self.lock().push(sender);
        receiver
    }

    /// Puts an event into every queue, and waits for room.
    pub(super) async fn tell(&self, event: &Event) {
        let queues = self.lock().clone();
        for queue in queues {
            // A connection that ended meanwhile needs to hear nothing.
            if let Ok(mut places) = queue.reserve_many(KEPT_FREE + 1).await
                && let Some(place) = places.next()
            {
                place.send(event.clone());
            }
        }
    }

    /// Puts an event into every queue; one without room is ended.
    pub(super) fn insist(&self, event: &Event) {
        self.lock().retain(|queue| queue.try_send(event.clone()).is_ok());
    }

    /// Every change leaves the list whole. Queues of connections that have ended go with the next.
    fn lock(&self) -> MutexGuard<'_, Vec<mpsc::Sender<Event>>> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|queue| !queue.is_closed());
        queues
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::{Pin, pin},
        sync::Arc,
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::{
        Host,
        message::{PortStatus, PortStatusReason},
        testing::MemoryHost,
    };

    fn event() -> Event {
        let host = MemoryHost::new(|| shunt_pipeline::Time::ZERO);
        let port = host.ports().remove(0);
        Event::PortStatus(Arc::new(PortStatus { reason: PortStatusReason::Modify, port }))
    }

    fn is_done(future: &mut Pin<&mut impl Future<Output = ()>>) -> bool {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_tells_waits_for_the_slowest_and_loses_nothing() {
        let (notices, event) = (Notices::default(), event());
        let (mut quick, mut slow) = (notices.subscribe(), notices.subscribe());
        let told = NOTICES_MAX - KEPT_FREE;
        for _ in 0..told {
            assert!(is_done(&mut pin!(notices.tell(&event))));
            assert!(quick.try_recv().is_ok());
        }
        let mut next = pin!(notices.tell(&event));
        assert!(!is_done(&mut next), "the other has read nothing");
        assert!(slow.try_recv().is_ok());
        assert!(is_done(&mut next));
        assert_eq!((slow.len(), quick.len()), (told, 1));
    }

    #[test]
    fn who_tells_does_not_wait_for_a_connection_that_has_ended() {
        let (notices, event) = (Notices::default(), event());
        let gone = notices.subscribe();
        for _ in 0..NOTICES_MAX - KEPT_FREE {
            assert!(is_done(&mut pin!(notices.tell(&event))));
        }
        let mut next = pin!(notices.tell(&event));
        assert!(!is_done(&mut next));
        drop(gone);
        assert!(is_done(&mut next));
    }

    #[test]
    fn what_cannot_wait_finds_room_and_ends_who_has_none() {
        let (notices, event) = (Notices::default(), event());
        let (mut quick, mut slow) = (notices.subscribe(), notices.subscribe());
        for _ in 0..NOTICES_MAX - KEPT_FREE {
            assert!(is_done(&mut pin!(notices.tell(&event))));
            assert!(quick.try_recv().is_ok());
        }
        (0..KEPT_FREE).for_each(|_| notices.insist(&event));
        assert_eq!((slow.len(), slow.is_closed()), (NOTICES_MAX, false));
        notices.insist(&event);
        assert_eq!(quick.len(), KEPT_FREE + 1);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..NOTICES_MAX {
            assert!(matches!(slow.poll_recv(&mut context), Poll::Ready(Some(_))));
        }
        assert!(matches!(slow.poll_recv(&mut context), Poll::Ready(None)), "and is then closed");
    }
}
