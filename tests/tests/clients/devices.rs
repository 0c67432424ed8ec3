//! Devices of ports: state in the database and in OpenFlow, and commands that change the devices.

use shunt_tests::{
    daemon::{Daemon, text, wait_until},
    namespace::namespace_or_skip,
    traffic::ping,
};

use crate::vsctl::{DaemonFixture, show};

/// Returns fixtures with a bridge and the port `v1`.
///
/// The port is a veth device, and `e1` is the other end.
fn with_veth(label: &str) -> impl Iterator<Item = (DaemonFixture, Daemon)> {
    DaemonFixture::both(label).into_iter().map(|fixture| {
        let daemon = fixture.start();
        ip(&fixture, "link add v1 type veth peer name e1");
        ip(&fixture, "link set v1 up");
        ip(&fixture, "link set e1 up");
        fixture.done("add-br br0 -- add-port br0 v1");
        let is_up = || fixture.done("get interface v1 link_state admin_state") == "up\nup";
        assert!(wait_until(is_up), "{}", show(&daemon));
        (fixture, daemon)
    })
}

fn ip(fixture: &DaemonFixture, line: &str) -> String {
    fixture.namespace.run("ip", &line.split(' ').collect::<Vec<_>>())
}

fn description(daemon: &Daemon) -> String {
    text(&daemon.ovs_ofctl("br0", "dump-ports-desc", &[]))
}

/// A change by `ip link` does not wait for statistics.
#[test]
fn interface_columns_follow_the_device() {
    for (fixture, daemon) in with_veth("devices") {
        fixture.done("set Open_vSwitch . other_config:stats-update-interval=600000");
        let is = |columns: &str, values: &str| {
            wait_until(|| fixture.done(&format!("get interface v1 {columns}")) == values)
        };
        ip(&fixture, "link set v1 mtu 1400");
        assert!(is("mtu", "1400"));
        ip(&fixture, "link set v1 address 02:00:00:00:00:55");
        assert!(is("mac_in_use", "\"02:00:00:00:00:55\""));
        assert!(description(&daemon).contains("(v1): addr:02:00:00:00:00:55"));
        let resets: u32 = fixture.done("get interface v1 link_resets").parse().expect("a number");
        ip(&fixture, "link set e1 down");
        let down = format!("down\nup\n{}", resets + 1);
        assert!(is("link_state admin_state link_resets", &down));
        ip(&fixture, "link set e1 up");
        assert!(is("link_state link_resets", &format!("up\n{}", resets + 2)));
        ip(&fixture, "link set v1 down");
        assert!(is("link_state admin_state", "down\ndown"));
        let reason = "down: the device v1 is set down: use `ip link set v1 up`";
        assert!(show(&daemon).contains(reason), "{}", show(&daemon));
        assert_eq!(fixture.done("get interface v1 link_speed duplex"), "10000000000\nfull");
        assert_eq!(fixture.done("get interface v1 status:driver_name"), "veth");
        let versions = fixture.done("get interface v1 status");
        assert!(versions.contains("driver_version=") && versions.contains("firmware_version="));
    }
}

/// `mod-port` sets a device down,
/// and sets up only a device that `mod-port` has set down.
#[test]
fn a_device_follows_the_port_of_a_controller() {
    for (fixture, daemon) in with_veth("devices") {
        let set = |state: &str| {
            text(&daemon.ovs_ofctl("br0", "mod-port", &["v1", state]));
        };
        let is = |flag: bool| wait_until(|| ip(&fixture, "link show v1").contains(",UP") == flag);
        set("down");
        assert!(is(false), "{}", ip(&fixture, "link show v1"));
        let columns = || fixture.done("get interface v1 admin_state link_state");
        assert!(wait_until(|| columns() == "down\ndown"), "{}", columns());
        set("up");
        assert!(is(true), "{}", ip(&fixture, "link show v1"));
        assert!(wait_until(|| columns() == "up\nup"), "{}", columns());

        ip(&fixture, "link set v1 down");
        assert!(wait_until(|| columns() == "down\ndown"), "{}", columns());
        set("down");
        set("up");
        // This change is made after the previous changes.
        fixture.done("add-port br0 t1 -- set interface t1 type=internal");
        text(&daemon.ovs_ofctl("br0", "mod-port", &["t1", "down"]));
        let is_down = || !ip(&fixture, "link show t1").contains(",UP");
        assert!(wait_until(is_down), "{}", ip(&fixture, "link show t1"));
        assert!(is(false), "the operator has set it down");

        // The end of a port, and the end of the daemon, set up the devices that the switch has set
        // down.
        ip(&fixture, "link set v1 up");
        assert!(wait_until(|| columns() == "up\nup"), "{}", columns());
        set("down");
        assert!(is(false), "{}", ip(&fixture, "link show v1"));
        fixture.done("del-port v1");
        assert!(is(true), "{}", ip(&fixture, "link show v1"));
        fixture.done("add-port br0 v1");
        set("down");
        assert!(is(false), "{}", ip(&fixture, "link show v1"));
        text(&daemon.shuntctl(&["exit"]));
        assert!(is(true), "{}", ip(&fixture, "link show v1"));
    }
}

