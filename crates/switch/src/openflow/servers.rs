//! The OpenFlow side of every bridge: its server, and what its controllers hear unasked.

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
    control::Control,
    error::{SwitchError, with_causes},
    openflow::{
        endpoint::Endpoint,
        events::{Event, News, Removed},
        host::BridgeHost,
    },
    status::bridge::{BridgeStatus, ControllerState},
};

/// Removed rules that are looked at before other tasks get a turn.
const REMOVED_PER_ITERATION: usize = 256;

/// The servers of all bridges.
pub(crate) struct OpenFlow {
    control: Arc<Control>,
    bridges: Mutex<HashMap<BridgeId, BridgeSide>>,
}

/// The OpenFlow side of one bridge; its sockets close when it is dropped.
struct BridgeSide {
    server: Arc<OpenFlowServer<BridgeHost>>,
    paused: Arc<PausedPackets>,
    /// Of the controllers and then of the addresses to listen on, in the order of the configuration.
    sockets: Vec<ServerEndpoint>,
    /// The management socket, and its path.
    _own_socket: Option<ServerEndpoint>,
    management: Option<PathBuf>,
}

impl OpenFlow {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control, bridges: Mutex::default() }
    }

    /// Tells controllers what happens, for as long as the switch lives.
    pub(crate) async fn run(self: Arc<Self>, mut news: News) {
        loop {
            tokio::select! {
                // What happened to bridges and ports comes before packets, which may come from them.
                biased;
                event = news.events.recv() => match event {
                    Some(event) => self.tell(event).await,
                    None => return,
                },
                ports = self.control.changed_ports.take() => {
                    for (id, number) in ports {
                        self.tell_port(id, number, PortStatusReason::Modify);
                    }
                }
                Some(packet) = news.packet_ins.recv() => self.tell_packet(packet),
            }
        }
    }

    /// Tells controllers of rules that were removed, for as long as the switch lives, once their
    /// counters are complete: every thread has let go of its entries by then, and has handed in
    /// what it had counted.
    pub(crate) async fn tell_removed(self: Arc<Self>) {
        let control = &self.control;
        loop {
            let removed = control.plane.removals().take().await;
            let newest = removed.iter().map(|removed| removed.version).max().unwrap_or_default();
            control.plane.adopted(newest).await;
            control.plane.pull().await;
            for (bridge, events) in self.by_bridge(removed).await {
                if let Some(server) = self.server(bridge) {
                    server.publish_reliable(&events);
                }
            }
        }
    }

    /// What there is to tell of rules that were removed. There may be very many: others that run on
    /// this thread get their turns.
    async fn by_bridge(&self, removed: Vec<Removed>) -> BTreeMap<BridgeId, Vec<ControllerEvent>> {
        let now = self.control.plane.clock.now();
        let mut events = BTreeMap::<_, Vec<_>>::new();
        for (count, Removed { rule, reason, .. }) in (1..).zip(removed) {
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

    async fn tell(&self, event: Event) {
        match event {
            Event::BridgeAdded(id, ready) => {
                let opened = self.open(id).await;
                // Nobody waits for the answer only when the caller was cancelled.
                let _ = ready.send(opened);
            }
            Event::BridgeRemoved(id) => drop(self.bridges.lock().remove(&id)),
            Event::PortAdded(id, number) => self.tell_port(id, number, PortStatusReason::Add),
            Event::PortRemoved(id, port) => self.publish_port(id, &port, PortStatusReason::Delete),
        }
    }

    /// The bridges, with how it stands with their controllers.
    pub(crate) fn bridge_status(&self) -> Vec<BridgeStatus> {
        let now = self.control.plane.clock.now();
        let bridges = self.control.bridge_status();
        let with_controllers = |(id, mut status): (BridgeId, BridgeStatus)| {
            if let Some(side) = self.bridges.lock().get(&id) {
                for (controller, socket) in status.controllers.iter_mut().zip(&side.sockets) {
                    controller.state = side.state(&controller.target, socket, now);
                }
            }
            status
        };
        bridges.into_iter().map(with_controllers).collect()
    }

    fn server(&self, id: BridgeId) -> Option<Arc<OpenFlowServer<BridgeHost>>> {
        self.bridges.lock().get(&id).map(|side| Arc::clone(&side.server))
    }

    fn tell_packet(&self, packet: PuntedPacket) {
        let id = packet.punt.bridge;
        let side =
            self.bridges.lock().get(&id).map(|side| (side.server.clone(), side.paused.clone()));
        if let Some((server, paused)) = side {
            let token = packet.punt.continuation.as_ref().map(|own| paused.hold(own));
            server.publish(ControllerEvent::PacketIn(Arc::new(packet), token));
        }
    }

    fn tell_port(&self, id: BridgeId, number: PortNo, reason: PortStatusReason) {
        if let Some(port) = self.control.port_info(id, number) {
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

    /// Opens the sockets of a bridge: management, listeners, controllers.
    async fn open(&self, id: BridgeId) -> Result<(), SwitchError> {
        let (name, endpoints) = {
            let bridges = self.control.bridges.lock();
            let Some(bridge) = bridges.by_id(id) else { return Ok(()) };
            (bridge.settings.name.clone(), bridge.settings.endpoints()?)
        };
        let (control, paused) = (Arc::clone(&self.control), Arc::<PausedPackets>::default());
        let host = BridgeHost { control, bridge: id, paused: Arc::clone(&paused) };
        let server = Arc::new(OpenFlowServer::new(Arc::new(host)));
        let (mut sockets, mut own_socket) = (Vec::new(), None);
        let management = self.control.run_dir.as_ref().map(|dir| dir.join(format!("{name}.mgmt")));
        if let Some(path) = &management {
            let failed = |source| SwitchError::System {
                doing: format!("listen on {}", path.display()),
                source,
            };
            own_socket = Some(server.listen_unix(path).await.map_err(failed)?);
        }
        for endpoint in endpoints {
            match endpoint {
                Endpoint::Listen(_) => info!(bridge = name, %endpoint, "listens for controllers"),
                Endpoint::Connect(_) => info!(bridge = name, %endpoint, "connects to a controller"),
            }
            let failed =
                |source| SwitchError::System { doing: format!("listen on {endpoint}"), source };
            sockets.push(match endpoint {
                Endpoint::Listen(address) => server.listen_tcp(address).await.map_err(failed)?,
                Endpoint::Connect(address) => server.connect_tcp(
                    address,
                    ConnectionConfig::new(endpoint.to_string(), ConnectionKind::Controller),
                ),
            });
        }
        let side = BridgeSide { server, paused, sockets, _own_socket: own_socket, management };
        self.bridges.lock().insert(id, side);
        Ok(())
    }
}

impl BridgeSide {
    /// How it stands with what one endpoint leads to, of which the configuration says `target`.
    fn state(&self, target: &str, socket: &ServerEndpoint, now: Time) -> ControllerState {
        match socket.reconnect_state() {
            None => ControllerState::Listening,
            Some(ReconnectState::Connecting) => ControllerState::Connecting,
            Some(ReconnectState::Waiting { reason: why, until }) => {
                let next_try_s = until.since(now).as_millis().div_ceil(1000);
                let next_try_s = u64::try_from(next_try_s).unwrap_or(u64::MAX);
                ControllerState::Waiting { why, next_try_s }
            }
            Some(ReconnectState::Connected) => {
                let peer = peer(target);
                let connections = self.server.connections();
                let own = connections.iter().find(|connection| connection.peer == peer);
                // One that has just gone.
                own.map_or(ControllerState::Connecting, |own| ControllerState::Connected {
                    role: own.status.role.name(),
                })
            }
        }
    }
}

/// What a controller's connection is called, of which the configuration says `target`.
fn peer(target: &str) -> String {
    target.parse::<Endpoint>().map_or_else(|_| target.to_owned(), |own| own.to_string())
}

impl Drop for BridgeSide {
    fn drop(&mut self) {
        if let Some(path) = &self.management
            && let Err(error) = std::fs::remove_file(path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            error!(socket = %path.display(), error = with_causes(&error), "a socket stays behind");
        }
    }
}
