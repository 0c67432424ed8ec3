//! The task of LACP: gives the actors of bonds their frames and the time, and sends their frames.
//!
//! It waits for no change of bridges or ports, which may take longer than a partner waits.

use std::sync::Arc;

use shunt_pipeline::{BridgeId, PuntReceiver, PuntedPacket, Time};
use tokio::{sync::mpsc, time::sleep};
use tracing::{debug, info};

use crate::{
    control::ControlPlane,
    ports::{bridges::Bridges, own_frames::send_frame, registry::BridgeRegistry},
    threads::data_plane::DataPlane,
};

/// The most frames that are taken before their effects.
const FRAMES_AT_ONCE: usize = 64;

/// Runs the LACP actors of all bonds, as long as the switch runs.
pub(crate) async fn run_lacp(
    control: Arc<ControlPlane>,
    mut received: mpsc::Receiver<PuntedPacket>,
) {
    let (plane, bridges) = (&control.plane, &control.bridges);
    let mut frames = Vec::new();
    // Without the listener thread no frame arrives any more. The actors notice that by their timeouts.
    let mut has_listener = true;
    loop {
        let deadline = bridges.lock().next_lacp_deadline();
        let delay = deadline.map(|deadline| deadline.since(plane.now()));
        tokio::select! {
            count = received.recv_many(&mut frames, FRAMES_AT_ONCE), if has_listener => {
                has_listener = count > 0;
            }
            () = bridges.lacp_changed().notified() => {}
            () = sleep(delay.unwrap_or_default()), if delay.is_some() => {}
        }
        let now = plane.now();
        let output = {
            let mut bridges = bridges.lock();
            for frame in frames.drain(..) {
                take(&mut bridges, &frame, now);
            }
            bridges.run_lacp(now)
        };
        for (bond, member, event) in &output.events {
            info!("bond {bond}: member {member}: LACP {event}");
        }
        if !output.events.is_empty() {
            bridges.publish_ports();
        }
        for (bridge, (port, frame)) in output.frames {
            send_frame(plane, bridge, port, frame).await;
        }
    }
}

/// Sends the last LACPDUs of members that are about to leave their bonds.
///
/// `leaves` decides by bridge, bond and member. Without these frames the partners would go on sending
/// on the links until a timeout. Returns when the packet threads have taken the frames.
pub(crate) async fn leave_partners(
    plane: &DataPlane,
    bridges: &Bridges,
    leaves: impl Fn(BridgeId, &str, &str) -> bool,
) {
    let frames = bridges.lock().leave_lacp(leaves, plane.now());
    if frames.is_empty() {
        return;
    }
    for (bridge, (port, frame)) in frames {
        send_frame(plane, bridge, port, frame).await;
    }
    plane.pull_threads().await;
}

/// Gives a received frame to the actor of its port. A bond that has gone gets none.
fn take(bridges: &mut BridgeRegistry, packet: &PuntedPacket, now: Time) {
    let PuntReceiver::Lacp(port) = packet.punt.receiver else { return };
    let Some((bond, actor)) = bridges.lacp_actor_mut(packet.punt.bridge, port) else { return };
    // A partner may send frames of later versions, so this is no event of the switch.
    if let Err(error) = actor.receive(port, &packet.frame, now) {
        debug!("bond {bond}: port {port}: ignored a frame: {error}");
    }
}
