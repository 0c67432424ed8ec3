//! The switch itself: what an embedder and the daemon hold.

use std::{convert::Infallible, path::PathBuf, sync::Arc, time::Duration};

use shunt_datapath::port::Port;
use shunt_flow::PortNo;
use shunt_kairo::Direct;
#[cfg(feature = "dbsp")]
use shunt_kairo::{Relational, Visits};
use shunt_pipeline::{
    FlowMod, FlowModCommand, Iterative, Modification, Pipeline, RuleFilter, Version,
    text::parse_rule,
};
use tokio::task::JoinHandle;

use crate::{
    config::{self, Config, Engine},
    control::Control,
    error::SwitchError,
    openflow::servers::OpenFlow,
    ports::{capture::CapturedPacket, names::BridgeNames, vlans::MacStatus},
    status::{
        bridge::BridgeStatus,
        caches::{CacheStatus, DropStatus},
        evictions::EvictionStatus,
        thread::ThreadStatus,
    },
    threads::data_plane::EngineMaker,
    trace::{
        error::TraceError,
        report::Trace,
        why::{EntryList, Why},
    },
};

/// How often rules and ports are looked after.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(500);

/// How often threads are looked after: so long may somebody wait for one that has ended.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// A running switch; it stops when dropped.
pub struct Switch {
    control: Arc<Control>,
    openflow: Arc<OpenFlow>,
    tasks: Vec<JoinHandle<()>>,
}

impl Switch {
    /// Starts a switch: its threads, its bridges with their ports, and its OpenFlow connections.
    ///
    /// `run_dir` is where each bridge puts its management socket, `<bridge>.mgmt`; without it there
    /// are none. `seed` goes into every hash: a different one for each run keeps peers from choosing
    /// collisions. Runs on the tokio runtime of the caller.
    ///
    /// # Errors
    ///
    /// When the configuration makes no sense, or a port, socket or thread cannot be had.
    pub async fn start(
        config: &Config,
        run_dir: Option<PathBuf>,
        seed: u64,
    ) -> Result<Self, SwitchError> {
        let engine: EngineMaker = match config.eviction.engine {
            Engine::Direct => {
                Box::new(move |pipeline| Box::new(Direct::new(pipeline.version(), seed)))
            }
            Engine::Iterative => Box::new(|pipeline| Box::new(Iterative::new(pipeline))),
            #[cfg(feature = "dbsp")]
            Engine::Visits => {
                Box::new(move |pipeline| Box::new(Visits::new(pipeline.version(), seed)))
            }
            #[cfg(feature = "dbsp")]
            Engine::Relational => {
                Box::new(move |pipeline| Box::new(Relational::new(pipeline.version(), seed)))
            }
            #[cfg(not(feature = "dbsp"))]
            engine @ (Engine::Visits | Engine::Relational) => {
                return Err(SwitchError::EngineNotBuilt(engine.name()));
            }
        };
        Self::start_with(config, run_dir, seed, engine).await
    }

