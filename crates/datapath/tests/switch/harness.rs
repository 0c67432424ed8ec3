//! A switch without OS threads: pipeline, coordinator and packet threads.
//!
//! The test runs each iteration, and has the far ends of the ports.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use shunt_classifier::Version;
use shunt_datapath::{
    BURST, ChangeSender, Command, CoordinatorEndpoint, EvictionCoordinator, LearnSeq,
    LearnedChange, Packet, PacketThread, Pool, PortError, RxQueue, ThreadConfig, ThreadCounters,
    Waker,
    command::{RxQueueState, ThreadPort, ThreadReceiver},
    forecast::{ForecastConfig, ForecastRoutes, ForecastSender, forecast_endpoint},
    metrics::PortTraffic,
    offload::{OffloadEndpoint, OffloadHandle, offload_endpoint},
    packet::ingress_policer::IngressPolicer,
    port::{Port, Queues, RxReport, pair::pair},
    thread::{ControlEnds, QueueSizes, Wakers, thread_ends},
};
use shunt_flow::{Match, PortNo, text::NoPortNames};
use shunt_foresight::{Foresight, GovernorConfig};
use shunt_kairo::Direct;
#[cfg(feature = "dbsp")]
use shunt_kairo::{Relational, Visits, testing::Failing};
use shunt_pipeline::{
    Action, BridgeId, BridgeSettings, Change, Cookie, DatapathPort, Delta, EntryId, Evictor,
    FlowFlags, FlowMod, FlowModCommand, Installed, Instructions, Iterative, Learning, Modification,
    OwnerId, Pipeline, PortInfo, Priority, TableId, TableSelector, Time, Traversal,
    text::parse_rule,
};

/// The bridge of every port.
pub(crate) const BRIDGE: BridgeId = BridgeId::new(1);

/// Creates an eviction engine.
pub(crate) type Engine = fn(&Arc<Pipeline>) -> Box<dyn Evictor>;

fn iterative(pipeline: &Arc<Pipeline>) -> Box<dyn Evictor> {
    Box::new(Iterative::new(Arc::clone(pipeline)))
}

fn direct(pipeline: &Arc<Pipeline>) -> Box<dyn Evictor> {
    Box::new(Direct::new(pipeline.version(), 1))
}

#[cfg(feature = "dbsp")]
fn visits(pipeline: &Arc<Pipeline>) -> Box<dyn Evictor> {
    Box::new(Visits::new(pipeline.version(), 1))
}

#[cfg(feature = "dbsp")]
fn relational(pipeline: &Arc<Pipeline>) -> Box<dyn Evictor> {
    Box::new(Relational::new(pipeline.version(), 1))
}

/// The eviction engines with which the tests run.
pub(crate) const ENGINES: &[Engine] = &[
    iterative,
    direct,
    #[cfg(feature = "dbsp")]
    visits,
    #[cfg(feature = "dbsp")]
    relational,
];

/// Engines with low limits on their search.
/// Beyond a limit, an engine evicts every entry that may be stale.
pub(crate) const STOPPING_EARLY: &[Engine] = &[
    |pipeline| Box::new(Direct::new(pipeline.version(), 1).with_deltas_max(1)),
    |pipeline| Box::new(Direct::new(pipeline.version(), 1).with_examined_max(4)),
    #[cfg(feature = "dbsp")]
    |pipeline| Box::new(Visits::new(pipeline.version(), 1).with_deltas_max(1)),
    #[cfg(feature = "dbsp")]
    |pipeline| Box::new(Visits::new(pipeline.version(), 1).with_examined_max(4)),
    #[cfg(feature = "dbsp")]
    |pipeline| Box::new(Relational::new(pipeline.version(), 1).with_deltas_max(1)),
    #[cfg(feature = "dbsp")]
    |pipeline| Box::new(Relational::new(pipeline.version(), 1).with_examined_max(4)),
    #[cfg(feature = "dbsp")]
    |pipeline| Box::new(Failing::new(Visits::new(pipeline.version(), 1), every_third())),
    #[cfg(feature = "dbsp")]
    |pipeline| Box::new(Failing::new(Relational::new(pipeline.version(), 1), every_third())),
];

