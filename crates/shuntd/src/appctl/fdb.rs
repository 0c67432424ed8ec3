//! Commands for the table of MAC addresses that a bridge has learned.

use shunt_switch::{LearnedTotals, MacTableStatus, with_causes};

use super::{command::commands, methods::DaemonMethods};
use crate::render;

commands! {
    "fdb/flush" "[bridge]", 0..=1, Change, flush,
        "Remove the learned MAC addresses of a bridge, or of all bridges";
    "fdb/stats-clear" "[bridge]", 0..=1, Change, clear_stats,
        "Clear the totals of `fdb/stats-show`";
    "fdb/stats-show" "bridge", 1..=1, Read, show_stats,
        "Show the number of learned MAC addresses, its limit, and totals of changes";
    "fdb/show" "bridge", 1..=1, Read, show, "List the learned MAC addresses";
}

/// Handles `fdb/flush`.
async fn flush(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridge = arguments.first().map(String::as_str);
    let flushed = methods.switch.flush_macs(bridge).await;
    flushed.map(|()| "table successfully flushed".to_owned()).map_err(|error| with_causes(&error))
}

/// Handles `fdb/show`.
async fn show(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridge = arguments.first().map_or("", String::as_str);
    let macs = methods.switch.macs(bridge).await;
    macs.map(|macs| render::macs(&macs)).map_err(|error| with_causes(&error))
}

/// Handles `fdb/stats-clear`.
async fn clear_stats(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let names = match arguments.first() {
        Some(name) => vec![name.clone()],
        None => methods.switch.bridges().into_iter().map(|bridge| bridge.name).collect(),
    };
    for name in &names {
        let table = methods.switch.mac_table(name).map_err(|error| with_causes(&error))?;
        methods.cleared.clear_macs(name, table.totals);
    }
    Ok("statistics successfully cleared".to_owned())
}

/// Shows the size of the MAC table, and the totals of its changes.
async fn show_stats(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let name = arguments.first().map_or("", String::as_str);
    let table = methods.switch.mac_table(name).map_err(|error| with_causes(&error))?;
    let MacTableStatus { entries, entries_max, totals } = table;
    let LearnedTotals { learned, expired, evicted, moved } = methods.cleared.of_macs(name, totals);
    Ok(format!(
        "Statistics for bridge \"{name}\":\n  \
         Current/maximum MAC entries in the table: {entries}/{entries_max}\n  \
         Current static MAC entries in the table : 0\n  \
         Total number of learned MAC entries     : {learned}\n  \
         Total number of expired MAC entries     : {expired}\n  \
         Total number of evicted MAC entries     : {evicted}\n  \
         Total number of port moved MAC entries  : {moved}\n"
    ))
}
