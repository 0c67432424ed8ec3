//! Features that do not exist: the rows of the database name them, and nothing is silent.

use crate::vsctl::DaemonFixture;

/// A setting of a feature that does not exist.
struct AbsentFeature {
    /// The row of the setting.
    row: &'static str,
    /// The words of `ovs-vsctl set` for this row.
    setting: &'static str,
    /// The key of the entry in the column `status`.
    key: &'static str,
    /// Words of the reason in the entry.
    reason: &'static str,
    /// The command that removes the setting.
    removal: &'static str,
}

/// The settings, by feature: STP, RSTP, CFM and LLDP.
const FEATURES: [AbsentFeature; 7] = [
    AbsentFeature {
        row: "bridge br0",
        setting: "stp_enable=true",
        key: "stp_enable",
        reason: "no spanning tree is computed",
        removal: "set bridge br0 stp_enable=false",
    },
    AbsentFeature {
        row: "bridge br0",
        setting: "rstp_enable=true",
        key: "rstp_enable",
        reason: "no spanning tree is computed",
        removal: "set bridge br0 rstp_enable=false",
    },
    AbsentFeature {
        row: "bridge br0",
        setting: "other_config:stp-priority=0x7800",
        key: "other_config:stp-priority",
        reason: "no spanning tree is computed",
        removal: "remove bridge br0 other_config stp-priority",
    },
    AbsentFeature {
        row: "port p1",
        setting: "other_config:rstp-enable=true",
        key: "other_config:rstp-enable",
        reason: "no spanning tree is computed",
        removal: "remove port p1 other_config rstp-enable",
    },
    AbsentFeature {
        row: "interface p1",
        setting: "cfm_mpid=3",
        key: "cfm_mpid",
        reason: "CFM is not supported",
        removal: "clear interface p1 cfm_mpid",
    },
    AbsentFeature {
        row: "interface p1",
        setting: "other_config:cfm_interval=100",
        key: "other_config:cfm_interval",
        reason: "CFM is not supported",
        removal: "remove interface p1 other_config cfm_interval",
    },
    AbsentFeature {
        row: "interface p1",
        setting: "lldp:enable=true",
        key: "lldp",
        reason: "LLDP is not supported",
        removal: "remove interface p1 lldp enable",
    },
];

#[test]
fn absent_features_are_refused_by_name() {
    for fixture in DaemonFixture::both("absent") {
        let daemon = fixture.start();
        fixture.done("add-br br0 -- add-port br0 p1 -- set interface p1 type=null");
        for AbsentFeature { row, setting, key, reason, removal } in FEATURES {
            let status = || fixture.done(&format!("get {row} status"));
            assert!(!status().contains(key), "before {setting}: {}", status());
            fixture.done(&format!("set {row} {setting}"));
            let entry = fixture.done(&format!("get {row} status:\"{key}\""));
            assert!(entry.contains(&format!("no effect: {reason}")), "{setting}: {entry}");
            let line = format!("{row}: the setting {key} has no effect: {reason}");
            assert_eq!(daemon.log().matches(&line).count(), 1, "{line}: {}", daemon.log());
            fixture.done(removal);
            assert!(!status().contains(key), "after {removal}: {}", status());
        }
        // The columns that Open vSwitch writes for these features stay empty.
        let columns = "get port p1 rstp_status rstp_statistics -- get bridge br0 rstp_status";
        assert_eq!(fixture.done(columns), "{}\n{}\n{}");
        let columns = "cfm_fault cfm_fault_status cfm_health cfm_remote_mpids cfm_remote_opstate";
        assert_eq!(fixture.done(&format!("get interface p1 {columns}")), "[]\n[]\n[]\n[]\n[]");
    }
}
