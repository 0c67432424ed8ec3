//! Frames that the switch itself creates and sends on a port, such as LACPDUs.

use std::{sync::Arc, time::Duration};

use shunt_datapath::{Command, NO_INGRESS, command::Injection};
use shunt_flow::{FlowKey, PortNo, extract::extract};
use shunt_pipeline::{Action, BridgeId, DatapathPort, Traversal};
use tokio::time::sleep;

use crate::threads::data_plane::DataPlane;

/// Number of rounds in which [`send_at_once`] tries all packet threads.
const ATTEMPTS_MAX: u32 = 5;

/// Pause between two of these rounds.
const FULL_QUEUES_PAUSE: Duration = Duration::from_millis(1);

/// Sends a frame on a port of a bridge, like a packet-out of a controller.
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

/// Sends a frame on a datapath port without the tables.
///
/// No change of the tables delays the frame, and no mirror copies it. If the queues of all packet
/// threads stay full, the frame is lost, as on a wire.
pub(crate) async fn send_at_once(plane: &DataPlane, port: DatapathPort, frame: Vec<u8>) {
    let traversal = Arc::new(Traversal::of_own_frame(port));
    let injection = Injection { frame, ingress: NO_INGRESS, traversal };
    let mut command = Command::Inject(Box::new(injection));
    for _attempt in 0..ATTEMPTS_MAX {
        for thread in plane.living() {
            match plane.try_send(thread, command) {
                Ok(()) => return,
                Err(refused) => command = refused,
            }
        }
        sleep(FULL_QUEUES_PAUSE).await;
    }
}
