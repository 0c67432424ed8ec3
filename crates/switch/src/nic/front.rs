//! The NIC that a switch has now, and how it gives way to another.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shunt_datapath::{
    offload::{OffloadHandle, OffloadState},
    port::Port,
};
use shunt_flow::PortNo;
use shunt_gigaflow::{offload::OffloadCapabilities, partition::PolicyName};
use shunt_nic::{Nic, NicCounters, NicLimits, NicPorts};
use shunt_p4runtime::{
    client::{LivePorts, P4RuntimeDevice, Settings, Trouble},
    program::Program,
    server::Now,
};
use shunt_pipeline::{BridgeId, DatapathPort};
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tracing::{info, warn};

use super::{Successors, exchange::Before};
use crate::{
    config::{self, OffloadKind, StalePolicy},
    error::SwitchError,
    threads::clock::Clock,
};

/// What the data plane has for a target: the owner's thread, and where targets go.
pub(crate) struct Target {
    /// To ask the owner, and to wake it.
    pub(crate) handle: OffloadHandle,
    /// Where it gets targets from.
    pub(crate) next: Successors<P4RuntimeDevice>,
    /// Where its owner cuts ways, for good.
    pub(crate) policy: PolicyName,
}

/// The NIC in front of a bridge.
pub(crate) struct NicFront {
    target: Target,
    layout: Layout,
    /// The bridge whose ports it has, by its name and by the number that it has, or will have.
    pub(crate) bridge: (String, BridgeId),
    clock: Clock,
    seed: u64,
    state: Mutex<State>,
}

/// The stages that an owner is laid out for, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    stages: u8,
    stage_entries: u32,
}

impl Layout {
    pub(crate) const fn of(config: &config::Target) -> Self {
        Self { stages: config.stages, stage_entries: config.stage_entries }
    }
}

#[derive(Default)]
struct State {
    /// What is in force.
    config: config::Target,
    embedded: Option<Embedded>,
    /// The ports that it can send to.
    ports: LivePorts,
    /// Why it is lost.
    trouble: Trouble,
    /// The ports by which packets come in at it.
    at_nic: BTreeSet<PortNo>,
    /// Whether packets may be under way in a NIC that was given up: one elsewhere goes on.
    goes_on: bool,
}

/// A NIC in this process; it stops when this is dropped.
struct Embedded {
    address: SocketAddr,
    ports: NicPorts,
    traffic: Arc<NicCounters>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Embedded {
    /// Stops it, and waits until it has no rules any more.
    async fn end(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            warn!(%error, "the embedded NIC has stopped");
        }
    }
}

/// The highest number of a port that a NIC has: those above are reserved in 16 bits.
pub(crate) const NUMBER_MAX: u32 = 0xfeff;

/// How long a NIC may take to be emptied where somebody waits for it.
const STOP_MAX: Duration = Duration::from_secs(2);

/// How often it is looked at meanwhile.
const STOP_POLL: Duration = Duration::from_millis(1);

/// Pause before a NIC that is lost is tried again, at first.
const RETRY: Duration = Duration::from_millis(50);

impl NicFront {
    /// A front without a NIC, of the bridge with this name and number.
    pub(crate) fn new(
        (target, layout): (Target, Layout),
        bridge: (String, BridgeId),
        (clock, seed): (Clock, u64),
    ) -> Self {
        target.handle.set_ports(Some(BTreeSet::new()));
        Self { target, layout, bridge, clock, seed, state: Mutex::default() }
    }

    /// Whether there is a NIC, or is to be.
    pub(crate) fn has_nic(&self) -> bool {
        !self.state.lock().config.is_none()
    }

    /// Waits until a NIC that was given up is empty and the packets that were in it have left: tags of
    /// another owner begin with the same numbers.
    ///
    /// # Errors
    ///
    /// When it is not emptied soon.
    pub(crate) async fn is_drained(&self) -> Result<(), SwitchError> {
        if !self.is_left().await {
            return Err(SwitchError::NicLeaving);
        }
        let (drain, goes_on) = {
            let state = self.state.lock();
            (state.config.drain(), state.goes_on)
        };
        if goes_on {
            sleep(drain).await;
        }
        Ok(())
    }

    /// Whether a NIC may stand here that this is said of.
    ///
    /// # Errors
    ///
    /// When its stages or its bridge are not those that the owner is laid out for.
    pub(crate) fn check(&self, config: &config::Target) -> Result<(), SwitchError> {
        let is_alike = self.bridge.0 == config.bridge && self.layout == Layout::of(config);
        if config.is_none() || is_alike {
            return Ok(());
        }
        Err(SwitchError::Range {
            setting: "caches.gigaflow.target",
            value: format!(
                "{} stages of {} entries in front of {}",
                config.stages, config.stage_entries, config.bridge
            ),
            range: "laid out like the NIC that is there: to change its stages or its bridge, set \
                    caches.gigaflow.target.kind to none first",
        })
    }

