//! The quality of service (QoS) of a port from the rows of an OVSDB database.

use shunt_ovsdb::{DatabaseSnapshot, RowView};
use shunt_switch::config::{QosOptions, QosType, QueueOptions};

/// Reads the QoS of a row of `Port`; `None` if the row has none.
///
/// # Errors
///
/// The reason why the switch refuses the QoS of the row.
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
        "linux-htb" => QosType::LinuxHtb,
        other => {
            return Err(format!(
                "QoS type {other} is not supported: use linux-htb, egress-policer or linux-noop"
            ));
        }
    };
    // As in Open vSwitch, a QoS type ignores keys of other types.
    let amount = |key, of| if kind == of { number(row, key) } else { Ok(0) };
    let read = || {
        let mut qos = QosOptions {
            cir: amount("cir", QosType::EgressPolicer)?,
            cbs: amount("cbs", QosType::EgressPolicer)?,
            max_rate: amount("max-rate", QosType::LinuxHtb)?,
            ..QosOptions::new(kind)
        };
        if kind == QosType::LinuxHtb {
            qos.queues = queues(snapshot, row)?;
        }
        qos.check()?;
        Ok(qos)
    };
    let qos = read().map_err(|problem: String| format!("QoS {}: {problem}", kind.name()))?;
    Ok(Some(qos))
}

/// Reads the queues of a row of `QoS`.
fn queues(snapshot: &DatabaseSnapshot, qos: RowView<'_>) -> Result<Vec<QueueOptions>, String> {
    let rows = qos.numbered_uuids("queues");
    let rows = rows.filter_map(|(id, uuid)| Some((id, snapshot.row("Queue", uuid)?)));
    rows.map(|(id, row)| {
        let wrong = |_| format!("queue {id}: numbers of queues run from 0 to {}", u32::MAX);
        queue(u32::try_from(id).map_err(wrong)?, row)
    })
    .collect()
}

/// Returns the options of a row of `Queue`.
fn queue(id: u32, row: RowView<'_>) -> Result<QueueOptions, String> {
    if row.integer("dscp").is_some() {
        return Err(format!(
            "queue {id}: dscp is not supported: clear it, and set the DSCP with the rules"
        ));
    }
    let number = |key| number(row, key).map_err(|problem| format!("queue {id}: {problem}"));
    let (min_rate, max_rate) = (number("min-rate")?, number("max-rate")?);
    // As in Open vSwitch, a `max_rate` below `min_rate` is replaced by `min_rate`.
    let max_rate = if max_rate == 0 { 0 } else { max_rate.max(min_rate) };
    // A number beyond the field is treated as the lowest priority.
    let priority = u32::try_from(number("priority")?).unwrap_or(u32::MAX);
    Ok(QueueOptions { id, min_rate, max_rate, burst: number("burst")?, priority })
}

/// Returns a number in `other_config`; 0 if the key is absent.
fn number(row: RowView<'_>, key: &str) -> Result<u64, String> {
    let Some(text) = row.entry("other_config", key) else { return Ok(0) };
    let problem = |_| {
        format!("other_config:{key} is `{text}`: use a number without a unit, such as 10000000")
    };
    text.parse().map_err(problem)
}
