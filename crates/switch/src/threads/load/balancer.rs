//! The balancer: samples the loads of receive queues, and moves queues between packet threads.
//!
//! The conditions follow Open vSwitch (`pmd-auto-lb`): a thread was overloaded for a minute,
//! and the variance of the loads becomes clearly smaller.

use std::{collections::BTreeMap, path::Path};

use parking_lot::Mutex;
use serde::Serialize;
use shunt_pipeline::Time;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::{
    config::AutoLbSettings,
    control::ControlPlane,
    ports::{bridges::Bridges, port::BridgePort},
    threads::load::{
        history::{LoadHistory, LoadSample, RxQueueName, SAMPLE_INTERVAL, SampledQueue},
        numa::NumaNodes,
        placement::QueuePlacer,
        plan::{LoadPlan, ReceiveQueueLoad},
    },
};

/// The loads of the receive queues, and the time of the last decision.
#[derive(Debug, Default)]
pub(crate) struct LoadBalancer(Mutex<LoadHistory>);

/// The load of a receive queue, for `shuntctl threads` and `pmd-rxq-show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RxQueueStatus {
    /// Name of the port.
    pub port: String,
    /// Number of the queue among the receive queues of the port.
    pub queue: u16,
    /// Number of the packet thread that has the queue.
    pub thread: usize,
    /// Part of the thread's time in the last minute, in percent.
    ///
    /// `None` before the second sample.
    pub busy_percent: Option<u64>,
    /// Nanoseconds that packet threads took for the queue since the port was opened.
    pub busy_ns: u64,
    /// Packets of the queue since the port was opened.
    pub packets: u64,
    /// Bursts of packets since the port was opened.
    pub bursts: u64,
    /// NUMA node of the device of the port; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
}

/// The receive queues of a plan, and those that have moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueMoves {
    /// Number of planned moves.
    pub planned: usize,
    /// Number of queues that have moved.
    ///
    /// The other queues stay, because their packet threads have unsent packets.
    pub moved: usize,
}

/// Samples the loads at intervals, and moves queues if the settings allow it.
pub(crate) async fn watch_loads(control: &ControlPlane) {
    let mut interval = interval(SAMPLE_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        interval.tick().await;
        control.loads.sample(control);
        let settings = control.config.lock().threads.auto_lb();
        let is_due = settings.is_on && control.loads.is_due(&settings, control.plane.now());
        if is_due {
            let loads = control.loads.0.lock().loads();
            control.loads.rebalance(control, &loads, settings.improvement_threshold).await;
        }
    }
}

impl LoadBalancer {
    /// Adds a sample of all receive queues.
    fn sample(&self, control: &ControlPlane) {
        let sample =
            LoadSample { at: control.plane.now(), queues: sample_queues(&control.bridges) };
        self.0.lock().add(sample);
    }

    /// Returns whether the next balancing is due.
    fn is_due(&self, settings: &AutoLbSettings, now: Time) -> bool {
        self.0.lock().is_due(settings, now)
    }

    /// Moves queues if the variance of the loads becomes clearly smaller.
    ///
    /// `improvement` is the least improvement in percent.
    async fn rebalance(
        &self,
        control: &ControlPlane,
        loads: &[ReceiveQueueLoad],
        improvement: u8,
    ) -> QueueMoves {
        let plan = LoadPlan::new(loads, &control.plane.living(), &numa_nodes(&control.bridges));
        if plan.moves.is_empty() || plan.improvement() < improvement {
            return QueueMoves::default();
        }
        let (planned, mut moved) = (plan.moves.len(), 0);
        {
            let structure = control.structure().await;
            for own in &plan.moves {
                moved += usize::from(structure.ports().move_queue(own.queue, own.to).await);
            }
        }
        self.0.lock().note_moves(moved);
        if moved > 0 {
            self.sample(control);
        }
        let improvement = plan.improvement();
        if moved == planned {
            info!(improvement, "packet threads: {moved} receive queues moved to balance the loads");
        } else {
            warn!(
                planned,
                moved,
                "packet threads: some receive queues are not moved, because their threads have \
                 packets of them that are not sent yet"
            );
        }
        QueueMoves { planned, moved }
    }

