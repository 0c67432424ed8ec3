//! The key `vlan-limit` of `Open_vSwitch`: the number of VLAN tags that are parsed.

use shunt_ovsdb::RowView;
use shunt_switch::{Switch, with_causes};
use tracing::{info, warn};

/// The most VLAN tags that the switch parses.
const TAGS_MAX: u8 = 2;

/// The limit in force, and the limit that is used without the key.
pub(super) struct VlanLimitKey {
    /// The limit of the configuration file.
    configured: u8,
    /// The value of the key that was applied last.
    applied: Option<u8>,
}

/// Reads the key of a row of `Open_vSwitch`; `None` if it has no effect.
///
/// As in Open vSwitch, 0 means that the switch parses as many tags as it can.
pub(super) fn vlan_limit(root: RowView<'_>) -> Option<u8> {
    let tags = root.entry("other_config", "vlan-limit")?.parse::<u32>().ok()?;
    let tags = if tags == 0 { TAGS_MAX.into() } else { tags };
    Some(u8::try_from(tags).unwrap_or(TAGS_MAX).min(TAGS_MAX))
}

impl VlanLimitKey {
    /// Stores the limit of the configuration file.
    pub(super) fn new(switch: &Switch) -> Self {
        Self { configured: switch.config().packets.vlan_limit, applied: None }
    }

    /// Applies the key; without it, the limit of the configuration file.
    pub(super) async fn apply(&mut self, switch: &Switch, limit: Option<u8>) {
        if limit == self.applied {
            return;
        }
        let tags = limit.unwrap_or(self.configured).to_string();
        match switch.set(&[("packets.vlan_limit", tags.as_str())]).await {
            Ok(()) => {
                info!(tags, "ovsdb: vlan-limit set");
                self.applied = limit;
            }
            Err(error) => {
                warn!(
                    error = with_causes(&error),
                    "ovsdb: vlan-limit cannot be set: the former limit stays in force"
                );
            }
        }
    }
}
