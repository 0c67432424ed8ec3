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
    BridgeId, Change, Delta, Learning, MulticastEvent, MulticastSighting, Object, Pipeline,
    PuntReceiver, PuntedPacket,
};
use tokio::{sync::mpsc, task::yield_now};
use tracing::{Level, debug, enabled, info};

use crate::{control::ControlPlane, error::SwitchError, ports::names::BridgeNames};

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
    let mut changed = BTreeSet::new();
    let learned = plane.publisher().change(|pipeline| {
        let change = pipeline.learn(&learnings, now);
        changed.extend(change.deltas.iter().filter_map(|delta| match delta {
            Delta::Changed(object) => Some(*object),
            Delta::Rule(_) => None,
        }));
        Ok::<_, SwitchError>(change)
    });
    // The change itself never fails.
    debug_assert!(learned.is_ok());
    for sighting in sightings {
        let MulticastSighting { bridge, vlan, port, event } = *sighting;
        let object = match event {
            MulticastEvent::Query => Object::MulticastRouters(bridge, vlan),
            MulticastEvent::Join(group) | MulticastEvent::Leave(group) => {
                Object::MulticastGroup(bridge, vlan, group)
            }
        };
        if !changed.contains(&object) {
            continue;
        }
        let is_shown = matches!(event, MulticastEvent::Query) || enabled!(Level::DEBUG);
        if !is_shown {
            continue;
        }
        let (bridge, port) = names(plane.pipeline(), bridge, port);
        match event {
            MulticastEvent::Query => {
                info!("bridge {bridge}: port {port}: a multicast router is there vlan={vlan}");
            }
            MulticastEvent::Join(group) => {
                debug!("bridge {bridge}: port {port}: joined multicast group {group} vlan={vlan}");
            }
            MulticastEvent::Leave(group) => {
                debug!("bridge {bridge}: port {port}: left multicast group {group} vlan={vlan}");
            }
        }
    }
}

/// Logs the VLANs in which a multicast router sent no query in time.
pub(crate) fn log_expired_routers(pipeline: &Pipeline, change: &Change) {
    for line in expired_routers(pipeline, change) {
        info!("{line}");
    }
}

/// Returns a line for each VLAN in which a router port has expired.
fn expired_routers(pipeline: &Pipeline, change: &Change) -> Vec<String> {
    let line = |delta: &Delta| {
        let Delta::Changed(Object::MulticastRouters(bridge, vlan)) = *delta else { return None };
        let name = pipeline.settings(bridge)?.name;
        let left = pipeline.multicast(bridge).into_iter();
        let left = left.filter(|own| own.group.is_none() && own.vlan == vlan);
        let left: Vec<String> = left.map(|own| names(pipeline, bridge, own.port).1).collect();
        let left = if left.is_empty() { "none".to_owned() } else { left.join(",") };
        Some(format!(
            "bridge {name}: a multicast router sent no query in time, ports with routers: {left} \
             vlan={vlan}"
        ))
    };
    change.deltas.iter().filter_map(line).collect()
}

/// Returns the names of a bridge and of its port, for a message.
fn names(pipeline: &Pipeline, bridge: BridgeId, port: PortNo) -> (String, String) {
    let name = pipeline.settings(bridge).map_or_else(|| bridge.to_string(), |own| own.name);
    let port = BridgeNames::new(pipeline, bridge).name(port).unwrap_or_else(|| port.to_string());
    (name, port)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shunt_pipeline::{BridgeSettings, MulticastSnooping, PortInfo, Time};

    use super::*;

    #[test]
    fn an_expired_router_port_is_logged() {
        let (pipeline, bridge) = (Pipeline::new(1), BridgeId::new(1));
        let multicast = Some(MulticastSnooping::default());
        let settings =
            BridgeSettings { name: "br0".to_owned(), multicast, ..BridgeSettings::default() };
        pipeline.add_bridge(bridge, settings);
        pipeline.set_ports(bridge, [1, 2].map(PortInfo::datapath).into()).unwrap();
        let at = |second| Time::ZERO.after(Duration::from_secs(second));
        for (port, second) in [(1, 0), (2, 10)] {
            let (port, event) = (PortNo::new(port), MulticastEvent::Query);
            let sighting = MulticastSighting { bridge, vlan: 0, port, event };
            pipeline.learn(&[Learning::Multicast(sighting)], at(second));
        }
        let expired = |second| expired_routers(&pipeline, &pipeline.expire(at(second)));
        let line = "bridge br0: a multicast router sent no query in time, ports with routers: ";
        assert_eq!(expired(180), [format!("{line}p2 vlan=0")]);
        assert_eq!(expired(190), [format!("{line}none vlan=0")]);
        assert!(expired(200).is_empty());
    }
}
