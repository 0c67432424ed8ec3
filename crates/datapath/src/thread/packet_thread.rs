//! The thread without the thread: what one owns, and a turn.

use std::{sync::Arc, time::Duration};

use rtrb::Consumer;
use shunt_flow::{FlowKey, Layers, extract::VlanLimit};
use shunt_pipeline::{Pipeline, Time};

use super::{
    endpoints::{ThreadEnds, Wakers},
    receive::{Fate, RxPort},
    repair::Repairer,
    upkeep::Jobs,
    verify::Verifier,
};
use crate::{
    cache::{CacheConfig, Caches, HitSlots},
    command::{Command, Repair},
    evict::{link::Link, owner::Owner},
    metrics::ThreadCounters,
    offload::OffloadCandidates,
    packet::buffer::{BURST, Packet, Pool},
    thread::execute::{BATCH_MAX, Outputs},
};

/// How a packet thread works.
#[derive(Clone, Copy, Debug)]
pub struct ThreadConfig {
    /// Sizes of the caches.
    pub caches: CacheConfig,
    /// VLAN tags that are parsed.
    pub vlan_limit: VlanLimit,
    /// Seed of the hashes and of random choices.
    pub seed: u64,
    /// Translations that a turn makes at most, all ports together.
    pub translations_per_iteration: usize,
    /// Packets of one port that may wait for a translation.
    pub waiting_per_port: usize,
    /// Time without a hit after which an entry goes.
    pub max_idle: Duration,
    /// One hit of so many is translated anew and compared, chosen at random; 0: none.
    pub verify_one_in: u32,
    /// Whether entries that a change made stale are made anew.
    pub repair: Repair,
    /// Time that a port may stand still because its packets teach, beyond half of all time.
    pub patience: Duration,
}

impl Default for ThreadConfig {
    fn default() -> Self {
        Self {
            caches: CacheConfig::default(),
            vlan_limit: VlanLimit::default(),
            seed: 0,
            translations_per_iteration: 16,
            waiting_per_port: 256,
            max_idle: Duration::from_secs(10),
            verify_one_in: 0,
            repair: Repair::Off,
            patience: Duration::from_millis(100),
        }
    }
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Packets received.
    pub received: usize,
    /// Whether anything at all was done.
    pub worked: bool,
}

/// A packet thread, to be turned by whoever owns it.
pub struct PacketThread {
    pub(super) config: ThreadConfig,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) caches: Caches,
    pub(super) inputs: Vec<RxPort>,
    pub(super) outputs: Outputs,
    pub(super) pool: Pool,
    pub(super) batch: Batch,
    pub(super) jobs: Jobs,
    /// Whose packet that waits is served first in the next turn.
    pub(super) served_first: usize,
    pub(super) translations_left: usize,
    pub(super) upcalls: u64,
    pub(super) verifier: Verifier,
    pub(super) repairer: Repairer,
    pub(super) ports_changed: u64,
    /// Whether a queue gave a whole burst in the turn before: more may lie behind it.
    pub(super) is_pressed: bool,
    /// Whether it slept since it last looked into its mailbox (rule 10).
    pub(super) slept: bool,
    pub(super) commands: Consumer<Command>,
    pub(super) link: Arc<Link>,
    pub(super) wakers: Wakers,
    pub(super) counters: Arc<ThreadCounters>,
    /// Where packets that no cache knew are offered to the owner of a target.
    pub(super) offers: Option<OffloadCandidates>,
    pub(super) now: Time,
}

/// Space for one burst, used again for every burst.
pub(super) struct Batch {
    pub(super) packets: Vec<Packet>,
    pub(super) keys: Box<[FlowKey]>,
    pub(super) layers: [Layers; BURST],
    /// The entries that the packets hit.
    pub(super) hits: [HitSlots; BURST],
    pub(super) fates: [Fate; BURST],
}

impl PacketThread {
    /// A thread without ports, at the version that its ends were made for.
    #[must_use]
    pub fn new(config: ThreadConfig, pipeline: Arc<Pipeline>, ends: ThreadEnds) -> Self {
        let owner = Owner::new(ends.owner, ends.version, 0, ends.reports, ends.learn_requests);
        Self {
            pipeline,
            caches: Caches::new(&config.caches, owner, config.seed),
            inputs: Vec::new(),
            outputs: Outputs::new(ends.packet_ins),
            pool: Pool::default(),
            batch: Batch {
                packets: Vec::with_capacity(BATCH_MAX),
                keys: vec![FlowKey::ZERO; BURST].into_boxed_slice(),
                layers: [Layers::default(); BURST],
                hits: [HitSlots::default(); BURST],
                fates: [Fate::Wait; BURST],
            },
            jobs: Jobs::default(),
            served_first: 0,
            translations_left: 0,
            upcalls: 0,
            verifier: Verifier::new(config.verify_one_in, config.seed, ends.differences),
            repairer: Repairer::new(config.repair),
            ports_changed: 0,
            is_pressed: false,
            slept: false,
            commands: ends.commands,
            link: ends.link,
            wakers: ends.wakers,
            counters: ends.counters,
            offers: None,
            now: Time::ZERO,
            config,
        }
    }

