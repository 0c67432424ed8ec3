//! The IPFIX exporters of all sets of collectors, and the task that serves these exporters.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use shunt_datapath::{
    Command,
    rule_sample::{CollectorSetId, RuleSampleReceiver, rule_sampler},
};
use shunt_pipeline::BridgeId;
use tokio::{
    sync::Notify,
    task::{spawn_blocking, yield_now},
    time::timeout,
};
use tracing::warn;

use super::{
    collector_set::CollectorSetIpfix,
    exporter::{IpfixClock, IpfixEnd},
    exporters::clock,
    sample::SampleParser,
};
use crate::{
    config::CollectorSetOptions,
    exports::{
        endings::EndingExporters,
        losses::LossLog,
        task::{LAST_REPORTS_MAX, run_rounds},
    },
    ports::bridges::Bridges,
    status::collector_set::CollectorSetStatus,
    threads::data_plane::DataPlane,
};

/// The IPFIX exporters of all sets of collectors.
pub(crate) struct CollectorSets {
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
    /// The start value of random numbers.
    seed: u64,
    /// The exporters of the sets that are in use.
    running: Mutex<RunningSets>,
    /// The exporters that still send their last datagrams.
    endings: Arc<EndingExporters>,
    /// Notified when an exporter starts.
    started: Notify,
}

/// The exporters of the sets, and the rings with samples of packet threads.
#[derive(Default)]
struct RunningSets {
    /// The exporter of each set.
    sets: BTreeMap<CollectorSetId, CollectorSetIpfix>,
    /// The rings of all threads, also of replaced samplers until these rings are empty.
    receivers: Vec<RuleSampleReceiver>,
    /// The parser of sampled headers.
    parser: SampleParser,
    /// Samples that did not fit the rings of replaced samplers.
    dropped_before: u64,
    /// The log of lost samples.
    losses: LossLog,
}

impl CollectorSets {
    /// Returns the exporters of collector sets, none of them running.
    pub(in crate::exports) fn new(
        plane: &Arc<DataPlane>,
        bridges: &Arc<Bridges>,
        endings: &Arc<EndingExporters>,
        seed: u64,
    ) -> Self {
        Self {
            plane: Arc::clone(plane),
            bridges: Arc::clone(bridges),
            seed,
            running: Mutex::default(),
            endings: Arc::clone(endings),
            started: Notify::new(),
        }
    }

    /// Changes the sets of collectors of a bridge.
    ///
    /// A changed or removed set reports its flows. Returns when every packet thread samples for the
    /// new sets.
    pub(crate) async fn apply(&self, bridge: BridgeId, name: &str, sets: &[CollectorSetOptions]) {
        // New exporters exist before their first sample, and removed exporters until their last.
        let mut replaced = Vec::new();
        for options in sets {
            // The options of a bridge were checked before.
            let Ok(targets) = options.addresses() else { continue };
            let id = CollectorSetId { bridge, number: options.id };
            let before = self
                .running
                .lock()
                .sets
                .get(&id)
                .map(|own| (own.options() == options, Arc::clone(own.collectors().totals())));
            let (is_same, totals) = before.unwrap_or_default();
            if !is_same {
                let own = CollectorSetIpfix::new(bridge, name, options, &targets, &totals);
                replaced.extend(self.running.lock().sets.insert(id, own));
            }
        }
        let mut ids: Vec<CollectorSetId> = self.running.lock().sets.keys().copied().collect();
        ids.retain(|id| id.bridge != bridge || sets.iter().any(|own| own.id == id.number));
        self.set_samplers(&ids).await;
        // Takes the last samples of the removed sets.
        self.run_exporters().iter().for_each(|line| warn!("{line}"));
        let gone = {
            let mut running = self.running.lock();
            let gone = running.sets.extract_if(.., |id, _| !ids.contains(id));
            gone.map(|(_, own)| own).collect::<Vec<_>>()
        };
        for (own, kind) in gone
            .into_iter()
            .map(|own| (own, IpfixEnd::Stopped))
            .chain(replaced.into_iter().map(|own| (own, IpfixEnd::Replaced)))
        {
            self.endings.spawn(end_set(own, kind, Arc::clone(&self.plane)));
        }
        self.started.notify_one();
    }

    /// Stops all exporters; their flows are reported afterwards.
    pub(crate) async fn stop_all(&self) {
        self.set_samplers(&[]).await;
        self.run_exporters();
        let sets = std::mem::take(&mut self.running.lock().sets);
        for own in sets.into_values() {
            self.endings.spawn(end_set(own, IpfixEnd::Stopped, Arc::clone(&self.plane)));
        }
    }

