//! Frames that the switch itself sends on a port, such as those of protocols.

use std::sync::Arc;

use shunt_datapath::{Command, NO_INGRESS, command::Injection};
use shunt_flow::{FlowKey, PortNo, extract::extract};
use shunt_pipeline::{Action, BridgeId};

use crate::threads::data_plane::DataPlane;

/// Sends a frame on a port of a bridge, as a packet-out of a controller would.
pub(crate) async fn send_frame(plane: &DataPlane, bridge: BridgeId, port: PortNo, frame: Vec<u8>) {
    let thread = plane.living().first().copied().unwrap_or_default();
    let mut key = FlowKey::ZERO;
    extract(&frame, plane.vlan_limit(), &mut key);
    key.set_bridge(u64::from(bridge.number()));
    key.set_in_port(PortNo::CONTROLLER);
    let actions = [Action::Output { port, max_len: 0 }];
    let pipeline = plane.pipeline();
    let traversal = Arc::new(pipeline.translate_actions_at_newest_version(&key, &actions));
    let injection = Injection { frame, ingress: NO_INGRESS, traversal };
    plane.send(thread, Command::Inject(Box::new(injection))).await;
}