    /// Does one turn at `now`: a burst from every receive queue, and some of everything else.
    pub fn turn(&mut self, now: Time) -> Turn {
        self.now = now;
        self.link.mailbox().begin_iteration();
        self.outputs.now = now;
        self.outputs.taps.set_time(now);
        self.translations_left = self.config.translations_per_iteration;
        let is_pressed = std::mem::take(&mut self.is_pressed) || self.held() > 0;
        self.repairer.begin(self.config.translations_per_iteration, is_pressed);
        let (punted, reported) = (self.outputs.tally.punted, self.caches.owner.reported());
        let taught = self.caches.owner.taught();
        let mut advanced = self.take_invalidation();
        if self.slept && self.link.mailbox().is_flagged() {
            // Rule 10: it has answered by sleeping what it cannot take at this moment.
            return Turn { received: 0, worked: true };
        }
        self.slept = false;
        let commands = self.take_commands();
        let mut repaired = self.repair();
        let mut received = 0;
        for input in 0..self.inputs.len() {
            let count = self.receive(input);
            received += count;
            self.is_pressed |= count >= BURST;
            // A version waits for one burst, not for all queues.
            if self.take_invalidation() {
                advanced = true;
                repaired |= self.repair();
            }
        }
        let served = self.serve_waiting();
        self.outputs.flush(&mut self.pool);
        let kept = self.keep_up(received == 0);
        self.publish();
        if advanced || self.caches.owner.reported() > reported {
            self.wakers.coordinator.wake();
        }
        if self.outputs.tally.punted > punted {
            self.wakers.control.wake();
        }
        if self.caches.owner.taught() > taught {
            self.wakers.learner.wake();
        }
        if let Some(offers) = &mut self.offers {
            offers.tell();
        }
        let worked = received + served + commands > 0 || advanced || repaired || kept;
        Turn { received, worked }
    }

    /// The version that the thread is at.
    #[must_use]
    pub const fn version(&self) -> shunt_classifier::Version {
        self.caches.owner.version()
    }

    /// Number of packets that wait for a translation.
    #[must_use]
    pub fn held(&self) -> usize {
        self.inputs.iter().map(|input| input.waiting.len()).sum()
    }

    /// What the thread counts.
    #[must_use]
    pub const fn counters(&self) -> &Arc<ThreadCounters> {
        &self.counters
    }

    fn publish(&self) {
        let counters = &self.counters;
        self.outputs.tally.publish(counters);
        self.caches.publish(counters);
        counters.upcalls.set(self.upcalls);
        counters.held.set(self.held() as u64);
        counters.turns.add(1);
    }
}

impl Drop for PacketThread {
    /// However it ends, by a panic too, nobody waits for a version that it would have answered.
    fn drop(&mut self) {
        self.link.retire();
        self.wakers.coordinator.wake();
    }
}

impl std::fmt::Debug for PacketThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketThread")
            .field("version", &self.version())
            .field("inputs", &self.inputs.len())
            .field("entries", &self.caches.owner.entries().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use shunt_classifier::Version;
    use shunt_pipeline::{InstallNo, OwnerId};

    use super::*;
    use crate::{
        evict::{mailbox::Invalidation, owner::LearnSeq, waker::Waker},
        thread::{QueueSizes, thread_ends},
    };

    #[test]
    fn a_thread_that_slept_does_nothing_before_it_has_taken_what_was_posted() {
        let waker = || Arc::new(Waker::new().unwrap());
        let wakers = Wakers { coordinator: waker(), control: waker(), learner: waker() };
        let sizes = QueueSizes::default();
        let (ends, mut control, _coordinator) =
            thread_ends(OwnerId(0), Version::ZERO, sizes, wakers).unwrap();
        let link = Arc::clone(&ends.link);
        let pipeline = Arc::new(Pipeline::new(1));
        let mut thread = PacketThread::new(ThreadConfig::default(), pipeline, ends);
        assert!(thread.prepare_sleep());
        let version = Version::new(1);
        let (evictions, seq, learned) = (Vec::new(), InstallNo(0), LearnSeq(0));
        link.mailbox().post(Invalidation { version, evictions, seq, learned });
        assert!(control.send(Command::Pull(Box::new(|()| {}))).is_ok());
        thread.unpark();
        let held = link.mailbox().hold();
        assert!(thread.turn(Time::ZERO).worked);
        assert_eq!((thread.version(), thread.commands.slots()), (Version::ZERO, 1));
        drop(held);
        thread.turn(Time::ZERO);
        assert_eq!((thread.version(), thread.commands.slots()), (version, 0));
    }
}