    /// Moves queues by the loads until now, however small the improvement.
    pub(crate) async fn rebalance_now(&self, control: &ControlPlane) -> QueueMoves {
        let now = LoadSample { at: control.plane.now(), queues: sample_queues(&control.bridges) };
        let loads = self.loads_until(now);
        self.rebalance(control, &loads, 1).await
    }

    /// Returns the loads until a sample; the history keeps only its first sample.
    fn loads_until(&self, last: LoadSample) -> Vec<ReceiveQueueLoad> {
        let mut history = self.0.lock();
        let loads = history.loads_until(&last);
        if history.is_empty() {
            history.add(last);
        }
        loads
    }

    /// Returns a placer of the queues of new ports, by the loads until `now`.
    ///
    /// Before the first sample, the placer knows only how many queues each thread has.
    pub(crate) fn placer(&self, bridges: &Bridges, now: Time) -> QueuePlacer {
        let last = LoadSample { at: now, queues: sample_queues(bridges) };
        let loads = self.0.lock().loads_until(&last);
        QueuePlacer::new(&last.queues, &loads).with_nodes(Path::new(ROOT))
    }

    /// Returns the receive queues, in the order of their ports.
    pub(crate) fn status(&self, control: &ControlPlane) -> Vec<RxQueueStatus> {
        let (loads, duration) = {
            let history = self.0.lock();
            (history.loads(), history.duration())
        };
        let percent = |queue| {
            let load = loads.iter().find(|own| own.queue == queue)?;
            let total = u64::try_from(duration.as_nanos()).ok().filter(|total| *total > 0)?;
            u64::try_from(u128::from(load.busy_ns) * 100 / u128::from(total)).ok()
        };
        let queues = sample_queues(&control.bridges);
        let bridges = control.bridges.lock();
        let status = queues.into_iter().filter_map(|(queue, own)| {
            let port = bridges.by_id(queue.bridge)?.ports.get(queue.port)?;
            let load = &port.rx_queues.get(usize::from(queue.number))?.load;
            Some(RxQueueStatus {
                port: port.settings.name.clone(),
                queue: queue.number,
                thread: own.thread,
                busy_percent: percent(queue),
                busy_ns: load.busy_ns.get(),
                packets: load.packets.get(),
                bursts: load.bursts.get(),
                numa_node: port.numa_node(),
            })
        });
        status.collect()
    }
}

/// The folder of the files by which the kernel describes CPUs and threads.
const ROOT: &str = "/";

/// Returns the NUMA nodes of packet threads and of the devices of open ports.
fn numa_nodes(bridges: &Bridges) -> NumaNodes {
    let devices = {
        let bridges = bridges.lock();
        let ports = bridges
            .iter()
            .flat_map(|bridge| bridge.ports.values().map(move |port| (bridge.id, port)));
        let node =
            |(bridge, port): (_, &BridgePort)| Some(((bridge, port.number), port.numa_node()?));
        ports.filter_map(node).collect()
    };
    NumaNodes::of_devices(devices, Path::new(ROOT))
}

/// Returns the state of each receive queue.
fn sample_queues(bridges: &Bridges) -> BTreeMap<RxQueueName, SampledQueue> {
    let bridges = bridges.lock();
    let ports =
        bridges.iter().flat_map(|bridge| bridge.ports.values().map(move |port| (bridge.id, port)));
    let open = ports.filter(|(_, port)| port.open.is_some());
    let queues = open.flat_map(|(bridge, port)| {
        let own = (0..).zip(&port.rx_queues);
        own.map(move |(number, queue)| {
            let name = RxQueueName { bridge, port: port.number, number };
            (name, SampledQueue { thread: queue.thread, busy_ns: queue.load.busy_ns.get() })
        })
    });
    queues.collect()
}