    /// Has the NIC that the configuration says. Answers whether ports are to be opened anew, since
    /// another NIC stands in front of them now, or none.
    ///
    /// # Errors
    ///
    /// When the embedded NIC does not run; then all is as before, unless it was to have the socket of the
    /// one before, which is lost then.
    pub(crate) async fn apply(&self, config: &config::Target) -> Result<bool, SwitchError> {
        let before = self.state.lock().config.clone();
        if before.is_driven_like(config) {
            self.state.lock().config = config.clone();
            return Ok(false);
        }
        let is_behind = before.kind == OffloadKind::Embedded || !config.is_none();
        let in_the_way = self.take_embedded_at(config);
        let has_ended = in_the_way.is_some();
        if let Some(old) = in_the_way {
            old.end().await;
        }
        let embedded = match config.kind {
            OffloadKind::Embedded => Some(self.start(config).await?),
            OffloadKind::None | OffloadKind::P4runtime => None,
        };
        let address = match (&embedded, config.kind) {
            (Some(embedded), _) => Some(embedded.address.to_string()),
            (None, OffloadKind::P4runtime) => Some(config.address.clone()),
            (None, OffloadKind::Embedded | OffloadKind::None) => None,
        };
        // What the one before it is asked to remove, it is asked in the words of before.
        let (ports, trouble) = (LivePorts::default(), Trouble::default());
        let shared = (ports.clone(), trouble.clone());
        let target = address.map(|address| self.target(config, &address, shared));
        let old = {
            let state = &mut *self.state.lock();
            (state.config, state.ports, state.trouble) = (config.clone(), ports, trouble);
            state.goes_on = before.kind == OffloadKind::P4runtime;
            state.at_nic.clear();
            std::mem::replace(&mut state.embedded, embedded)
        };
        if before.kind != OffloadKind::None {
            let (bridge, next) = (&self.bridge.0, config.kind);
            info!(bridge, ?next, "the NIC in front of the bridge gives way: it is lost, as asked");
        }
        self.target.handle.set_ports(Some(BTreeSet::new()));
        let before = if old.is_some() || has_ended { Before::Ended } else { Before::Runs };
        if let Some(old) = old {
            // Packets are not to meet its rules once a version was answered without it.
            old.end().await;
        }
        self.target.next.send(target, before);
        self.target.handle.wake();
        Ok(is_behind)
    }

    /// The embedded NIC, if it has the socket that another one is to have.
    fn take_embedded_at(&self, config: &config::Target) -> Option<Embedded> {
        let address = Some(config.address.parse().ok()?);
        let state = &mut *self.state.lock();
        let has_it = state.embedded.as_ref().map(|embedded| embedded.address) == address;
        if config.kind == OffloadKind::Embedded && has_it { state.embedded.take() } else { None }
    }

    async fn start(&self, config: &config::Target) -> Result<Embedded, SwitchError> {
        let system = |error: Box<dyn std::error::Error + Send + Sync>| SwitchError::System {
            doing: "start the embedded NIC".to_owned(),
            source: std::io::Error::other(error),
        };
        let address: SocketAddr =
            config.address.parse().map_err(|error| system(Box::new(error)))?;
        let limits = NicLimits {
            masks_max: (config.masks > 0).then_some(config.masks),
            key_bits_max: (config.key_bits > 0).then_some(config.key_bits),
            update_latency: Duration::from_micros(config.update_us),
        };
        let program = program(config);
        let clock: fn() -> Now = Clock::of_nic;
        let nic = Nic::start(program, limits, Vec::new(), address, clock, self.seed).await;
        let nic = nic.map_err(|error| system(Box::new(error)))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (address, ports, traffic) = (nic.address(), nic.ports(), nic.traffic());
        let task = tokio::spawn(async move {
            // It is never told so: that the other end is gone is enough.
            let stopped = async {
                let _ = stopped.await;
            };
            if let Err(error) = nic.run(stopped).await {
                warn!(%error, "the embedded NIC has stopped");
            }
        });
        Ok(Embedded { address, ports, traffic, stop, task })
    }

    fn target(
        &self,
        config: &config::Target,
        address: &str,
        (ports, trouble): (LivePorts, Trouble),
    ) -> P4RuntimeDevice {
        let settings = Settings { trouble, ..settings(config, address, ports) };
        let handle = self.target.handle.clone();
        info!(address, bridge = self.bridge.0, "a NIC is to stand in front of the bridge");
        P4RuntimeDevice::new(settings, &Handle::current(), move || handle.wake())
    }

    /// The port that packet threads get for one that was opened: a representor where the embedded NIC
    /// takes the port.
    pub(crate) fn in_front_of(
        &self,
        bridge: BridgeId,
        (number, datapath): (PortNo, DatapathPort),
        port: Box<dyn Port>,
    ) -> Box<dyn Port> {
        let state = &mut *self.state.lock();
        let Some(own) = self.number(bridge, number, &state.config) else { return port };
        state.ports.add(datapath, own);
        if state.at_nic.insert(number) {
            self.target.handle.set_ports(Some(state.at_nic.clone()));
        }
        let seed = self.seed.wrapping_add(u64::from(datapath.number()));
        match &state.embedded {
            Some(embedded) => embedded.ports.represent(own, port, seed),
            None => port,
        }
    }

