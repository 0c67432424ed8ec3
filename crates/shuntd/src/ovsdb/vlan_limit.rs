//! The key `vlan-limit` of `Open_vSwitch`: the number of VLAN tags that are parsed.

use shunt_ovsdb::RowView;
use shunt_switch::{Switch, with_causes};
use tracing::{info, warn};

/// The most VLAN tags that the switch parses.
const TAGS_MAX: u8 = 2;

/// Reads the key of a row of `Open_vSwitch`; `None` if it has no effect.
///
/// As in Open vSwitch, 0 means that the switch parses as many tags as it can.
pub(super) fn vlan_limit(root: RowView<'_>) -> Option<u8> {
    let tags = root.entry("other_config", "vlan-limit")?.parse::<u32>().ok()?;
    let tags = if tags == 0 { TAGS_MAX.into() } else { tags };
    Some(u8::try_from(tags).unwrap_or(TAGS_MAX).min(TAGS_MAX))
}

/// Puts the key in force; without it, the configured limit.
pub(super) async fn apply_vlan_limit(switch: &Switch, key: Option<u8>) {
    let text = key.map(|tags| tags.to_string());
    match switch.override_setting("packets.vlan_limit", text.as_deref()).await {
        Ok(false) => {}
        Ok(true) => info!(tags = switch.config().packets.vlan_limit, "ovsdb: vlan-limit set"),
        Err(error) => {
            warn!(
                error = with_causes(&error),
                "ovsdb: vlan-limit cannot be set: the former limit stays in force"
            );
        }
    }
}
