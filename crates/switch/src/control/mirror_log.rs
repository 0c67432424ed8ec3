//! Log lines about mirrors that copy nothing, or less than they should.
//!
//! A mirror depends on ports that come and go. The state after a change is compared with that of the
//! last line, so that each port that goes away and comes back is logged once.

use std::collections::{BTreeMap, BTreeSet};

use tracing::{info, warn};

use crate::{
    config::MirrorOptions,
    ports::registry::{BridgeRegistry, BridgeState},
};

/// The troubles of all mirrors that were logged, by bridge and mirror.
#[derive(Debug, Default)]
pub(crate) struct MirrorLog(BTreeMap<(String, String), LoggedTrouble>);

/// The trouble of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LoggedTrouble {
    text: String,
    /// The named ports that the bridge does not have, and bonds without a member.
    missing: BTreeSet<String>,
}

/// A change of the trouble of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MirrorChange {
    /// The mirror copies nothing, or less than it should, for this reason.
    Troubled {
        /// The mirror and its bridge, such as `mirror m1 of br0`.
        mirror: String,
        /// The reason.
        trouble: String,
    },
    /// These ports and members of bonds are there, so the mirror copies as configured.
    Complete {
        /// The mirror and its bridge.
        mirror: String,
        /// The ports that it lacked.
        ports: String,
    },
}

impl MirrorLog {
    /// Returns the changes since the last call.
    pub(super) fn update(&mut self, bridges: &BridgeRegistry) -> Vec<MirrorChange> {
        let (mut now, mut changes) = (BTreeMap::new(), Vec::new());
        for bridge in bridges.iter().filter(|bridge| !bridge.settings.mirrors.is_empty()) {
            let ports = bridge.port_names();
            for mirror in &bridge.settings.mirrors {
                let key = (bridge.settings.name.clone(), mirror.name.clone());
                let (before, after) = (self.0.remove(&key), LoggedTrouble::of(mirror, bridge));
                changes.extend(change(&key, before.as_ref(), after.as_ref(), &ports));
                now.extend(after.map(|after| (key, after)));
            }
        }
        self.0 = now;
        changes
    }
}

impl LoggedTrouble {
    fn of(mirror: &MirrorOptions, bridge: &BridgeState) -> Option<Self> {
        let text = bridge.mirror_trouble(mirror)?;
        let (names, ports) = (mirror.mirror(), bridge.port_names());
        let is_missing = |name: &&str| {
            !ports.contains(name) || **name == mirror.output_port && bridge.lacks_member(name)
        };
        let missing = names.port_names().into_iter().filter(is_missing);
        Some(Self { text, missing: missing.map(str::to_owned).collect() })
    }
}

/// Returns the change from one trouble to another.
fn change(
    (bridge, mirror): &(String, String),
    before: Option<&LoggedTrouble>,
    after: Option<&LoggedTrouble>,
    ports: &BTreeSet<&str>,
) -> Option<MirrorChange> {
    let mirror = format!("mirror {mirror} of {bridge}");
    match (before, after) {
        (before, Some(after)) if before.is_none_or(|before| before.text != after.text) => {
            Some(MirrorChange::Troubled { mirror, trouble: after.text.clone() })
        }
        (Some(before), None) => {
            let added = before.missing.iter().map(String::as_str);
            let added: Vec<_> = added.filter(|name| ports.contains(name)).collect();
            // Otherwise the mirror has changed, which is logged already.
            (!added.is_empty()).then(|| MirrorChange::Complete { mirror, ports: added.join(", ") })
        }
        _ => None,
    }
}

impl MirrorChange {
    /// Logs the change.
    pub(super) fn log(&self) {
        match self {
            Self::Troubled { mirror, trouble } => warn!("{mirror}: {trouble}"),
            Self::Complete { mirror, ports } => {
                info!("{mirror}: copies as configured again; ports ready: {ports}");
            }
        }
    }
}
