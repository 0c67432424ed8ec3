//! The agent of an offload device, without its thread: its state, and one iteration.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, mpsc},
};

use rtrb::Consumer;
use shunt_flow::PortNo;
use shunt_gigaflow::{
    adaptive::Capacity,
    cache::{Config, Fallback, Gigaflow},
    ltm::{LtmEntryRef, LtmRule, Walk},
    offload::{OffloadCapabilities, OffloadDevice, OffloadEvent},
    partition::StageId,
    tag::{TAG_BITS_MAX, TagName},
};
use shunt_pipeline::{Pipeline, Time};

use super::{
    OffloadCandidate, OffloadConfig, OffloadEndpoint, OffloadState, OffloadStatus, StaleReason,
    drain::Drain,
    endpoints::{OffloadCommand, SharedStatus},
    forecasts::PendingForecasts,
    insertion_limit::InsertionLimit,
    judge::{StalenessJudge, UnconfirmedWork},
    large_flows::LargeFlows,
    ledger::{Batch, Ledger},
    pending_traversals::PendingTraversals,
    reading::Reading,
};
use crate::{
    command::DumpedEntry,
    evict::{link::Link, owner::Owner, waker::Waker},
};

/// The agent of an offload device; the caller runs its iterations.
pub struct OffloadAgent<T> {
    /// The settings of the agent.
    pub(super) config: OffloadConfig,
    /// The pipeline, which validates entries.
    pub(super) pipeline: Arc<Pipeline>,
    /// The offload device of the agent.
    pub(super) device: T,
    /// The abilities and limits of the device.
    pub(super) capabilities: OffloadCapabilities,
    /// The intended entries of the device, and their chain of stages.
    pub(super) owner: Owner,
    /// The chain of the device's stages, in software.
    pub(super) gigaflow: Gigaflow,
    /// The state of each intended entry in the device.
    pub(super) ledger: Ledger,
    /// The number of insertions that may be pending.
    pub(super) insertion_limit: InsertionLimit,
    /// The state of the device: present or lost, and stale or not.
    pub(super) judge: StalenessJudge,
    /// The current reading of counters.
    pub(super) reading: Reading,
    /// The entries with many hits.
    pub(super) large_flows: LargeFlows,
    /// The retired tags that may still be in use.
    pub(super) drain: Drain,
    /// The traversals that wait for all their entries.
    pub(super) pending_traversals: PendingTraversals,
    /// The forecasts in the device without an outcome.
    pub(super) forecasts: PendingForecasts,
    /// The ring of candidates of each packet thread.
    pub(super) candidate_rings: Vec<Consumer<OffloadCandidate>>,
    /// The packet thread from which the next iteration takes candidates first.
    pub(super) offered_first: usize,
    /// The ingress ports of the device.
    pub(super) ports: Option<BTreeSet<PortNo>>,
    /// Entries to remove when the ring of reports to the eviction thread has room.
    pub(super) to_remove: BTreeSet<LtmEntryRef>,
    /// Scratch: the stages that a packet hits.
    pub(super) walk: Walk,
    /// Scratch: the responses of the device.
    pub(super) events: Vec<OffloadEvent>,
    /// Scratch: the operations of an iteration.
    pub(super) batch: Batch,
    /// The status of the device and its entries, to be published.
    pub(super) status: OffloadStatus,
    /// Time of this iteration.
    pub(super) now: Time,
    /// The mailbox of the agent, and its acknowledged version.
    pub(super) link: Arc<Link>,
    /// Wakes the eviction thread after a report.
    pub(super) coordinator: Arc<Waker>,
    /// The commands of the control plane.
    commands: mpsc::Receiver<OffloadCommand>,
    /// The status that other threads read.
    shared: Arc<SharedStatus>,
}

/// Number of slots for dead entries, in addition to the intended entries.
const RETIRED_MAX: usize = 1024;

/// Maximum number of commands that an iteration handles.
const COMMANDS_PER_ITERATION: usize = 32;

