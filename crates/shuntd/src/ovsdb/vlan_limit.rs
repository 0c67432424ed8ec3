//! The key `vlan-limit` of `Open_vSwitch`: the number of VLAN tags that are parsed.

use shunt_ovsdb::RowView;
use shunt_switch::{Switch, with_causes};
use tracing::{info, warn};

use super::file_setting::FileSetting;

/// The most VLAN tags that the switch parses.
const TAGS_MAX: u8 = 2;

/// The limit of the configuration file, which the key replaces.
pub(super) struct VlanLimitKey(FileSetting<u8>);

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
        Self(FileSetting::new(switch.config().packets.vlan_limit))
    }

    /// Applies the key; without it, the limit of the configuration file.
    pub(super) async fn apply(&mut self, switch: &Switch, limit: Option<u8>) {
        let Some(tags) = self.0.missing(switch.config().packets.vlan_limit, limit) else { return };
        match switch.set(&[("packets.vlan_limit", tags.to_string().as_str())]).await {
            Ok(()) => {
                info!(tags, "ovsdb: vlan-limit set");
                self.0.note(tags);
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
