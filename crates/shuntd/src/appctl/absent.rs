//! Commands for features that Shunt lacks: the answers are the same as from a switch that does not
//! use the feature.

use super::{command::commands, methods::DaemonMethods};

commands! {
    "autoattach/show-isid" "[bridge]", 0..=1, Read, empty_reply, "Always empty: no auto-attach";
    "autoattach/statistics" "[bridge]", 0..=1, Read, empty_reply, "Always empty: no auto-attach";
    "autoattach/status" "[bridge]", 0..=1, Read, empty_reply, "Always empty: no auto-attach";
    "cfm/show" "[interface]", 0..=1, Read, show_cfm, "Always empty: no CFM";
    "dpif-netdev/bond-show" "[dp]", 0..=1, Read, empty_reply,
        "Always empty: bonds need no action of the datapath";
    "ovs/route/lookup" "ip_addr [pkt_mark=mark]", 1..=2, Read, find_route,
        "Find nothing, because there are no tunnels, and so no routes";
    "ovs/route/show" "", 0..=0, Read, show_routes, "Always empty: no tunnels, and so no routes";
    "rstp/show" "[bridge]", 0..=1, Read, show_rstp, "Always empty: no spanning tree";
    "stp/show" "[bridge]", 0..=1, Read, show_stp, "Always empty: no spanning tree";
    "tnl/arp/show" "", 0..=0, Read, show_neighbours, "Always empty: no tunnels";
    "tnl/neigh/show" "", 0..=0, Read, show_neighbours, "Always empty: no tunnels";
    "tnl/ports/show" "[-v]", 0..=1, Read, tunnel_ports, "Always empty: no tunnels";
}

/// Answers a command that has no effect in Shunt.
async fn empty_reply(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(String::new())
}

/// Returns an empty answer, or `error` if the call names an object.
fn none_of(arguments: &[String], error: &str) -> Result<String, String> {
    if arguments.is_empty() { Ok(String::new()) } else { Err(error.to_owned()) }
}

/// Handles `cfm/show`: always empty, because there is no CFM.
async fn show_cfm(_: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    none_of(arguments, "no such CFM object")
}

/// Handles `rstp/show`: always empty, because there is no spanning tree.
async fn show_rstp(_: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    none_of(arguments, "No such RSTP object")
}

/// Handles `stp/show`: always empty, because there is no spanning tree.
async fn show_stp(_: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    none_of(arguments, "no such stp object")
}

/// Handles `tnl/arp/show` and `tnl/neigh/show`, without tunnels always empty.
async fn show_neighbours(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    let line = "=".repeat(74);
    Ok(format!("{:<45} {:<19} Bridge\n{line}\n", "IP", "MAC"))
}

/// Handles `tnl/ports/show`: always empty, because there are no tunnels.
async fn tunnel_ports(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok("Listening ports:\n".to_owned())
}

/// Handles `ovs/route/lookup`: finds no route.
async fn find_route(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Err("Not found".to_owned())
}

/// Handles `ovs/route/show`: lists no routes.
async fn show_routes(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok("Route Table:\n".to_owned())
}