/// Returns a plan by which an engine fails during or after every third change.
#[cfg(feature = "dbsp")]
fn every_third() -> impl FnMut() -> Option<usize> + Send {
    let mut changes = 0_usize;
    move || {
        changes += 1;
        changes.is_multiple_of(3).then_some(changes % 4)
    }
}

/// Returns whether a descriptor is readable.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
    epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO).unwrap() > 0
}

/// A switch that takes only the steps that the test requests.
pub(crate) struct Switch {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) coordinator: EvictionCoordinator,
    pub(crate) changes: ChangeSender,
    pub(crate) threads: Vec<PacketThread>,
    pub(crate) controls: Vec<ControlEnds>,
    /// The counters of each port, by packet thread.
    pub(crate) traffic: BTreeMap<u32, Vec<Arc<PortTraffic>>>,
    /// The queues of the far ends, by port, then by packet thread.
    hosts: BTreeMap<u32, Vec<Queues>>,
    /// The wakers of the near ends' receive queues, by port, then by packet thread.
    doorbells: BTreeMap<u32, Vec<Arc<Waker>>>,
    pool: Pool,
    /// The endpoints for the agent of an offload device, if any.
    pub(crate) device: Option<(OffloadHandle, OffloadEndpoint)>,
    pub(crate) now: Time,
}

/// The offload device in front of the switch, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Nothing,
    Target,
}

impl Switch {
    /// Creates a switch with `threads` packet threads and ports 1 to `ports`.
    pub(crate) fn new(threads: u16, ports: u32, config: ThreadConfig) -> Self {
        Self::with_sizes(threads, ports, config, QueueSizes::default())
    }

    pub(crate) fn with_sizes(
        threads: u16,
        ports: u32,
        config: ThreadConfig,
        sizes: QueueSizes,
    ) -> Self {
        Self::with_engine(threads, ports, config, sizes, iterative)
    }

    /// Creates a switch with queues of the given sizes and the given eviction engine.
    pub(crate) fn with_engine(
        threads: u16,
        ports: u32,
        config: ThreadConfig,
        sizes: QueueSizes,
        engine: Engine,
    ) -> Self {
        let pipeline = pipeline_of(ports);
        let mut switch = Self::wired(pipeline, threads, config, sizes, Front::Nothing, engine);
        (1..=ports).for_each(|port| switch.add_port(port, BRIDGE, PortNo::new(port)));
        switch.settle();
        switch
    }

    /// Creates a switch behind an offload device; the test acts as the agent.
    pub(crate) fn behind_device(threads: u16, ports: u32, config: ThreadConfig) -> Self {
        let sizes = QueueSizes::default();
        let pipeline = pipeline_of(ports);
        let mut switch = Self::wired(pipeline, threads, config, sizes, Front::Target, iterative);
        (1..=ports).for_each(|port| switch.add_port(port, BRIDGE, PortNo::new(port)));
        switch.settle();
        switch
    }

    /// Creates a switch without ports, at the newest version of a pipeline.
    pub(crate) fn with_pipeline(
        pipeline: Arc<Pipeline>,
        threads: u16,
        config: ThreadConfig,
        sizes: QueueSizes,
        engine: Engine,
    ) -> Self {
        Self::wired(pipeline, threads, config, sizes, Front::Nothing, engine)
    }

    fn wired(
        pipeline: Arc<Pipeline>,
        threads: u16,
        config: ThreadConfig,
        sizes: QueueSizes,
        front: Front,
        engine: Engine,
    ) -> Self {
        let version = pipeline.version();
        let waker = Arc::new(Waker::new().unwrap());
        let wakers = Wakers {
            coordinator: Arc::clone(&waker),
            control: Arc::new(Waker::new().unwrap()),
            learner: Arc::new(Waker::new().unwrap()),
        };
        let mut ends: Vec<CoordinatorEndpoint> = Vec::new();
        let (mut own, mut controls) = (Vec::new(), Vec::new());
        let (mut device, mut candidates) = (None, Vec::new());
        if front == Front::Target {
            let count = usize::from(threads);
            let made =
                offload_endpoint(OwnerId(threads), version, count, Arc::clone(&waker)).unwrap();
            device = Some((made.0, made.1));
            ends.push(made.2);
            candidates = made.3;
        }
        for index in 0..threads {
            let made = thread_ends(OwnerId(index), version, sizes, wakers.clone()).unwrap();
            let (thread, mut control, coordinator) = made;
            if let Some(candidates) = candidates.pop() {
                control.send(Command::OffloadCandidate(Some(Box::new(candidates)))).unwrap();
            }
            own.push(PacketThread::new(config, Arc::clone(&pipeline), thread));
            controls.push(control);
            ends.push(coordinator);
        }
        let engine = engine(&pipeline);
        let (coordinator, changes) = EvictionCoordinator::new(engine, version, ends, waker);
        Self {
            pipeline,
            coordinator,
            changes,
            threads: own,
            controls,
            traffic: BTreeMap::new(),
            hosts: BTreeMap::new(),
            doorbells: BTreeMap::new(),
            pool: Pool::new(),
            device,
            now: Time::ZERO.after(Duration::from_secs(1)),
        }
    }

