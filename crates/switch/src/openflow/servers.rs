//! The OpenFlow servers of all bridges, and the asynchronous messages to their controllers.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
};

use parking_lot::Mutex;
use shunt_flow::PortNo;
use shunt_ofproto::{
    PausedPackets,
    connection::{ConnectionConfig, ConnectionKind, ControllerEvent},
    message::{FlowRemoved, PortStatus, PortStatusReason},
    server::{OpenFlowServer, ReconnectState, ServerEndpoint},
};
use shunt_pipeline::{BridgeId, PortInfo, PuntedPacket, Time};
use tracing::{error, info};

use crate::{
    config::Config,
    control::ControlPlane,
    error::{SwitchError, with_causes},
    nic::NicStatus,
    openflow::{
        endpoint::ControllerEndpoint,
        events::{ControlEvent, ControlReceivers, RemovedRule},
        host::BridgeHost,
    },
    ports::bridges::Bridges,
    status::bridge::{BridgeStatus, ConnectionSummary, ControllerState},
    threads::data_plane::DataPlane,
};

/// Removed rules that are handled before other tasks can run.
const REMOVED_PER_ITERATION: usize = 256;

/// The OpenFlow servers of all bridges.
pub(crate) struct OpenFlowServers {
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
    config: Arc<Mutex<Config>>,
    /// Directory of the management sockets; `None`: no such sockets.
    run_dir: Option<PathBuf>,
    servers: Mutex<HashMap<BridgeId, BridgeServer>>,
}

/// The OpenFlow server of one bridge; its sockets close when it is dropped.
struct BridgeServer {
    server: Arc<OpenFlowServer<BridgeHost>>,
    paused: Arc<PausedPackets>,
    /// Sockets of controllers, then of addresses to listen on, in configured order.
    sockets: Vec<ServerEndpoint>,
    /// Management socket, and its path.
    _own_socket: Option<ServerEndpoint>,
    management: Option<PathBuf>,
}

impl OpenFlowServers {
    pub(crate) fn new(control: &ControlPlane, run_dir: Option<PathBuf>) -> Self {
        Self {
            plane: Arc::clone(&control.plane),
            bridges: Arc::clone(&control.bridges),
            config: Arc::clone(&control.config),
            run_dir,
            servers: Mutex::default(),
        }
    }

    /// Notifies controllers of events, as long as the switch runs.
    pub(crate) async fn run(self: Arc<Self>, mut news: ControlReceivers) {
        loop {
            tokio::select! {
                // Events of bridges and ports come before packets, which may come from a new port.
                biased;
                event = news.events.recv() => match event {
                    Some(event) => self.handle(event).await,
                    None => return,
                },
                ports = self.bridges.changed().take() => {
                    for (id, number) in ports {
                        self.notify_port(id, number, PortStatusReason::Modify);
                    }
                }
                Some(packet) = news.packet_ins.recv() => self.publish_packet(packet),
            }
        }
    }

    /// Notifies controllers of removed rules, as long as the switch runs.
    ///
    /// It first waits until no thread uses their cache entries and all counts are reported, so that
    /// the counters are complete.
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
    /// There may be many, so other tasks can run between them.
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

    async fn handle(&self, event: ControlEvent) {
        match event {
            ControlEvent::BridgeAdded(id, ready) => {
                let opened = self.open(id).await;
                // The receiver is gone only if the caller was cancelled.
                let _ = ready.send(opened);
            }
            ControlEvent::BridgeRemoved(id) => drop(self.servers.lock().remove(&id)),
            ControlEvent::PortAdded(id, number) => {
                self.notify_port(id, number, PortStatusReason::Add);
            }
            ControlEvent::PortRemoved(id, port) => {
                self.publish_port(id, &port, PortStatusReason::Delete);
            }
        }
    }

    /// Returns the bridges, with the state of their controllers.
    pub(crate) fn bridge_status(&self, nic: Option<&NicStatus>) -> Vec<BridgeStatus> {
        let now = self.plane.now();
        let bridges = BridgeStatus::of_all(&self.bridges.lock(), self.plane.pipeline(), nic);
        let with_controllers = |(id, mut status): (BridgeId, BridgeStatus)| {
            if let Some(side) = self.servers.lock().get(&id) {
                for (controller, socket) in status.controllers.iter_mut().zip(&side.sockets) {
                    controller.state = side.state(&controller.target, socket, now);
                }
                status.connections = side.connections();
                status.packet_ins = side.server.packet_ins().into();
            }
            status
        };
        bridges.into_iter().map(with_controllers).collect()
    }

    fn server(&self, id: BridgeId) -> Option<Arc<OpenFlowServer<BridgeHost>>> {
        self.servers.lock().get(&id).map(|side| Arc::clone(&side.server))
    }

