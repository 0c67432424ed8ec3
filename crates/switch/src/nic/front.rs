//! The current NIC of a switch, and its replacement by another NIC.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shunt_datapath::{
    offload::{OffloadHandle, OffloadState},
    port::Port,
};
use shunt_flow::PortNo;
use shunt_gigaflow::{offload::OffloadCapabilities, partition::PolicyName};
use shunt_nic::{Nic, NicCounters, NicLimits, NicPortLosses, NicPorts};
use shunt_p4runtime::{
    client::{ClientSettings, DeviceConfig, LastError, LivePorts, P4RuntimeDevice},
    program::Program,
    server::ClockReading,
};
use shunt_pipeline::{BridgeId, DatapathPort};
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tracing::{info, warn};

use super::{SuccessorSender, device_exchange::PredecessorState};
use crate::{
    config::{self, OffloadKind, StalePolicy},
    error::SwitchError,
    threads::clock::DaemonClock,
};

/// The connection of the control plane to the offload agent.
pub(crate) struct OffloadConnection {
    /// Handle to query and wake the agent.
    pub(crate) handle: OffloadHandle,
    /// Sender of new devices.
    pub(crate) next: SuccessorSender<P4RuntimeDevice>,
    /// Policy by which the agent partitions traversals; the policy never changes.
    pub(crate) policy: PolicyName,
}

/// The NIC in front of a bridge.
pub(crate) struct NicFront {
    connection: OffloadConnection,
    /// The stages of the agent.
    layout: OffloadLayout,
    /// Name of the bridge of the NIC, which may be added later.
    bridge_name: String,
    /// The number of the bridge of the NIC.
    bridge: BridgeId,
    clock: DaemonClock,
    /// The start value of random numbers.
    seed: u64,
    /// The NIC and its ports.
    state: Mutex<NicState>,
}

/// The number and size of an agent's stages, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffloadLayout {
    /// Number of LTM stages.
    stages: u8,
    /// Maximum number of entries of each stage.
    stage_entries: u32,
}

impl OffloadLayout {
    /// Returns the stages that the settings request.
    pub(crate) const fn of(config: &config::OffloadOptions) -> Self {
        Self { stages: config.stages, stage_entries: config.stage_entries }
    }
}

/// The NIC of a bridge, and the ports that use it.
#[derive(Default)]
struct NicState {
    /// NIC options in force.
    config: config::OffloadOptions,
    /// The NIC in this process; `None` for an external NIC.
    embedded: Option<Embedded>,
    /// Ports that the NIC can send to.
    ports: LivePorts,
    /// Error of the P4Runtime connection, if the connection is lost.
    error: LastError,
    /// Ports that deliver their packets to the NIC.
    at_nic: BTreeSet<PortNo>,
    /// True if packets may still be inside a previous external NIC.
    is_draining: bool,
}

/// A NIC in this process; dropping the value stops the NIC.
struct Embedded {
    /// The address of the P4Runtime server.
    address: SocketAddr,
    ports: NicPorts,
    /// The packet counters of the embedded NIC.
    traffic: Arc<NicCounters>,
    /// Dropped to stop the server.
    stop: oneshot::Sender<()>,
    /// The task of the server.
    task: JoinHandle<()>,
}

impl Embedded {
    /// Stops the NIC; returns when it has ended, with all of its entries.
    async fn end(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            warn!(%error, "embedded NIC: the thread of the NIC has stopped");
        }
    }
}

/// Highest port number of a NIC; higher 16-bit numbers are reserved by OpenFlow.
pub(crate) const NUMBER_MAX: u32 = 0xfeff;

/// Largest number of a port on an external NIC with the P4 program of this version.
///
/// Port numbers in the P4 program have nine bits; 510 is the controller, and 511 drops.
pub(crate) const EXTERNAL_NUMBER_MAX: u32 = 509;

/// Maximum time that a request waits for a NIC to become empty.
const STOP_MAX: Duration = Duration::from_secs(2);

/// Interval between two checks whether the NIC is empty.
const STOP_POLL: Duration = Duration::from_millis(1);

/// First pause before a lost NIC is contacted again.
const RETRY: Duration = Duration::from_millis(50);

