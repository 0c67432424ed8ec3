//! Commands for bridges, their rules, and traces of packets.

use shunt_flow::PortNo;
use shunt_switch::{BridgePortStatus, DatapathReader, RuleStatus};

use super::{
    bridge::rule_line, command::commands, dpctl, methods::DaemonMethods, odp_flow::OdpFlow,
};

commands! {
    "ofproto/detrace" "ufid|entry", 1..=3, Read, detrace,
        "List the rules that made a cache entry, by its UUID or its name";
    "ofproto/list" "", 0..=0, Read, list, "List the bridges";
    "ofproto/list-tunnels" "", 0..=0, Read, list_tunnels,
        "List the tunnels. Always empty, because tunnels do not exist";
    "ofproto/trace" "{[dp] odp_flow | bridge flow} [--names] [-generate|packet]", 1..=6, Read, trace,
        "Trace a packet through the tables. A trace learns nothing, and sends no packet";
}

/// Handles `ofproto/detrace`: lists the rules that made a cache entry.
async fn detrace(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    // The name of an entry contains the number of its packet thread, so `pmd=` is ignored.
    let name = arguments.iter().find(|word| !word.contains('='));
    let name = name.ok_or("ofproto/detrace needs the UUID or the name of an entry")?;
    let rules = DatapathReader::new(&methods.switch).rules_of_flow(name).await;
    let rules = rules.ok_or_else(|| {
        format!("{name}: no such cache entry; `dpctl/dump-flows -m` lists the UUIDs of all entries")
    })?;
    let line = |rule: &RuleStatus| format!("cookie={:#x}, {}", rule.cookie, rule_line(rule));
    Ok(rules.iter().map(line).collect())
}

/// Handles `ofproto/list`: lists the bridges.
async fn list(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(methods.switch.bridges().iter().map(|bridge| format!("{}\n", bridge.name)).collect())
}

/// Handles `ofproto/list-tunnels`: always empty, because there are no tunnels.
async fn list_tunnels(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(String::new())
}

/// Options of `ofproto/trace` that have no effect in Shunt.
///
/// Every trace prints port names, and a trace never changes the switch.
const TRACE_OPTIONS: &[&str] = &["--names", "-generate", "--generate", "generate"];

/// Handles `ofproto/trace`: traces a packet through the tables.
async fn trace(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let is_option = |word: &&str| word.starts_with('-') || TRACE_OPTIONS.contains(word);
    let (options, words): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(is_option);
    if let Some(unknown) = options.iter().find(|option| !TRACE_OPTIONS.contains(option)) {
        return Err(format!("{unknown}: unknown option; known options: --names, -generate"));
    }
    let words: Vec<&str> = words.into_iter().skip_while(|word| dpctl::is_datapath(word)).collect();
    let [first, rest @ ..] = words.as_slice() else {
        return Err("ofproto/trace needs a bridge and a flow".to_owned());
    };
    if OdpFlow::is_key(first) {
        // A shell may have split the key into several arguments at spaces.
        let (key, packet): (Vec<&str>, Vec<&str>) =
            words.iter().partition(|word| OdpFlow::is_key(word) || word.starts_with("ufid:"));
        return trace_key(methods, &key.join(""), &packet);
    }
    if rest.is_empty() {
        return Err(format!("syntax error at {first} (or the bridge name was omitted)"));
    }
    trace_flow(methods, first, &rest.join(" "))
}

/// Traces a key of the datapath in the bridge of its ingress port.
fn trace_key(methods: &DaemonMethods, key: &str, packet: &[&str]) -> Result<String, String> {
    let flow = OdpFlow::parse(key)?;
    let in_port = flow.in_port.ok_or("the flow needs in_port(..), which decides the bridge")?;
    let bridges = methods.switch.bridges();
    let mut ports = bridges.iter().flat_map(|bridge| &bridge.ports);
    let number = in_port.parse().ok();
    let is_named = |port: &&BridgePortStatus| port.name == in_port;
    let is_numbered = |port: &&BridgePortStatus| number.is_some() && port.datapath == number;
    let port = ports.find(|port| is_named(port) || is_numbered(port));
    let port = port.ok_or_else(|| {
        format!("in_port({in_port}): no such port; dpctl/show lists the ports of the datapath")
    })?;
    // An error shows the flow, with `LOCAL` as port of the host.
    let mut fields = vec![format!("in_port={}", PortNo::new(port.number))];
    // The headers of a packet replace the headers of the key.
    if packet.is_empty() {
        fields.extend(flow.fields);
    }
    trace_flow(methods, &port.bridge, &format!("{} {}", fields.join(","), packet.join(" ")))
}

/// Traces a packet, given as an OpenFlow match.
fn trace_flow(methods: &DaemonMethods, bridge: &str, flow: &str) -> Result<String, String> {
    let trace = methods.switch.trace(bridge, flow);
    trace.map(|trace| trace.to_text()).map_err(|error| error.to_string())
}
