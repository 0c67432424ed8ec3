//! The open connections of a server, up to a maximum number.
//!
//! A silent connection costs its client nothing. So silent clients could take all places of a
//! server, and no other client would be served. One rule prevents this: in a full table, the
//! connection that has waited longest without a request makes room for a new connection. A server
//! can also have a time limit for the first request.
//!
//! A connection with a request keeps its place. [`ConnectionPlace::note_idle`] ends the request.
//! The control socket uses it, because its clients may stay connected for any time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};

/// A table of the open connections of a server.
pub(crate) struct ConnectionPlaces {
    /// The connections that have a place.
    open: Mutex<OpenConnections>,
    /// Maximum number of open connections.
    count_max: usize,
    /// Maximum time until the first request has arrived; `None`: any time.
    first_request_time_max: Option<Duration>,
}

/// The connections by number, and the order in which they began to wait.
#[derive(Default)]
struct OpenConnections {
    /// The open connections, by their numbers.
    by_number: BTreeMap<u64, OpenConnection>,
    /// The next number of a connection, or of a wait for a request.
    next_number: u64,
}

/// The state of an open connection.
struct OpenConnection {
    /// Identifies the wait for a request; `None` while the connection has a request.
    waiting: Option<u64>,
    /// Notified when the connection has lost its place.
    removal: Arc<Notify>,
}

/// The place of a connection in the table; dropping the value frees the place.
pub(crate) struct ConnectionPlace {
    /// The table with the place.
    table: Arc<ConnectionPlaces>,
    /// The number of the connection.
    number: u64,
    /// Notified when the connection has lost its place.
    removal: Arc<Notify>,
}

impl ConnectionPlaces {
    /// Returns a table without connections.
    pub(crate) fn new(count_max: usize, first_request_time_max: Option<Duration>) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), count_max, first_request_time_max })
    }

    /// Inserts a new connection; `None` if all connections have a request.
    ///
    /// In a full table, the connection that has waited longest loses its place. The task of the
    /// evicted connection closes it a moment later.
    pub(crate) fn insert(self: &Arc<Self>) -> Option<ConnectionPlace> {
        let mut open = self.open.lock();
        if open.by_number.len() >= self.count_max {
            let longest = open.longest_waiting()?;
            let removed = open.by_number.remove(&longest)?;
            removed.removal.notify_one();
        }
        let (number, removal) = (open.take_number(), Arc::new(Notify::new()));
        let own = OpenConnection { waiting: Some(number), removal: Arc::clone(&removal) };
        open.by_number.insert(number, own);
        drop(open);
        Some(ConnectionPlace { table: Arc::clone(self), number, removal })
    }
}

impl OpenConnections {
    /// Returns the connection that has waited longest; `None` if all have a request.
    fn longest_waiting(&self) -> Option<u64> {
        let waiting = |(number, own): (&u64, &OpenConnection)| Some((own.waiting?, *number));
        self.by_number.iter().filter_map(waiting).min().map(|(_, number)| number)
    }

    /// Returns a number that no connection has yet.
    const fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }
}

impl ConnectionPlace {
    /// Notes that a request has arrived, so the connection keeps its place.
    ///
    /// Returns `false` if the connection has lost its place already.
    pub(crate) fn note_request(&self) -> bool {
        let mut open = self.table.open.lock();
        let Some(own) = open.by_number.get_mut(&self.number) else { return false };
        own.waiting = None;
        true
    }

    /// Notes that the connection waits for its next request, and may lose its place.
    ///
    /// A connection that waits already keeps its position in the order.
    pub(crate) fn note_idle(&self) {
        let mut open = self.table.open.lock();
        let wait = open.take_number();
        if let Some(own) = open.by_number.get_mut(&self.number) {
            own.waiting.get_or_insert(wait);
        }
    }

    /// Waits until the connection must be closed because it has no request.
    pub(crate) async fn wait_for_removal(&self) {
        if let Some(time) = self.table.first_request_time_max {
            tokio::select! {
                () = self.removal.notified() => return,
                () = sleep(time) => {}
            }
            if !self.has_request() {
                return;
            }
        }
        self.removal.notified().await;
    }

    /// Returns whether the connection has sent a request.
    fn has_request(&self) -> bool {
        let open = self.table.open.lock();
        open.by_number.get(&self.number).is_some_and(|own| own.waiting.is_none())
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.table.open.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timeout that no test reaches.
    const LONG: Option<Duration> = Some(Duration::from_secs(600));

    #[tokio::test]
    async fn the_oldest_connection_without_a_request_makes_room() {
        let table = ConnectionPlaces::new(3, LONG);
        let [first, second, third] = [(); 3].map(|()| table.insert().unwrap());
        assert!(first.note_request());
        let fourth = table.insert().unwrap();
        second.wait_for_removal().await;
        assert!(!second.note_request(), "the second connection has lost its place");
        assert!(third.note_request());
        assert!(fourth.note_request());
        assert!(table.insert().is_none(), "all connections have sent a request");
        // This connection has lost its place already.
        drop(second);
        assert!(table.insert().is_none());
        drop(first);
        assert!(table.insert().is_some());
    }

    #[tokio::test]
    async fn a_connection_with_a_reply_waits_again() {
        let table = ConnectionPlaces::new(2, None);
        let [first, second] = [(); 2].map(|()| table.insert().unwrap());
        assert!(first.note_request());
        first.note_idle();
        // The first connection has waited for less time than the second one.
        let third = table.insert().unwrap();
        second.wait_for_removal().await;
        assert!(third.note_request());
        // A second note does not renew the wait.
        first.note_idle();
        let fourth = table.insert().unwrap();
        first.wait_for_removal().await;
        assert!(fourth.note_request());
        assert!(table.insert().is_none(), "all connections have a request");
    }

    #[tokio::test]
    async fn only_the_first_request_has_the_short_time() {
        let table = ConnectionPlaces::new(2, Some(Duration::ZERO));
        let [with_request, without] = [(); 2].map(|()| table.insert().unwrap());
        assert!(with_request.note_request());
        let kept = tokio::spawn(async move { with_request.wait_for_removal().await });
        without.wait_for_removal().await;
        tokio::task::yield_now().await;
        assert!(!kept.is_finished());
        kept.abort();
    }
}
