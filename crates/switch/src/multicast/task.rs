//! The task of multicast snooping: reads IGMP and MLD messages, and learns groups and router ports.
//!
//! `NORMAL` punts the messages with their port and VLAN. The task serves the ports round robin, and
//! the messages of one round change the multicast tables in a few versions. So a host that floods
//! messages delays the messages of other ports by at most one round.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use shunt_flow::{PortNo, text::PortNames};
use shunt_multicast::{Membership, MembershipMessage, MembershipRecord};
use shunt_pipeline::{
    BridgeId, Delta, Learning, MulticastEvent, MulticastObservation, Object, Pipeline,
};
use tokio::task::yield_now;
use tracing::{Level, debug, enabled};

use crate::{
    control::ControlPlane,
    error::SwitchError,
    multicast::router_log::RouterChange,
    ports::{
        frame_inbox::{FrameInbox, PortFrames},
        names::BridgeNames,
    },
};

/// The messages that wait for the task, by port.
pub(crate) type SnoopingInbox = FrameInbox<SnoopedFrame, MESSAGES_MAX>;

/// Maximum number of waiting messages of a port.
///
/// A port at its rate limit receives this number in a third of a second.
const MESSAGES_MAX: usize = 64;

/// Maximum number of messages of a port that are read in one round.
const MESSAGES_PER_TURN: usize = 8;

/// Maximum number of group records that change the tables in one version.
const RECORDS_AT_ONCE: usize = 256;

/// A frame with an IGMP or MLD message, and its VLAN.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SnoopedFrame {
    /// The VLAN id of the frame.
    pub(crate) vlan: u16,
    /// The bytes of the frame.
    pub(crate) frame: Vec<u8>,
}

/// Counters of IGMP and MLD messages that reached the control plane.
#[derive(Debug, Default)]
pub(crate) struct MulticastCounters {
    /// Number of messages that were read.
    read: AtomicU64,
    /// Number of ignored messages, such as those with a wrong checksum.
    ignored: AtomicU64,
    /// Number of messages that the full queue dropped.
    lost: AtomicU64,
}

impl MulticastCounters {
    /// Returns the number of messages that were read.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Returns the number of messages that were ignored.
    ///
    /// A message is ignored, for example, if its checksum is wrong.
    pub(crate) fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }

    /// Returns the number of messages that were dropped before they were read.
    ///
    /// A message is dropped when too many newer messages of its port wait.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Learns from received messages, as long as the switch runs.
pub(crate) async fn run_multicast(control: Arc<ControlPlane>, inbox: Arc<SnoopingInbox>) {
    loop {
        inbox.wait().await;
        let mut observations = Vec::new();
        for ((bridge, port), messages) in inbox.take_turn(MESSAGES_PER_TURN) {
            count_lost(&control, bridge, port, &messages);
            for message in messages.frames {
                observations.extend(read(&control, bridge, port, &message));
            }
        }
        for some in observations.chunks(RECORDS_AT_ONCE) {
            learn(&control, some);
            // A host may send thousands of group records, so other tasks run in between.
            yield_now().await;
        }
        // The task also yields after thousands of messages without a record.
        yield_now().await;
    }
}

/// Counts the messages of a port that were dropped in favour of newer messages.
fn count_lost(
    control: &ControlPlane,
    bridge: BridgeId,
    port: PortNo,
    messages: &PortFrames<SnoopedFrame>,
) {
    let lost = messages.removed;
    if lost > 0 {
        control.multicast.lost.fetch_add(lost, Ordering::Relaxed);
        control.bridges.with_port(bridge, port, |own| {
            own.snooping_lost = own.snooping_lost.saturating_add(lost);
        });
    }
}

/// Parses a message; returns no records for an invalid message.
fn read(
    control: &ControlPlane,
    bridge: BridgeId,
    port: PortNo,
    message: &SnoopedFrame,
) -> Vec<MulticastObservation> {
    let (counters, vlan) = (&control.multicast, message.vlan);
    let observation = |event| MulticastObservation { bridge, vlan, port, event };
    match MembershipMessage::parse(&message.frame) {
        Ok(parsed) => {
            counters.read.fetch_add(1, Ordering::Relaxed);
            match parsed {
                MembershipMessage::Query => vec![observation(MulticastEvent::Query)],
                MembershipMessage::Report(records) => {
                    let event = |record: MembershipRecord| match record.membership {
                        Membership::Join => MulticastEvent::Join(record.group),
                        Membership::Leave => MulticastEvent::Leave(record.group),
                    };
                    records.into_iter().map(event).map(observation).collect()
                }
            }
        }
        // Only a debug line: a host may send any bytes.
        Err(error) => {
            counters.ignored.fetch_add(1, Ordering::Relaxed);
            if enabled!(Level::DEBUG) {
                let (bridge, port) = names(control.plane.pipeline(), bridge, port);
                debug!("bridge {bridge}: port {port}: ignored a message of IGMP or MLD: {error}");
            }
            Vec::new()
        }
    }
}

/// Changes the multicast tables by the messages, and logs the changes.
fn learn(control: &ControlPlane, observations: &[MulticastObservation]) {
    let plane = &control.plane;
    let learnings: Vec<_> = observations.iter().copied().map(Learning::Multicast).collect();
    let now = plane.now();
    let (mut changed, mut routers) = (BTreeSet::new(), Vec::new());
    let learned = plane.publisher().change(|pipeline| {
        let change = pipeline.learn(&learnings, now);
        routers = RouterChange::of(pipeline, &change);
        if enabled!(Level::DEBUG) {
            changed.extend(change.deltas.iter().filter_map(changed_object));
        }
        Ok::<_, SwitchError>(change)
    });
    // A change of the multicast tables never fails.
    debug_assert!(learned.is_ok());
    control.router_log.log_changes(plane.pipeline(), &routers, now);
    for observation in observations {
        let MulticastObservation { bridge, vlan, port, event } = *observation;
        let (group, change) = match event {
            MulticastEvent::Query => continue,
            MulticastEvent::Join(group) => (group, "joined"),
            MulticastEvent::Leave(group) => (group, "left"),
        };
        if changed.contains(&Object::MulticastGroup(bridge, vlan, group)) {
            let (bridge, port) = names(plane.pipeline(), bridge, port);
            debug!("bridge {bridge}: port {port}: {change} multicast group {group} vlan={vlan}");
        }
    }
}

/// Returns the changed object of a delta; `None` for a rule.
const fn changed_object(delta: &Delta) -> Option<Object> {
    match delta {
        Delta::Changed(object) => Some(*object),
        Delta::Rule(_) => None,
    }
}

/// Returns the names of a bridge and of one of its ports, for a log line.
fn names(pipeline: &Pipeline, bridge: BridgeId, port: PortNo) -> (String, String) {
    let name = pipeline.settings(bridge).map_or_else(|| bridge.to_string(), |own| own.name);
    let port = BridgeNames::new(pipeline, bridge).name(port).unwrap_or_else(|| port.to_string());
    (name, port)
}
