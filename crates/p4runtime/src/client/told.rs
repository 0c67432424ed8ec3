//! What the worker tells the owner, in order, and the call that says so.
//!
//! Answers are as many as operations under way, so bounded by those; packets are bounded here.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
};

use shunt_gigaflow::offload::OffloadEvent;

use super::Packet;

/// Packets that wait for an owner that does not ask; more are dropped.
pub(super) const PACKETS_MAX: usize = 4096;

/// What the owner hears.
#[derive(Debug)]
pub(super) enum Told {
    /// Together, as each word wakes the owner.
    Events(Vec<OffloadEvent>),
    /// With what is held: from nothing to this many entries of each table.
    Restored(BTreeMap<u32, usize>),
    Packet(Packet),
}

/// The worker's end.
pub(super) struct Teller {
    told: Sender<Told>,
    wake: Box<dyn Fn() + Send + Sync>,
    packets: Arc<Packets>,
}

/// The owner's end.
#[derive(Debug)]
pub(super) struct Ear {
    told: Receiver<Told>,
    packets: Arc<Packets>,
}

/// Packets between worker and owner.
#[derive(Debug, Default)]
struct Packets {
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

/// Both ends; `wake` is called whenever there is something to hear.
pub(super) fn ends(wake: impl Fn() + Send + Sync + 'static) -> (Teller, Ear) {
    let (sender, receiver) = channel();
    let packets = Arc::new(Packets::default());
    let teller = Teller { told: sender, wake: Box::new(wake), packets: Arc::clone(&packets) };
    (teller, Ear { told: receiver, packets })
}

impl Teller {
    /// Tells the owner; one that is gone hears nothing.
    pub(super) fn tell(&self, told: Told) {
        if let Told::Packet(_) = told
            && self.packets.waiting.fetch_add(1, Ordering::Relaxed) >= PACKETS_MAX
        {
            self.packets.waiting.fetch_sub(1, Ordering::Relaxed);
            self.packets.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.told.send(told).is_ok() {
            (self.wake)();
        }
    }
}

impl Ear {
    /// What was told next.
    pub(super) fn hear(&self) -> Option<Told> {
        let told = self.told.try_recv().ok()?;
        if let Told::Packet(_) = told {
            self.packets.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        Some(told)
    }

    /// Packets that were dropped, as too many waited.
    pub(super) fn packets_dropped(&self) -> u64 {
        self.packets.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Told {
        let (payload, ingress_port, reason, miss_tag, last_stage) = (Vec::new(), 1, 0, 0, 0);
        Told::Packet(Packet { payload, ingress_port, reason, miss_tag, last_stage })
    }

    #[test]
    fn packets_that_nobody_asks_for_are_dropped_and_counted() {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&wakes);
        let (teller, ear) = ends(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        (0..PACKETS_MAX + 3).for_each(|_| teller.tell(packet()));
        assert_eq!(ear.packets_dropped(), 3);
        assert_eq!(wakes.load(Ordering::Relaxed), PACKETS_MAX);
        // Events are never dropped, and one packet heard is room for another.
        teller.tell(Told::Events(vec![OffloadEvent::Restored]));
        assert!(matches!(ear.hear(), Some(Told::Packet(_))));
        teller.tell(packet());
        let heard = std::iter::from_fn(|| ear.hear());
        assert_eq!(heard.filter(|told| matches!(told, Told::Packet(_))).count(), PACKETS_MAX);
        assert_eq!(ear.packets_dropped(), 3);
    }
}
