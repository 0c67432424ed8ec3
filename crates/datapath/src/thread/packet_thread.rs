//! The state of a packet thread, and one iteration of its poll loop.

use std::{sync::Arc, time::Duration};

use nix::sys::epoll::EpollTimeout;
use rtrb::Consumer;
use shunt_flow::{FlowKey, Layers, extract::VlanLimit};
use shunt_pipeline::{Pipeline, Time};

use super::{
    endpoints::{ThreadEnds, Wakers},
    flows::TableDecisions,
    netflow::NetflowCaches,
    port_bindings::PortBindings,
    receive::{Disposition, MissedFlows, RxPorts},
    translations::repair::Repairer,
    upkeep::UpkeepJobs,
    verify::Verifier,
};
use crate::{
    cache::{CacheConfig, Caches, HitSlots, MAX_IDLE_DEFAULT},
    command::{Command, Repair},
    evict::{link::Link, owner::Owner},
    forecast::{Stopwatch, ThreadForecasts},
    metrics::{ACK_BUCKETS, ThreadCounters},
    offload::OffloadCandidates,
    packet::buffer::{BURST, Packet, Pool},
    sample::{PacketSampler, SampleUse},
    thread::{execute::Outputs, tx_port::BATCH_MAX},
};

/// Settings of a packet thread.
///
/// The configuration file has the same default values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadConfig {
    /// Sizes of the caches.
    pub caches: CacheConfig,
    /// Maximum number of VLAN tags to parse.
    pub vlan_limit: VlanLimit,
    /// The seed of hashes and of random choices.
    pub seed: u64,
    /// Maximum number of translations for all ports in one iteration.
    pub translations_per_iteration: usize,
    /// Maximum number of packets in the upcall queue of each port.
    pub waiting_per_port: usize,
    /// Time without a hit after which a cache entry expires.
    pub max_idle: Duration,
    /// One random cache hit in `verify_one_in` is compared with a translation; 0: none.
    pub verify_one_in: u32,
    /// Selects whether stale entries are re-translated.
    pub repair: Repair,
    /// Time that a port may stall for learn requests in a row, beyond half of all time.
    pub stall_budget: Duration,
    /// Longest sleep of an idle thread; with zero, the thread never sleeps.
    pub sleep_max: Duration,
}

impl Default for ThreadConfig {
    fn default() -> Self {
        Self {
            caches: CacheConfig::default(),
            vlan_limit: VlanLimit::default(),
            seed: 0,
            translations_per_iteration: 64,
            waiting_per_port: 256,
            max_idle: MAX_IDLE_DEFAULT,
            verify_one_in: 0,
            repair: Repair::Off,
            stall_budget: Duration::from_millis(100),
            sleep_max: Duration::from_millis(500),
        }
    }
}

/// The result of an iteration of the poll loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iteration {
    /// Number of packets received.
    pub received: usize,
    /// True if the iteration did any work.
    pub worked: bool,
}

/// A packet thread without its OS thread: the caller runs the iterations.
pub struct PacketThread {
    /// The settings of the thread.
    pub(super) config: ThreadConfig,
    /// The pipeline that translates packets.
    pub(super) pipeline: Arc<Pipeline>,
    /// The caches of the thread.
    pub(super) caches: Caches,
    /// Decides packets by the tables while the caches are bypassed.
    pub(super) decisions: TableDecisions,
    /// The receive queues of the thread.
    pub(super) rx_ports: RxPorts,
    /// The bridge and OpenFlow number of each port.
    pub(super) port_bindings: PortBindings,
    /// The transmit queues of the thread.
    pub(super) outputs: Outputs,
    /// The pool of packet buffers.
    pub(super) pool: Pool,
    /// The burst that is processed.
    pub(super) batch: RxBatch,
    /// Requests that take more than one iteration.
    pub(super) jobs: UpkeepJobs,
    /// Number of translations left in this iteration.
    pub(super) translations_left: usize,
    /// Number of translations left for samples, apart from those for packets.
    pub(super) sample_translations_left: usize,
    /// Number of missed packets so far.
    pub(super) upcalls: u64,
    /// Compares sampled hits with a new translation.
    pub(super) verifier: Verifier,
    /// Re-translates evicted entries that packets still match.
    pub(super) repairer: Repairer,
    /// True if a receive queue returned a full burst in this or the previous iteration.
    ///
    /// More packets may wait in that queue.
    pub(super) is_busy: bool,
    /// True if the thread slept since it last checked its mailbox (rule 10).
    pub(super) slept: bool,
    /// The queue of commands from the control plane.
    pub(super) commands: Consumer<Command>,
    /// The mailbox and the acknowledged version of the thread.
    pub(super) link: Arc<Link>,
    /// The threads that this thread wakes.
    pub(super) wakers: Wakers,
    /// The counters that the thread publishes.
    pub(super) counters: Arc<ThreadCounters>,
    /// The queue of offload candidates: flow keys of packets that missed the caches.
    pub(super) candidates: Option<OffloadCandidates>,
    /// The predictors and their forecasts, and the speculative entries.
    pub(super) forecasts: Option<Box<ThreadForecasts>>,
    /// The packet samplers, one for each bridge and protocol with sampling.
    pub(super) samplers: Vec<(SampleUse, PacketSampler)>,
    /// The NetFlow caches of the bridges that export flows.
    pub(super) netflow: NetflowCaches,
    /// Time of this iteration.
    pub(super) now: Time,
    /// Reads the time within an iteration; disabled in tests.
    pub(super) stopwatch: Stopwatch,
}

