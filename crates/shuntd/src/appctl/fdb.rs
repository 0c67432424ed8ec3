//! The table of learned MAC addresses of a bridge.

use shunt_switch::with_causes;

use super::{command::commands, methods::DaemonMethods};
use crate::render;

commands! {
    "fdb/flush" "[bridge]", 0..=1, Change, flush,
        "Remove the learned MAC addresses of a bridge, or of all bridges";
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
