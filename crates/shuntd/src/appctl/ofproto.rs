//! Bridges, their rules, and traces of packets.

use super::{command::commands, methods::DaemonMethods};

commands! {
    "ofproto/list" "", 0..=0, Read, list, "List the bridges";
    "ofproto/list-tunnels" "", 0..=0, Read, list_tunnels,
        "List the tunnels. Always empty, because tunnels do not exist";
    "ofproto/trace" "bridge flow [--names] [-generate|packet]", 2..=5, Read, trace,
        "Trace a packet through the tables. It learns nothing, and no packet is sent";
    "revalidator/wait" "", 0..=0, Read, wait,
        "Return at once, because no cache entry outlives a change";
}

async fn list(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(methods.switch.bridges().iter().map(|bridge| format!("{}\n", bridge.name)).collect())
}

async fn list_tunnels(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(String::new())
}

/// Options of `ofproto/trace` that change nothing here.
///
/// Ports have names in every trace, and a trace has no effect on the switch.
const TRACE_OPTIONS: &[&str] = &["--names", "-generate", "--generate", "generate"];

async fn trace(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let is_option = |word: &&str| word.starts_with('-') || TRACE_OPTIONS.contains(word);
    let (options, words): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(is_option);
    if let Some(unknown) = options.iter().find(|option| !TRACE_OPTIONS.contains(option)) {
        return Err(format!("{unknown}: unknown option; known options: --names, -generate"));
    }
    let [bridge, flow @ ..] = words.as_slice() else {
        return Err("ofproto/trace needs a bridge and a flow".to_owned());
    };
    let trace = methods.switch.trace(bridge, &flow.join(" "));
    trace.map(|trace| trace.to_text()).map_err(|error| error.to_string())
}

async fn wait(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(String::new())
}
