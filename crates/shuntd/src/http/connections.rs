//! The open connections of the HTTP server, up to a maximum number.
//!
//! A connection needs no token before its first request. So clients without a token could take all
//! places with connections that send nothing, and no other client would reach the pages. Two rules
//! prevent this: the first request has a time limit, and in a full table the oldest connection
//! without a request makes room for a new connection.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};

/// A table of the open connections of all listeners.
pub(super) struct HttpConnections {
    open: Mutex<OpenConnections>,
    count_max: usize,
    /// Maximum time until the headers of the first request are complete.
    first_request_time_max: Duration,
}

/// The connections in the order of their numbers, the oldest first.
#[derive(Default)]
struct OpenConnections {
    by_number: BTreeMap<u64, OpenConnection>,
    next_number: u64,
}

/// The state of an open connection.
struct OpenConnection {
    /// True if the headers of a request have arrived.
    has_request: bool,
    /// Notified when the connection has lost its place.
    removal: Arc<Notify>,
}

/// The place of a connection in the table; dropping the value frees the place.
pub(super) struct HttpConnectionPlace {
    table: Arc<HttpConnections>,
    number: u64,
    removal: Arc<Notify>,
}

impl HttpConnections {
    /// Returns a table without connections.
    pub(super) fn new(count_max: usize, first_request_time_max: Duration) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), count_max, first_request_time_max })
    }

    /// Inserts a new connection; `None` if all connections have sent a request.
    ///
    /// In a full table, the oldest connection without a request loses its place. Its task closes
    /// the connection a moment later.
    pub(super) fn insert(self: &Arc<Self>) -> Option<HttpConnectionPlace> {
        let mut open = self.open.lock();
        if open.by_number.len() >= self.count_max {
            let (oldest, _) = open.by_number.iter().find(|(_, own)| !own.has_request)?;
            let oldest = *oldest;
            let removed = open.by_number.remove(&oldest)?;
            removed.removal.notify_one();
        }
        let (number, removal) = (open.next_number, Arc::new(Notify::new()));
        open.next_number += 1;
        let own = OpenConnection { has_request: false, removal: Arc::clone(&removal) };
        open.by_number.insert(number, own);
        drop(open);
        Some(HttpConnectionPlace { table: Arc::clone(self), number, removal })
    }
}

impl HttpConnectionPlace {
    /// Notes that a request has arrived, so the connection keeps its place.
    pub(super) fn note_request(&self) {
        if let Some(own) = self.table.open.lock().by_number.get_mut(&self.number) {
            own.has_request = true;
        }
    }

    /// Waits until the connection must be closed because it has sent no request.
    pub(super) async fn removed(&self) {
        tokio::select! {
            () = self.removal.notified() => return,
            () = sleep(self.table.first_request_time_max) => {}
        }
        if self.has_request() {
            // From now on, the connection cannot lose its place.
            std::future::pending::<()>().await;
        }
    }

    fn has_request(&self) -> bool {
        self.table.open.lock().by_number.get(&self.number).is_some_and(|own| own.has_request)
    }
}

impl Drop for HttpConnectionPlace {
    fn drop(&mut self) {
        self.table.open.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timeout that no test reaches.
    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn the_oldest_connection_without_a_request_makes_room() {
        let table = HttpConnections::new(3, LONG);
        let [first, second, third] = [(); 3].map(|()| table.insert().unwrap());
        first.note_request();
        let fourth = table.insert().unwrap();
        second.removed().await;
        second.note_request();
        third.note_request();
        fourth.note_request();
        assert!(table.insert().is_none(), "all connections have sent a request");
        // This connection has lost its place already.
        drop(second);
        assert!(table.insert().is_none());
        drop(first);
        assert!(table.insert().is_some());
    }

    #[tokio::test]
    async fn only_the_first_request_has_the_short_time() {
        let table = HttpConnections::new(2, Duration::ZERO);
        let [with_request, without] = [(); 2].map(|()| table.insert().unwrap());
        with_request.note_request();
        let kept = tokio::spawn(async move { with_request.removed().await });
        without.removed().await;
        tokio::task::yield_now().await;
        assert!(!kept.is_finished());
        kept.abort();
    }
}
