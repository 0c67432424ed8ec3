//! Tests of invalid ports, and of patch ports without a peer.

use crate::{Daemon, check};

fn port(name: &str, settings: &str) -> String {
    format!("[[bridge.port]]\nname = \"{name}\"\n{settings}\n")
}

#[test]
fn ports_share_no_device_or_output() {
    let bridge =
        |name: &str, ports: &[String]| format!("[[bridge]]\nname = \"{name}\"\n{}", ports.concat());
    let eth = |name| port(name, "type = \"af_packet\"\ndevice = \"eth9\"");
    let tap = |name| port(name, "type = \"tap\"\ndevice = \"eth9\"");
    let write = |name, file: &str| port(name, &format!("type = \"pcap\"\ntx = \"{file}\""));
    let read = |name| port(name, "type = \"pcap\"\nrx = \"in.pcap\"");
    for (configuration, expected) in [
        (bridge("br0", &[eth("a"), eth("b")]), "device eth9 belongs to port a of bridge br0"),
        (
            bridge("br0", &[tap("a")]) + &bridge("br1", &[eth("b")]),
            "device eth9 belongs to port a of bridge br0",
        ),
        (
            bridge("br0", &[port("br1t", "type = \"tap\"\ndevice = \"br1\"")])
                + "[[bridge]]\nname = \"br1\"\nlocal = \"tap\"\n",
            "device br1 belongs to port br1t of bridge br0",
        ),
        (bridge("br0", &[write("a", "o.pcap"), write("b", "./o.pcap")]), "belongs to port a"),
        (bridge("br0", &[read("a"), read("b")]), ""),
        (bridge("br0", &[write("a", "/dev/null"), write("b", "/dev/null")]), ""),
        (bridge("br0", &[port("eth9", "type = \"null\""), eth("a")]), ""),
    ] {
        let message = check(&configuration);
        assert!(
            message.contains(expected) && message.is_empty() == expected.is_empty(),
            "{message}"
        );
    }
}

#[test]
fn an_added_port_needs_its_own_file() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n[[bridge]]\nname = \"br1\"\n");
    let tx = format!("tx={}", daemon.run_dir().join("out.pcap").display());
    daemon.answer(&["add-port", "br0", "a", "type=pcap", &tx]);
    let message = daemon.error_text(&["add-port", "br1", "b", "type=pcap", &tx]);
    assert!(message.contains("out.pcap belongs to port a of bridge br0"), "{message}");
    daemon.answer(&["del-port", "a"]);
    daemon.answer(&["add-port", "br1", "b", "type=pcap", &tx]);
}

/// The log has one warning for a refused port.
#[test]
fn a_refused_port_is_not_logged_as_added() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n");
    let message = daemon.error_text(&["add-port", "br0", "nix", "type=pcap", "rx=/none"]);
    let log = daemon.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("port nix: ")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("WARN") && lines[0].contains("port nix: cannot be added"),
        "{lines:?}"
    );
    assert!(message.contains("/none") && lines[0].contains("/none"), "{message}: {lines:?}");
    assert!(log.contains("port br0: added to br0 number=LOCAL"), "{log}");
}

#[test]
fn a_patch_port_needs_a_peer() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n[[bridge]]\nname = \"br1\"\n");
    daemon.answer(&["add-port", "br0", "a", "type=patch", "peer=b"]);
    let show = daemon.answer(&["show"]);
    assert!(show.contains("port 1 a (patch, no peer)"), "{show}");
    daemon.answer(&["add-port", "br1", "b", "type=patch", "peer=a"]);
    let show = daemon.answer(&["show"]);
    assert!(show.contains("a (patch, up)") && show.contains("b (patch, up)"), "{show}");
    daemon.answer(&["del-port", "b"]);
    assert!(daemon.answer(&["ports"]).contains("no peer"));
}

#[test]
fn open_vswitch_commands_are_refused_with_hint() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n");
    let run_dir = daemon.run_dir().display();
    let dump_flows = format!("ovs-ofctl dump-flows unix:{run_dir}/BRIDGE.mgmt");
    for (arguments, hint) in [
        (&["del-port", "br0", "a"][..], "shuntctl del-port PORT"),
        (&["dump-flows", "br0"], dump_flows.as_str()),
        (&["list-br"], "run `shuntctl show`"),
        (&["add-port", "br0", "a", "type=vxlan"], "tunnels do not exist yet"),
        (&["add-port", "br0", "a", "tag"], "such as tag=10"),
        (
            &["capture", "br0", "/nowhere/x.pcap"],
            "cannot write the capture to /nowhere/x.pcap: No such file",
        ),
    ] {
        let message = daemon.error_text(arguments);
        assert!(message.contains(hint), "{arguments:?}: {message}");
    }
}

#[test]
fn an_invalid_vlan_is_refused_with_the_range() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n");
    for (word, setting) in [("tag=9999", "tag"), ("trunks=9999", "trunks")] {
        let message = daemon.error_text(&["add-port", "br0", "a", "type=null", word]);
        let expected = format!("{setting} = 9999: it must be a VLAN from 0 to 4095");
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn a_missing_bridge_gives_one_message() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n[[bridge]]\nname = \"br1\"\n");
    daemon.answer(&["add-port", "br0", "a", "type=null"]);
    // The port exists, but the mistake is the missing bridge.
    for arguments in
        [&["trace", "br9", "tcp"][..], &["add-port", "br9", "a", "type=null"], &["del-br", "br9"]]
    {
        let message = daemon.error_text(arguments);
        assert_eq!(message, "shuntctl: there is no bridge br9; existing bridges: br0, br1\n");
    }
    // MAC addresses are shown by `fdb/show`, which has the words of Open vSwitch.
    let message = daemon.error_text(&["macs", "br9"]);
    assert_eq!(message, "shuntctl: no such bridge: br9; existing bridges: br0, br1\n");
}
