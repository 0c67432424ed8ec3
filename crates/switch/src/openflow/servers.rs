//! The OpenFlow servers of all bridges, and the asynchronous messages to their controllers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use shunt_flow::PortNo;
use shunt_ofproto::{
    PausedPackets,
    connection::ControllerEvent,
    message::{FlowRemoved, PortStatus, PortStatusReason},
    server::OpenFlowServer,
};
use shunt_pipeline::{BridgeId, PortInfo, PuntedPacket};
use shunt_tls::TlsIdentity;
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use tracing::{info, warn};

use crate::{
    config::{Config, FailMode},
    control::{ControlPlane, structure::OpenPolicy},
    error::{SwitchError, with_causes},
    listening_sockets::ListeningSockets,
    nic::NicStatus,
    openflow::{
        bridge_server::{
            BridgeServer, BridgeSockets, LISTEN_RETRY, management_problem, open_management,
        },
        events::{ControlEvent, RemovedRule, SocketsToClose},
        host::BridgeHost,
    },
    ports::{bridges::Bridges, removed_losses::RemovedPortLosses},
    status::{bridge::BridgeStatus, caches::PacketInOutcomes},
    threads::data_plane::DataPlane,
};

/// Number of removed rules that are handled between two yields to other tasks.
const REMOVED_PER_ITERATION: usize = 256;

/// The OpenFlow servers of all bridges.
pub(crate) struct OpenFlowServers {
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
    /// The settings of the switch in force.
    config: Arc<Mutex<Config>>,
    /// Directory of the management sockets; `None`: there are no management sockets.
    run_dir: Option<PathBuf>,
    /// The server of each bridge.
    servers: Mutex<HashMap<BridgeId, BridgeServer>>,
    /// Number of packet-ins, by result.
    packet_ins: PacketInTally,
    /// Key and certificates for TLS connections.
    tls: TlsIdentity,
    /// The listening sockets of the daemon.
    listening: Arc<ListeningSockets>,
}

/// Counters of packet-ins: handed over, or dropped by reason.
#[derive(Default)]
struct PacketInTally {
    /// Number of packet-ins that OpenFlow connections got.
    handed_over: AtomicU64,
    /// Number of packet-ins of bridges without a connection for them.
    no_connection: AtomicU64,
    /// Number of packet-ins of deleted bridges.
    no_bridge: AtomicU64,
}

impl OpenFlowServers {
    /// Returns the servers of no bridges. `run_dir` holds the management sockets.
    pub(crate) fn new(
        control: &ControlPlane,
        run_dir: Option<PathBuf>,
        tls: TlsIdentity,
        listening: Arc<ListeningSockets>,
    ) -> Self {
        Self {
            plane: Arc::clone(&control.plane),
            bridges: Arc::clone(&control.bridges),
            config: Arc::clone(&control.config),
            run_dir,
            servers: Mutex::default(),
            packet_ins: PacketInTally::default(),
            tls,
            listening,
        }
    }

    /// Returns the key and certificates for TLS connections.
    pub(crate) const fn tls(&self) -> &TlsIdentity {
        &self.tls
    }

    /// Returns the directory of the management sockets.
    pub(crate) fn run_dir(&self) -> Option<&Path> {
        self.run_dir.as_deref()
    }

    /// Returns the listening sockets that outlive the process.
    pub(crate) const fn listening(&self) -> &Arc<ListeningSockets> {
        &self.listening
    }

