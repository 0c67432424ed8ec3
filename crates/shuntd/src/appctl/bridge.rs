//! Bridges: their rules and their controllers.

use shunt_switch::{DatapathReader, RuleStatus, with_causes};

use super::{command::commands, methods::DaemonMethods};

commands! {
    "bridge/dump-flows" "[--offload-stats] bridge", 1..=2, Read, dump_flows,
        "List the rules of a bridge with their counters";
    "bridge/reconnect" "[bridge]", 0..=1, Change, reconnect,
        "Close the OpenFlow connections of a bridge or of all bridges, and connect again";
}

async fn dump_flows(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridge = arguments.iter().find(|word| *word != "--offload-stats");
    let bridge = bridge.map_or("", String::as_str);
    let rules = DatapathReader::new(&methods.switch).rules(bridge).await;
    let rules = rules.map_err(|error| format!("Unknown bridge: {}", with_causes(&error)))?;
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

async fn reconnect(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridge = arguments.first().map(String::as_str);
    let done = DatapathReader::new(&methods.switch).reconnect(bridge).await;
    done.map(|()| String::new()).map_err(|error| format!("Unknown bridge: {}", with_causes(&error)))
}
