//! The link between the eviction thread and one owner: mailbox, waker, acknowledged version.

use crossbeam_utils::CachePadded;
use shunt_classifier::Version;

use crate::{
    evict::{mailbox::Mailbox, waker::Waker},
    sync::{AtomicU64, Ordering},
};

/// State that the eviction thread and one packet thread share.
#[derive(Debug)]
pub struct Link {
    // Each field has its own cache line of the processor: the owner reads the mailbox in every
    // iteration, and readers of the acknowledged version must not take this line away.
    /// The mailbox of invalidations for the packet thread.
    mailbox: CachePadded<Mailbox>,
    /// Wakes the packet thread when a message arrives.
    waker: CachePadded<Waker>,
    /// The last version that the packet thread acknowledged.
    acked: CachePadded<AtomicU64>,
}

/// The acknowledged version of a retired packet thread.
const RETIRED: Version = Version::new(u64::MAX);

impl Link {
    /// Creates a link to a packet thread that begins at `version`.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left.
    pub fn new(version: Version) -> std::io::Result<Self> {
        Ok(Self {
            mailbox: CachePadded::new(Mailbox::new()),
            waker: CachePadded::new(Waker::new()?),
            acked: CachePadded::new(AtomicU64::new(version.number())),
        })
    }

    /// Returns the version that the packet thread has adopted.
    ///
    /// The thread can hit no entry that this version or an earlier one made stale. A retired thread
    /// has acknowledged every version.
    #[must_use]
    pub fn acked_version(&self) -> Version {
        // Acquire: partner of the Release in `ack`. A reader of the version sees everything that the
        // thread did under earlier versions, its counters included.
        Version::new(self.acked.load(Ordering::Acquire))
    }

    /// Returns the waker of the packet thread.
    #[must_use]
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Returns the mailbox for invalidations.
    #[must_use]
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Acknowledges a version: the packet thread has adopted it.
    pub fn ack(&self, version: Version) {
        self.acked.store(version.number(), Ordering::Release);
    }

    /// Retires the packet thread.
    /// A retired thread hits no entries, so it counts as having acknowledged every version.
    pub fn retire(&self) {
        self.ack(RETIRED);
    }

    /// Returns whether the packet thread has retired.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.acked_version() == RETIRED
    }
}

#[cfg(loom)]
#[cfg(test)]
mod tests {
    //! Loom cannot see the rings (`rtrb`) and the `eventfd`; a condition variable replaces the
    //! `eventfd`.

    use loom::{sync::Arc, thread};
    use shunt_pipeline::{EntryId, InstallNo, OwnerId};

    use super::*;
    use crate::evict::{mailbox::Invalidation, owner::LearnSeq};

    /// Returns an invalidation without entries.
    fn invalidation(version: u64) -> Invalidation {
        let entry = EntryId { owner: OwnerId(0), slot: version as u32, generation: 0 };
        Invalidation {
            version: Version::new(version),
            evictions: vec![vec![entry]],
            seq: InstallNo(version),
            learned: LearnSeq(0),
        }
    }

    /// Runs a packet thread without packets.
    /// The thread takes invalidations, acknowledges them and sleeps, until it is at version `last`.
    fn run(link: &Link, last: u64) -> Vec<u32> {
        let mut evicted = Vec::new();
        loop {
            while link.mailbox.is_flagged() {
                if let Some(invalidation) = link.mailbox.take() {
                    evicted.extend(invalidation.evictions.iter().flatten().map(|entry| entry.slot));
                    link.ack(invalidation.version);
                } else {
                    thread::yield_now();
                }
            }
            if link.acked_version() == Version::new(last) {
                return evicted;
            }
            link.waker.prepare_park();
            if !link.mailbox.is_flagged() {
                link.waker.wait();
            }
            link.waker.unpark();
        }
    }

    #[test]
    fn a_thread_that_parks_loses_no_invalidation() {
        loom::model(|| {
            let link = Arc::new(Link::new(Version::ZERO).unwrap());
            let sleeper = {
                let link = Arc::clone(&link);
                thread::spawn(move || run(&link, 2))
            };
            for version in 1..=2 {
                link.mailbox.post(invalidation(version));
                link.waker.wake();
            }
            let mut evicted = sleeper.join().unwrap();
            evicted.sort_unstable();
            assert_eq!(evicted, [1, 2]);
        });
    }

    /// No packet sent after the barrier reply of version 1 uses version 0.
    /// This holds although the packet thread was not woken for the version.
    #[test]
    fn a_parked_thread_counts_as_acknowledged() {
        loom::model(|| {
            let link = Arc::new(Link::new(Version::ZERO).unwrap());
            let barrier = Arc::new(AtomicU64::new(0));
            let owner = {
                let (link, barrier) = (Arc::clone(&link), Arc::clone(&barrier));
                thread::spawn(move || {
                    let mut version = 0;
                    for _ in 0..2 {
                        link.waker.prepare_park();
                        link.waker.unpark();
                        while link.mailbox.is_flagged() {
                            match link.mailbox.take() {
                                Some(invalidation) => version = invalidation.version.number(),
                                None => thread::yield_now(),
                            }
                        }
                        // Acquire: the packet arrives after the reply.
                        assert!(barrier.load(Ordering::Acquire) <= version);
                    }
                })
            };
            link.mailbox.post(invalidation(1));
            if link.waker.finds_asleep() {
                barrier.store(1, Ordering::Release);
            }
            owner.join().unwrap();
        });
    }

    #[test]
    fn an_ack_publishes_earlier_writes() {
        loom::model(|| {
            let link = Arc::new(Link::new(Version::ZERO).unwrap());
            let dropped = Arc::new(AtomicU64::new(0));
            let owner = {
                let (link, dropped) = (Arc::clone(&link), Arc::clone(&dropped));
                thread::spawn(move || {
                    dropped.store(1, Ordering::Relaxed);
                    link.ack(Version::new(1));
                })
            };
            if link.acked_version() == Version::new(1) {
                assert_eq!(dropped.load(Ordering::Relaxed), 1);
            }
            owner.join().unwrap();
        });
    }
}
