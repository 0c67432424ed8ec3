//! The table of learned MAC addresses of a bridge.

use shunt_switch::with_causes;

use super::{command::commands, methods::DaemonMethods};
use crate::render;

commands! {
    "fdb/flush" "[bridge]", 0..=1, Change, flush,
        "Remove the learned MAC addresses of a bridge, or of all bridges";
    "fdb/stats-show" "bridge", 1..=1, Read, show_stats,
        "Show the number of learned MAC addresses and its limit";
    "fdb/show" "bridge", 1..=1, Read, show, "List the learned MAC addresses";
}

async fn flush(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridge = arguments.first().map(String::as_str);
    let flushed = methods.switch.flush_macs(bridge).await;
    flushed.map(|()| "table successfully flushed".to_owned()).map_err(|error| with_causes(&error))
}

async fn show(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridge = arguments.first().map_or("", String::as_str);
    let macs = methods.switch.macs(bridge).await;
    macs.map(|macs| render::macs(&macs)).map_err(|error| with_causes(&error))
}

/// Shows the size of the table.
///
/// Nothing counts its changes, so these totals are `?`.
async fn show_stats(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let name = arguments.first().map_or("", String::as_str);
    let macs = methods.switch.macs(name).await.map_err(|error| with_causes(&error))?;
    let config = methods.switch.running_config();
    let bridge = config.bridges.iter().find(|bridge| bridge.name == name);
    let max = match bridge.map_or(0, |bridge| bridge.mac_entries) {
        0 => MACS_MAX_DEFAULT,
        max => max,
    };
    Ok(format!(
        "Statistics for bridge \"{name}\":\n  \
         Current/maximum MAC entries in the table: {}/{max}\n  \
         Current static MAC entries in the table : 0\n  \
         Total number of learned MAC entries     : ?\n  \
         Total number of expired MAC entries     : ?\n  \
         Total number of evicted MAC entries     : ?\n  \
         Total number of port moved MAC entries  : ?\n",
        macs.len()
    ))
}

/// Maximum number of addresses of a bridge without `mac_entries`.
const MACS_MAX_DEFAULT: usize = 8192;