impl<T: OffloadDevice> OffloadAgent<T> {
    /// Creates the agent of a device in unknown state.
    /// The agent starts at the version for which its endpoint was created.
    #[must_use]
    pub fn new(
        config: OffloadConfig,
        pipeline: Arc<Pipeline>,
        device: T,
        ends: OffloadEndpoint,
    ) -> Self {
        let capabilities = device.capabilities().clone();
        let stage_entries_max = capabilities.stage_entries.iter().copied().min().unwrap_or(0);
        // A device with more than 255 stages is used with 255 stages; no walk needs more.
        let stages_count = u8::try_from(capabilities.stages_count()).unwrap_or(u8::MAX);
        let mut gigaflow = Gigaflow::of_device(Config {
            capacity: Capacity { stages_count, stage_entries_max },
            policy: config.policy,
            fallback: Fallback::Off,
            eviction: config.eviction,
            tag_bits: capabilities.tag_bits.min(TAG_BITS_MAX),
            seed: config.seed,
        });
        // Packets enter the device with the first tag, which is held forever.
        let first = gigaflow.ltm_mut().hold(&TagName::Start(config.bridge.number().into()));
        debug_assert!(first.is_ok_and(|tag| tag.number() == 0), "no tag is in use yet");
        let entries_max = stage_entries_max * usize::from(stages_count) + RETIRED_MAX;
        let OffloadEndpoint {
            owner,
            version,
            reports,
            learn_requests,
            candidate_rings,
            commands,
            link,
            coordinator,
            shared,
        } = ends;
        Self {
            owner: Owner::new(owner, version, entries_max, reports, learn_requests),
            ledger: Ledger::new(&capabilities.stage_entries, config.seed),
            insertion_limit: InsertionLimit::default(),
            judge: StalenessJudge::new(device.is_connected()),
            reading: Reading::default(),
            large_flows: LargeFlows::default(),
            drain: Drain::default(),
            pending_traversals: PendingTraversals::default(),
            forecasts: PendingForecasts::default(),
            candidate_rings,
            offered_first: 0,
            ports: None,
            to_remove: BTreeSet::new(),
            walk: Walk::default(),
            events: Vec::new(),
            batch: Vec::new(),
            status: OffloadStatus::default(),
            now: Time::ZERO,
            link,
            coordinator,
            config,
            pipeline,
            device,
            capabilities,
            gigaflow,
            commands,
            shared,
        }
    }

    /// Runs one iteration at `now`; returns whether there was anything to do.
    pub fn run_iteration(&mut self, now: Time) -> bool {
        self.now = now;
        let reported = self.owner.reported();
        let received = self.handle_events();
        let adopted = self.take_invalidation();
        let commanded = self.take_commands();
        let offered = self.take_candidates();
        let ended = self.remove_pending();
        let read = self.read_counters();
        if ended || read {
            self.settle_forecasts();
        }
        let handed_over = self.send_operations();
        let acked = self.acknowledge();
        self.drain.run_iteration(self.gigaflow.ltm_mut(), now, self.config.drain);
        if self.owner.reported() > reported || acked {
            self.coordinator.wake();
        }
        let worked = received | adopted | commanded | offered | ended | read | handed_over | acked;
        self.publish();
        worked
    }

    /// Returns the rules that the device is intended to hold.
    pub fn intended_rules(&self) -> impl Iterator<Item = (StageId, &LtmRule)> {
        self.gigaflow.ltm().entries().map(|(_, stage, rule)| (stage, rule))
    }

    /// Returns the offload device of the agent.
    pub const fn device(&mut self) -> &mut T {
        &mut self.device
    }

    /// Adopts a posted version, and marks its stale entries for removal.
    ///
    /// The agent first waits until the device has confirmed the previous version; later
    /// invalidations merge meanwhile.
    fn take_invalidation(&mut self) -> bool {
        let is_owed = self.owner.version() > self.link.acked_version();
        if is_owed && !self.status.state.is_stale() {
            return false;
        }
        let Some(invalidation) = self.link.mailbox().take() else { return false };
        self.owner.apply(&invalidation);
        self.reclaim(Some(self.now));
        self.ledger.adopt(self.now);
        true
    }

