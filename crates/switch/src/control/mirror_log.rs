//! Log lines about mirrors that copy no packets, or fewer than configured.
//!
//! A mirror depends on ports that are added and removed. Each change compares the problem of a
//! mirror with the problem in the last log line. So the log has one line when a port is removed,
//! and one when it is added again.

use std::collections::{BTreeMap, BTreeSet};

use tracing::{info, warn};

use crate::{
    config::MirrorOptions,
    ports::registry::{BridgeRegistry, BridgeState},
};

/// The logged problems of mirrors, by the names of bridge and mirror.
#[derive(Debug, Default)]
pub(crate) struct MirrorLog(BTreeMap<(String, String), LoggedProblem>);

/// The logged reason why a mirror copies no packets, or fewer than configured.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LoggedProblem {
    /// The reason, as it was logged.
    text: String,
    /// Ports of the mirror that the bridge does not have,
    /// and bonds without an enabled member.
    missing: BTreeSet<String>,
}

/// A change of the state of a mirror, to be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MirrorChange {
    /// The mirror copies no packets, or fewer than configured.
    Incomplete {
        /// The mirror and its bridge, such as `mirror m1 of br0`.
        mirror: String,
        /// The reason why the mirror copies no packets, or fewer than configured.
        problem: String,
    },
    /// All ports and members of bonds exist again, so the mirror copies as configured.
    Complete {
        /// The mirror and its bridge.
        mirror: String,
        /// The ports that the mirror lacked.
        ports: String,
    },
}

impl MirrorLog {
    /// Returns the mirrors with a new or a solved problem since the last call.
    pub(super) fn update(&mut self, bridges: &BridgeRegistry) -> Vec<MirrorChange> {
        let (mut now, mut changes) = (BTreeMap::new(), Vec::new());
        for bridge in bridges.iter().filter(|bridge| !bridge.settings.mirrors.is_empty()) {
            let ports = bridge.port_names();
            for mirror in &bridge.settings.mirrors {
                let key = (bridge.settings.name.clone(), mirror.name.clone());
                let (before, after) = (self.0.remove(&key), LoggedProblem::of(mirror, bridge));
                changes.extend(change(&key, before.as_ref(), after.as_ref(), &ports));
                now.extend(after.map(|after| (key, after)));
            }
        }
        self.0 = now;
        changes
    }
}

impl LoggedProblem {
    /// Returns the problem of a mirror with the names of missing ports.
    fn of(mirror: &MirrorOptions, bridge: &BridgeState) -> Option<Self> {
        let text = bridge.mirror_problem(mirror)?;
        let (names, ports) = (mirror.mirror(), bridge.port_names());
        let is_missing = |name: &&str| {
            !ports.contains(name) || **name == mirror.output_port && bridge.lacks_member(name)
        };
        let missing = names.port_names().into_iter().filter(is_missing);
        Some(Self { text, missing: missing.map(str::to_owned).collect() })
    }
}

/// Returns the log line for a new or a solved problem of a mirror, if it needs one.
fn change(
    (bridge, mirror): &(String, String),
    before: Option<&LoggedProblem>,
    after: Option<&LoggedProblem>,
    ports: &BTreeSet<&str>,
) -> Option<MirrorChange> {
    let mirror = format!("mirror {mirror} of {bridge}");
    match (before, after) {
        (before, Some(after)) if before.is_none_or(|before| before.text != after.text) => {
            Some(MirrorChange::Incomplete { mirror, problem: after.text.clone() })
        }
        (Some(before), None) => {
            let added = before.missing.iter().map(String::as_str);
            let added: Vec<_> = added.filter(|name| ports.contains(name)).collect();
            // If no missing port was added, the mirror was reconfigured, which is logged already.
            (!added.is_empty()).then(|| MirrorChange::Complete { mirror, ports: added.join(", ") })
        }
        _ => None,
    }
}

impl MirrorChange {
    /// Logs that a mirror copies as configured again, or why it does not.
    pub(super) fn log(&self) {
        match self {
            Self::Incomplete { mirror, problem } => warn!("{mirror}: {problem}"),
            Self::Complete { mirror, ports } => {
                info!("{mirror}: copies as configured again; ports ready: {ports}");
            }
        }
    }
}
