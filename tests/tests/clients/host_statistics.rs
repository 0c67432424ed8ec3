//! The column `statistics` of `Open_vSwitch`, and the keys of the caches in the same row.

use std::collections::BTreeMap;

use shunt_tests::{
    daemon::{output, text, wait_until},
    open_vswitch::OpenVSwitch,
};

use crate::vsctl::DaemonFixture;

/// Returns the entries of a map that `ovs-vsctl get` has printed.
fn entries(map: &str) -> BTreeMap<String, String> {
    let inner = map.trim().trim_start_matches('{').trim_end_matches('}');
    let pairs = inner.split("\", ").filter_map(|pair| pair.split_once('='));
    let bare = |text: &str| text.trim_matches(['"', ' ']).to_owned();
    pairs.map(|(key, value)| (bare(key), bare(value))).collect()
}

/// Returns the numbers of parts of an entry, which commas and spaces separate.
fn shape(value: &str) -> Vec<usize> {
    value.split(' ').map(|part| part.split(',').count()).collect()
}

/// The keys and formats are those of `ovs-vswitchd` in the same namespace.
#[test]
fn statistics_are_those_of_open_vswitch() {
    for fixture in DaemonFixture::both("statistics") {
        let daemon = fixture.start();
        let get = || entries(&fixture.done("get Open_vSwitch . statistics"));
        assert!(get().is_empty());
        fixture.done("set Open_vSwitch . other_config:enable-statistics=true");
        assert!(wait_until(|| get().contains_key("memory")), "{}", daemon.log());
        let own = get();
        for name in ["process_shuntd", "process_ovs-vswitchd"] {
            assert_eq!(own.get(name).map(|value| shape(value)), Some(vec![7]), "{name}: {own:?}");
        }
        assert!(!daemon.log().contains("enable-statistics has no effect"), "{}", daemon.log());
        // Reading the pid files has not released the lock, by which ovs-appctl finds the daemon.
        let mut command = std::process::Command::new("ovs-appctl");
        let answer = output(command.env("OVS_RUNDIR", daemon.run_dir()).arg("version"));
        assert!(text(&answer).contains("shuntd"));
        if let Some(rival) = OpenVSwitch::start_or_skip(&fixture.namespace) {
            rival.vsctl("set Open_vSwitch . other_config:enable-statistics=true");
            let get = || entries(&rival.vsctl("get Open_vSwitch . statistics"));
            assert!(wait_until(|| get().contains_key("memory")));
            let other = get();
            for key in ["cpu", "load_average", "memory", "file_systems"] {
                let shapes = [&own, &other].map(|all| all.get(key).map(|value| shape(value)));
                assert_eq!(shapes[0], shapes[1], "{key}: {own:?} and {other:?}");
            }
            assert_eq!(own["cpu"], other["cpu"]);
            assert_eq!(shape(&own["process_shuntd"]), shape(&other["process_ovs-vswitchd"]));
        }
        fixture.done("set Open_vSwitch . other_config:enable-statistics=false");
        assert!(get().is_empty());
    }
}

/// Without a key, the settings of the configuration are in force.
#[test]
fn limits_of_caches_follow_the_database() {
    for fixture in DaemonFixture::both("limits") {
        let daemon = fixture.start();
        let has = |line: &str| {
            let settings = text(&daemon.shuntctl(&["settings"]));
            assert!(settings.lines().any(|own| own == line), "{line}: {settings}");
        };
        has("caches.megaflow_entries = 262144");
        fixture.done("set Open_vSwitch . other_config:flow-limit=5000 other_config:max-idle=2000");
        has("caches.megaflow_entries = 5000");
        has("caches.idle_ms = 2000");
        let shown = text(&daemon.ovs_appctl(&["upcall/show"]));
        assert!(shown.contains("(limit 5000)"), "{shown}");
        let refused = daemon.ovs_appctl(&["upcall/set-flow-limit", "300"]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains("other_config:flow-limit of the database"), "{error}");
        fixture.done("set Open_vSwitch . other_config:flow-limit=0");
        let warning = "other_config:flow-limit has no effect";
        assert!(daemon.log().contains(warning), "{}", daemon.log());
        // The limit that was set meanwhile is in force without the key.
        has("caches.megaflow_entries = 300");
        fixture.done("remove Open_vSwitch . other_config max-idle");
        has("caches.idle_ms = 10000");
        let set = text(&daemon.ovs_appctl(&["upcall/set-flow-limit", "600"]));
        assert_eq!(set, "set flow_limit to 600\n");
        has("caches.megaflow_entries = 600");
    }
}