/// The next daemon sets up the devices that a killed daemon has set down,
/// and no others.
#[test]
fn a_device_comes_up_after_a_killed_daemon() {
    for (fixture, mut daemon) in with_veth("devices") {
        let is_up = |device: &str| ip(&fixture, &format!("link show {device}")).contains(",UP");
        ip(&fixture, "link add v2 type veth peer name e2");
        fixture.done("add-port br0 v2");
        let hint = "port v2: the device v2 is down, use `ip link set v2 up`";
        assert!(wait_until(|| daemon.log().contains(hint)), "{}", daemon.log());
        text(&daemon.ovs_ofctl("br0", "mod-port", &["v1", "down"]));
        assert!(wait_until(|| !is_up("v1")), "{}", ip(&fixture, "link show v1"));
        fixture.start_next(&mut daemon, "-KILL");
        assert!(wait_until(|| is_up("v1")), "{}", daemon.log());
        assert!(wait_until(|| description(&daemon).contains("(v1)")), "{}", show(&daemon));
        assert!(!daemon.log().contains("port v1: the device v1 is down"), "{}", daemon.log());
        assert!(wait_until(|| daemon.log().contains(hint)), "{}", daemon.log());
        assert!(!is_up("v2"), "the operator has set it down");

        // The daemon after the next leaves the device to the operator.
        ip(&fixture, "link set v1 down");
        fixture.start_next(&mut daemon, "-KILL");
        let down = "port v1: the device v1 is down";
        assert!(wait_until(|| daemon.log().contains(down)), "{}", daemon.log());
        assert!(!is_up("v1"), "the operator has set it down");
    }
}

/// The queues of an internal port remain with the device.
///
/// The device may be in the namespace of a container, or of an agent of Neutron.
#[test]
fn an_internal_port_forwards_in_another_namespace() {
    for fixture in DaemonFixture::both("devices") {
        let daemon = fixture.start();
        let Some(container) = namespace_or_skip("container") else { return };
        fixture.done("add-br br0 -- add-port br0 t1 -- set interface t1 type=internal");
        ip(&fixture, "addr add 10.69.9.1/24 dev br0");
        fixture.namespace.move_device("t1", &container);
        container.run("ip", &["link", "set", "t1", "address", "02:00:00:00:00:59"]);
        container.run("ip", &["addr", "add", "10.69.9.2/24", "dev", "t1"]);
        container.run("ip", &["link", "set", "t1", "up"]);
        assert!(ping(&container, "10.69.9.1"), "{}", daemon.log());
        // A check of all devices leaves the device in the other namespace.
        ip(&fixture, "link add v1 type veth peer name e1");
        fixture.done("add-port br0 v1");
        assert!(ping(&fixture.namespace, "10.69.9.2"), "{}", daemon.log());
        assert_eq!(fixture.done("get interface t1 error ofport"), "[]\n1");
        assert!(!daemon.log().contains("vanished"), "{}", daemon.log());

        // The device ends with the namespace, and the switch creates another device.
        drop(container);
        let is_back = || ip(&fixture, "link").contains(" t1: ");
        assert!(wait_until(is_back), "{}", daemon.log());
        assert_eq!(fixture.done("get interface t1 ofport"), "1");
    }
}

/// An address in a row is set again when another program changes it.
#[test]
fn an_address_of_the_database_stays_in_force() {
    for (fixture, daemon) in with_veth("devices") {
        fixture.done("set bridge br0 other_config:hwaddr=02:00:00:00:00:77");
        fixture.done("add-port br0 t1 -- set interface t1 type=internal mac=\"02:00:00:00:00:78\"");
        for (device, address) in [("br0", "02:00:00:00:00:77"), ("t1", "02:00:00:00:00:78")] {
            let in_use = || fixture.done(&format!("get interface {device} mac_in_use"));
            let expected = format!("\"{address}\"");
            assert!(wait_until(|| in_use() == expected), "{device}: {}", in_use());
            ip(&fixture, &format!("link set {device} address 02:00:00:00:00:55"));
            let log = format!("port {device}: the MAC address of the device has changed");
            assert!(wait_until(|| daemon.log().contains(&log)), "{}", daemon.log());
            let is_set = || ip(&fixture, &format!("link show {device}")).contains(address);
            assert!(wait_until(|| is_set() && in_use() == expected), "{device}: {}", in_use());
            assert_eq!(fixture.done(&format!("get interface {device} error")), "[]");
        }
        // A bridge without an address in the row has the address that the host sets.
        fixture.done("add-br br1");
        ip(&fixture, "link set br1 address 02:00:00:00:00:56");
        let in_use = || fixture.done("get interface br1 mac_in_use");
        assert!(wait_until(|| in_use() == "\"02:00:00:00:00:56\""), "{}", in_use());
        assert!(ip(&fixture, "link show br1").contains("02:00:00:00:00:56"));
    }
}

