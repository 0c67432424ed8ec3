//! Values that `ovs-vsctl` changes while packets pass: valid values and invalid values.

use shunt_tests::daemon::{text, wait_until};

use crate::vsctl::{DaemonFixture, show};

/// An MTU changes without the loss of addresses, routes and rules.
#[test]
fn vsctl_changes_an_mtu_of_a_running_device() {
    for fixture in DaemonFixture::both("values") {
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 t1 -- set interface t1 type=internal");
        let ip = |line: &str| fixture.namespace.run("ip", &line.split(' ').collect::<Vec<_>>());
        ip("addr add 10.69.1.1/24 dev br0");
        ip("addr add 10.69.2.1/24 dev t1");
        ip("route add 10.69.3.0/24 via 10.69.1.2");
        text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=5,icmp,actions=NORMAL"]));
        fixture.done("set interface br0 mtu_request=1400 -- set interface t1 mtu_request=1300");
        // The columns have the new values when the command returns.
        assert_eq!(fixture.done("get interface br0 mtu"), "1400");
        assert_eq!(fixture.done("get interface t1 mtu"), "1300");
        assert!(ip("link show br0").contains("mtu 1400"), "{}", ip("link show br0"));
        assert!(ip("addr show br0").contains("10.69.1.1/24"), "{}", ip("addr show br0"));
        assert!(ip("addr show t1").contains("10.69.2.1/24"), "{}", ip("addr show t1"));
        assert!(ip("route").contains("10.69.3.0/24 via 10.69.1.2"), "{}", ip("route"));
        let rules = text(&daemon.ovs_ofctl("br0", "dump-flows", &[]));
        assert!(rules.contains("priority=5,icmp"), "{rules}");
    }
}

/// Addresses of devices change without the loss of IP addresses, routes and rules.
#[test]
fn vsctl_changes_mac_address_of_running_device() {
    for fixture in DaemonFixture::both("values") {
        let daemon = fixture.start();
        fixture.done(
            "add-br br0 -- add-port br0 t1 -- set interface t1 type=internal mac=\"02:00:00:00:00:31\"",
        );
        let ip = |line: &str| fixture.namespace.run("ip", &line.split(' ').collect::<Vec<_>>());
        assert!(ip("link show t1").contains("02:00:00:00:00:31"), "{}", ip("link show t1"));
        ip("addr add 10.69.1.1/24 dev br0");
        ip("addr add 10.69.2.1/24 dev t1");
        ip("route add 10.69.3.0/24 via 10.69.1.2");
        text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=5,icmp,actions=NORMAL"]));
        fixture.done(
            "set bridge br0 other_config:hwaddr=02:00:00:00:00:41 -- set interface t1 mac=\"02:00:00:00:00:32\"",
        );
        for (device, mac, address) in [
            ("br0", "02:00:00:00:00:41", "10.69.1.1/24"),
            ("t1", "02:00:00:00:00:32", "10.69.2.1/24"),
        ] {
            assert!(ip(&format!("link show {device}")).contains(mac), "{}", ip("link"));
            assert!(ip(&format!("addr show {device}")).contains(address), "{}", ip("addr"));
            let in_use = fixture.done(&format!("get interface {device} mac_in_use"));
            assert_eq!(in_use, format!("\"{mac}\""));
            let ports = text(&daemon.ovs_ofctl("br0", "dump-ports-desc", &[]));
            assert!(ports.contains(&format!("({device}): addr:{mac}")), "{ports}");
        }
        assert!(ip("route").contains("10.69.3.0/24 via 10.69.1.2"), "{}", ip("route"));
        // The datapath id comes from the address.
        assert_eq!(fixture.done("get bridge br0 datapath_id"), "\"0000020000000041\"");
        // Another spelling means the same address.
        fixture.done("set bridge br0 other_config:hwaddr=02:00:00:00:00:4A");
        fixture.done("set bridge br0 other_config:hwaddr=02:00:00:00:00:4a");
        let rules = text(&daemon.ovs_ofctl("br0", "dump-flows", &[]));
        assert!(rules.contains("priority=5,icmp"), "{rules}");
    }
}

/// At run time, a table has the limit of the table's row in `Flow_Table`.
#[test]
fn a_flow_table_has_its_limit() {
    for fixture in DaemonFixture::both("tables") {
        let daemon = fixture.start();
        fixture.done("add-br br0");
        let add = |rule: &str| daemon.ovs_ofctl("br0", "add-flow", &[rule]).status.success();
        assert!(add("table=1,priority=1,idle_timeout=900,actions=drop"));
        fixture
            .done("-- --id=@t create flow_table flow_limit=1 -- set bridge br0 flow_tables:1=@t");
        assert!(!add("table=1,priority=2,actions=drop"), "the table is full");
        assert!(add("table=2,priority=2,actions=drop"), "another one is not");
        let id = fixture.done("get bridge br0 flow_tables:1");
        fixture.done(&format!("set flow_table {id} overflow_policy=evict"));
        assert!(add("table=1,priority=3,actions=drop"), "the rule with a timeout is evicted");
        assert!(!add("table=1,priority=4,actions=drop"), "no rule with a timeout is left");
        fixture.done("clear bridge br0 flow_tables");
        assert!(add("table=1,priority=4,actions=drop"));
        assert_eq!(fixture.done("get bridge br0 status"), "{}");
    }
}

