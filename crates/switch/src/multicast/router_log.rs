//! Log lines about multicast routers: routers that appear, and routers that send no query in time.
//!
//! A host decides how often routers appear: a query in each VLAN of a trunk makes thousands of
//! router ports. So each port has a limited number of lines (see [`ChangeLog`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display, Formatter},
};

use parking_lot::Mutex;
use shunt_flow::{PortNo, text::PortNames as _};
use shunt_pipeline::{BridgeId, Change, Delta, Object, Pipeline, Time, Version};
use tracing::info;

use crate::ports::{change_log::ChangeLog, names::BridgeNames};

/// The log lines of all ports that became router ports.
#[derive(Debug, Default)]
pub(crate) struct RouterLog(Mutex<ChangeLog<RouterEvent>>);

/// A port that has become a router port of a VLAN,
/// or has ceased to be a router port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouterChange {
    bridge: BridgeId,
    port: PortNo,
    /// The change of the router port.
    event: RouterEvent,
}

/// An event of a router port, which is the end of its log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouterEvent {
    Arrived { vlan: u16 },
    Expired { vlan: u16 },
}

impl RouterChange {
    /// Returns the router ports that a change has added or removed.
    ///
    /// The version before the change is kept only until the change is published. So the caller must
    /// call this function before it publishes the change.
    pub(crate) fn of(pipeline: &Pipeline, change: &Change) -> Vec<Self> {
        let before = Version::new(change.version.number().saturating_sub(1));
        let routers = change.deltas.iter().filter_map(|delta| match *delta {
            Delta::Changed(Object::MulticastRouters(bridge, vlan)) => Some((bridge, vlan)),
            Delta::Changed(_) | Delta::Rule(_) => None,
        });
        let mut changes = Vec::new();
        for (bridge, vlan) in routers.collect::<BTreeSet<_>>() {
            let [before, now] = [before, change.version]
                .map(|version| pipeline.router_ports(bridge, vlan, version));
            let mut add = |port: &PortNo, event| changes.push(Self { bridge, port: *port, event });
            let is_new = |port: &&PortNo| !before.contains(port);
            now.iter().filter(is_new).for_each(|port| add(port, RouterEvent::Arrived { vlan }));
            let is_over = |port: &&PortNo| !now.contains(port);
            before.iter().filter(is_over).for_each(|port| add(port, RouterEvent::Expired { vlan }));
        }
        changes
    }
}

impl RouterLog {
    /// Logs changes, as long as their ports have lines left in the present period.
    pub(crate) fn log_changes(&self, pipeline: &Pipeline, changes: &[RouterChange], now: Time) {
        self.lines(pipeline, changes, now).into_iter().for_each(|line| info!("{line}"));
    }

    /// Logs a summary for ports that had changes without a line.
    ///
    /// A summary is due when no further change has occurred for some seconds, or when the period
    /// ends.
    pub(crate) fn log_summaries(&self, now: Time) {
        let lines = self.0.lock().summaries(now);
        lines.into_iter().for_each(|line| info!("{line}"));
    }

    /// Returns log lines about changed router ports.
    fn lines(&self, pipeline: &Pipeline, changes: &[RouterChange], now: Time) -> Vec<String> {
        let mut bridges = BTreeMap::new();
        let owner = |change: &RouterChange| {
            let RouterChange { bridge, port, event } = *change;
            let (name, ports) = bridges.entry(bridge).or_insert_with(|| {
                let name = pipeline.settings(bridge).map(|own| own.name);
                let name = name.unwrap_or_else(|| bridge.to_string());
                (name, BridgeNames::new(pipeline, bridge))
            });
            let port = ports.name(port).unwrap_or_else(|| port.to_string());
            (format!("bridge {name}: port {port}:"), event)
        };
        let events: Vec<(String, RouterEvent)> = changes.iter().map(owner).collect();
        let mut log = self.0.lock();
        events.into_iter().filter_map(|(owner, event)| log.line(&owner, event, now)).collect()
    }
}

impl Display for RouterEvent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrived { vlan } => write!(f, "a multicast router was found vlan={vlan}"),
            Self::Expired { vlan } => {
                write!(f, "the multicast router sent no query in time vlan={vlan}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shunt_pipeline::{
        BridgeSettings, Learning, MulticastEvent, MulticastObservation, MulticastSnooping, PortInfo,
    };

    use super::*;

    const BRIDGE: BridgeId = BridgeId::new(1);

    /// Returns the time after some seconds.
    fn at(second: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(second))
    }

    /// Returns a bridge with two ports and multicast snooping.
    fn snooping() -> Pipeline {
        let pipeline = Pipeline::new(1);
        let multicast = Some(MulticastSnooping::default());
        let settings =
            BridgeSettings { name: "br0".to_owned(), multicast, ..BridgeSettings::default() };
        pipeline.add_bridge(BRIDGE, settings);
        pipeline.set_ports(BRIDGE, [1, 2].map(PortInfo::datapath).into()).unwrap();
        pipeline
    }

    /// Learns from queries that arrive on a port in the given VLANs.
    fn query(
        pipeline: &Pipeline,
        port: u32,
        vlans: impl Iterator<Item = u16>,
        now: Time,
    ) -> Change {
        let (port, event) = (PortNo::new(port), MulticastEvent::Query);
        let observation = |vlan| MulticastObservation { bridge: BRIDGE, vlan, port, event };
        let learnings: Vec<_> = vlans.map(observation).map(Learning::Multicast).collect();
        pipeline.learn(&learnings, now)
    }

    /// Returns the log lines of a change.
    fn lines(log: &RouterLog, pipeline: &Pipeline, change: &Change, now: Time) -> Vec<String> {
        log.lines(pipeline, &RouterChange::of(pipeline, change), now)
    }

    #[test]
    fn arrival_and_expiry_of_routers_are_logged() {
        let (pipeline, log) = (snooping(), RouterLog::default());
        let arrived = |port: u32, second| {
            let change = query(&pipeline, port, [7].into_iter(), at(second));
            lines(&log, &pipeline, &change, at(second))
        };
        assert_eq!(arrived(1, 0), ["bridge br0: port p1: a multicast router was found vlan=7"]);
        assert_eq!(arrived(1, 5), [""; 0], "known already");
        assert_eq!(arrived(2, 10), ["bridge br0: port p2: a multicast router was found vlan=7"]);
        let expired = |second| lines(&log, &pipeline, &pipeline.expire(at(second)), at(second));
        let line = "bridge br0: port p1: the multicast router sent no query in time vlan=7";
        assert_eq!(expired(185), [line]);
        assert_eq!(expired(190), [line.replace("p1", "p2")]);
        assert_eq!(expired(200), [""; 0]);
    }

    #[test]
    fn queries_in_many_vlans_share_log_lines() {
        let (pipeline, log) = (snooping(), RouterLog::default());
        let change = query(&pipeline, 1, 1..4095, at(0));
        assert_eq!(lines(&log, &pipeline, &change, at(0)).len(), 40);
        let change = query(&pipeline, 2, 1..2, at(1));
        assert_eq!(lines(&log, &pipeline, &change, at(1)).len(), 1, "another port has its own");
        let summary = "bridge br0: port p1: a multicast router was found vlan=4094 after 4054 more \
                       changes in 1 s";
        assert_eq!(log.0.lock().summaries(at(60)), [summary]);
    }
}