    fn publish_packet(&self, packet: PuntedPacket) {
        let id = packet.punt.bridge;
        let side =
            self.servers.lock().get(&id).map(|side| (side.server.clone(), side.paused.clone()));
        if let Some((server, paused)) = side {
            let token = packet.punt.continuation.as_ref().map(|own| paused.hold(own));
            server.publish(ControllerEvent::PacketIn(Arc::new(packet), token));
        }
    }

    fn notify_port(&self, id: BridgeId, number: PortNo, reason: PortStatusReason) {
        if let Some(port) = self.bridges.port_info(id, number) {
            self.publish_port(id, &port, reason);
        }
    }

    fn publish_port(&self, id: BridgeId, port: &PortInfo, reason: PortStatusReason) {
        if let Some(server) = self.server(id) {
            let port = BridgeHost::describe(port);
            server.publish_reliable(&[ControllerEvent::PortStatus(Arc::new(PortStatus {
                reason,
                port,
            }))]);
        }
    }

    /// Opens the sockets of a bridge: management, listeners and controllers.
    async fn open(&self, id: BridgeId) -> Result<(), SwitchError> {
        let (name, endpoints) = {
            let bridges = self.bridges.lock();
            let Some(bridge) = bridges.by_id(id) else { return Ok(()) };
            (bridge.settings.name.clone(), bridge.settings.endpoints()?)
        };
        let paused = Arc::<PausedPackets>::default();
        let host = BridgeHost {
            plane: Arc::clone(&self.plane),
            bridges: Arc::clone(&self.bridges),
            config: Arc::clone(&self.config),
            bridge: id,
            paused: Arc::clone(&paused),
        };
        let server = Arc::new(OpenFlowServer::new(Arc::new(host)));
        let (mut sockets, mut own_socket) = (Vec::new(), None);
        let management = self.run_dir.as_ref().map(|dir| dir.join(format!("{name}.mgmt")));
        if let Some(path) = &management {
            let failed = |source| SwitchError::System {
                doing: format!("listen on {}", path.display()),
                source,
            };
            own_socket = Some(server.listen_unix(path).await.map_err(failed)?);
        }
        for endpoint in endpoints {
            match endpoint {
                ControllerEndpoint::Listen(_) => {
                    info!(%endpoint, "bridge {name}: listening for controllers");
                }
                ControllerEndpoint::Connect(_) => {
                    info!(%endpoint, "bridge {name}: connecting to a controller");
                }
            }
            let failed =
                |source| SwitchError::System { doing: format!("listen on {endpoint}"), source };
            sockets.push(match endpoint {
                ControllerEndpoint::Listen(address) => {
                    server.listen_tcp(address).await.map_err(failed)?
                }
                ControllerEndpoint::Connect(address) => server.connect_tcp(
                    address,
                    ConnectionConfig::new(endpoint.to_string(), ConnectionKind::Controller),
                ),
            });
        }
        let side = BridgeServer { server, paused, sockets, _own_socket: own_socket, management };
        self.servers.lock().insert(id, side);
        Ok(())
    }
}

impl BridgeServer {
    /// Returns the connections that have agreed on a version.
    fn connections(&self) -> Vec<ConnectionSummary> {
        let open = self.server.connections().into_iter().filter(|own| own.status.is_open);
        open.map(|own| ConnectionSummary {
            peer: own.peer,
            role: own.status.role.name(),
            packet_ins: own.status.packet_ins.into(),
        })
        .collect()
    }

    /// Returns the state of one socket; `target` is its address in the configuration.
    fn state(&self, target: &str, socket: &ServerEndpoint, now: Time) -> ControllerState {
        match socket.reconnect_state() {
            None => ControllerState::Listening,
            Some(ReconnectState::Connecting) => ControllerState::Connecting,
            Some(ReconnectState::Waiting { reason: why, until }) => {
                let retry_in_s = until.since(now).as_millis().div_ceil(1000);
                let retry_in_s = u64::try_from(retry_in_s).unwrap_or(u64::MAX);
                ControllerState::Waiting { reason: why, retry_in_s }
            }
            Some(ReconnectState::Connected) => {
                let peer = peer(target);
                let connections = self.server.connections();
                let own = connections.iter().find(|connection| connection.peer == peer);
                // The connection has just closed.
                own.map_or(ControllerState::Connecting, |own| ControllerState::Connected {
                    role: own.status.role.name(),
                })
            }
        }
    }
}

/// Returns the peer name of the connection to a controller.
///
/// `target` is its address in the configuration.
fn peer(target: &str) -> String {
    target.parse::<ControllerEndpoint>().map_or_else(|_| target.to_owned(), |own| own.to_string())
}

impl Drop for BridgeServer {
    fn drop(&mut self) {
        if let Some(path) = &self.management
            && let Err(error) = std::fs::remove_file(path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            error!(error = with_causes(&error), "socket {}: cannot be removed", path.display());
        }
    }
}