/// Scratch buffers for one burst of received packets.
pub(super) struct RxBatch {
    /// The packets that were received in the burst.
    pub(super) packets: Vec<Packet>,
    /// The flow key of each packet.
    pub(super) keys: Box<[FlowKey]>,
    /// The offsets of the headers of each packet.
    pub(super) layers: [Layers; BURST],
    /// The slots of the cache entries that each packet hit.
    pub(super) hits: [HitSlots; BURST],
    /// The outcome of each packet.
    pub(super) dispositions: [Disposition; BURST],
    /// The flows without an entry.
    pub(super) missed: MissedFlows,
}

impl PacketThread {
    /// Creates a packet thread without ports, at the version of `ends`.
    #[must_use]
    pub fn new(config: ThreadConfig, pipeline: Arc<Pipeline>, ends: ThreadEnds) -> Self {
        let owner = Owner::new(ends.owner, ends.version, 0, ends.reports, ends.learn_requests);
        Self {
            pipeline,
            caches: Caches::new(&config.caches, owner, config.seed),
            decisions: TableDecisions::default(),
            rx_ports: RxPorts::new(ends.events),
            port_bindings: PortBindings::default(),
            outputs: Outputs::new(ends.packet_ins),
            pool: Pool::default(),
            batch: RxBatch {
                packets: Vec::with_capacity(BATCH_MAX),
                keys: vec![FlowKey::ZERO; BURST].into_boxed_slice(),
                layers: [Layers::default(); BURST],
                hits: [HitSlots::default(); BURST],
                dispositions: [Disposition::Wait; BURST],
                missed: MissedFlows::default(),
            },
            jobs: UpkeepJobs::default(),
            translations_left: 0,
            sample_translations_left: 0,
            upcalls: 0,
            verifier: Verifier::new(config.verify_one_in, config.seed, ends.differences),
            repairer: Repairer::new(config.repair),
            is_busy: false,
            slept: false,
            commands: ends.commands,
            link: ends.link,
            wakers: ends.wakers,
            counters: ends.counters,
            candidates: None,
            forecasts: None,
            samplers: Vec::new(),
            netflow: NetflowCaches::default(),
            now: Time::ZERO,
            stopwatch: Stopwatch::default(),
            config,
        }
    }

    /// Runs one iteration of the poll loop at `now`.
    ///
    /// Processes one burst from each of a bounded number of ready receive queues, and does a
    /// bounded amount of other work.
    pub fn run_iteration(&mut self, now: Time) -> Iteration {
        self.rx_ports.count_time(now.since(self.now));
        self.now = now;
        self.link.mailbox().begin_iteration();
        self.outputs.now = now;
        self.outputs.taps.set_time(now);
        self.translations_left = self.config.translations_per_iteration;
        self.sample_translations_left = self.config.translations_per_iteration;
        let is_busy = std::mem::take(&mut self.is_busy) || self.held() > 0;
        self.repairer.begin(self.config.translations_per_iteration, is_busy);
        let (punted, reported) = (self.outputs.tally.punted, self.caches.owner.reported());
        let learn_requests = self.caches.owner.last_learn_request();
        let mut adopted = self.take_invalidation();
        if self.slept && self.link.mailbox().is_flagged() {
            // Rule 10: the sleep acknowledged an invalidation, and its mailbox is locked at this
            // moment.
            return Iteration { received: 0, worked: true };
        }
        self.slept = false;
        let commands = self.take_commands();
        self.finish_releases();
        self.take_forecasts();
        let mut repaired = self.repair();
        self.find_ready();
        let mut received = self.poll_ready(&mut adopted, &mut repaired);
        if received == 0 && self.rx_ports.ready.may_ask_again() {
            self.await_ports(EpollTimeout::ZERO);
            received = self.poll_ready(&mut adopted, &mut repaired);
        }
        let served = self.serve_upcalls();
        let is_waiting = self.is_busy || self.held() > 0;
        let sent = self.outputs.tally.sent;
        self.outputs.flush(&mut self.pool);
        let has_sent = self.outputs.tally.sent > sent;
        let forecast = self.run_forecasts(is_waiting);
        self.rx_ports.report_finished();
        let kept = self.run_upkeep(received == 0);
        self.publish();
        let owner = &self.caches.owner;
        let has_reported = owner.reported() > reported;
        if adopted || has_reported && owner.has_report_batch() {
            self.wakers.coordinator.wake();
        }
        if self.outputs.tally.punted > punted {
            self.wakers.control.wake();
        }
        if self.caches.owner.last_learn_request() > learn_requests {
            self.wakers.learner.wake();
        }
        if let Some(candidates) = &mut self.candidates {
            candidates.notify();
        }
        let has_input = received + served + commands > 0;
        let worked = has_input || has_sent || adopted || repaired || forecast || kept;
        Iteration { received, worked }
    }

