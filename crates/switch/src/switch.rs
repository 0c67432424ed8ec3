//! The public interface of a running switch.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use shunt_datapath::port::{DescriptorStore, NoDescriptorStore, Port};
use shunt_flow::PortNo;
use shunt_kairo::Direct;
#[cfg(feature = "dbsp")]
use shunt_kairo::{Relational, Visits};
use shunt_ofproto::server::ControlTask;
use shunt_pipeline::{
    FlowMod, FlowModCommand, Iterative, Modification, Pipeline, RuleFilter, Version,
    text::parse_rule,
};
use shunt_thread_watch::watched_threads;
use shunt_tls::TlsIdentity;
use tokio::task::JoinHandle;

use crate::{
    bfd_thread::{BfdThread, end_sessions},
    config::{self, Config, EvictionEngine},
    control::ControlPlane,
    declarative::DeclarativeChanges,
    error::SwitchError,
    lacp_task::{leave_partners, run_lacp},
    listening_sockets::ListeningSockets,
    multicast::task::run_multicast,
    openflow::{events::ControlReceivers, servers::OpenFlowServers},
    ports::{capture::CapturedPacket, names::BridgeNames, vlans::MacStatus},
    saved_state,
    status::{
        caches::{CacheStatus, DropStatus},
        chain::RuleSpaceStatus,
        evictions::EvictionStatus,
        forecasts::ForecastStatus,
        table::FlowTableStatus,
        table_link::TableLink,
        thread::{ThreadIteration, ThreadStatus},
    },
    threads::{
        data_plane::EngineMaker,
        listener::PuntReceivers,
        thread_cpus::{ThreadCpus, of_packet_threads},
    },
    trace::{
        entry_explanation::{EntryExplanation, EntryList},
        error::TraceError,
        explain::TracedCaches,
        report::Trace,
    },
    watch,
};

/// A running switch; dropping the value stops it.
pub struct Switch {
    pub(crate) control: Arc<ControlPlane>,
    pub(crate) openflow: Arc<OpenFlowServers>,
    /// The background tasks of the switch.
    tasks: Vec<JoinHandle<()>>,
    /// The thread of the BFD sessions.
    bfd: BfdThread,
}

impl Switch {
    /// Starts a switch: its threads, bridges, ports and OpenFlow connections.
    ///
    /// Bridges have management sockets `<bridge>.mgmt` in `run_dir`, if it is given. `seed` is part
    /// of every hash, so peers cannot choose collisions. The tokio runtime is the caller's.
    ///
    /// # Errors
    ///
    /// If the configuration is not valid, or a port, socket or thread cannot be opened.
    pub async fn start(
        config: &Config,
        run_dir: Option<PathBuf>,
        seed: u64,
    ) -> Result<Self, SwitchError> {
        let (store, tls) = (Arc::new(NoDescriptorStore), TlsIdentity::default());
        Self::start_inheriting(config, run_dir, seed, store, Arc::default(), tls).await
    }

    /// Starts a switch that keeps the queues of its ports for a later process.
    ///
    /// The switch takes the queues that an earlier process stored, and the listening sockets of its
    /// bridges. TLS connections use the key and the certificates of `tls`, which may change later.
    ///
    /// # Errors
    ///
    /// Like [`Self::start`].
    pub async fn start_inheriting(
        config: &Config,
        run_dir: Option<PathBuf>,
        seed: u64,
        descriptors: Arc<dyn DescriptorStore>,
        listening: Arc<ListeningSockets>,
        tls: TlsIdentity,
    ) -> Result<Self, SwitchError> {
        let engine: EngineMaker = match config.eviction.engine {
            EvictionEngine::Direct => {
                Box::new(move |pipeline| Box::new(Direct::new(pipeline.version(), seed)))
            }
            EvictionEngine::Iterative => Box::new(|pipeline| Box::new(Iterative::new(pipeline))),
            #[cfg(feature = "dbsp")]
            EvictionEngine::Visits => {
                Box::new(move |pipeline| Box::new(Visits::new(pipeline.version(), seed)))
            }
            #[cfg(feature = "dbsp")]
            EvictionEngine::Relational => {
                Box::new(move |pipeline| Box::new(Relational::new(pipeline.version(), seed)))
            }
            #[cfg(not(feature = "dbsp"))]
            engine @ (EvictionEngine::Visits | EvictionEngine::Relational) => {
                return Err(SwitchError::EngineNotBuilt(engine.name()));
            }
        };
        Self::start_parts(config, run_dir, seed, engine, descriptors, listening, tls).await
    }

