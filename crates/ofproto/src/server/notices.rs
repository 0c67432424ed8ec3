//! What no connection may miss: that a port came, went or changed, that a rule went.
//!
//! Each connection has a queue of its own, out of which it takes as much as its peer has room for.
//! So nobody waits for a peer: not who tells, and no other connection. A peer that lets too much
//! pile up is behind. Its connection ends at once, and it learns how things are when it comes back.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;

use crate::connection::Event;

/// Events that may lie before one connection when more come; of those there may be any number, for
/// one request can take every rule.
const NOTICES_MAX: usize = 1 << 17;

/// The queues of all connections of a bridge.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<Vec<Weak<Queue>>>);

/// What lies before one connection.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    came: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Too much lay here; nothing does any more.
    is_behind: bool,
}

/// A connection's end of its queue.
#[derive(Debug)]
pub(super) struct Inbox(Arc<Queue>);

/// The connection is too far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Behind;

impl Notices {
    /// The queue of a new connection.
    pub(super) fn subscribe(&self) -> Inbox {
        let queue = Arc::<Queue>::default();
        lock(&self.0).push(Arc::downgrade(&queue));
        Inbox(queue)
    }

    /// Puts events into every queue; one that is too long already is ended.
    pub(super) fn insist(&self, events: &[Event]) {
        lock(&self.0).retain(|queue| queue.upgrade().is_some_and(|queue| queue.put(events)));
    }
}

impl Queue {
    /// Adds events; answers whether the connection is not behind.
    fn put(&self, events: &[Event]) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.events.len() > NOTICES_MAX {
            *waiting = Waiting { events: VecDeque::new(), is_behind: true };
        } else {
            waiting.events.extend(events.iter().cloned());
        }
        self.came.notify_one();
        !waiting.is_behind
    }
}

impl Inbox {
    /// Waits for the next event, unless `wants_more` is false, or for the connection to be behind.
    /// Whoever stops waiting has taken nothing.
    pub(super) async fn next(&self, wants_more: bool) -> Result<Event, Behind> {
        loop {
            // What comes after this look leaves a mark, which ends the wait.
            if let Some(found) = self.look(wants_more) {
                return found;
            }
            self.0.came.notified().await;
        }
    }

    fn look(&self, wants_more: bool) -> Option<Result<Event, Behind>> {
        let mut waiting = lock(&self.0.waiting);
        if waiting.is_behind {
            return Some(Err(Behind));
        }
        waiting.events.pop_front_if(|_| wants_more).map(Ok)
    }
}

/// Every change leaves what is locked whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
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

    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// How many events come out until there are no more.
    fn drained(inbox: &Inbox) -> usize {
        let next = || matches!(poll(inbox.next(true)), Poll::Ready(Ok(_)));
        std::iter::repeat_with(next).take_while(|came| *came).count()
    }

    #[test]
    fn a_connection_that_reads_hears_everything_whatever_another_does() {
        let (notices, event) = (Notices::default(), event());
        let (quick, deaf) = (notices.subscribe(), notices.subscribe());
        let burst = vec![event; 1000];
        for _ in 0..3 * NOTICES_MAX / burst.len() {
            notices.insist(&burst);
            assert_eq!(drained(&quick), burst.len());
        }
        assert!(matches!(poll(deaf.next(true)), Poll::Ready(Err(Behind))));
        assert!(lock(&deaf.0.waiting).events.is_empty(), "what it did not read takes no room");
    }

    #[test]
    fn one_request_may_take_any_number_of_rules() {
        let (notices, event) = (Notices::default(), event());
        let inbox = notices.subscribe();
        notices.insist(&vec![event.clone(); 3 * NOTICES_MAX]);
        assert_eq!(drained(&inbox), 3 * NOTICES_MAX);
        notices.insist(&vec![event; 3 * NOTICES_MAX]);
        assert_eq!(drained(&inbox), 3 * NOTICES_MAX);
    }

    #[test]
    fn a_connection_without_room_takes_nothing_and_hears_that_it_is_behind() {
        let (notices, event) = (Notices::default(), event());
        let inbox = notices.subscribe();
        let mut next = pin!(inbox.next(false));
        let mut context = Context::from_waker(Waker::noop());
        notices.insist(&vec![event.clone(); NOTICES_MAX + 1]);
        assert!(next.as_mut().poll(&mut context).is_pending());
        notices.insist(&[event]);
        assert!(matches!(next.as_mut().poll(&mut context), Poll::Ready(Err(Behind))));
    }

    #[test]
    fn a_connection_that_has_ended_takes_no_room() {
        let (notices, event) = (Notices::default(), event());
        drop(notices.subscribe());
        notices.insist(&[event]);
        assert!(lock(&notices.0).is_empty());
    }
}
