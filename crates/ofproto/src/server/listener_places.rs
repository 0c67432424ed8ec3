//! The places of a listener, and the connection that gives up its place to a new one.
//!
//! An idle connection costs its peer nothing, so idle peers could take all places of a listener. In
//! a full listener, the oldest connection without a hello makes room for a new one.
//!
//! Peers over TCP are probed, and keep their places after their hello. Clients of a Unix socket are
//! not probed. If all of them have sent a hello, the oldest one without a request makes room. If all
//! have sent a request, the client that has been idle longest makes room. A client that does not read
//! its replies is busy, and makes room after [`BUSY_MAX`].

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use shunt_pipeline::Time;
use tokio::task::AbortHandle;

/// Time without a received or sent byte for which a busy client keeps its place.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// The connections of a listener, the oldest first.
pub(super) struct ListenerPlaces {
    /// The rule for connections that are idle.
    policy: IdlePolicy,
    /// The open connections of the listener.
    peers: Vec<ListenerPeer>,
}

/// The rule for connections that have sent a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdlePolicy {
    /// Each connection keeps its place.
    Keep,
    /// The connection that has been idle longest makes room for a new one.
    MakeRoom,
}

/// A connection that was open when it was last checked.
struct ListenerPeer {
    /// The address of the peer.
    peer: String,
    /// The last activity of the peer.
    activity: Arc<PeerActivity>,
    /// The handle that ends the connection.
    task: AbortHandle,
}

/// A connection that has lost its place.
pub(super) struct EndedPeer {
    /// The address of the peer.
    pub(super) peer: String,
    /// The reason for the log.
    pub(super) text: &'static str,
}

/// The last activity of a peer, which the task of its connection records.
#[derive(Debug, Default)]
pub(super) struct PeerActivity(Mutex<ActivityRecord>);

/// The phase and the last activity of a peer; the least record makes room first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct ActivityRecord {
    /// The phase of the connection.
    phase: PeerPhase,
    /// Time of the last activity; before the first request the time of the connection.
    last: Time,
}

/// The phase of a connection, in the order in which connections make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PeerPhase {
    /// The peer has sent no hello.
    #[default]
    AwaitsHello,
    /// The peer has sent a hello and no request.
    Silent,
    /// The switch has handled all requests of the peer.
    Idle,
    /// The switch handles a request, or waits until the peer reads its replies.
    Busy,
}

impl ListenerPlaces {
    /// Returns a list of no connections.
    pub(super) const fn new(policy: IdlePolicy) -> Self {
        Self { policy, peers: Vec::new() }
    }

    /// Adds the connection of a task, which records its activity.
    pub(super) fn push(&mut self, peer: String, activity: Arc<PeerActivity>, task: AbortHandle) {
        self.peers.retain(ListenerPeer::is_connected);
        self.peers.push(ListenerPeer { peer, activity, task });
    }

    /// Ends the connection that makes room for a new one.
    ///
    /// Returns `None` if all connections keep their places. The task ends a moment later.
    pub(super) fn make_room(&mut self, now: Time) -> Option<EndedPeer> {
        self.peers.retain(ListenerPeer::is_connected);
        let records = self.peers.iter().map(|own| *own.activity.lock()).enumerate();
        // Of equal records, the oldest connection is the first.
        let (index, record) = records.min_by_key(|(_, record)| *record)?;
        let text = record.lost_text(self.policy, now)?;
        let ended = self.peers.remove(index);
        ended.task.abort();
        Some(EndedPeer { peer: ended.peer, text })
    }
}

impl ListenerPeer {
    /// Returns whether the connection is still open.
    fn is_connected(&self) -> bool {
        !self.task.is_finished()
    }
}

impl PeerActivity {
    /// Creates the record of a new connection.
    pub(super) const fn new(now: Time) -> Self {
        Self(Mutex::new(ActivityRecord { phase: PeerPhase::AwaitsHello, last: now }))
    }

    /// Records that the peer has entered a phase.
    pub(super) fn set_phase(&self, phase: PeerPhase, now: Time) {
        let mut record = self.lock();
        if record.phase != phase && phase > PeerPhase::Silent {
            record.last = now;
        }
        record.phase = phase;
    }

    /// Records that bytes were received or sent.
    pub(super) fn record_activity(&self, now: Time) {
        let mut record = self.lock();
        if record.phase > PeerPhase::Silent {
            record.last = now;
        }
    }

    /// Locks the record, also after a panic, which leaves the record consistent.
    fn lock(&self) -> MutexGuard<'_, ActivityRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActivityRecord {
    /// Returns the text about a connection that loses its place.
    ///
    /// `None` if a connection with this record keeps its place.
    fn lost_text(self, policy: IdlePolicy, now: Time) -> Option<&'static str> {
        match (self.phase, policy) {
            (PeerPhase::AwaitsHello, _) => {
                Some("connection closed before its hello: a new connection needs its place")
            }
            (PeerPhase::Silent, IdlePolicy::MakeRoom) => {
                Some("connection closed before its first request: a new connection needs its place")
            }
            (PeerPhase::Idle, IdlePolicy::MakeRoom) => {
                Some("connection closed as the longest idle one: a new connection needs its place")
            }
            (PeerPhase::Busy, IdlePolicy::MakeRoom) if now.since(self.last) >= BUSY_MAX => Some(
                "connection closed, because the client has not read replies for 10 s: a new \
                 connection needs the place",
            ),
            (PeerPhase::Silent | PeerPhase::Idle | PeerPhase::Busy, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use super::*;

    /// Returns the peers that make room for new ones at a time.
    fn ended(policy: IdlePolicy, second: u64) -> String {
        let at = |second| Time::ZERO.after(Duration::from_secs(second));
        let mut places = ListenerPlaces::new(policy);
        let mut push = |peer: &str, phase, active: u64| {
            let activity = Arc::new(PeerActivity::new(at(1)));
            activity.set_phase(phase, at(2));
            activity.record_activity(at(active));
            let task = tokio::spawn(pending::<()>()).abort_handle();
            places.push(peer.to_owned(), activity, task);
        };
        push("a busy one, ", PeerPhase::Busy, 3);
        push("a late one, ", PeerPhase::Idle, 6);
        push("an early one, ", PeerPhase::Idle, 5);
        // Only requests show that a client is active.
        push("a silent one, ", PeerPhase::Silent, 9);
        push("another silent one, ", PeerPhase::Silent, 4);
        push("one without hello, ", PeerPhase::AwaitsHello, 9);
        std::iter::from_fn(|| places.make_room(at(second))).map(|ended| ended.peer).collect()
    }

    #[tokio::test]
    async fn the_most_idle_connection_makes_room_first() {
        let idle =
            "one without hello, a silent one, another silent one, an early one, a late one, ";
        assert_eq!(ended(IdlePolicy::MakeRoom, 12), idle);
        // The busy client has read nothing for ten seconds.
        assert_eq!(ended(IdlePolicy::MakeRoom, 13), format!("{idle}a busy one, "));
        assert_eq!(ended(IdlePolicy::Keep, 60), "one without hello, ");
    }
}
