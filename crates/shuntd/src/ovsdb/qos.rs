//! The quality of service of a port as the rows of a database describe it.

use shunt_ovsdb::{DatabaseSnapshot, RowView};
use shunt_switch::config::{QosOptions, QosType};

/// Reads the quality of service of a row of `Port`; `None` if it has none.
///
/// # Errors
///
/// The reason why the switch does not have it.
pub(super) fn qos(
    snapshot: &DatabaseSnapshot,
    port: RowView<'_>,
) -> Result<Option<QosOptions>, String> {
    let Some(row) = port.uuids("qos").find_map(|uuid| snapshot.row("QoS", uuid)) else {
        return Ok(None);
    };
    let kind = match row.string("type").unwrap_or_default() {
        "" => return Ok(None),
        "linux-noop" => QosType::LinuxNoop,
        "egress-policer" => QosType::EgressPolicer,
        other => {
            return Err(format!(
                "QoS type {other} is not supported: use egress-policer or linux-noop"
            ));
        }
    };
    // As in Open vSwitch, a type ignores the keys of others.
    let amount = |key| {
        let text = row.entry("other_config", key).filter(|_| kind == QosType::EgressPolicer);
        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default()
    };
    let qos = QosOptions { kind, cir: amount("cir"), cbs: amount("cbs") };
    qos.check().map_err(|problem| format!("other_config of the QoS: {problem}"))?;
    Ok(Some(qos))
}
