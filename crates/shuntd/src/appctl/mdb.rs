//! Commands for the multicast table of a bridge: its groups and router ports.

use shunt_switch::with_causes;

use super::{command::commands, methods::DaemonMethods};
use crate::render;

commands! {
    "mdb/flush" "[bridge]", 0..=1, Change, flush,
        "Remove the learned multicast groups of a bridge, or of all bridges";
    "mdb/show" "bridge", 1..=1, Read, show, "List the learned multicast groups and router ports";
}

/// The answer for a bridge without multicast snooping, as in Open vSwitch.
const SNOOPING_DISABLED: &str = "multicast snooping is disabled";

/// Handles `mdb/flush`: removes learned multicast groups of one or all bridges.
async fn flush(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridge = arguments.first().map(String::as_str);
    match methods.switch.flush_multicast(bridge).await {
        Ok(true) => Ok("table successfully flushed".to_owned()),
        Ok(false) => Err(SNOOPING_DISABLED.to_owned()),
        Err(error) => Err(with_causes(&error)),
    }
}

/// Handles `mdb/show`: lists the learned multicast groups and router ports.
async fn show(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridge = arguments.first().map_or("", String::as_str);
    let entries = methods.switch.multicast(bridge).map_err(|error| with_causes(&error))?;
    entries.map(|entries| render::multicast(&entries)).ok_or_else(|| SNOOPING_DISABLED.to_owned())
}