impl NicFront {
    /// Returns a front without a NIC, for the bridge with the given name and number.
    pub(crate) fn new(
        connection: OffloadConnection,
        layout: OffloadLayout,
        bridge_name: String,
        bridge: BridgeId,
        clock: DaemonClock,
        seed: u64,
    ) -> Self {
        connection.handle.set_ports(Some(BTreeSet::new()));
        Self { connection, layout, bridge_name, bridge, clock, seed, state: Mutex::default() }
    }

    /// Returns the name of the bridge of the NIC.
    pub(super) fn bridge_name(&self) -> &str {
        &self.bridge_name
    }

    /// Returns the number of the bridge of the NIC.
    pub(crate) const fn bridge_id(&self) -> BridgeId {
        self.bridge
    }

    /// Returns whether a NIC is configured.
    pub(crate) fn has_nic(&self) -> bool {
        !self.state.lock().config.is_none()
    }

    /// Waits until the previous NIC is empty and its packets have left.
    ///
    /// A new agent uses the same tags as the previous agent, so no packet may still carry a tag.
    ///
    /// # Errors
    ///
    /// If the previous NIC is not empty in time.
    pub(crate) async fn wait_until_drained(&self) -> Result<(), SwitchError> {
        if !self.wait_until_empty().await {
            return Err(SwitchError::NicLeaving);
        }
        let (drain, is_draining) = {
            let state = self.state.lock();
            (state.config.drain(), state.is_draining)
        };
        if is_draining {
            sleep(drain).await;
        }
        Ok(())
    }

    /// Checks that the options fit the offload agent.
    ///
    /// # Errors
    ///
    /// If the stages or the bridge differ from the agent's.
    pub(crate) fn check(&self, config: &config::OffloadOptions) -> Result<(), SwitchError> {
        let is_alike =
            self.bridge_name == config.bridge && self.layout == OffloadLayout::of(config);
        if config.is_none() || is_alike {
            return Ok(());
        }
        Err(SwitchError::Range {
            setting: "caches.gigaflow.offload",
            value: format!(
                "{} stages of {} entries in front of {}",
                config.stages, config.stage_entries, config.bridge
            ),
            range: "the stages and the bridge of the running NIC: set caches.gigaflow.offload.kind to \
                    none first to change them",
        })
    }

    /// Applies new options of the NIC.
    ///
    /// Returns whether the ports must be reopened because the NIC changed.
    ///
    /// # Errors
    ///
    /// If the embedded NIC does not start. After an error, the previous NIC stays, unless the new
    /// NIC needs the socket of the previous NIC.
    pub(crate) async fn apply(&self, config: &config::OffloadOptions) -> Result<bool, SwitchError> {
        let before = self.state.lock().config.clone();
        if before.needs_same_device(config) {
            self.state.lock().config = config.clone();
            return Ok(false);
        }
        let ending = self.state.lock().error.clone();
        ending.set_intended(true);
        let is_behind = before.kind == OffloadKind::Embedded || !config.is_none();
        let conflicting = self.take_embedded_at(config);
        let has_ended = conflicting.is_some();
        if let Some(old) = conflicting {
            old.end().await;
        }
        let embedded = match config.kind {
            OffloadKind::Embedded => match self.start(config).await {
                Ok(embedded) => Some(embedded),
                Err(error) => {
                    // The previous NIC stays in use.
                    ending.set_intended(false);
                    return Err(error);
                }
            },
            OffloadKind::None | OffloadKind::P4runtime => None,
        };
        let address = match (&embedded, config.kind) {
            (Some(embedded), _) => Some(embedded.address.to_string()),
            (None, OffloadKind::P4runtime) => Some(config.address.clone()),
            (None, OffloadKind::Embedded | OffloadKind::None) => None,
        };
        // The previous device still needs the previous ports to remove its entries.
        let (ports, error) = (LivePorts::default(), LastError::default());
        let device =
            address.map(|address| self.device(config, &address, ports.clone(), error.clone()));
        let old = {
            let state = &mut *self.state.lock();
            (state.config, state.ports, state.error) = (config.clone(), ports, error);
            state.is_draining = before.kind == OffloadKind::P4runtime;
            state.at_nic.clear();
            std::mem::replace(&mut state.embedded, embedded)
        };
        if before.kind != OffloadKind::None {
            let bridge = &self.bridge_name;
            match config.kind {
                OffloadKind::None => info!("bridge {bridge}: NIC removed by setting"),
                kind => info!(?kind, "bridge {bridge}: NIC replaced by setting"),
            }
        }
        self.connection.handle.set_ports(Some(BTreeSet::new()));
        let before = if old.is_some() || has_ended {
            PredecessorState::Ended
        } else {
            PredecessorState::Runs
        };
        if let Some(old) = old {
            // A version that is acknowledged without the old NIC must not be followed by a hit in
            // its entries.
            old.end().await;
        }
        self.connection.next.send(device, before);
        self.connection.handle.wake();
        Ok(is_behind)
    }

