//! Tests of the commands for multicast snooping.

use crate::{
    Daemon,
    appctl::{out, ovs_appctl},
    errors,
};

const BRIDGES: &str = r#"
[[bridge]]
name = "br0"
mcast_snooping_enable = true
[[bridge.port]]
name = "p1"
type = "null"
mcast_snooping_flood = true
[[bridge]]
name = "br1"
"#;

/// The table of a bridge that has learned no group, as Open vSwitch prints it.
const HEADER: &str = " port  VLAN  GROUP                Age\n";

const DISABLED: &str = "multicast snooping is disabled";

#[test]
fn snooping_is_configured_and_shown() {
    let daemon = Daemon::start(BRIDGES);
    let shown = daemon.answer(&["show"]);
    assert_eq!(
        shown.matches("multicast snooping (0 of 2048 groups, 0 router ports)").count(),
        1,
        "{shown}"
    );
    assert!(shown.contains(", mcast_snooping_flood"), "{shown}");
    assert_eq!(daemon.answer(&["mdb", "br0"]), HEADER);
    assert!(daemon.error_text(&["mdb", "br1"]).contains(DISABLED));
    assert!(daemon.error_text(&["mdb", "br9"]).contains("br9"));
    let keys = ["mcast_snooping_enable=true", "mcast_snooping_ageing_s=15"];
    daemon.answer(&["set-br", "br1", keys[0], keys[1]]);
    assert_eq!(daemon.answer(&["mdb", "br1"]), HEADER);
    daemon.answer(&["set-vlans", "p1", "mcast_snooping_flood_reports=true"]);
    let saved = daemon.answer(&["save"]);
    for key in ["mcast_snooping_ageing_s", "mcast_snooping_flood_reports"] {
        assert!(saved.contains(key), "{key}: {saved}");
    }
    let range = "it must be a number of groups from 1 to 1000000, or 0 for 2048";
    for value in ["many", "-1", "1000001"] {
        let setting = format!("mcast_snooping_entries={value}");
        let error = daemon.error_text(&["set-br", "br0", &setting]);
        assert!(error.contains(&format!("mcast_snooping_entries = {value}: {range}")), "{error}");
    }
    daemon.answer(&["set-br", "br0", "mcast_snooping_enable=false"]);
    assert!(daemon.error_text(&["mdb", "br0"]).contains(DISABLED));
}

#[test]
fn ovs_appctl_shows_and_flushes_groups() {
    let daemon = Daemon::start(BRIDGES);
    let flushed = "table successfully flushed\n";
    for (arguments, expected) in [
        (&["mdb/show", "br0"][..], HEADER),
        (&["mdb/flush", "br0"], flushed),
        (&["mdb/flush"], flushed),
    ] {
        let Some(output) = ovs_appctl(daemon.run_dir(), arguments) else { return };
        assert_eq!(out(&output), expected, "{arguments:?}");
    }
    for arguments in [["mdb/show", "br1"], ["mdb/flush", "br1"]] {
        let Some(output) = ovs_appctl(daemon.run_dir(), &arguments) else { return };
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(errors(&output).contains(DISABLED), "{}", errors(&output));
    }
}