/// The row of the bridge has the columns of tables without effect.
#[test]
fn table_features_have_name_and_limit() {
    for fixture in DaemonFixture::both("tables") {
        let daemon = fixture.start();
        fixture.done("add-br br0");
        fixture.done(
            "-- --id=@a create flow_table flow_limit=7 name=classifier -- --id=@b create \
             flow_table groups=in_port prefixes=ip_dst -- --id=@c create flow_table flow_limit=1 \
             -- set bridge br0 flow_tables:1=@a flow_tables:253=@b flow_tables:254=@c",
        );
        let features = text(&daemon.ovs_ofctl("br0", "dump-table-features", &[]));
        let table = features.split("table 1 (\"classifier\")").nth(1).unwrap_or_default();
        let limit = table.lines().find(|line| line.contains("max_entries")).unwrap_or_default();
        assert!(limit.trim().ends_with("max_entries=7"), "{features}");
        let status = fixture.done("get bridge br0 status");
        for key in ["flow_tables:253:groups", "flow_tables:253:prefixes", "flow_tables:254"] {
            assert!(status.contains(&format!("\"{key}\"=\"no effect")), "{status}");
        }
        // The bridge and the table remain in use.
        text(&daemon.ovs_ofctl("br0", "add-flow", &["table=253,actions=drop"]));
    }
}

/// The row has the reason, and the log has the reason once.
#[test]
fn full_table_is_reason_in_row() {
    for fixture in DaemonFixture::both("tables") {
        let daemon = fixture.start();
        fixture.done("add-br br0 -- set bridge br0 fail_mode=secure");
        text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=1,actions=drop"]));
        fixture
            .done("-- --id=@t create flow_table flow_limit=1 -- set bridge br0 flow_tables:0=@t");
        fixture.done("clear bridge br0 fail_mode");
        let status = || fixture.done("get bridge br0 status");
        let reason = "priority=0,actions=NORMAL cannot be added, retrying";
        assert!(wait_until(|| status().contains(reason)), "{}", status());
        fixture.done("set bridge br0 other_config:mac-table-size=100");
        assert_eq!(daemon.log().matches(reason).count(), 1, "{}", daemon.log());
        text(&daemon.ovs_ofctl("br0", "del-flows", &[]));
        assert!(wait_until(|| status() == "{}"), "{}", status());
        let rules = text(&daemon.ovs_ofctl("br0", "dump-flows", &[]));
        assert!(rules.contains("actions=NORMAL"), "{rules}");
    }
}

/// After an invalid value, the value in force remains, and the row has all reasons.
#[test]
fn invalid_values_keep_the_old_ones() {
    for fixture in DaemonFixture::both("values") {
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 t1 tag=5 -- set interface t1 type=internal");
        fixture.done("set bridge br0 other_config:hwaddr=02:00:00:00:00:77");
        fixture.done("set interface br0 mtu_request=1400 -- set interface t1 mtu_request=1300");
        fixture.done("set port t1 qos=@q -- --id=@q create qos type=egress-policer other_config:cir=1000 other_config:cbs=2000");
        text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=5,icmp,actions=NORMAL"]));
        let before = show(&daemon);
        assert!(before.contains("cir=1000"), "{before}");
        fixture.done("set bridge br0 other_config:hwaddr=zz -- set interface br0 mtu_request=20");
        fixture.done(
            "set interface t1 mtu_request=20 -- clear port t1 tag \
             -- set port t1 vlan_mode=dot1q-tunnel",
        );
        let id = fixture.done("get port t1 qos");
        fixture.done(&format!("set qos {id} type=linux-hfsc"));
        assert_eq!(show(&daemon), before);
        for (interface, mtu, reasons) in [
            ("br0", "1400", &["hwaddr has no effect", "mtu_request 20 has no effect"][..]),
            ("t1", "1300", &["mtu_request 20 has no effect", "dot1q-tunnel", "linux-hfsc"]),
        ] {
            let error = fixture.done(&format!("get interface {interface} error"));
            assert!(reasons.iter().all(|reason| error.contains(reason)), "{error}");
            assert_eq!(fixture.done(&format!("get interface {interface} mtu")), mtu);
        }
        assert_eq!(fixture.done("get interface br0 mac_in_use"), "\"02:00:00:00:00:77\"");
        let rules = text(&daemon.ovs_ofctl("br0", "dump-flows", &[]));
        assert!(rules.contains("priority=5,icmp"), "{rules}");
    }
}

