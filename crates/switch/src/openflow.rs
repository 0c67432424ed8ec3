//! The OpenFlow side of every bridge: its server, and what its controllers hear unasked.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use shunt_flow::PortNo;
use shunt_ofproto::{
    connection::{ConnectionConfig, ConnectionKind, Event as Told},
    message::{FlowRemoved, PortStatus, PortStatusReason},
    server::{Endpoint as Socket, Server},
};
use shunt_pipeline::{BridgeId, PacketIn, PortInfo, RemovedReason, Rule, Version};
use tracing::{error, info};

use crate::{
    Endpoint, SwitchError,
    control::Control,
    events::{Event, News},
    host::BridgeHost,
    with_causes,
};

/// Removed rules that are told of in one go; a connection holds several times as many.
const REMOVED_BURST: usize = 128;

/// Time for connections to take what they were told, before they are told more.
const REMOVED_PAUSE: Duration = Duration::from_millis(2);

/// The servers of all bridges.
pub(crate) struct OpenFlow {
    control: Arc<Control>,
    bridges: HashMap<BridgeId, BridgeSide>,
}

/// The OpenFlow side of one bridge; its sockets close when it is dropped.
struct BridgeSide {
    server: Arc<Server<BridgeHost>>,
    _sockets: Vec<Socket>,
    management: Option<PathBuf>,
}

impl OpenFlow {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control, bridges: HashMap::new() }
    }

    /// Tells controllers what happens, for as long as the switch lives.
    pub(crate) async fn run(mut self, mut news: News) {
        loop {
            tokio::select! {
                // What happened to bridges and ports comes before packets, which may come from them.
                biased;
                event = news.events.recv() => match event {
                    Some(event) => self.tell(event).await,
                    None => return,
                },
                Some(packet) = news.packet_ins.recv() => self.tell_packet(packet),
            }
        }
    }

    async fn tell(&mut self, event: Event) {
        match event {
            Event::BridgeAdded(id, ready) => {
                let opened = self.open(id).await;
                // Nobody waits for the answer only when the caller was cancelled.
                let _ = ready.send(opened);
            }
            Event::BridgeRemoved(id) => drop(self.bridges.remove(&id)),
            Event::PortAdded(id, number) => self.tell_port(id, number, PortStatusReason::Add),
            Event::PortChanged(id, number) => self.tell_port(id, number, PortStatusReason::Modify),
            Event::PortRemoved(id, port) => self.publish_port(id, &port, PortStatusReason::Delete),
            Event::RulesRemoved(version, removed) => {
                let (control, servers) = (Arc::clone(&self.control), self.servers());
                tokio::spawn(tell_removed(control, servers, version, removed));
            }
        }
    }

    fn servers(&self) -> HashMap<BridgeId, Arc<Server<BridgeHost>>> {
        self.bridges.iter().map(|(id, side)| (*id, Arc::clone(&side.server))).collect()
    }

    fn tell_packet(&self, packet: PacketIn) {
        if let Some(side) = self.bridges.get(&packet.punt.bridge) {
            side.server.publish(Told::PacketIn(Arc::new(packet)));
        }
    }

    fn tell_port(&self, id: BridgeId, number: PortNo, reason: PortStatusReason) {
        if let Some(port) = self.control.port_info(id, number) {
            self.publish_port(id, &port, reason);
        }
    }

    fn publish_port(&self, id: BridgeId, port: &PortInfo, reason: PortStatusReason) {
        if let Some(side) = self.bridges.get(&id) {
            let port = BridgeHost::describe(port);
            side.server.publish(Told::PortStatus(Arc::new(PortStatus { reason, port })));
        }
    }

    /// Opens the sockets of a bridge: management, listeners, controllers.
    async fn open(&mut self, id: BridgeId) -> Result<(), SwitchError> {
        let (name, endpoints) = {
            let bridges = self.control.bridges.lock();
            let Some(bridge) = bridges.by_id(id) else { return Ok(()) };
            (bridge.settings.name.clone(), bridge.settings.endpoints()?)
        };
        let host = BridgeHost { control: Arc::clone(&self.control), bridge: id };
        let server = Arc::new(Server::new(Arc::new(host)));
        let mut sockets = Vec::new();
        let management = self.control.run_dir.as_ref().map(|dir| dir.join(format!("{name}.mgmt")));
        if let Some(path) = &management {
            let failed = |source| SwitchError::System {
                doing: format!("listen on {}", path.display()),
                source,
            };
            sockets.push(server.listen_unix(path).await.map_err(failed)?);
        }
        for endpoint in endpoints {
            info!(bridge = name, %endpoint, "OpenFlow");
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
        self.bridges.insert(id, BridgeSide { server, _sockets: sockets, management });
        Ok(())
    }
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

/// Tells of rules that a version removed, once their counters are complete: every thread has let go
/// of its entries by then, and has handed in what it had counted.
async fn tell_removed(
    control: Arc<Control>,
    servers: HashMap<BridgeId, Arc<Server<BridgeHost>>>,
    version: Version,
    removed: Vec<(Arc<Rule>, RemovedReason)>,
) {
    control.plane.adopted(version).await;
    control.plane.pull().await;
    for (index, (rule, reason)) in removed.into_iter().enumerate() {
        if index % REMOVED_BURST == REMOVED_BURST - 1 {
            tokio::time::sleep(REMOVED_PAUSE).await;
        }
        if let Some(server) = servers.get(&rule.bridge) {
            let now = control.plane.clock.now();
            let removed = FlowRemoved::of(&rule, reason, rule.stats.totals(), now);
            server.publish(Told::FlowRemoved(Arc::new(removed)));
        }
    }
}
