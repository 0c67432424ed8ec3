//! Warnings about missing ports. Rules may name ports that do not exist; packets to such ports are
//! dropped without any message.

use shunt_flow::PortNo;
use shunt_pipeline::Action;

use crate::ports::names::BridgeNames;

/// Returns a line for each port that the actions name and the bridge does not have.
pub(crate) fn missing_ports<'a>(
    actions: impl IntoIterator<Item = &'a Action>,
    names: &BridgeNames,
) -> Vec<String> {
    let mut ahead: Vec<&Action> = actions.into_iter().collect();
    ahead.reverse();
    let mut lines = Vec::new();
    while let Some(action) = ahead.pop() {
        match action {
            Action::Output { port, .. } | Action::OutputTruncated { port, .. } => {
                let line = format!("port {port} does not exist");
                if is_missing(*port, names) && !lines.contains(&line) {
                    lines.push(line);
                }
            }
            Action::Clone(inner) => ahead.extend(inner.iter().rev()),
            _ => {}
        }
    }
    lines
}

/// Returns a warning if the bridge does not have the ingress port.
pub(crate) fn missing_ingress(port: PortNo, names: &BridgeNames) -> Option<String> {
    let line = || {
        format!(
            "port {port} does not exist, so no packet arrives on it; existing ports: {}",
            names.list()
        )
    };
    is_missing(port, names).then(line)
}

/// Returns whether the port is neither reserved nor a port of the bridge.
fn is_missing(port: PortNo, names: &BridgeNames) -> bool {
    port.is_physical() && !names.has(port)
}