    /// Starts a switch with an eviction engine that the caller supplies.
    ///
    /// The engine of the configuration is ignored.
    ///
    /// # Errors
    ///
    /// Like [`Self::start`].
    pub async fn start_with(
        config: &Config,
        run_dir: Option<PathBuf>,
        seed: u64,
        engine: EngineMaker,
    ) -> Result<Self, SwitchError> {
        let (store, tls) = (Arc::new(NoDescriptorStore), TlsIdentity::default());
        Self::start_parts(config, run_dir, seed, engine, store, Arc::default(), tls).await
    }

    /// Starts the threads and the parts of the control plane.
    async fn start_parts(
        config: &Config,
        run_dir: Option<PathBuf>,
        seed: u64,
        engine: EngineMaker,
        descriptors: Arc<dyn DescriptorStore>,
        listening: Arc<ListeningSockets>,
        tls: TlsIdentity,
    ) -> Result<Self, SwitchError> {
        let (control, receivers) =
            ControlPlane::start(config, run_dir.as_deref(), seed, engine, descriptors)?;
        let ControlReceivers { events, punts } = receivers;
        let PuntReceivers { packet_ins, lacp_frames, bfd_packets, multicast_messages } = punts;
        control.structure().await.apply_nic().await?;
        let openflow = Arc::new(OpenFlowServers::new(&control, run_dir, tls, listening));
        let mut tasks = vec![
            tokio::spawn(ControlTask::new(
                "bridges and packet-ins",
                Arc::clone(&openflow).run(events, packet_ins),
            )),
            tokio::spawn(ControlTask::new("LACP", run_lacp(Arc::clone(&control), lacp_frames))),
            tokio::spawn(ControlTask::new(
                "multicast snooping",
                run_multicast(Arc::clone(&control), multicast_messages),
            )),
            tokio::spawn(ControlTask::new("removed rules", Arc::clone(&openflow).notify_removed())),
        ];
        tasks.extend(watch::start(&control));
        tasks.extend(control.exports.spawn());
        let bfd = BfdThread::start(Arc::clone(&control), bfd_packets)?;
        let switch = Self { control, openflow, tasks, bfd };
        for bridge in &config.bridges {
            switch.add_bridge(bridge).await?;
        }
        Ok(switch)
    }

    /// Returns the key and the certificates of TLS connections.
    #[must_use]
    pub fn tls(&self) -> &TlsIdentity {
        self.openflow.tls()
    }

    /// Returns the listening sockets that outlive the process.
    #[must_use]
    pub fn listening_sockets(&self) -> &Arc<ListeningSockets> {
        self.openflow.listening()
    }

    /// Returns the directory with the management sockets of the bridges.
    #[must_use]
    pub fn run_dir(&self) -> Option<&Path> {
        self.openflow.run_dir()
    }

    /// Adds a port that the caller supplies; returns the port number.
    ///
    /// # Errors
    ///
    /// If the name is in use, or the port cannot be split into queues.
    pub async fn add_own_port(
        &self,
        bridge: &str,
        name: &str,
        port: Box<dyn Port>,
    ) -> Result<PortNo, SwitchError> {
        self.control.structure().await.add_own_port(bridge, name, port).await
    }

