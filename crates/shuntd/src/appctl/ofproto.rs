//! Bridges, their rules, and traces of packets.

use shunt_switch::{DatapathReader, RuleStatus};

use super::{bridge::rule_line, command::commands, methods::DaemonMethods};

commands! {
    "ofproto/detrace" "ufid|entry", 1..=3, Read, detrace,
        "List the rules that made a cache entry, by its UUID or its name";
    "ofproto/list" "", 0..=0, Read, list, "List the bridges";
    "ofproto/list-tunnels" "", 0..=0, Read, list_tunnels,
        "List the tunnels. Always empty, because tunnels do not exist";
    "ofproto/trace" "bridge flow [--names] [-generate|packet]", 2..=5, Read, trace,
        "Trace a packet through the tables. It learns nothing, and no packet is sent";
}

async fn detrace(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    // The name of an entry contains its packet thread, so `pmd=` adds nothing.
    let name = arguments.iter().find(|word| !word.contains('='));
    let name = name.ok_or("ofproto/detrace needs the UUID or the name of an entry")?;
    let rules = DatapathReader::new(&methods.switch).rules_of_flow(name).await;
    let rules = rules.ok_or_else(|| {
        format!("{name}: no such cache entry; `dpctl/dump-flows -m` lists the UUIDs of all entries")
    })?;
    let line = |rule: &RuleStatus| format!("cookie={:#x}, {}", rule.cookie, rule_line(rule));
    Ok(rules.iter().map(line).collect())
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