    /// Takes the embedded NIC out if the new NIC needs its socket address.
    fn take_embedded_at(&self, config: &config::OffloadOptions) -> Option<Embedded> {
        let address = Some(config.address.parse().ok()?);
        let state = &mut *self.state.lock();
        let has_it = state.embedded.as_ref().map(|embedded| embedded.address) == address;
        if config.kind == OffloadKind::Embedded && has_it { state.embedded.take() } else { None }
    }

    /// Starts the embedded NIC with its server.
    async fn start(&self, config: &config::OffloadOptions) -> Result<Embedded, SwitchError> {
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
        let clock: fn() -> ClockReading = DaemonClock::of_nic;
        let nic = Nic::start(program, limits, Vec::new(), address, clock, self.seed).await;
        let nic = nic.map_err(|error| system(Box::new(error)))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (address, ports, traffic) = (nic.address(), nic.ports(), nic.traffic());
        let task = tokio::spawn(async move {
            // No value is sent: the closed channel is the signal.
            let stopped = async {
                let _ = stopped.await;
            };
            if let Err(error) = nic.run(stopped).await {
                warn!(%error, "embedded NIC: the thread of the NIC has stopped");
            }
        });
        Ok(Embedded { address, ports, traffic, stop, task })
    }

    /// Returns the client of a NIC at an address.
    fn device(
        &self,
        config: &config::OffloadOptions,
        address: &str,
        ports: LivePorts,
        error: LastError,
    ) -> P4RuntimeDevice {
        let settings = ClientSettings { last_error: error, ..settings(config, address, ports) };
        let handle = self.connection.handle.clone();
        info!(address, "bridge {}: connecting to its NIC", self.bridge_name);
        P4RuntimeDevice::new(settings, &Handle::current(), move || handle.wake())
    }

    /// Returns the port for the packet threads: `port` or a representor of it.
    ///
    /// The port is a representor if the embedded NIC has the port, and otherwise the port of the
    /// bridge itself. The embedded NIC counts the packets that it loses at the port in `losses`.
    pub(crate) fn in_front_of(
        &self,
        bridge: BridgeId,
        number: PortNo,
        datapath: DatapathPort,
        port: Box<dyn Port>,
        losses: Arc<NicPortLosses>,
    ) -> Box<dyn Port> {
        let state = &mut *self.state.lock();
        let Some(own) = self.number(bridge, number, &state.config) else {
            if bridge == self.bridge
                && let Some(advice) = advice_for_missing(&state.config, number.number())
            {
                warn!("bridge {}: port {number} is not on the NIC: {advice}", self.bridge_name);
            }
            return port;
        };
        state.ports.add(datapath, own);
        if state.at_nic.insert(number) {
            self.connection.handle.set_ports(Some(state.at_nic.clone()));
        }
        let seed = self.seed.wrapping_add(u64::from(datapath.number()));
        match &state.embedded {
            Some(embedded) => embedded.ports.represent(own, port, seed, losses),
            None => port,
        }
    }

    /// Returns the number of a port on the NIC, if the NIC has the port.
    fn number(
        &self,
        bridge: BridgeId,
        number: PortNo,
        config: &config::OffloadOptions,
    ) -> Option<u16> {
        let is_connected = config.kind != OffloadKind::None && bridge == self.bridge;
        let number = number.number();
        (is_connected && has_port(config, number)).then(|| u16::try_from(number).ok())?
    }