    /// Adds port `port`, with OpenFlow number `number` in `bridge`, to every thread.
    pub(crate) fn add_port(&mut self, port: u32, bridge: BridgeId, number: PortNo) {
        self.add_policed_port(port, bridge, number, None);
    }

    /// Adds port `port` with a rate limit of received packets to every thread.
    pub(crate) fn add_policed_port(
        &mut self,
        port: u32,
        bridge: BridgeId,
        number: PortNo,
        policer: Option<&Arc<IngressPolicer>>,
    ) {
        let threads = u16::try_from(self.threads.len()).unwrap();
        let (mut near, mut far) = pair(threads, u64::from(port) * 2);
        self.attach_policed(port, bridge, number, &mut near, policer);
        self.hosts.insert(port, far.split(threads).unwrap());
    }

    /// Adds a port and the queues of its far end, by packet thread.
    ///
    /// Replaces an existing port with the same number.
    pub(crate) fn attach_wired(&mut self, port: u32, opened: &mut dyn Port, far: Vec<Queues>) {
        self.attach(port, BRIDGE, PortNo::new(port), opened);
        self.hosts.insert(port, far);
    }

    /// Adds the queues of a port of any kind to every packet thread.
    pub(crate) fn attach(
        &mut self,
        port: u32,
        bridge: BridgeId,
        number: PortNo,
        opened: &mut dyn Port,
    ) {
        self.attach_policed(port, bridge, number, opened, None);
    }

    fn attach_policed(
        &mut self,
        port: u32,
        bridge: BridgeId,
        number: PortNo,
        opened: &mut dyn Port,
        policer: Option<&Arc<IngressPolicer>>,
    ) {
        let threads = u16::try_from(self.threads.len()).unwrap();
        let capabilities = opened.capabilities();
        let (mut traffic, mut doorbells) = (Vec::new(), Vec::new());
        let split = opened.split(threads).unwrap();
        for (thread, (control, mut queues)) in (0..).zip(self.controls.iter_mut().zip(split)) {
            let doorbell = Arc::new(Waker::new().unwrap());
            // The signal makes the thread poll, because the queue may have packets already.
            doorbell.signal();
            doorbells.push(Arc::clone(&doorbell));
            let queue = queues.rx.take();
            let (port, own) = (DatapathPort::new(port), Arc::<PortTraffic>::default());
            traffic.push(Arc::clone(&own));
            let added = ThreadPort {
                port,
                bridge,
                number,
                capabilities,
                queues,
                traffic: Arc::clone(&own),
            };
            control.send(Command::AddPort(Box::new(added))).unwrap();
            if let Some(queue) = queue {
                let (queue, policer) = (Box::new(DoorbellRx { queue, doorbell }), policer.cloned());
                // Queue `n` starts at thread `n`.
                let state = RxQueueState { number: thread, ..RxQueueState::default() };
                let receiver =
                    ThreadReceiver { port, bridge, number, queue, traffic: own, policer, state };
                control.send(Command::AddReceiver(Box::new(receiver))).unwrap();
            }
        }
        self.traffic.insert(port, traffic);
        self.doorbells.insert(port, doorbells);
    }

    /// Returns a sender of forecasts for every packet thread.
    pub(crate) fn attach_forecasts(&mut self, config: ForecastConfig) -> Vec<ForecastSender> {
        self.attach_predictors(config, || Foresight::new(GovernorConfig::default()))
    }

