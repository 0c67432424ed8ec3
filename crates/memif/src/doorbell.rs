//! The words of a ring by which its two sides notify each other.
//!
//! A receiver that is about to sleep clears a flag in the ring, and then loads the index again. A
//! sender stores the index, and then loads the flag. Receiver and sender have a full fence between
//! these two steps. So either the receiver sees the new index, or the sender sees the cleared flag
//! and notifies the receiver.

#[cfg(loom)]
use loom::sync::atomic::{Ordering::SeqCst, fence};
#[cfg(not(loom))]
use std::sync::atomic::{Ordering::SeqCst, fence};

/// A word of a ring that one side stores and the other loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingWord {
    /// Flags, which the receiver of frames stores.
    Flags,
    /// The head index, which the client stores.
    Head,
    /// The tail index, which the server stores.
    Tail,
}

/// Access to the head and tail of a ring, in memory that the peer shares.
pub(crate) trait RingWords {
    /// Loads a word of the ring (`Acquire`).
    fn load(&self, word: RingWord) -> u16;

    /// Stores a word of the ring (`Release`).
    fn store(&self, word: RingWord, value: u16);
}

/// The flag of a ring that is set while its receiver needs no notifications.
///
/// `MEMIF_RING_FLAG_MASK_INT` in the protocol.
const MASK_INTERRUPTS: u16 = 1;

/// Requests notifications from the sender, or requests to omit them.
///
/// After a request for notifications, the receiver must load the index again before it sleeps.
pub(crate) fn set_interrupts(words: &impl RingWords, are_wanted: bool) {
    words.store(RingWord::Flags, if are_wanted { 0 } else { MASK_INTERRUPTS });
    if are_wanted {
        // Partner: the fence of `publish`.
        fence(SeqCst);
    }
}

/// Publishes an index; returns whether the receiver wants a notification.
pub(crate) fn publish(words: &impl RingWords, index: RingWord, value: u16) -> bool {
    words.store(index, value);
    // Partner: the fence of `set_interrupts`.
    fence(SeqCst);
    words.load(RingWord::Flags) & MASK_INTERRUPTS == 0
}

/// A loom model of both sides.
///
/// The memory of a real ring is shared by two processes, which loom cannot model.
#[cfg(all(test, loom))]
mod models {
    use loom::{
        sync::{
            Arc,
            atomic::{
                AtomicBool, AtomicU16,
                Ordering::{Acquire, Release},
            },
        },
        thread,
    };

    use super::*;

    /// The shared words of a ring, as atomics of the model checker.
    #[derive(Default)]
    struct ModelWords {
        flags: AtomicU16,
        head: AtomicU16,
    }

    impl ModelWords {
        /// Returns the atomic that models a word of the ring.
        fn word(&self, word: RingWord) -> &AtomicU16 {
            match word {
                RingWord::Flags => &self.flags,
                RingWord::Head | RingWord::Tail => &self.head,
            }
        }
    }

    impl RingWords for ModelWords {
        fn load(&self, word: RingWord) -> u16 {
            self.word(word).load(Acquire)
        }

        fn store(&self, word: RingWord, value: u16) {
            self.word(word).store(value, Release);
        }
    }

    #[test]
    fn a_receiver_sees_the_frame_or_is_notified() {
        loom::model(|| {
            let words = Arc::new(ModelWords::default());
            set_interrupts(&*words, false);
            let is_notified = Arc::new(AtomicBool::new(false));
            let sender = {
                let (words, is_notified) = (Arc::clone(&words), Arc::clone(&is_notified));
                thread::spawn(move || {
                    if publish(&*words, RingWord::Head, 1) {
                        is_notified.store(true, Release);
                    }
                })
            };
            set_interrupts(&*words, true);
            let is_seen = words.load(RingWord::Head) == 1;
            sender.join().unwrap();
            assert!(
                is_seen || is_notified.load(Acquire),
                "the receiver sees the frame or is notified"
            );
        });
    }
}