/// A bridge that gets a local port is replaced only if the new bridge can be added.
#[test]
fn a_bridge_stays_if_its_replacement_is_refused() {
    for fixture in DaemonFixture::both("devices") {
        let daemon = fixture.start();
        text(&daemon.shuntctl(&["add-br", "other"]));
        text(&daemon.shuntctl(&["add-port", "other", "t1", "type=tap", "device=br0"]));
        fixture.done("-- --id=@b create bridge name=br0 -- add Open_vSwitch . bridges @b");
        text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=5,icmp,actions=NORMAL"]));
        fixture.done(
            "-- --id=@i create interface name=br0 type=internal \
             -- --id=@p create port name=br0 interfaces=@i -- add bridge br0 ports @p",
        );
        let error = || fixture.done("get interface br0 error");
        assert!(error().contains("device br0 belongs to port t1"), "{}", error());
        let rules = text(&daemon.ovs_ofctl("br0", "dump-flows", &[]));
        assert!(rules.contains("priority=5,icmp"), "{rules}");
        text(&daemon.shuntctl(&["del-port", "t1"]));
        assert!(wait_until(|| error() == "[]"), "{}", error());
        assert_eq!(fixture.done("get interface br0 ofport"), "65534");
    }
}

/// A patch port without a peer has an error that names the problem.
/// A patch port with a peer is up.
#[test]
fn patch_port_without_peer_has_error() {
    for fixture in DaemonFixture::both("devices") {
        let _daemon = fixture.start();
        fixture.done("add-br br0 -- add-br br1");
        let add = |bridge: &str, name: &str, peer: &str| {
            fixture.done(&format!(
                "add-port {bridge} {name} -- set interface {name} type=patch options:peer={peer}"
            ))
        };
        let error = |name: &str| fixture.done(&format!("get interface {name} error"));
        add("br0", "ga", "gb");
        assert!(error("ga").contains("the peer gb does not exist: add"), "{}", error("ga"));
        add("br1", "gb", "ga");
        assert_eq!([error("ga"), error("gb")], ["[]", "[]"]);
        assert_eq!(fixture.done("get interface ga link_state ofport"), "up\n1");
        fixture.done("set interface gb options:peer=gc");
        assert!(error("ga").contains("the peer gb has the peer gc"), "{}", error("ga"));
        fixture.done("del-port gb -- add-port br1 gb -- set interface gb type=internal");
        assert!(error("ga").contains("the peer gb is not a patch port"), "{}", error("ga"));
    }
}

/// Each setting without effect is in its row, and in the log once for each object.
#[test]
fn settings_without_effect_are_named() {
    for fixture in DaemonFixture::both("devices") {
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 p1 -- set interface p1 type=null");
        fixture.done("set bridge br0 stp_enable=true protocols=OpenFlow11 other_config:dp-sn=7");
        fixture
            .done("set port p1 other_config:x=1 -- set interface p1 cfm_mpid=3 lldp:enable=true");
        let status = |row: &str| fixture.done(&format!("get {row} status"));
        for (row, settings) in [
            ("bridge br0", &["stp_enable", "protocols", "other_config:dp-sn"][..]),
            ("port p1", &["other_config:x"]),
            ("interface p1", &["cfm_mpid", "lldp"]),
        ] {
            for setting in settings {
                assert!(status(row).contains(setting), "{}", status(row));
                let line = format!("{row}: the setting {setting} has no effect");
                assert_eq!(daemon.log().matches(&line).count(), 1, "{line}: {}", daemon.log());
            }
        }
        fixture.done("set bridge br0 other_config:mac-aging-time=soon");
        let setting = "mac-aging-time";
        assert!(status("bridge br0").contains(setting), "{}", status("bridge br0"));
        fixture.done("remove bridge br0 other_config mac-aging-time");
        fixture.done("set Open_vSwitch . other_config:max-revalidator=7");
        let warning = "other_config:max-revalidator has no effect";
        assert!(daemon.log().contains(warning), "{}", daemon.log());
        fixture.done("set bridge br0 stp_enable=false protocols=OpenFlow13");
        fixture.done("remove bridge br0 other_config dp-sn");
        assert_eq!(status("bridge br0"), "{}");
        // Settings that have an effect are not named.
        fixture.done("set bridge br0 flood_vlans=9 other_config:mac-table-size=100");
        fixture.done("set bridge br0 other_config:mac-aging-time=60 -- set port p1 protected=true");
        assert_eq!(status("bridge br0"), "{}");
        fixture.done("clear port p1 other_config");
        fixture.done("set port p1 tag=7 other_config:priority-tags=if-nonzero");
        assert_eq!(status("port p1"), "{}");
        let stats = text(&daemon.ovs_appctl(&["fdb/stats-show", "br0"]));
        assert!(stats.contains("/100"), "{stats}");
        let shown = "p1 (null, up, access tag=7, priority_tags=if-nonzero, protected)";
        assert!(show(&daemon).contains(shown), "{}", show(&daemon));
        fixture.done("set port p1 other_config:priority-tags=sometimes");
        assert!(status("port p1").contains("priority-tags"), "{}", status("port p1"));
        let shown = "p1 (null, up, access tag=7, protected)";
        assert!(show(&daemon).contains(shown), "{}", show(&daemon));
    }
}

