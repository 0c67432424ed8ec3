//! The LACP task: passes received frames and the time to the actors of bonds, and sends their
//! frames.
//!
//! The task waits for no change of bridges or ports: a change may take longer than the LACP timeout
//! of a partner.

use std::sync::Arc;

use shunt_flow::PortNo;
use shunt_pipeline::BridgeId;
use tokio::time::sleep;
use tracing::{debug, info};

use crate::{
    control::ControlPlane,
    ports::{
        bridges::Bridges,
        change_log::ChangeLog,
        frame_inbox::{ArrivedFrame, FrameInbox, PortFrames},
        own_frames::send_frame,
        registry::BridgeRegistry,
    },
    threads::data_plane::DataPlane,
};

/// Runs the LACP actors of all bonds, as long as the switch runs.
///
/// If the listener thread has ended, no frame arrives, and the partners of the actors expire.
pub(crate) async fn run_lacp(control: Arc<ControlPlane>, inbox: Arc<FrameInbox>) {
    let (plane, bridges) = (&control.plane, &control.bridges);
    let mut log = ChangeLog::default();
    loop {
        let deadline = bridges.lock().next_lacp_deadline().into_iter().chain(log.deadline()).min();
        let delay = deadline.map(|deadline| deadline.since(plane.now()));
        tokio::select! {
            () = inbox.wait() => {}
            () = bridges.lacp_changed().notified() => {}
            () = sleep(delay.unwrap_or_default()), if delay.is_some() => {}
        }
        let (now, output) = {
            let mut bridges = bridges.lock();
            // The clock is read before the frames, so no timeout expires for a partner with a
            // waiting frame.
            let now = plane.now();
            for ((bridge, port), frames) in inbox.take() {
                take(&mut bridges, (bridge, port), &frames);
            }
            (now, bridges.run_lacp(now))
        };
        for (bond, member, event) in &output.events {
            let owner = format!("bond {bond}: member {member}: LACP");
            log.line(&owner, *event, now).into_iter().for_each(|line| info!("{line}"));
        }
        log.summaries(now).into_iter().for_each(|line| info!("{line}"));
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
/// `leaves` selects members by bridge, bond and member name. Without these LACPDUs the partners
/// would send on the links until a timeout. Returns when the packet threads have taken the LACPDUs.
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

/// Passes the received frames of a port to the LACP actor of its bond.
///
/// Frames for a removed bond are dropped.
fn take(bridges: &mut BridgeRegistry, (bridge, port): (BridgeId, PortNo), received: &PortFrames) {
    let Some((bond, actor)) = bridges.lacp_actor_mut(bridge, port) else { return };
    actor.count_refused(port, received.removed);
    for ArrivedFrame { arrived, frame } in &received.frames {
        // Only a debug line: a partner may send frames of later LACP versions.
        if let Err(error) = actor.receive(port, frame, *arrived) {
            debug!("bond {bond}: port {port}: ignored a frame: {error}");
        }
    }
}
