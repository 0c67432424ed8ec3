//! What the eviction thread and one packet thread share: a mailbox, a waker, and the version that the
//! packet thread has answered.

use crossbeam_utils::CachePadded;
use shunt_classifier::Version;

use crate::{
    evict::{mailbox::Mailbox, waker::Waker},
    sync::{AtomicU64, Ordering},
};

/// The shared part of the joint between the eviction thread and one packet thread.
#[derive(Debug)]
pub struct Link {
    // Each part has a cache line of its own: the owner looks at the mailbox on every turn, and
    // must not find its line with whoever reads the answer.
    mailbox: CachePadded<Mailbox>,
    waker: CachePadded<Waker>,
    answered: CachePadded<AtomicU64>,
}

/// What a packet thread that is gone has answered.
const RETIRED: Version = Version::new(u64::MAX);

impl Link {
    /// A link to a packet thread that begins at `version`.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left.
    pub fn new(version: Version) -> std::io::Result<Self> {
        Ok(Self {
            mailbox: CachePadded::new(Mailbox::new()),
            waker: CachePadded::new(Waker::new()?),
            answered: CachePadded::new(AtomicU64::new(version.number())),
        })
    }

    /// The version that the packet thread has adopted: it can hit nothing that was stale before.
    /// Above all others once it is gone.
    #[must_use]
    pub fn answered(&self) -> Version {
        // Acquire: partner of the Release in `answer`. Who sees the answer sees what the thread
        // did under the versions before, its counters too.
        Version::new(self.answered.load(Ordering::Acquire))
    }

    /// Where others wake the packet thread.
    #[must_use]
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Where the eviction thread posts advances.
    #[must_use]
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// The packet thread says that it has adopted a version.
    pub fn answer(&self, version: Version) {
        self.answered.store(version.number(), Ordering::Release);
    }

    /// The packet thread says that it is gone: it hits nothing any more, which is as good as having
    /// adopted every version that there will be.
    pub fn retire(&self) {
        self.answer(RETIRED);
    }

    /// Whether the packet thread is gone.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.answered() == RETIRED
    }
}

#[cfg(loom)]
#[cfg(test)]
mod tests {
    //! What loom cannot see here: the rings (`rtrb`) and the `eventfd`, for which a condition
    //! variable stands in.

    use loom::{sync::Arc, thread};
    use shunt_pipeline::{EntryId, InstallNo, OwnerId};

    use super::*;
    use crate::evict::{mailbox::Invalidation, owner::LearnSeq};

    fn invalidation(version: u64) -> Invalidation {
        let entry = EntryId { owner: OwnerId(0), slot: version as u32, generation: 0 };
        Invalidation {
            version: Version::new(version),
            evictions: vec![vec![entry]],
            seq: InstallNo(version),
            learned: LearnSeq(0),
        }
    }

    /// A packet thread without packets: takes, answers, sleeps; until it is at `last`.
    fn run(link: &Link, last: u64) -> Vec<u32> {
        let mut evicted = Vec::new();
        loop {
            while link.mailbox.is_flagged() {
                if let Some(invalidation) = link.mailbox.take() {
                    evicted.extend(invalidation.evictions.iter().flatten().map(|entry| entry.slot));
                    link.answer(invalidation.version);
                } else {
                    thread::yield_now();
                }
            }
            if link.answered() == Version::new(last) {
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
    fn no_advance_is_lost_on_a_thread_that_falls_asleep() {
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

    /// A packet that is sent after the barrier reply of version 1 meets version 1, though its thread
    /// was not woken for it.
    #[test]
    fn who_finds_a_thread_asleep_may_answer_for_it() {
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
                        // Acquire: as the packet comes after the reply.
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
    fn who_sees_the_answer_sees_what_was_done_before() {
        loom::model(|| {
            let link = Arc::new(Link::new(Version::ZERO).unwrap());
            let dropped = Arc::new(AtomicU64::new(0));
            let owner = {
                let (link, dropped) = (Arc::clone(&link), Arc::clone(&dropped));
                thread::spawn(move || {
                    dropped.store(1, Ordering::Relaxed);
                    link.answer(Version::new(1));
                })
            };
            if link.answered() == Version::new(1) {
                assert_eq!(dropped.load(Ordering::Relaxed), 1);
            }
            owner.join().unwrap();
        });
    }
}
