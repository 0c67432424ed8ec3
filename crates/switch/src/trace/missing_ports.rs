//! What a trace says of ports that are named and are not there: packets to them are dropped, and none
//! comes in by them, without any other sign.

use shunt_flow::PortNo;
use shunt_pipeline::Action;

use crate::ports::names::BridgeNames;

/// A line for each port that actions name and that their bridge does not have.
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
                let line = format!("there is no port {port}");
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

/// What to say of a packet that comes in by a port which its bridge does not have.
pub(crate) fn missing_ingress(port: PortNo, names: &BridgeNames) -> Option<String> {
    let line = || format!("no packet comes in by port {port}: there are {}", names.list());
    is_missing(port, names).then(line)
}

/// Whether a port is none of the reserved ones, and none of the bridge.
fn is_missing(port: PortNo, names: &BridgeNames) -> bool {
    port.is_physical() && !names.has(port)
}
