//! The control socket with `ovs-appctl`.

use shunt_tests::daemon::{error_text, text};

use crate::daemon;

#[test]
fn appctl_asks_for_version_commands_and_macs() {
    let daemon = daemon();
    let version = text(&daemon.ovs_appctl(&["version"]));
    assert!(version.starts_with("shuntd (Shunt) "), "{version}");
    let commands = text(&daemon.ovs_appctl(&["list-commands"]));
    for command in ["ofproto/trace", "fdb/show", "exit", "version", "list-commands"] {
        assert!(commands.contains(command), "{commands}");
    }
    assert!(text(&daemon.ovs_appctl(&["fdb/show", "br0"])).contains("port  VLAN  MAC"));
}

#[test]
fn a_trace_lists_the_matched_rules() {
    let daemon = daemon();
    for rule in [
        "priority=5,ip,nw_dst=10.0.0.0/8,actions=load:0x7->NXM_NX_REG0[],goto_table:1",
        "table=1,priority=9,reg0=7,actions=output:2",
    ] {
        text(&daemon.ovs_ofctl("br0", "add-flow", &[rule]));
    }
    let trace = text(&daemon.ovs_appctl(&["ofproto/trace", "br0", "in_port=1,ip,nw_dst=10.1.2.3"]));
    for expected in ["Flow:", "bridge(\"br0\")", "priority 5", "reg0=0x7", "Megaflow:", "p2"] {
        assert!(trace.contains(expected), "{expected} is not in\n{trace}");
    }
    assert!(trace.contains("nw_dst=10.0.0.0/8"), "{trace}");
}

#[test]
fn appctl_errors_name_the_mistake() {
    let daemon = daemon();
    let words = error_text(&daemon.ovs_appctl(&["no/such"]));
    assert!(words.contains("\"no/such\" is not a valid command"), "{words}");
    let words = error_text(&daemon.ovs_appctl(&["fdb/show", "nosuch"]));
    assert!(words.contains("nosuch"), "{words}");
    let words = error_text(&daemon.ovs_appctl(&["ofproto/trace", "br0", "in_prot=1"]));
    assert!(words.contains("in_port"), "the error names the nearest field: {words}");
}