    /// Acknowledges the adopted version once the device holds no stale entry.
    /// A stale device does not delay the acknowledgement.
    fn acknowledge(&mut self) -> bool {
        let since = self.ledger.stale_since();
        let within = self.config.confirm_within;
        let unconfirmed_work = match since {
            None => UnconfirmedWork::Nothing,
            Some(since) if self.now.since(since) > within => UnconfirmedWork::Late,
            Some(_) => UnconfirmedWork::Removals,
        };
        let has_ports = self.ports.as_ref().is_none_or(|ports| !ports.is_empty());
        self.status.state = self.judge.state_of(self.now, unconfirmed_work, has_ports);
        // Versions wait only for removals, and pulls only for counts, because a device that counts
        // slowly may remove quickly.
        self.status.counts_late = self.reading.is_late(self.now, within);
        if self.status.counts_late || self.status.state.is_stale() {
            self.reading.abandon();
        }
        let version = self.owner.version();
        if version == self.link.acked_version() {
            return false;
        }
        let is_gone = since.is_none();
        if !is_gone && !self.status.state.is_stale() {
            return false;
        }
        if !is_gone {
            self.judge.note_unconfirmed();
            self.status.unconfirmed += 1;
        }
        self.link.ack(version);
        true
    }

    /// Executes waiting commands; returns whether there were any.
    fn take_commands(&mut self) -> bool {
        for count in 0..COMMANDS_PER_ITERATION {
            let Ok(command) = self.commands.try_recv() else { return count > 0 };
            match command {
                OffloadCommand::Pull(reply) => self.reading.pull(reply),
                OffloadCommand::Dump(reply) => reply(self.dumped()),
                OffloadCommand::Ports(ports) => self.ports = ports,
                OffloadCommand::Tune { max_idle, drain } => {
                    (self.config.max_idle, self.config.drain) = (max_idle, drain);
                }
            }
        }
        true
    }

    /// Returns the entries of the device for a dump.
    fn dumped(&self) -> Vec<DumpedEntry> {
        let dumped = self.ledger.offloaded_entries().map(|(offloaded, counters)| DumpedEntry {
            entry: self.owner.entry_id(offloaded.entry.into()),
            traversal: Arc::clone(&offloaded.traversal),
            packets: counters.packets,
            bytes: counters.bytes,
            used: offloaded.used(),
            link: self.gigaflow.ltm().link(offloaded.entry.slot),
            forecast: offloaded.forecast.map(|own| own.source),
        });
        dumped.collect()
    }

    /// Writes the status that readers see.
    fn publish(&mut self) {
        let status = &mut self.status;
        status.held = self.ledger.occupied().to_vec();
        status.capacity = self.capabilities.stage_entries.to_vec();
        status.waiting = self.ledger.waiting_count();
        status.stale = self.ledger.stale_count();
        status.tags = self.gigaflow.ltm().tags().len();
        status.partitioned = self.gigaflow.counts();
        status.operations = self.ledger.operations;
        status.operations.pending_operations = self.ledger.pending_count() as u64;
        (status.repairs, status.stale_count) = self.judge.counts();
        let mut shown = self.shared.lock();
        if *shown != *status {
            shown.clone_from(status);
        }
    }
}

impl<T> OffloadAgent<T> {
    /// Returns the link to the eviction coordinator.
    pub(super) const fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

impl<T> Drop for OffloadAgent<T> {
    /// Retires the owner, even after a panic.
    /// So no version waits for an acknowledgement of the owner.
    fn drop(&mut self) {
        // Dropping the waiting forecasts sets their outcomes.
        self.candidate_rings.iter_mut().for_each(|ring| while ring.pop().is_ok() {});
        let (since, reason) = (self.now, StaleReason::Ended);
        self.shared.lock().state = OffloadState::Stale { since, reason };
        self.link.retire();
        self.coordinator.wake();
    }
}

impl<T> fmt::Debug for OffloadAgent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffloadAgent")
            .field("version", &self.owner.version())
            .field("state", &self.status.state)
            .field("held", &self.ledger.occupied())
            .finish_non_exhaustive()
    }
}
