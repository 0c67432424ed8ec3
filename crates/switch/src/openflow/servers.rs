//! The OpenFlow servers of all bridges, and the asynchronous messages to their controllers.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
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
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use crate::{
    config::Config,
    control::{ControlPlane, structure::OpenPolicy},
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

/// Interval between two attempts to listen on an address.
const LISTEN_RETRY: Duration = Duration::from_secs(1);

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
    /// Sockets of controllers and of addresses to listen on.
    sockets: HashMap<ControllerEndpoint, SocketState>,
    /// Management socket, and its path.
    _own_socket: Option<ServerEndpoint>,
    management: Option<PathBuf>,
}

/// The state of the socket of a controller or listener.
enum SocketState {
    Open(ServerEndpoint),
    /// The address cannot be bound now; the next attempt is at this time.
    Waiting {
        reason: String,
        until: Time,
    },
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
        let mut retry = interval(LISTEN_RETRY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
                _ = retry.tick() => self.listen_again().await,
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
            ControlEvent::BridgeAdded(id, policy, ready) => {
                let opened = self.open(id, policy).await;
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
                for controller in &mut status.controllers {
                    if let Some(state) = side.state(&controller.target, now) {
                        controller.state = state;
                    }
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
    async fn open(&self, id: BridgeId, policy: OpenPolicy) -> Result<(), SwitchError> {
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
        let (mut sockets, mut own_socket) = (HashMap::new(), None);
        let management = self.run_dir.as_ref().map(|dir| dir.join(format!("{name}.mgmt")));
        if let Some(path) = &management {
            let failed = |source| SwitchError::System {
                doing: format!("listen on {}", path.display()),
                source,
            };
            own_socket = Some(server.listen_unix(path).await.map_err(failed)?);
        }
        for endpoint in endpoints {
            let opened = match open_socket(&server, endpoint, &name).await {
                Err(error) if policy == OpenPolicy::Retried => {
                    let reason = with_causes(&error);
                    warn!(error = reason, "bridge {name}: not listening, retrying");
                    SocketState::Waiting { reason, until: self.plane.now().after(LISTEN_RETRY) }
                }
                opened => SocketState::Open(opened?),
            };
            sockets.insert(endpoint, opened);
        }
        let side = BridgeServer { server, paused, sockets, _own_socket: own_socket, management };
        self.servers.lock().insert(id, side);
        Ok(())
    }

    /// Opens listeners that could not be opened before.
    async fn listen_again(&self) {
        let now = self.plane.now();
        for (id, endpoint, server) in self.waiting_listeners(now) {
            let Some(name) = self.bridges.lock().by_id(id).map(|own| own.settings.name.clone())
            else {
                continue;
            };
            let opened = match open_socket(&server, endpoint, &name).await {
                Ok(socket) => SocketState::Open(socket),
                Err(error) => SocketState::Waiting {
                    reason: with_causes(&error),
                    until: now.after(LISTEN_RETRY),
                },
            };
            // Only this task changes sockets, so the listener is still configured.
            if let Some(side) = self.servers.lock().get_mut(&id) {
                side.sockets.insert(endpoint, opened);
            }
        }
    }

    /// Returns the listeners to open again, each with its bridge.
    fn waiting_listeners(
        &self,
        now: Time,
    ) -> Vec<(BridgeId, ControllerEndpoint, Arc<OpenFlowServer<BridgeHost>>)> {
        let servers = self.servers.lock();
        let waiting = servers.iter().flat_map(|(id, side)| {
            let due = side.sockets.iter().filter(
                |(_, socket)| matches!(socket, SocketState::Waiting { until, .. } if *until <= now),
            );
            due.map(|(endpoint, _)| (*id, *endpoint, Arc::clone(&side.server)))
        });
        waiting.collect()
    }
}

/// Opens the socket of a controller or listener of the bridge `name`.
async fn open_socket(
    server: &OpenFlowServer<BridgeHost>,
    endpoint: ControllerEndpoint,
    name: &str,
) -> Result<ServerEndpoint, SwitchError> {
    match endpoint {
        ControllerEndpoint::Listen(address) => {
            let socket = listen(server, address).await?;
            info!(%endpoint, "bridge {name}: listening for controllers");
            Ok(socket)
        }
        ControllerEndpoint::Connect(address) => {
            info!(%endpoint, "bridge {name}: connecting to a controller");
            let peer = ConnectionConfig::new(endpoint.to_string(), ConnectionKind::Controller);
            Ok(server.connect_tcp(address, peer))
        }
    }
}

async fn listen(
    server: &OpenFlowServer<BridgeHost>,
    address: SocketAddr,
) -> Result<ServerEndpoint, SwitchError> {
    let doing = || format!("listen on {}", ControllerEndpoint::Listen(address));
    let opened = server.listen_tcp(address).await;
    opened.map_err(|source| SwitchError::System { doing: doing(), source })
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
    ///
    /// `None` if there is no socket for the address yet.
    fn state(&self, target: &str, now: Time) -> Option<ControllerState> {
        let endpoint = target.parse::<ControllerEndpoint>().ok()?;
        let waiting = |reason: &str, until: Time| {
            let retry_in_s = until.since(now).as_millis().div_ceil(1000);
            let retry_in_s = u64::try_from(retry_in_s).unwrap_or(u64::MAX);
            ControllerState::Waiting { reason: reason.to_owned(), retry_in_s }
        };
        let socket = match self.sockets.get(&endpoint)? {
            SocketState::Waiting { reason, until } => return Some(waiting(reason, *until)),
            SocketState::Open(socket) => socket,
        };
        Some(match socket.reconnect_state() {
            None => ControllerState::Listening,
            Some(ReconnectState::Connecting) => ControllerState::Connecting,
            Some(ReconnectState::Waiting { reason, until }) => waiting(&reason, until),
            Some(ReconnectState::Connected) => {
                let peer = endpoint.to_string();
                let connections = self.server.connections();
                let own = connections.iter().find(|connection| connection.peer == peer);
                // The connection has just closed.
                own.map_or(ControllerState::Connecting, |own| ControllerState::Connected {
                    role: own.status.role.name(),
                })
            }
        })
    }
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