/// An MTU that the device refuses has a reason in the row, and the port opens.
#[test]
fn a_device_opens_with_a_refused_mtu() {
    for fixture in DaemonFixture::both("values") {
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 t1 -- set interface t1 type=internal");
        fixture.done("set interface br0 mtu_request=65530 -- set interface t1 mtu_request=65530");
        drop(daemon);
        let daemon = fixture.start();
        for interface in ["br0", "t1"] {
            let get = |column: &str| fixture.done(&format!("get interface {interface} {column}"));
            assert!(wait_until(|| get("link_state") == "up"), "{}", show(&daemon));
            assert!(wait_until(|| get("error").contains("MTU")), "{}", get("error"));
            assert!(get("error").contains("keeps its MTU 1500"), "{}", get("error"));
            assert!(show(&daemon).contains("keeps its MTU 1500"), "{}", show(&daemon));
            assert_eq!(get("mtu"), "1500");
            fixture.done(&format!("set interface {interface} mtu_request=1400"));
            assert_eq!([get("mtu"), get("error")], ["1400", "[]"]);
        }
    }
}

/// An invalid value has a reason in the row and in the log, and changes nothing.
#[test]
fn invalid_values_stop_no_bridge_or_port() {
    for fixture in DaemonFixture::both("values") {
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 t1 -- set interface t1 type=internal");
        text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=5,icmp,actions=NORMAL"]));
        let before = show(&daemon);
        for (row, column, value, reason) in [
            ("interface br0", "mtu_request", "20", "mtu_request 20 has no effect"),
            ("interface t1", "mtu_request", "70000", "mtu_request 70000 has no effect"),
            ("bridge br0", "other_config:hwaddr", "zz", "other_config:hwaddr has no effect"),
        ] {
            fixture.done(&format!("set {row} {column}={value}"));
            let interface = row.replace("bridge", "interface");
            let error = || fixture.done(&format!("get {interface} error"));
            assert!(error().contains(reason), "{}", error());
            assert!(daemon.log().contains(reason), "{}", daemon.log());
            assert_eq!(show(&daemon), before);
            fixture.done(&match column.split_once(':') {
                Some((map, key)) => format!("remove {row} {map} {key}"),
                None => format!("clear {row} {column}"),
            });
            assert_eq!(error(), "[]");
        }
        let rules = text(&daemon.ovs_ofctl("br0", "dump-flows", &[]));
        assert!(rules.contains("priority=5,icmp"), "{rules}");
    }
}

/// As in Open vSwitch, an access port ignores `trunks`,
/// and a trunk port ignores `tag`.
#[test]
fn superfluous_vlan_columns_are_ignored() {
    for fixture in DaemonFixture::both("values") {
        let daemon = fixture.start();
        fixture
            .done("add-br br0 -- add-port br0 p1 tag=7 trunks=5,6 -- set interface p1 type=null");
        let shows = |vlans: &str| wait_until(|| show(&daemon).contains(vlans));
        assert!(shows("p1 (null, up, access tag=7)"), "{}", show(&daemon));
        fixture.done("set port p1 tag=8 trunks=9");
        assert!(shows("p1 (null, up, access tag=8)"), "{}", show(&daemon));
        fixture.done("set port p1 vlan_mode=trunk");
        assert!(shows("p1 (null, up, trunk trunks=9)"), "{}", show(&daemon));
        fixture
            .done("set port p1 vlan_mode=native-tagged cvlans=6 other_config:qinq-ethtype=802.1q");
        assert!(shows("p1 (null, up, native-tagged tag=8 trunks=9)"), "{}", show(&daemon));
        fixture.done("set port p1 vlan_mode=dot1q-tunnel");
        let shown = "p1 (null, up, dot1q-tunnel tag=8 cvlans=6 qinq_ethtype=802.1q)";
        assert!(shows(shown), "{}", show(&daemon));
        assert_eq!(fixture.done("get port p1 status"), "{}");
    }
}

/// A port that returns each frame to the bridge is refused.
#[test]
fn ports_that_return_frames_are_refused() {
    for fixture in DaemonFixture::both("values") {
        let _daemon = fixture.start();
        fixture.done("add-br br0");
        for (name, options, reason) in [
            ("lo", "type=system", "the loopback device returns every frame"),
            ("p1", "type=patch options:peer=p1", "is the port itself"),
        ] {
            let added =
                fixture.vsctl(&format!("add-port br0 {name} -- set interface {name} {options}"));
            let message = String::from_utf8_lossy(&added.stderr);
            assert!(message.contains(reason), "{message}");
            assert_eq!(fixture.done(&format!("get interface {name} ofport")), "-1");
        }
    }
}