    /// Returns whether the NIC has a port of this number, or will have it.
    pub(crate) fn is_nic_port(&self, bridge: BridgeId, number: PortNo) -> bool {
        let state = self.state.lock();
        self.number(bridge, number, &state.config).is_some()
    }

    /// Returns the reason why the NIC does not have a port of its bridge.
    ///
    /// `None` if the NIC has the port, or another option keeps the port away from the NIC.
    pub(crate) fn port_problem(&self, number: u32) -> Option<String> {
        let advice = advice_for_missing(&self.state.lock().config, number)?;
        Some(format!("not on the NIC: {advice}"))
    }

    /// Returns the capabilities of the NIC for packets of a port.
    ///
    /// `None` if the NIC does not have the port.
    pub(crate) fn port_capabilities(
        &self,
        bridge: BridgeId,
        number: PortNo,
    ) -> Option<OffloadCapabilities> {
        let state = self.state.lock();
        self.number(bridge, number, &state.config)?;
        let address = &state.config.address;
        Some(settings(&state.config, address, state.ports.clone()).capabilities())
    }

    /// Returns the reason why the ports of the NIC must be closed, if they must.
    pub(crate) fn closes_ports(&self) -> Option<&'static str> {
        let state = self.state.lock();
        let is_asked = !state.config.is_none() && state.config.stale == StalePolicy::PortsDown;
        match self.connection.handle.status().state {
            OffloadState::Stale { reason, .. } if is_asked => Some(reason.as_str()),
            OffloadState::Stale { .. } | OffloadState::Connected => None,
        }
    }

    /// Removes a closed port from the NIC.
    pub(crate) fn leave(&self, bridge: BridgeId, number: PortNo, datapath: Option<DatapathPort>) {
        let state = &mut *self.state.lock();
        // The datapath number may be reused for a port that is not on the NIC.
        datapath.into_iter().for_each(|datapath| state.ports.remove(datapath));
        if bridge == self.bridge && state.at_nic.remove(&number) {
            self.connection.handle.set_ports(Some(state.at_nic.clone()));
        }
    }

    /// Drops the embedded NIC, because its agent has ended.
    ///
    /// An external NIC keeps its entries: without the agent, nothing can remove them.
    pub(crate) fn abandon(&self) {
        drop(self.state.lock().embedded.take());
    }

    /// Returns whether a previous NIC may still forward with old entries.
    pub(crate) fn is_draining_device(&self) -> bool {
        self.connection.next.is_pending()
    }

    /// Removes the entries of an external NIC, within a short time.
    ///
    /// After the switch has stopped, nothing updates these entries.
    pub(crate) async fn empty_before_stop(&self) {
        if self.state.lock().config.kind != OffloadKind::P4runtime {
            return;
        }
        self.connection.next.send(None, PredecessorState::Runs);
        self.connection.handle.wake();
        if !self.wait_until_empty().await {
            warn!(
                "external NIC: the device does not reply, so its entries remain, and it may \
                 forward by them"
            );
        }
    }

    /// Waits a short time for the previous NIC to become empty; returns whether it is.
    async fn wait_until_empty(&self) -> bool {
        let empty = async {
            while self.is_draining_device() {
                sleep(STOP_POLL).await;
            }
        };
        timeout(STOP_MAX, empty).await.is_ok()
    }

    /// Returns the policy by which traversals are partitioned for the NIC.
    pub(crate) const fn policy(&self) -> PolicyName {
        self.connection.policy
    }

    /// Returns the handle of the offload agent.
    pub(crate) const fn handle(&self) -> &OffloadHandle {
        &self.connection.handle
    }

    /// Returns the clock of the offload agent.
    pub(crate) const fn clock(&self) -> DaemonClock {
        self.clock
    }

    /// Returns the error of the P4Runtime connection, if the connection is lost.
    pub(crate) fn error(&self) -> Option<String> {
        self.state.lock().error.text()
    }

    /// Returns the options in force, and the address and counters of the embedded NIC.
    pub(crate) fn look(&self) -> (config::OffloadOptions, Option<(SocketAddr, Arc<NicCounters>)>) {
        let state = self.state.lock();
        let of = |embedded: &Embedded| (embedded.address, Arc::clone(&embedded.traffic));
        (state.config.clone(), state.embedded.as_ref().map(of))
    }
}

