//! The task of multicast snooping: reads messages of IGMP and MLD, and learns from them.
//!
//! NORMAL punts the messages with their port and VLAN. All messages that wait change the multicast tables
//! as one version.

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
    BridgeId, Delta, Learning, MulticastEvent, MulticastSighting, Object, Pipeline, PuntReceiver,
    PuntedPacket,
};
use tokio::{sync::mpsc, task::yield_now};
use tracing::{Level, debug, enabled};

use crate::{
    control::ControlPlane, error::SwitchError, multicast::router_log::RouterChange,
    ports::names::BridgeNames,
};

/// The most messages that are taken for one version.
const MESSAGES_AT_ONCE: usize = 64;

/// The most records of messages that change the tables in one version.
const RECORDS_AT_ONCE: usize = 256;

/// Numbers of messages of IGMP and MLD.
#[derive(Debug, Default)]
pub(crate) struct MulticastCounters {
    read: AtomicU64,
    ignored: AtomicU64,
}

impl MulticastCounters {
    /// Returns the number of messages that were read.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Returns the number of messages that were ignored.
    ///
    /// For example, their checksum is wrong.
    pub(crate) fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }
}

/// Learns from messages, as long as the switch runs.
pub(crate) async fn run_multicast(
    control: Arc<ControlPlane>,
    mut received: mpsc::Receiver<PuntedPacket>,
) {
    let mut messages = Vec::new();
    while received.recv_many(&mut messages, MESSAGES_AT_ONCE).await > 0 {
        let pipeline = control.plane.pipeline();
        let sightings = messages.drain(..);
        let sightings = sightings.flat_map(|own| read(pipeline, &control.multicast, &own));
        let sightings: Vec<MulticastSighting> = sightings.collect();
        for some in sightings.chunks(RECORDS_AT_ONCE) {
            learn(&control, some);
            // A host may send thousands of records: other tasks run between them.
            yield_now().await;
        }
    }
}

/// Returns the content of a message; nothing if it is broken.
fn read(
    pipeline: &Pipeline,
    counters: &MulticastCounters,
    message: &PuntedPacket,
) -> Vec<MulticastSighting> {
    let PuntReceiver::Multicast { port, vlan } = message.punt.receiver else { return Vec::new() };
    let bridge = message.punt.bridge;
    let sighting = |event| MulticastSighting { bridge, vlan, port, event };
    match MembershipMessage::parse(&message.frame) {
        Ok(parsed) => {
            counters.read.fetch_add(1, Ordering::Relaxed);
            match parsed {
                MembershipMessage::Query => vec![sighting(MulticastEvent::Query)],
                MembershipMessage::Report(records) => {
                    let event = |record: MembershipRecord| match record.membership {
                        Membership::Join => MulticastEvent::Join(record.group),
                        Membership::Leave => MulticastEvent::Leave(record.group),
                    };
                    records.into_iter().map(event).map(sighting).collect()
                }
            }
        }
        // A host may send anything, so this is no event of the switch.
        Err(error) => {
            counters.ignored.fetch_add(1, Ordering::Relaxed);
            let (bridge, port) = names(pipeline, bridge, port);
            debug!("bridge {bridge}: port {port}: ignored a message of IGMP or MLD: {error}");
            Vec::new()
        }
    }
}

/// Learns from messages, and logs the changes.
fn learn(control: &ControlPlane, sightings: &[MulticastSighting]) {
    let plane = &control.plane;
    let learnings: Vec<_> = sightings.iter().copied().map(Learning::Multicast).collect();
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
    // The change itself never fails.
    debug_assert!(learned.is_ok());
    control.router_log.add(plane.pipeline(), &routers, now);
    for sighting in sightings {
        let MulticastSighting { bridge, vlan, port, event } = *sighting;
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

/// Returns the object of a delta; `None` for a rule.
const fn changed_object(delta: &Delta) -> Option<Object> {
    match delta {
        Delta::Changed(object) => Some(*object),
        Delta::Rule(_) => None,
    }
}

/// Returns the names of a bridge and of its port, for a message.
fn names(pipeline: &Pipeline, bridge: BridgeId, port: PortNo) -> (String, String) {
    let name = pipeline.settings(bridge).map_or_else(|| bridge.to_string(), |own| own.name);
    let port = BridgeNames::new(pipeline, bridge).name(port).unwrap_or_else(|| port.to_string());
    (name, port)
}