/// As in Open vSwitch, 0 is the largest number of tags.
#[test]
fn the_number_of_parsed_tags_follows_the_database() {
    for fixture in DaemonFixture::both("tags") {
        let daemon = fixture.start();
        let tags = || {
            let settings = text(&daemon.shuntctl(&["settings"]));
            let line = settings.lines().find(|line| line.starts_with("packets.vlan_limit"));
            line.unwrap_or_default().to_owned()
        };
        assert_eq!(tags(), "packets.vlan_limit = 1");
        for (limit, expected) in [("2", "2"), ("1", "1"), ("0", "2"), ("soon", "1"), ("9", "2")] {
            fixture.done(&format!("set Open_vSwitch . other_config:vlan-limit={limit}"));
            assert_eq!(tags(), format!("packets.vlan_limit = {expected}"), "{limit}");
        }
        assert!(daemon.log().contains("vlan-limit has no effect"), "{}", daemon.log());
        fixture.done("remove Open_vSwitch . other_config vlan-limit");
        assert_eq!(tags(), "packets.vlan_limit = 1");
        // The key has precedence over a setting of the operator.
        fixture.done("set Open_vSwitch . other_config:vlan-limit=2");
        text(&daemon.shuntctl(&["set", "packets.vlan_limit=1"]));
        assert_eq!(tags(), "packets.vlan_limit = 2");
        // The operator sets the value that the key already has.
        text(&daemon.shuntctl(&["set", "packets.vlan_limit=2"]));
        fixture.done("remove Open_vSwitch . other_config vlan-limit");
        assert_eq!(tags(), "packets.vlan_limit = 2");
    }
}

/// Without a key, the setting of the configuration is in force.
#[test]
fn load_balancing_follows_the_database() {
    for fixture in DaemonFixture::both("balance") {
        let daemon = fixture.start();
        let has = |line: &str| {
            let settings = text(&daemon.shuntctl(&["settings"]));
            assert!(settings.lines().any(|own| own == line), "{line}: {settings}");
        };
        has("threads.auto_lb = false");
        fixture.done("set Open_vSwitch . other_config:pmd-auto-lb=true");
        fixture.done("set Open_vSwitch . other_config:pmd-auto-lb-load-threshold=70");
        fixture.done("set Open_vSwitch . other_config:pmd-auto-lb-improvement-threshold=10");
        fixture.done("set Open_vSwitch . other_config:pmd-auto-lb-rebal-interval=5");
        has("threads.auto_lb = true");
        has("threads.auto_lb_load_threshold = 70");
        has("threads.auto_lb_improvement_threshold = 10");
        has("threads.auto_lb_interval_min = 5");
        fixture.done("set Open_vSwitch . other_config:pmd-auto-lb-load-threshold=101");
        has("threads.auto_lb_load_threshold = 95");
        let warning = "other_config:pmd-auto-lb-load-threshold has no effect";
        assert!(daemon.log().contains(warning), "{}", daemon.log());
        fixture.done("set Open_vSwitch . other_config:pmd-auto-lb-rebal-interval=0");
        has("threads.auto_lb_interval_min = 1");
        fixture.done("remove Open_vSwitch . other_config pmd-auto-lb");
        has("threads.auto_lb = false");
        has("threads.auto_lb_improvement_threshold = 10");
        let answer = text(&daemon.ovs_appctl(&["dpif-netdev/pmd-rxq-rebalance"]));
        assert_eq!(answer.trim(), "pmd rxq rebalance: 0 receive queues moved");
    }
}