/// Returns whether the NIC has a port of this number.
fn has_port(config: &config::OffloadOptions, number: u32) -> bool {
    let is_named = match config.ports.as_slice() {
        [] => config.kind != OffloadKind::P4runtime || number <= EXTERNAL_NUMBER_MAX,
        named => named.contains(&number),
    };
    is_named && number <= NUMBER_MAX
}

/// Returns the advice for a port number that is too high for an external NIC.
///
/// `None` if another option keeps the port away from the NIC.
fn advice_for_missing(config: &config::OffloadOptions, number: u32) -> Option<&'static str> {
    let is_too_high = (EXTERNAL_NUMBER_MAX + 1..=NUMBER_MAX).contains(&number);
    let has_list = config.kind != OffloadKind::P4runtime || !config.ports.is_empty();
    if has_list || !is_too_high {
        return None;
    }
    // A list with a higher number is refused without another program.
    Some(if config.device_config.as_os_str().is_empty() {
        "its P4 program has ports 1 to 509: give the port a `number` up to 509"
    } else {
        "without a list the NIC has ports 1 to 509: list all ports of the NIC in \
         caches.gigaflow.offload.ports"
    })
}

/// Returns the P4Runtime client settings for a NIC at an address.
fn settings(config: &config::OffloadOptions, address: &str, ports: LivePorts) -> ClientSettings {
    let mut settings = ClientSettings {
        device_id: config.device_id,
        program: program(config),
        ports,
        retry: RETRY,
        ..ClientSettings::new(format!("http://{address}"))
    };
    if !config.device_config.as_os_str().is_empty() {
        settings.device_config = DeviceConfig::File(config.device_config.clone());
    }
    if config.kind == OffloadKind::Embedded {
        settings.device_id = ClientSettings::new(String::new()).device_id;
        settings.features.masks_max = (config.masks > 0).then_some(config.masks);
        settings.features.key_bits_max = (config.key_bits > 0).then_some(config.key_bits);
    }
    settings
}

/// Returns the P4 program of a NIC with these options.
pub(super) fn program(config: &config::OffloadOptions) -> Program {
    // The number of stages and entries was checked before.
    Program::new(config.stages, config.stage_entries).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OffloadOptions;

    #[test]
    fn an_external_nic_has_nine_bit_ports() {
        let has = |kind, ports: &[u32], number| {
            let ports = ports.to_vec();
            has_port(&OffloadOptions { kind, ports, ..OffloadOptions::default() }, number)
        };
        let (external, embedded) = (OffloadKind::P4runtime, OffloadKind::Embedded);
        assert!(has(external, &[], 509) && !has(external, &[], 510));
        assert!(has(external, &[514], 514) && !has(external, &[514], 2));
        assert!(has(embedded, &[], 514) && !has(embedded, &[], NUMBER_MAX + 1));
    }

    /// The advice must not be refused.
    #[test]
    fn advice_for_high_ports_is_accepted() {
        let external = |device_config: &str, ports: &[u32]| OffloadOptions {
            kind: OffloadKind::P4runtime,
            address: "192.0.2.7:9559".to_owned(),
            device_config: device_config.into(),
            ports: ports.to_vec(),
            ..OffloadOptions::default()
        };
        for device_config in ["", "/dev/null"] {
            let advice = advice_for_missing(&external(device_config, &[]), 514).unwrap();
            let names_list = advice.contains("caches.gigaflow.offload.ports");
            let takes_list = external(device_config, &[514]).check().is_ok();
            assert_eq!(names_list, takes_list, "{device_config}: {advice}");
        }
        assert_eq!(advice_for_missing(&external("", &[]), 509), None);
        assert_eq!(advice_for_missing(&external("", &[2]), 514), None);
        assert_eq!(advice_for_missing(&external("", &[]), NUMBER_MAX + 1), None);
        assert_eq!(advice_for_missing(&OffloadOptions::default(), 514), None);
    }
}