    /// Gives every packet thread predictors, and returns its sender of forecasts.
    pub(crate) fn attach_predictors(
        &mut self,
        config: ForecastConfig,
        predictors: impl Fn() -> Foresight,
    ) -> Vec<ForecastSender> {
        let routes = ForecastRoutes::default();
        let attach = |control: &mut ControlEnds| {
            let (thread, sender) = forecast_endpoint(config, predictors(), &routes, control);
            control.send(Command::Forecasts(Some(Box::new(thread)))).unwrap();
            sender
        };
        self.controls.iter_mut().map(attach).collect()
    }

    /// Sends a change to the coordinator.
    pub(crate) fn change(&mut self, change: &Change) {
        if change.version > self.coordinator.version() {
            self.coordinator.take_reports();
            self.coordinator.apply(change.version, &change.deltas);
        }
    }

    /// Publishes a version with the learn requests, like the control plane.
    /// Sends the version to the coordinator.
    ///
    /// Returns whether there was a learn request.
    pub(crate) fn learn(&mut self) -> bool {
        let (learnings, learn_requests) = self.take_learn_requests();
        if learn_requests.is_empty() {
            return false;
        }
        let change = self.pipeline.learn(&learnings, self.now);
        self.coordinator.take_reports();
        self.send_change(&change, &learn_requests);
        true
    }

    /// Takes the learned facts, and the numbers, of the learn requests of all threads.
    pub(crate) fn take_learn_requests(&mut self) -> (Vec<Learning>, Vec<(OwnerId, LearnSeq)>) {
        let (mut learnings, mut learn_requests) = (Vec::new(), Vec::new());
        for (index, control) in self.controls.iter_mut().enumerate() {
            let owner = OwnerId(u16::try_from(index).unwrap());
            while let Ok(learn_request) = control.learn_requests.as_mut().unwrap().pop() {
                learnings.extend(learn_request.learnings);
                learn_requests.push((owner, learn_request.number));
            }
        }
        (learnings, learn_requests)
    }

    /// Sends changes with the learn requests that they acknowledge.
    /// The coordinator applies all changes together.
    pub(crate) fn send_changes(&mut self, all: impl IntoIterator<Item = LearnedChange>) {
        all.into_iter().for_each(|learned| self.changes.send_learned(learned).unwrap());
        self.coordinator.run_iteration();
    }

    /// Sends a change that acknowledges learn requests to the coordinator.
    pub(crate) fn send_change(&mut self, change: &Change, learn_requests: &[(OwnerId, LearnSeq)]) {
        if change.deltas.is_empty() {
            self.coordinator.ack_learn_requests(learn_requests);
        } else {
            self.coordinator.apply_learned(change.version, &change.deltas, learn_requests);
        }
    }

    /// Applies flow-mods, and runs until every thread has adopted the new version.
    pub(crate) fn apply(&mut self, mods: &[FlowMod]) {
        self.modify(mods.iter().cloned().map(Modification::Flow));
    }

    /// Changes rules, groups and meters; runs until every thread has adopted it.
    pub(crate) fn modify(&mut self, mods: impl IntoIterator<Item = Modification>) {
        let change = self.pipeline.modify(BRIDGE, mods, self.now).unwrap();
        self.change(&change);
        self.settle();
    }

    /// Sends a frame to the receive queue of a packet thread at a port.
    /// Returns `false` if the pair port has no room.
    pub(crate) fn send(&mut self, thread: usize, port: u32, frame: &[u8]) -> bool {
        self.send_with(thread, port, frame, |_| {})
    }

    pub(crate) fn send_with(
        &mut self,
        thread: usize,
        port: u32,
        frame: &[u8],
        change: impl FnOnce(&mut Packet),
    ) -> bool {
        let mut packet = self.pool.take(frame.len(), DatapathPort::new(port)).unwrap();
        packet.frame_mut().copy_from_slice(frame);
        change(&mut packet);
        let packets = [packet];
        let sent = self.hosts.get_mut(&port).unwrap()[thread].tx.tx(&packets);
        packets.into_iter().for_each(|packet| self.pool.put_back(packet));
        self.doorbells[&port][thread].signal();
        sent == 1
    }