    /// The number of a port of a bridge on the NIC, if the NIC has it.
    fn number(&self, bridge: BridgeId, number: PortNo, config: &config::Target) -> Option<u16> {
        let is_named = |number: u32| config.ports.is_empty() || config.ports.contains(&number);
        let is_there = config.kind != OffloadKind::None && bridge == self.bridge.1;
        let number = Some(number.number()).filter(|number| *number <= NUMBER_MAX);
        number.filter(|number| is_there && is_named(*number)).and_then(|n| u16::try_from(n).ok())
    }

    /// Whether it has, or is to have, this port.
    pub(crate) fn takes(&self, bridge: BridgeId, number: PortNo) -> bool {
        let state = self.state.lock();
        self.number(bridge, number, &state.config).is_some()
    }

    /// What the NIC can hold of the ways of packets that come in by this port; `None`: they do not come
    /// in by a NIC.
    pub(crate) fn holds(&self, bridge: BridgeId, number: PortNo) -> Option<OffloadCapabilities> {
        let state = self.state.lock();
        self.number(bridge, number, &state.config)?;
        let address = &state.config.address;
        Some(settings(&state.config, address, state.ports.clone()).capabilities())
    }

    /// Why its ports are to be closed, if they are.
    pub(crate) fn closes_ports(&self) -> Option<&'static str> {
        let state = self.state.lock();
        let is_asked = !state.config.is_none() && state.config.stale == StalePolicy::PortsDown;
        match self.target.handle.status().state {
            OffloadState::Stale { why, .. } if is_asked => Some(why.as_str()),
            OffloadState::Stale { .. } | OffloadState::Connected => None,
        }
    }

    /// A port is closed.
    pub(crate) fn leave(
        &self,
        bridge: BridgeId,
        (number, datapath): (PortNo, Option<DatapathPort>),
    ) {
        let state = &mut *self.state.lock();
        // Its number may come to be that of a port that the NIC does not have.
        datapath.into_iter().for_each(|datapath| state.ports.remove(datapath));
        if bridge == self.bridge.1 && state.at_nic.remove(&number) {
            self.target.handle.set_ports(Some(state.at_nic.clone()));
        }
    }

    /// Gives up the NIC, since its owner has ended: rules that nobody sees to are no rules. One elsewhere
    /// keeps them: nobody is there who could take them out.
    pub(crate) fn abandon(&self) {
        drop(self.state.lock().embedded.take());
    }

    /// Whether a NIC that was given up is not empty yet, so that it may forward by rules that are gone.
    pub(crate) fn is_leaving(&self) -> bool {
        self.target.next.is_pending()
    }

    /// Empties a NIC elsewhere as far as it answers soon: nobody is to see to its rules any more.
    pub(crate) async fn take_leave(&self) {
        if self.state.lock().config.kind != OffloadKind::P4runtime {
            return;
        }
        self.target.next.send(None, Before::Runs);
        self.target.handle.wake();
        if !self.is_left().await {
            warn!("the NIC does not answer: it is left with its rules");
        }
    }

    /// Waits until a NIC that was given up is empty; answers whether it is so soon.
    async fn is_left(&self) -> bool {
        let empty = async {
            while self.is_leaving() {
                sleep(STOP_POLL).await;
            }
        };
        timeout(STOP_MAX, empty).await.is_ok()
    }

    /// Where ways are cut for the NIC.
    pub(crate) const fn policy(&self) -> PolicyName {
        self.target.policy
    }

    /// To ask the owner of the target.
    pub(crate) const fn handle(&self) -> &OffloadHandle {
        &self.target.handle
    }

    /// The present time of the owner.
    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    /// Why it is lost, if it is.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state.lock().trouble.text()
    }

    /// What is in force, and of an embedded NIC where it listens and what it counts.
    pub(crate) fn look(&self) -> (config::Target, Option<(SocketAddr, Arc<NicCounters>)>) {
        let state = self.state.lock();
        let of = |embedded: &Embedded| (embedded.address, Arc::clone(&embedded.traffic));
        (state.config.clone(), state.embedded.as_ref().map(of))
    }
}

/// How a NIC at this address is driven.
fn settings(config: &config::Target, address: &str, ports: LivePorts) -> Settings {
    let mut settings = Settings {
        device_id: config.device_id,
        program: program(config),
        ports,
        retry: RETRY,
        ..Settings::new(format!("http://{address}"))
    };
    if config.kind == OffloadKind::Embedded {
        settings.device_id = Settings::new(String::new()).device_id;
        settings.skills.masks_max = (config.masks > 0).then_some(config.masks);
        settings.skills.key_bits_max = (config.key_bits > 0).then_some(config.key_bits);
    }
    settings
}

/// The program of a NIC.
pub(super) fn program(config: &config::Target) -> Program {
    // The configuration was checked.
    Program::new(config.stages, config.stage_entries).unwrap_or_default()
}