    /// Notifies controllers of events, as long as the switch runs.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut events: mpsc::Receiver<ControlEvent>,
        mut packet_ins: mpsc::Receiver<PuntedPacket>,
    ) {
        let mut retry = interval(LISTEN_RETRY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Events are handled before packets, because a packet may come from a new bridge or
                // port.
                biased;
                event = events.recv() => match event {
                    Some(event) => self.handle(event).await,
                    None => return,
                },
                ports = self.bridges.changed().take() => {
                    for (id, number) in ports {
                        self.notify_port(id, number, PortStatusReason::Modify);
                    }
                }
                // Bridges without a controller may have packet-ins all the time.
                _ = retry.tick() => {
                    self.listen_again().await;
                    self.update_fail_open();
                }
                Some(packet) = packet_ins.recv() => self.publish_packet(packet),
            }
        }
    }

    /// Notifies controllers of removed rules, as long as the switch runs.
    ///
    /// A message is sent only when no thread uses the cache entries of the rule and all hits are
    /// counted. So the counters in the message are complete.
    pub(crate) async fn notify_removed(self: Arc<Self>) {
        let plane = &self.plane;
        loop {
            let removed = plane.publisher().removals().take().await;
            let newest = removed.iter().map(|removed| removed.version).max().unwrap_or_default();
            plane.adopted(newest).await;
            plane.pull().await;
            for (bridge, events) in self.by_bridge(removed).await {
                if let Some(server) = self.server(bridge) {
                    server.publish_reliable(&events);
                }
            }
        }
    }

    /// Returns the messages about removed rules, by bridge.
    ///
    /// There may be many removed rules, so other tasks run in between.
    async fn by_bridge(
        &self,
        removed: Vec<RemovedRule>,
    ) -> BTreeMap<BridgeId, Vec<ControllerEvent>> {
        let now = self.plane.now();
        let mut events = BTreeMap::<_, Vec<_>>::new();
        for (count, RemovedRule { rule, reason, .. }) in (1..).zip(removed) {
            let removed = FlowRemoved::of(&rule, reason, rule.stats.totals(), now);
            events
                .entry(rule.bridge)
                .or_default()
                .push(ControllerEvent::FlowRemoved(Arc::new(removed)));
            if count % REMOVED_PER_ITERATION == 0 {
                tokio::task::yield_now().await;
            }
        }
        events
    }

    /// Handles a change of bridges or ports.
    async fn handle(&self, event: ControlEvent) {
        match event {
            ControlEvent::BridgeAdded(id, policy, ready) => {
                let opened = self.open(id, policy).await;
                // The receiver is closed only if the caller was cancelled.
                let _ = ready.send(opened);
            }
            ControlEvent::BridgeChanged { id, closing, policy, ready } => {
                let changed = self.change_sockets(id, closing, policy).await;
                let _ = ready.send(changed);
            }
            ControlEvent::BridgeRemoved(id) => {
                let removed = self.servers.lock().remove(&id);
                if let Some(side) = removed {
                    side.close().await;
                }
            }
            ControlEvent::PortAdded(id, number) => {
                self.notify_port(id, number, PortStatusReason::Add);
            }
            ControlEvent::PortRemoved(id, port) => {
                self.publish_port(id, &port, PortStatusReason::Delete);
            }
        }
    }

    /// Returns the status of all bridges, with the states of their controllers.
    ///
    /// The function also returns the losses of the ports that were removed before.
    pub(crate) fn bridge_status(
        &self,
        nic: Option<&NicStatus>,
        ports: Option<&BTreeSet<String>>,
    ) -> (Vec<BridgeStatus>, RemovedPortLosses) {
        let now = self.plane.now();
        let bridges = match ports {
            None => self.bridges.lock_counted(),
            Some(_) => self.bridges.lock(),
        };
        let status = BridgeStatus::of_all(&bridges, self.plane.pipeline(), nic, now, ports);
        let removed = bridges.removed_losses().clone();
        drop(bridges);
        let with_controllers = |(id, mut status): (BridgeId, BridgeStatus)| {
            if let Some(side) = self.servers.lock().get(&id) {
                for controller in &mut status.controllers {
                    if let Some(state) = side.state(&controller.target, now) {
                        controller.state = state;
                    }
                }
                status.connections = side.connections();
                status.fail_open = side.server.fails_open();
                status.packet_ins = side.server.packet_ins().into();
                status.packet_ins.no_connection = side.no_connection;
            }
            status
        };
        (status.into_iter().map(with_controllers).collect(), removed)
    }

    /// Returns the counters of packet-ins: handed over or dropped, by reason.
    pub(crate) fn packet_ins(&self) -> PacketInOutcomes {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PacketInOutcomes {
            handed_over: count(&self.packet_ins.handed_over),
            listener_full: self.plane.packet_ins_dropped(),
            no_connection: count(&self.packet_ins.no_connection),
            no_bridge: count(&self.packet_ins.no_bridge),
        }
    }

    /// Returns the server of a bridge.
    fn server(&self, id: BridgeId) -> Option<Arc<OpenFlowServer<BridgeHost>>> {
        self.servers.lock().get(&id).map(|side| Arc::clone(&side.server))
    }

    /// Passes a packet-in to the controllers of its bridge.
    fn publish_packet(&self, packet: PuntedPacket) {
        let mut servers = self.servers.lock();
        let end = match servers.get_mut(&packet.punt.bridge) {
            Some(side) => {
                let token = packet.punt.continuation.as_ref().map(|own| side.paused.hold(own));
                let event = ControllerEvent::PacketIn(Arc::new(packet), token);
                if side.server.publish_packet_in(event) {
                    &self.packet_ins.handed_over
                } else {
                    side.no_connection += 1;
                    &self.packet_ins.no_connection
                }
            }
            None => &self.packet_ins.no_bridge,
        };
        end.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports the status of a port to controllers, by its number.
    fn notify_port(&self, id: BridgeId, number: PortNo, reason: PortStatusReason) {
        if let Some(port) = self.bridges.port_info(id, number) {
            self.publish_port(id, &port, reason);
        }
    }

    /// Reports the status of a port to the controllers of its bridge.
    fn publish_port(&self, id: BridgeId, port: &PortInfo, reason: PortStatusReason) {
        if let Some(server) = self.server(id) {
            let port = BridgeHost::describe(port);
            server.publish_reliable(&[ControllerEvent::PortStatus(Arc::new(PortStatus {
                reason,
                port,
            }))]);
        }
    }

    /// Opens the sockets of a bridge: management socket, listeners and controllers.
    async fn open(&self, id: BridgeId, policy: OpenPolicy) -> Result<(), SwitchError> {
        let (name, endpoints, versions, fail_mode) = {
            let bridges = self.bridges.lock();
            let Some(bridge) = bridges.by_id(id) else { return Ok(()) };
            let settings = &bridge.settings;
            let fail_mode = settings.fail_mode;
            (settings.name.clone(), settings.endpoints()?, settings.versions()?, fail_mode)
        };
        let paused = Arc::<PausedPackets>::default();
        let host = BridgeHost {
            plane: Arc::clone(&self.plane),
            bridges: Arc::clone(&self.bridges),
            config: Arc::clone(&self.config),
            bridge: id,
            paused: Arc::clone(&paused),
            tls: self.tls.clone(),
            listening: Arc::clone(&self.listening),
        };
        let server = Arc::new(OpenFlowServer::new(Arc::new(host)));
        server.set_versions(versions);
        server.allow_fail_open(fail_mode == FailMode::Standalone);
        let management_path = self.run_dir.as_ref().map(|dir| dir.join(format!("{name}.mgmt")));
        let management = match &management_path {
            Some(path) => match open_management(&server, path).await {
                Err(error) if policy == OpenPolicy::Retried => {
                    self.note_management(id, Some(management_problem(&error)));
                    let error = with_causes(&error);
                    warn!(error, "bridge {name}: cannot open the management socket, retrying");
                    None
                }
                opened => Some(opened?),
            },
            None => None,
        };
        let mut sockets = BridgeSockets::default();
        let opened =
            sockets.change(&server, &name, &endpoints, SocketsToClose::Removed, policy).await;
        let side =
            BridgeServer { server, paused, sockets, management, management_path, no_connection: 0 };
        if let Err(error) = opened {
            side.close().await;
            return Err(error);
        }
        self.note_listeners(id, &side.sockets);
        self.servers.lock().insert(id, side);
        Ok(())
    }

    /// Opens and closes sockets of a bridge according to its settings.
    async fn change_sockets(
        &self,
        id: BridgeId,
        closing: SocketsToClose,
        policy: OpenPolicy,
    ) -> Result<(), SwitchError> {
        let (name, endpoints, versions, fail_mode) = {
            let bridges = self.bridges.lock();
            let Some(bridge) = bridges.by_id(id) else { return Ok(()) };
            let settings = &bridge.settings;
            let fail_mode = settings.fail_mode;
            (settings.name.clone(), settings.endpoints()?, settings.versions()?, fail_mode)
        };
        let Some((server, mut sockets)) = self.take_sockets(id) else { return Ok(()) };
        server.set_versions(versions);
        let changed = sockets.change(&server, &name, &endpoints, closing, policy).await;
        self.put_sockets(id, sockets);
        if changed.is_ok() {
            server.allow_fail_open(fail_mode == FailMode::Standalone);
        }
        changed
    }

    /// Retries to open the sockets that could not be opened before.
    async fn listen_again(&self) {
        self.close_unreachable_management().await;
        self.open_missing_management().await;
        let waiting: Vec<BridgeId> = {
            let servers = self.servers.lock();
            let waiting = servers.iter().filter(|(_, side)| side.sockets.has_waiting());
            waiting.map(|(id, _)| *id).collect()
        };
        for id in waiting {
            let name = self.bridges.lock().by_id(id).map(|own| own.settings.name.clone());
            let (Some(name), Some((server, mut sockets))) = (name, self.take_sockets(id)) else {
                continue;
            };
            sockets.open_waiting(&server, &name).await;
            self.put_sockets(id, sockets);
        }
    }

    /// Makes bridges fail open that had no reachable controller for long enough.
    fn update_fail_open(&self) {
        let servers: Vec<_> = {
            let servers = self.servers.lock();
            servers.values().map(|side| Arc::clone(&side.server)).collect()
        };
        for server in servers {
            server.update_fail_open();
        }
    }

    /// Closes the management sockets that clients cannot reach, because somebody has
    /// removed or replaced the file.
    async fn close_unreachable_management(&self) {
        let unreachable: Vec<_> = {
            let mut servers = self.servers.lock();
            let sockets = servers.values_mut().map(|side| &mut side.management);
            sockets.filter_map(|own| own.take_if(|socket| !socket.is_reachable())).collect()
        };
        for socket in unreachable {
            warn!(
                "management socket {}: the file of the socket was deleted, opening the socket \
                 again",
                socket.path()
            );
            socket.close(&self.listening).await;
        }
    }

    /// Retries to open the management sockets that could not be opened before.
    async fn open_missing_management(&self) {
        let missing: Vec<_> = {
            let servers = self.servers.lock();
            let missing = servers.iter().filter(|(_, side)| side.management.is_none());
            let socket = |(id, side): (&BridgeId, &BridgeServer)| {
                Some((*id, Arc::clone(&side.server), side.management_path.clone()?))
            };
            missing.filter_map(socket).collect()
        };
        for (id, server, path) in missing {
            let opened = match open_management(&server, &path).await {
                Ok(opened) => opened,
                Err(error) => {
                    // The reason was logged at the first attempt.
                    self.note_management(id, Some(management_problem(&error)));
                    continue;
                }
            };
            info!("management socket {}: open", path.display());
            self.note_management(id, None);
            let mut servers = self.servers.lock();
            if let Some(side) = servers.get_mut(&id) {
                side.management = Some(opened);
            }
        }
    }

    /// Stores the reason why a bridge has no management socket.
    fn note_management(&self, id: BridgeId, problem: Option<String>) {
        if let Some(bridge) = self.bridges.lock().by_id_mut(id) {
            bridge.management_problem = problem;
        }
    }

    /// Stores the reasons why listeners of a bridge are not open.
    fn note_listeners(&self, id: BridgeId, sockets: &BridgeSockets) {
        if let Some(bridge) = self.bridges.lock().by_id_mut(id) {
            bridge.listen_problems = sockets.problems();
        }
    }

    /// Takes the sockets of a bridge out of the map, to change them.
    ///
    /// Only the task of [`Self::run`] calls this function, so no other change happens before the
    /// sockets are put back.
    fn take_sockets(
        &self,
        id: BridgeId,
    ) -> Option<(Arc<OpenFlowServer<BridgeHost>>, BridgeSockets)> {
        let mut servers = self.servers.lock();
        let side = servers.get_mut(&id)?;
        Some((Arc::clone(&side.server), std::mem::take(&mut side.sockets)))
    }

    /// Stores the sockets of a bridge.
    fn put_sockets(&self, id: BridgeId, sockets: BridgeSockets) {
        self.note_listeners(id, &sockets);
        if let Some(side) = self.servers.lock().get_mut(&id) {
            side.sockets = sockets;
        }
    }
}