    /// Returns the frames that a packet thread has sent on a port, in order.
    pub(crate) fn receive(&mut self, thread: usize, port: u32) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let mut burst = Vec::new();
            let rx = self.hosts.get_mut(&port).unwrap()[thread].rx.as_mut().unwrap();
            rx.rx(&mut self.pool, &mut burst).unwrap();
            if burst.is_empty() {
                return frames;
            }
            for packet in burst {
                frames.push(packet.frame().to_vec());
                self.pool.put_back(packet);
            }
        }
    }

    /// Runs an iteration of a packet thread, and wakes it if it sleeps.
    /// Returns whether the iteration did any work.
    pub(crate) fn run_iteration(&mut self, thread: usize) -> bool {
        if self.controls[thread].is_asleep() {
            self.threads[thread].unpark();
        }
        self.threads[thread].run_iteration(self.now).worked
    }

    /// Makes a packet thread sleep until its next iteration, if it may.
    /// Returns whether the thread sleeps.
    pub(crate) fn sleep(&mut self, thread: usize) -> bool {
        self.threads[thread].prepare_sleep()
    }

    /// Returns whether an event has woken a sleeping packet thread.
    pub(crate) fn is_woken(&self, thread: usize) -> bool {
        is_readable(self.threads[thread].wait_fd())
    }

    /// Runs the coordinator and all packet threads until no work is left.
    pub(crate) fn settle(&mut self) {
        let mut worked = true;
        while worked {
            worked = self.coordinator.run_iteration() | self.learn();
            for thread in 0..self.threads.len() {
                worked |= self.run_iteration(thread);
            }
        }
    }

    pub(crate) fn counters(&self, thread: usize) -> &ThreadCounters {
        self.threads[thread].counters()
    }

    /// Advances the time of the switch.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }
}

/// Returns a pipeline with a bridge that has ports 1 to `ports`.
fn pipeline_of(ports: u32) -> Arc<Pipeline> {
    let pipeline = Arc::new(Pipeline::new(7));
    pipeline.add_bridge(BRIDGE, BridgeSettings::default());
    pipeline.set_ports(BRIDGE, (1..=ports).map(PortInfo::datapath).collect()).unwrap();
    pipeline
}

/// A receive queue that is readable until a poll finds it empty.
struct DoorbellRx {
    queue: Box<dyn RxQueue>,
    doorbell: Arc<Waker>,
}

impl RxQueue for DoorbellRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let before = burst.len();
        let report = self.queue.rx(pool, burst)?;
        // A poll that returns less than a burst has emptied the queue.
        if burst.len() - before + (report.refused as usize) < BURST {
            self.doorbell.unpark();
        }
        Ok(report)
    }

    fn finished(&mut self, count: u64) {
        self.queue.finished(count);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.as_fd())
    }
}

/// Returns a request that adds a rule to table 0.
pub(crate) fn rule(priority: u16, matching: Match, actions: Vec<Action>) -> FlowMod {
    FlowMod {
        command: FlowModCommand::Add,
        table: TableSelector::One(TableId::FIRST),
        matching,
        priority: Priority::new(priority),
        cookie: Cookie::new(0),
        cookie_mask: 0,
        idle_timeout: Duration::ZERO,
        hard_timeout: Duration::ZERO,
        importance: 0,
        flags: FlowFlags::default(),
        out_port: PortNo::ANY,
        out_group: 0xffff_ffff,
        instructions: Instructions { apply: actions.into(), ..Instructions::default() },
    }
}

/// Parses a flow-mod like `ovs-ofctl`.
pub(crate) fn request(command: FlowModCommand, text: &str) -> FlowMod {
    parse_rule(command, text, &NoPortNames).unwrap()
}

/// Parses flow-mods that add rules like `ovs-ofctl add-flow`.
pub(crate) fn added(texts: &[&str]) -> Vec<FlowMod> {
    texts.iter().map(|text| request(FlowModCommand::Add, text)).collect()
}

pub(crate) fn output(port: u32) -> Action {
    Action::Output { port: PortNo::new(port), max_len: 0 }
}

/// An engine that finds no stale entry, so entries that a change makes stale stay.
pub(crate) struct NeverStale;

impl Evictor for NeverStale {
    fn installed(&mut self, _: EntryId, _: &Arc<Traversal>) -> Installed {
        Installed::Recorded
    }

    fn removed(&mut self, _: EntryId) {}

    fn apply(&mut self, _: &[Delta], _: Version) -> Vec<EntryId> {
        Vec::new()
    }

    fn forget(&mut self, _: OwnerId) {}

    fn len(&self) -> usize {
        0
    }
}