    /// As [`Self::start`], with an eviction engine of the caller's, made of the tables that it is to
    /// watch, whatever the configuration says of it.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub async fn start_with(
        config: &Config,
        run_dir: Option<PathBuf>,
        seed: u64,
        engine: EngineMaker,
    ) -> Result<Self, SwitchError> {
        let (control, news) = Control::start(config, run_dir, seed, engine)?;
        control.apply_nic().await?;
        let openflow = Arc::new(OpenFlow::new(Arc::clone(&control)));
        let tasks = vec![
            tokio::spawn(Arc::clone(&openflow).run(news)),
            tokio::spawn(Arc::clone(&openflow).tell_removed()),
            tokio::spawn(upkeep(Arc::clone(&control))),
            tokio::spawn(watch_threads(Arc::clone(&control))),
            tokio::spawn(watch_ports(Arc::clone(&control))),
        ];
        let switch = Self { control, openflow, tasks };
        for bridge in &config.bridges {
            switch.add_bridge(bridge).await?;
        }
        Ok(switch)
    }

    /// Adds a bridge and its ports.
    ///
    /// # Errors
    ///
    /// When a name or number is taken, or a port does not open.
    pub async fn add_bridge(&self, bridge: &config::Bridge) -> Result<(), SwitchError> {
        self.control.add_bridge(bridge).await
    }

    /// Removes a bridge with its ports and rules.
    ///
    /// # Errors
    ///
    /// When there is none of this name.
    pub async fn remove_bridge(&self, name: &str) -> Result<(), SwitchError> {
        self.control.remove_bridge(name).await
    }

    /// Adds a port to a bridge.
    ///
    /// # Errors
    ///
    /// When a name or number is taken, or the port does not open.
    pub async fn add_port(&self, bridge: &str, port: config::Port) -> Result<(), SwitchError> {
        self.control.add_port(bridge, port).await
    }

    /// Adds a port that the caller brings; answers with its number.
    ///
    /// # Errors
    ///
    /// When the name is taken, or the port cannot be split.
    pub async fn add_own_port(
        &self,
        bridge: &str,
        name: &str,
        port: Box<dyn Port>,
    ) -> Result<PortNo, SwitchError> {
        self.control.add_own_port(bridge, name, port).await
    }

    /// Removes a port.
    ///
    /// # Errors
    ///
    /// When there is none of this name, or it is a bridge's own.
    pub async fn remove_port(&self, name: &str) -> Result<(), SwitchError> {
        self.control.remove_port(name).await
    }

    /// Adds rules as `ovs-ofctl add-flows` reads them, as one version; returns when no packet can
    /// meet what they replaced.
    ///
    /// # Errors
    ///
    /// When a text is not a rule, or a rule is refused; then none is added.
    pub async fn add_rules(&self, bridge: &str, rules: &[&str]) -> Result<Version, SwitchError> {
        let id = self.control.bridges.lock().find(bridge)?.id;
        let names = BridgeNames::new(&self.control.plane.pipeline, id);
        let parsed: Result<Vec<FlowMod>, _> =
            rules.iter().map(|rule| parse_rule(FlowModCommand::Add, rule, &names)).collect();
        self.apply(bridge, &parsed?).await
    }

    /// Applies flow-mods as one version; returns when no packet can meet what they replaced.
    ///
    /// # Errors
    ///
    /// When there is no such bridge or one is refused; then none is applied.
    pub async fn apply(&self, bridge: &str, mods: &[FlowMod]) -> Result<Version, SwitchError> {
        self.modify(bridge, mods.iter().cloned().map(Modification::Flow).collect()).await
    }

    /// Changes rules, groups and meters as one version; returns when no packet can meet what they
    /// replaced.
    ///
    /// # Errors
    ///
    /// When there is no such bridge or one is refused; then none is applied.
    pub async fn modify(
        &self,
        bridge: &str,
        mods: Vec<Modification>,
    ) -> Result<Version, SwitchError> {
        let id = self.control.bridges.lock().find(bridge)?.id;
        let now = self.control.plane.clock.now();
        let version = self.control.change(|pipeline| pipeline.modify(id, mods, now))?;
        self.control.plane.adopted(version).await;
        Ok(version)
    }

    /// Number of rules of a bridge that a filter lets through.
    ///
    /// # Errors
    ///
    /// When there is no such bridge.
    pub fn rules_count(&self, bridge: &str, filter: &RuleFilter) -> Result<usize, SwitchError> {
        let id = self.control.bridges.lock().find(bridge)?.id;
        Ok(self.control.plane.pipeline.rules(id, filter).len())
    }

    /// Waits until every packet thread has handed in what it counted until now.
    pub async fn pull_counts(&self) {
        self.control.plane.pull().await;
    }

    /// Waits until all that packets have taught so far (rules, by `learn`, and MAC addresses) is true
    /// on every packet thread.
    pub async fn learned(&self) {
        self.control.plane.learned().await;
    }

    /// Gives a port, by its name, the VLANs of `port`: `vlan_mode`, `tag` and `trunks`. Its other
    /// settings stay. Returns when no packet meets the old ones.
    ///
    /// # Errors
    ///
    /// When there is no such port, or no such VLAN.
    pub async fn set_vlans(&self, port: config::Port) -> Result<(), SwitchError> {
        self.control.set_vlans(port).await
    }

    /// The MAC addresses that `NORMAL` knows in a bridge, by VLAN.
    ///
    /// # Errors
    ///
    /// When there is no such bridge.
    pub async fn macs(&self, bridge: &str) -> Result<Vec<MacStatus>, SwitchError> {
        self.control.macs(bridge).await
    }

    /// Forgets the MAC addresses of a bridge, or of all.
    ///
    /// # Errors
    ///
    /// When there is no such bridge.
    pub async fn flush_macs(&self, bridge: Option<&str>) -> Result<(), SwitchError> {
        self.control.flush_macs(bridge).await
    }

    /// The settings that [`Self::set`] can change.
    #[must_use]
    pub const fn settings() -> &'static [&'static str] {
        config::setting::SETTINGS
    }

    /// The configuration in force, without the bridges.
    #[must_use]
    pub fn config(&self) -> Config {
        self.control.config.lock().clone()
    }

    /// Changes settings at once while the switch runs, each by its name and its value as the
    /// configuration spells them.
    ///
    /// # Errors
    ///
    /// When there is no such setting, or a value is out of its range; then none is changed.
    pub async fn set(&self, settings: &[(&str, &str)]) -> Result<(), SwitchError> {
        self.control.set(settings).await
    }

    /// Starts to copy packets at a port, or at `drops`; answers with the capture's number.
    ///
    /// # Errors
    ///
    /// When there is no such port, or too many captures run.
    pub async fn start_capture(&self, place: &str) -> Result<u64, SwitchError> {
        self.control.start_capture(place).await
    }

    /// Takes what a capture has seen since the last time, as much as one answer holds: nothing is left
    /// when the answer is empty. `None` without such a capture.
    #[must_use]
    pub fn read_capture(&self, id: u64) -> Option<Vec<CapturedPacket>> {
        self.control.read_capture(id)
    }

    /// Ends a capture; answers how many packets found no room, or `None` without such a capture.
    pub async fn stop_capture(&self, id: u64) -> Option<u64> {
        self.control.stop_capture(id).await
    }

    /// Explains the fate of a packet: `flow` is a match as `ovs-ofctl` spells it, a frame in
    /// hexadecimal, or both.
    ///
    /// # Errors
    ///
    /// When there is no such bridge, or the text is neither.
    pub fn trace(&self, bridge: &str, flow: &str) -> Result<Trace, TraceError> {
        self.control.trace(bridge, flow)
    }

    /// The bridges and their ports.
    #[must_use]
    pub fn bridges(&self) -> Vec<BridgeStatus> {
        self.openflow.bridge_status()
    }

    /// The threads: those of packets, then the one of evictions, the learner, the listener, and that of
    /// a NIC.
    #[must_use]
    pub fn threads(&self) -> Vec<ThreadStatus> {
        self.control.plane.thread_states()
    }

    /// The caches, summed over packet threads.
    #[must_use]
    pub fn caches(&self) -> CacheStatus {
        self.control.cache_status()
    }

    /// As [`Self::caches`], with how many ways the entries of chains make together, and those of a NIC.
    /// Packet threads look at all of their entries for that, some of them a turn.
    pub async fn caches_with_coverage(&self) -> CacheStatus {
        let mut status = self.caches();
        if status.chain.is_some() {
            status.coverage = self.control.coverage().await;
        }
        if let Some(nic) = &mut status.nic {
            nic.coverage = Some(self.control.coverage_of_nic().await);
        }
        status
    }

    /// How evictions go: what the engine keeps, how long changes take, what they ended and why.
    ///
    /// # Errors
    ///
    /// When the eviction thread has ended by a panic.
    pub async fn evictions(&self) -> Result<EvictionStatus, SwitchError> {
        self.control.eviction_status().await
    }

    /// The cache entries of all packet threads, those with most packets first: so many; 0: all. Packet
    /// threads look at all of their entries for that, some of them a turn.
    pub async fn entries(&self, count: usize) -> EntryList {
        self.control.entries(count).await
    }

    /// Why a cache entry, as [`Self::entries`] names it, is there, or what ended it.
    ///
    /// # Errors
    ///
    /// When it is no entry, or not there, and not one of those that were evicted last.
    pub async fn why(&self, entry: &str) -> Result<Why, SwitchError> {
        self.control.why(entry).await
    }

    /// Where packets went, summed over packet threads.
    #[must_use]
    pub fn drops(&self) -> DropStatus {
        self.control.drop_status()
    }

    /// Prepares for the end: a NIC elsewhere is emptied as far as it answers soon, since nobody sees to its
    /// rules afterwards. To be called last, before the switch is dropped.
    pub async fn stop(&self) {
        self.control.take_leave().await;
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.control.plane.stop();
    }
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch").field("bridges", &self.bridges()).finish_non_exhaustive()
    }
}

/// Looks after threads. A task of its own: others may wait for the answer of one that has ended.
async fn watch_threads(control: Arc<Control>) {
    let mut interval = tokio::time::interval(WATCH_INTERVAL);
    loop {
        interval.tick().await;
        control.watch_threads().await;
        control.watch_nic().await;
    }
}

/// Looks after ports. A task of its own: it waits for ports that are being opened, and rules expire
/// meanwhile.
async fn watch_ports(control: Arc<Control>) {
    let mut interval = tokio::time::interval(UPKEEP_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        control.watch_ports().await;
    }
}

/// Looks after rules that expire, versions that nobody sees any more, captures that nobody reads, and
/// cache entries that were wrong.
async fn upkeep(control: Arc<Control>) {
    let mut interval = tokio::time::interval(UPKEEP_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let plane = &control.plane;
        // A rule whose timeout passed before this moment goes only if the counts that threads hand
        // in from now on do not credit it with a hit in time.
        let now = plane.clock.now();
        plane.pull().await;
        let expire = |pipeline: &Pipeline| Ok::<_, Infallible>(pipeline.expire(now));
        let Ok(_) = control.change(expire);
        control.reclaim();
        control.end_unread_captures().await;
        control.tell_differences();
    }
}