    /// Processes one burst from each listed receive queue, up to a limit.
    ///
    /// Returns the number of received packets.
    fn poll_ready(&mut self, adopted: &mut bool, repaired: &mut bool) -> usize {
        let mut received = 0;
        self.rx_ports.ready.begin();
        while let Some(input) = self.rx_ports.ready.next() {
            let count = self.receive(input);
            let may_have_more = self.rx_ports.list[input].may_have_more;
            self.rx_ports.ready.polled(input, may_have_more);
            received += count;
            self.is_busy |= count >= BURST;
            // Checked after each burst, so that a new version does not wait for all queues.
            if self.take_invalidation() {
                *adopted = true;
                *repaired |= self.repair();
            }
        }
        received
    }

    /// Returns the version of the tables that the thread has adopted.
    #[must_use]
    pub const fn version(&self) -> shunt_classifier::Version {
        self.caches.owner.version()
    }

    /// Returns the number of packets in the upcall queues.
    #[must_use]
    pub fn held(&self) -> usize {
        self.rx_ports.queued()
    }

    /// Returns the counters of the thread.
    #[must_use]
    pub const fn counters(&self) -> &Arc<ThreadCounters> {
        &self.counters
    }

    /// Adopts a posted version: evicts its stale entries and acknowledges the version.
    #[inline]
    fn take_invalidation(&mut self) -> bool {
        let Some((invalidation, iterations)) = self.link.mailbox().take_with_iterations() else {
            return false;
        };
        let dropped = if self.repairer.is_on() {
            self.caches.owner.apply_with_repair(&invalidation, self.now)
        } else {
            self.caches.owner.apply(&invalidation)
        };
        self.rx_ports.end_learn_stalls(&self.caches.owner, self.now);
        self.link.ack(invalidation.version);
        let bucket = usize::try_from(iterations).unwrap_or(ACK_BUCKETS).min(ACK_BUCKETS - 1);
        self.counters.acks[bucket].add(1);
        self.counters.evicted.add(dropped.evicted as u64);
        self.counters.install_conflicts.add(dropped.install_conflicts as u64);
        true
    }

    /// Does a bounded amount of each kind of upkeep; returns whether there was work.
    fn run_upkeep(&mut self, is_idle: bool) -> bool {
        self.train_tables();
        let cleared = self.caches.clear_out() | self.caches.maintain();
        let abandoned = self.repairer.abandon_late(&mut self.caches, &self.counters, self.now);
        let reclaimed = self.caches.reclaim_some(&self.pipeline);
        let owner = &mut self.caches.owner;
        let credited = self.jobs.credit(owner, &mut self.decisions, &self.pipeline, is_idle);
        self.make_room_if_crowded();
        let speculation = self.forecasts.as_ref().map(|own| &own.speculation);
        let (max_idle, now) = (self.config.max_idle, self.now);
        let expired = self.jobs.expire(&mut self.caches, speculation, max_idle, now, is_idle);
        self.counters.expired.add(expired);
        let dumped = self.jobs.continue_dump(&self.caches, speculation);
        let scanned = self.netflow.scan(is_idle, max_idle, now);
        cleared | abandoned | reclaimed | credited | (expired > 0) | dumped | scanned
    }

    /// Returns whether all hits are credited, and no dump, pull or scan is pending.
    pub(super) fn is_upkeep_done(&self) -> bool {
        let entries = self.caches.owner.entries();
        let dirty = entries.dirty() + self.decisions.dirty();
        let is_clean = dirty == 0 && entries.retired() == 0;
        let is_done = self.jobs.is_idle() && !self.netflow.is_scanning();
        is_clean && self.caches.is_cleared_out() && is_done
    }

    /// Translates some stale entries again; returns whether there was one.
    fn repair(&mut self) -> bool {
        let left = &mut self.translations_left;
        self.repairer.run(&mut self.caches, &self.pipeline, left, &self.counters, self.now)
    }

    /// Publishes the counters of the thread that others read.
    fn publish(&self) {
        let counters = &self.counters;
        self.outputs.tally.publish(counters);
        self.caches.publish(counters);
        counters.upcalls.set(self.upcalls);
        counters.decided.set(self.decisions.decided);
        counters.held.set((self.held() + self.outputs.queued()) as u64);
        counters.iterations.add(1);
    }
}

impl Drop for PacketThread {
    /// Retires the link, also after a panic: no barrier then waits for this thread.
    fn drop(&mut self) {
        self.link.retire();
        self.wakers.coordinator.wake();
    }
}

impl std::fmt::Debug for PacketThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketThread")
            .field("version", &self.version())
            .field("inputs", &self.rx_ports.list.len())
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
    fn a_woken_thread_takes_its_invalidation_first() {
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
        assert!(thread.run_iteration(Time::ZERO).worked);
        assert_eq!((thread.version(), thread.commands.slots()), (Version::ZERO, 1));
        drop(held);
        thread.run_iteration(Time::ZERO);
        assert_eq!((thread.version(), thread.commands.slots()), (version, 0));
    }
}
