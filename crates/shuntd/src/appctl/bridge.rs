//! Commands for bridges: their rules and their controllers.

use shunt_switch::{DatapathReader, RuleStatus, SwitchError, with_causes};

use super::{command::commands, methods::DaemonMethods};

commands! {
    "bridge/dump-flows" "[--offload-stats] bridge", 1..=2, Read, dump_flows,
        "List the rules of a bridge with their counters";
    "bridge/reconnect" "[bridge]", 0..=1, Change, reconnect,
        "Close the OpenFlow connections of a bridge or of all bridges, and connect again";
}

/// Handles `bridge/dump-flows`: lists the rules of a bridge with their counters.
async fn dump_flows(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridge = arguments.iter().find(|word| *word != "--offload-stats");
    let bridge = bridge.map_or("", String::as_str);
    let rules = DatapathReader::new(&methods.switch).rules(bridge).await;
    let rules = rules.map_err(|error| refusal(&error))?;
    Ok(rules.iter().map(rule_line).collect())
}

/// Returns a rule in the format of Open vSwitch.
pub(super) fn rule_line(rule: &RuleStatus) -> String {
    let table = match rule.table {
        0 => String::new(),
        table => format!("table_id={table}, "),
    };
    let comma = if rule.matching.is_empty() { "" } else { "," };
    format!(
        "{table}duration={}s, n_packets={}, n_bytes={}, {}{comma}actions={}\n",
        rule.duration.as_secs(),
        rule.packets,
        rule.bytes,
        rule.matching,
        rule.actions
    )
}

/// Handles `bridge/reconnect`: closes the OpenFlow connections of bridges.
async fn reconnect(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let reader = DatapathReader::new(&methods.switch);
    if let Some(bridge) = arguments.first() {
        return answer_of(reader.reconnect(bridge).await.err().as_ref().map(refusal));
    }
    let mut errors = Vec::new();
    for bridge in methods.switch.bridges() {
        match reader.reconnect(&bridge.name).await {
            // The bridge may have been removed meanwhile.
            Ok(()) | Err(SwitchError::NoSuchBridge { .. }) => {}
            Err(error) => errors.push(format!("bridge {}: {}", bridge.name, refusal(&error))),
        }
    }
    answer_of(errors)
}

/// Returns an empty answer, or the errors if there are any.
fn answer_of(errors: impl IntoIterator<Item = String>) -> Result<String, String> {
    let errors: Vec<String> = errors.into_iter().collect();
    if errors.is_empty() { Ok(String::new()) } else { Err(errors.join("\n")) }
}

/// Returns the text of an error; for a missing bridge, the text of Open vSwitch.
fn refusal(error: &SwitchError) -> String {
    let text = with_causes(error);
    match error {
        SwitchError::NoSuchBridge { .. } => format!("Unknown bridge: {text}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_bridge_gets_the_open_vswitch_text() {
        let missing = SwitchError::NoSuchBridge { name: "br9".to_owned(), known: String::new() };
        assert!(refusal(&missing).starts_with("Unknown bridge: there is no bridge br9"));
        assert!(refusal(&SwitchError::NoName).starts_with("`name` is missing"));
    }
}