    /// Sends every packet thread a sampler for `ids`; without ids, removes the sampler.
    ///
    /// Returns when all packet threads use the new sampler.
    async fn set_samplers(&self, ids: &[CollectorSetId]) {
        for thread in self.plane.living() {
            let sampler = (!ids.is_empty()).then(|| {
                let seed = self.seed.wrapping_add((2 << 32) + thread as u64);
                let (sampler, receiver) = rule_sampler(ids.to_vec(), seed);
                self.running.lock().receivers.push(receiver);
                Box::new(sampler)
            });
            self.plane.send(thread, Command::SampleByRules(sampler)).await;
        }
        // Threads process commands in order, so the replies follow the samplers.
        self.plane.pull_threads().await;
    }

    /// Returns the states of the sets of a bridge, by set number.
    pub(crate) fn status(&self, bridge: BridgeId) -> Vec<CollectorSetStatus> {
        let running = self.running.lock();
        let own = running.sets.iter().filter(|(id, _)| id.bridge == bridge);
        own.map(|(_, own)| own.status()).collect()
    }

    /// Collects samples and reports flows, forever.
    pub(crate) async fn run(self: Arc<Self>) {
        let round = || {
            let own = Arc::clone(&self);
            async move {
                // A round with many samples takes milliseconds, for which no task of the runtime
                // should wait.
                let lines = spawn_blocking(move || own.run_exporters()).await;
                lines.unwrap_or_default().iter().for_each(|line| warn!("{line}"));
            }
        };
        run_rounds(&self.started, || self.running.lock().sets.is_empty(), round).await;
    }

    /// Collects the samples of all sets, and reports flows;
    /// returns a log line about losses.
    fn run_exporters(&self) -> Option<String> {
        let clock = clock(&self.plane);
        self.running.lock().run(&self.bridges, clock)
    }
}

impl RunningSets {
    /// Collects the samples in the rings, and reports flows.
    ///
    /// Returns a log line if samples were lost.
    fn run(&mut self, bridges: &Bridges, clock: IpfixClock) -> Option<String> {
        // A port is published before packet threads receive from it. So the ports of all samples
        // counted here are in the port lists that are read below; later samples wait for the next
        // round.
        let counts: Vec<usize> = self.receivers.iter().map(RuleSampleReceiver::len).collect();
        self.sets.values_mut().for_each(|own| own.begin_round(bridges, clock));
        let has_room = self.sets.values().any(|own| own.collectors().has_room());
        for (receiver, count) in self.receivers.iter_mut().zip(counts).filter(|_| has_room) {
            for _ in 0..count {
                let Some(sample) = receiver.pop() else { break };
                let request = &sample.request;
                let number = request.action.collector_set_id;
                let set = self.sets.get_mut(&CollectorSetId { bridge: request.bridge, number });
                if let Some(set) = set {
                    set.add(&sample, &mut self.parser, clock);
                }
            }
        }
        self.sets.values_mut().for_each(|own| own.end_round(clock));
        self.forget_old_rings();
        let dropped = self.receivers.iter().map(RuleSampleReceiver::dropped).sum::<u64>();
        let lost = self.losses.note(self.dropped_before + dropped, clock.now)?;
        let reason = if has_room {
            "more packets are sampled than can be read; set a lower `probability`"
        } else {
            "all collectors get datagrams more slowly than they are made; set a lower `probability`, or \
             use a faster link"
        };
        Some(format!("action sample: {lost} samples were lost, because {reason}"))
    }

    /// Removes the empty rings of replaced samplers.
    fn forget_old_rings(&mut self) {
        let is_over = |own: &mut RuleSampleReceiver| own.is_over();
        let over = self.receivers.extract_if(.., is_over);
        self.dropped_before += over.map(|own| own.dropped()).sum::<u64>();
    }
}

/// Reports all flows of a set that was removed or replaced.
async fn end_set(mut own: CollectorSetIpfix, kind: IpfixEnd, plane: Arc<DataPlane>) {
    let report = async {
        while own.report_rest(clock(&plane)) {
            // Other tasks run between two parts of the report.
            yield_now().await;
            own.collectors().wait_for_room().await;
        }
    };
    // Flows that collectors do not accept in time are lost.
    let _ = timeout(LAST_REPORTS_MAX, report).await;
    own.end(kind).await;
}