    /// Returns an interface for programs that declare the state of the switch.
    #[must_use]
    pub fn declarative(&self) -> DeclarativeChanges<'_> {
        DeclarativeChanges { switch: self, control: &self.control }
    }

    /// Adds rules in the syntax of `ovs-ofctl add-flows`, as one version.
    ///
    /// Returns when no packet can match a replaced rule.
    ///
    /// # Errors
    ///
    /// If a text is not a rule, or a rule is refused. After an error, no rule was added.
    pub async fn add_rules(&self, bridge: &str, rules: &[&str]) -> Result<Version, SwitchError> {
        let id = self.control.bridges.id(bridge)?;
        let names = BridgeNames::new(self.control.plane.pipeline(), id);
        let parsed: Result<Vec<FlowMod>, _> =
            rules.iter().map(|rule| parse_rule(FlowModCommand::Add, rule, &names)).collect();
        self.apply_flow_mods(bridge, &parsed?).await
    }

    /// Applies flow-mods as one version.
    ///
    /// Returns when no packet can match a replaced rule.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist or a flow-mod is refused; then no flow-mod was applied.
    pub async fn apply_flow_mods(
        &self,
        bridge: &str,
        mods: &[FlowMod],
    ) -> Result<Version, SwitchError> {
        self.modify(bridge, mods.iter().cloned().map(Modification::Flow).collect()).await
    }

    /// Changes rules, groups and meters as one version.
    ///
    /// Returns when no packet can use a replaced object.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist or a change is refused. After an error, no change was applied.
    pub async fn modify(
        &self,
        bridge: &str,
        mods: Vec<Modification>,
    ) -> Result<Version, SwitchError> {
        let id = self.control.bridges.id(bridge)?;
        let plane = &self.control.plane;
        let now = plane.now();
        let version = plane.publisher().change(|pipeline| pipeline.modify(id, mods, now))?;
        plane.adopted(version).await;
        Ok(version)
    }

    /// Returns the number of rules of a bridge that match a filter.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist.
    pub fn rules_count(&self, bridge: &str, filter: &RuleFilter) -> Result<usize, SwitchError> {
        let id = self.control.bridges.id(bridge)?;
        Ok(self.control.plane.pipeline().rules(id, filter).len())
    }

    /// Waits until every packet thread has reported its counts up to now.
    pub async fn pull_counts(&self) {
        self.control.plane.pull().await;
    }

    /// Waits until every packet thread uses all learned rules and MAC addresses.
    pub async fn wait_until_learned(&self) {
        self.control.plane.wait_until_learned().await;
    }

    /// Returns the learned and static MAC addresses, by VLAN.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist.
    pub async fn macs(&self, bridge: &str) -> Result<Vec<MacStatus>, SwitchError> {
        let id = self.control.bridges.id(bridge)?;
        Ok(MacStatus::of_bridge(&self.control.plane, id).await)
    }

    /// Removes all learned MAC addresses of one bridge, or of all bridges.
    ///
    /// Static addresses stay.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist.
    pub async fn flush_macs(&self, bridge: Option<&str>) -> Result<(), SwitchError> {
        let ids = self.control.bridges.lock().ids(bridge)?;
        let plane = &self.control.plane;
        for id in ids {
            let flush = |pipeline: &Pipeline| Ok::<_, SwitchError>(pipeline.flush_macs(id));
            let version = plane.publisher().change(flush)?;
            plane.adopted(version).await;
        }
        Ok(())
    }

    /// Returns the outcomes of forecasts, by origin.
    #[must_use]
    pub fn forecasts(&self) -> ForecastStatus {
        ForecastStatus::of(&self.control.plane)
    }

    /// Returns the names of the settings that [`Self::set`] can change.
    #[must_use]
    pub const fn settings() -> &'static [&'static str] {
        config::setting::KEYS
    }

    /// Returns the settings in force, without the bridges.
    #[must_use]
    pub fn config(&self) -> Config {
        self.control.config.lock().clone()
    }

    /// Returns the configuration in force, without the overrides of settings.
    ///
    /// The state has all bridges, and the ports that the switch opens itself.
    #[must_use]
    pub fn running_config(&self) -> Config {
        saved_state::running_config(&self.control)
    }

    /// Returns the options in force of a bridge, without its ports.
    #[must_use]
    pub fn bridge_options(&self, name: &str) -> Option<config::BridgeOptions> {
        let bridges = self.control.bridges.lock();
        bridges.find(name).ok().map(|bridge| bridge.settings.clone())
    }

    /// Returns the newest version, which grows with every change of rules and ports.
    #[must_use]
    pub fn version(&self) -> Version {
        self.control.plane.pipeline().version()
    }

    /// Changes several settings in one step, by key and value.
    ///
    /// # Errors
    ///
    /// If a setting does not exist, or a value is out of range; then no setting has changed.
    pub async fn set(&self, settings: &[(&str, &str)]) -> Result<(), SwitchError> {
        self.control.structure().await.set(settings).await
    }

    /// Removes the cache entries of all packet threads.
    pub async fn empty_caches(&self) {
        self.control.plane.empty_caches().await;
    }

    /// Starts a packet capture at a port, or of dropped packets at `drops`.
    ///
    /// Returns the number of the capture, for [`Self::read_capture`].
    ///
    /// # Errors
    ///
    /// If the port does not exist, or too many captures are in progress.
    pub async fn start_capture(&self, place: &str) -> Result<u64, SwitchError> {
        self.control.start_capture(place).await
    }

    /// Returns captured packets since the last call, as many as fit one reply.
    ///
    /// An empty reply means that no packet is left. `None` if the capture does not exist.
    #[must_use]
    pub fn read_capture(&self, id: u64) -> Option<Vec<CapturedPacket>> {
        self.control.captures.read(id)
    }

    /// Stops a capture.
    ///
    /// Returns the number of packets that the capture lost, or `None` if it does not exist.
    pub async fn stop_capture(&self, id: u64) -> Option<u64> {
        self.control.captures.stop(id).await
    }

    /// Traces a packet through the tables.
    ///
    /// `flow` is a match in the syntax of `ovs-ofctl`, a frame in hexadecimal, or both.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or `flow` is not valid.
    pub fn trace(&self, bridge: &str, flow: &str) -> Result<Trace, TraceError> {
        let caches = self.control.config.lock().caches.clone();
        let nic = self.control.nic.front();
        let caches = TracedCaches { threads: &caches, nic: nic.as_deref() };
        self.control.tracer().trace(bridge, flow, caches)
    }

    /// Returns the status of the threads.
    ///
    /// The list has the packet threads; the eviction, learner, listener, foresight and BFD threads;
    /// and the offload thread of a NIC.
    #[must_use]
    pub fn threads(&self) -> Vec<ThreadStatus> {
        let mut threads = self.control.plane.thread_states();
        threads.push(self.bfd.status());
        threads
    }

    /// Returns [`Self::threads`], with CPUs and receive queues of packet threads.
    #[must_use]
    pub fn threads_and_queues(&self) -> Vec<ThreadStatus> {
        let mut threads = self.threads();
        for queue in self.control.loads.status(&self.control) {
            // The packet threads are first.
            if let Some(own) = threads.get_mut(queue.thread) {
                own.queues.push(queue);
            }
        }
        for (number, ThreadCpus { cpus, numa_node }) in of_packet_threads(Path::new("/")) {
            // Another switch of this process may have more packet threads.
            let own = threads.get_mut(number).filter(|own| own.iterations.is_some());
            if let Some(own) = own {
                (own.cpus, own.numa_node) = (Some(cpus), numa_node);
            }
        }
        threads
    }

    /// Returns the packet threads that have not replied to a ping within `limit`.
    pub async fn stalled_packet_threads(&self, limit: Duration) -> Vec<usize> {
        self.control.plane.stalled_threads(limit).await
    }

    /// Returns the threads other than packet threads that are in an iteration.
    ///
    /// The result also has the threads of the process that are in no switch
    /// ([`watched_threads`]). A thread hangs if it is in the same iteration for a long time.
    #[must_use]
    pub fn current_iterations(&self) -> Vec<ThreadIteration> {
        let of_plane = self.control.plane.current_iterations().into_iter();
        let own = of_plane.chain(self.bfd.current_iteration());
        let own = own.map(|(name, iteration)| ThreadIteration::of_switch(name, iteration));
        own.chain(watched_threads().iter().filter_map(ThreadIteration::of_record)).collect()
    }

    /// Returns the number of completed runs of the periodic upkeep.
    ///
    /// The upkeep runs every half second, and waits for a reply of each packet thread.
    #[must_use]
    pub fn upkeep_runs(&self) -> u64 {
        self.control.upkeep_runs.load(Ordering::Relaxed)
    }

    /// Returns the status of tables that have rules, or had lookups.
    ///
    /// Packet threads have published the packet counters at their last upkeep.
    #[must_use]
    pub fn tables(&self) -> Vec<FlowTableStatus> {
        FlowTableStatus::of_all(&self.control.bridges.lock(), self.control.plane.pipeline())
    }

    /// Returns the links between the tables of each bridge with at most 1000 rules.
    ///
    /// Packet threads have published the packet counters at their last upkeep.
    #[must_use]
    pub fn table_links(&self) -> Vec<TableLink> {
        TableLink::of_all(&self.control.bridges.lock(), self.control.plane.pipeline())
    }

    /// Returns the cache counters, summed over packet threads.
    #[must_use]
    pub fn caches(&self) -> CacheStatus {
        let config = self.control.config.lock().caches.clone();
        CacheStatus::of(&self.control.plane, &config, self.control.nic.status())
    }

    /// Returns the cache counters, together with the rule-space coverage.
    ///
    /// Packet threads read all of their entries for this call, some in each poll loop iteration.
    pub async fn caches_with_rule_space(&self) -> CacheStatus {
        let mut status = self.caches();
        if status.gigaflow.is_some() {
            status.rule_space = RuleSpaceStatus::of_threads(&self.control.plane).await;
        }
        if let Some(nic) = &mut status.nic {
            nic.rule_space = Some(RuleSpaceStatus::of_nic(&self.control.nic).await);
        }
        status
    }

    /// Returns the state and statistics of cache evictions.
    ///
    /// # Errors
    ///
    /// If the eviction thread has panicked.
    pub async fn evictions(&self) -> Result<EvictionStatus, SwitchError> {
        EvictionStatus::of(&self.control.plane, &self.control.bridges).await
    }

    /// Returns the most used cache entries of all packet threads and of the NIC.
    ///
    /// `count` limits the entries; 0: all. Packet threads read out entries, some in each iteration.
    pub async fn entries(&self, count: usize) -> EntryList {
        self.control.entries().list(count).await
    }

    /// Explains why a cache entry is valid, or why it was evicted.
    ///
    /// # Errors
    ///
    /// If the text is not the name of an entry, or the entry neither exists nor was evicted lately.
    pub async fn explain_entry(&self, entry: &str) -> Result<EntryExplanation, SwitchError> {
        self.control.entries().explain(entry).await
    }

    /// Returns the packet counters of the switch, and every loss by reason and by port.
    #[must_use]
    pub fn drops(&self) -> DropStatus {
        let (bridges, removed) = self.bridges_and_losses(None);
        let status = DropStatus::of(&self.control.plane, &bridges, &removed);
        let snooping_inbox_full = self.control.multicast.lost();
        DropStatus { packet_ins: self.openflow.packet_ins(), snooping_inbox_full, ..status }
    }

    /// Prepares the end of the switch; must be the last call.
    ///
    /// Reports the remaining flows of NetFlow and IPFIX for some seconds. Ends LACP and BFD with
    /// the other ends, and removes the entries of an external NIC within a short time.
    pub async fn stop(&self) {
        // The datagrams with these flows may be sent on ports of the switch.
        self.control.exports.stop().await;
        let (plane, bridges) = (&self.control.plane, &self.control.bridges);
        leave_partners(plane, bridges, |_, _, _| true).await;
        end_sessions(plane, bridges.bfd(), |_| true).await;
        self.control.nic.empty_before_stop().await;
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.bfd.stop();
        self.control.plane.stop();
        self.control.bridges.close_devices();
    }
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch").field("bridges", &self.bridges()).finish_non_exhaustive()
    }
}
