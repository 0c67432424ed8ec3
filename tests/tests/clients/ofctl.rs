//! Operator tasks with `ovs-ofctl`, and the output of `ovs-ofctl`.

use shunt_tests::daemon::{Daemon, error_text, text};

use crate::daemon;

fn ofctl(daemon: &Daemon, verb: &str, arguments: &[&str]) -> String {
    text(&daemon.ovs_ofctl("br0", verb, arguments))
}

/// Returns the rules without the fields that vary between runs.
fn rules(daemon: &Daemon) -> Vec<String> {
    let dump = ofctl(daemon, "dump-flows", &["--no-stats"]);
    let lines = dump.lines().map(str::trim).filter(|line| line.contains("actions="));
    lines.map(str::to_owned).collect()
}

#[test]
fn show_names_the_switch_and_its_ports() {
    let daemon = daemon();
    let show = ofctl(&daemon, "show", &[]);
    assert!(show.contains("dpid:00000000000000c1"), "{show}");
    assert!(show.contains("n_tables:254, n_buffers:0"), "{show}");
    for port in ["1(p1)", "4(p4)", "LOCAL(br0)"] {
        assert!(show.contains(port), "{show}");
    }
    assert!(show.contains("miss_send_len"), "{show}");
}

#[test]
fn every_ofctl_query_gets_a_reply() {
    let daemon = daemon();
    for (verb, expected) in [
        ("dump-desc", "Shunt"),
        ("dump-ports", "port  1: rx pkts=0"),
        ("dump-ports-desc", "LOCAL(br0)"),
        ("dump-tables", "table 0"),
        ("dump-table-features", "table 0"),
        ("dump-aggregate", "flow_count=0"),
        ("queue-stats", "0 queues"),
        ("dump-groups", "OFPST_GROUP_DESC reply"),
        ("dump-group-stats", "OFPST_GROUP reply"),
        ("dump-group-features", "OFPST_GROUP_FEATURES reply"),
        ("dump-meters", "OFPST_METER_CONFIG reply"),
        ("meter-stats", "OFPST_METER reply"),
        ("meter-features", "OFPST_METER_FEATURES reply"),
        ("get-frags", "normal"),
        ("ping", "64 bytes from"),
    ] {
        let answer = ofctl(&daemon, verb, &[]);
        assert!(answer.contains(expected), "{verb}: {answer}");
    }
    ofctl(&daemon, "probe", &[]);
}

#[test]
fn dumped_rules_equal_added_rules() {
    let daemon = daemon();
    for rule in [
        "cookie=0x1,priority=7,tcp,in_port=1,nw_dst=10.0.0.0/8,tp_dst=80,actions=output:2",
        "table=1,priority=9,ipv6,ipv6_src=2001:db8::/32,actions=dec_ttl,output:3",
        "table=1,priority=8,dl_vlan=5,actions=strip_vlan,output:3",
        "table=2,priority=8,arp,arp_tpa=10.0.0.1,actions=load:0x5->NXM_NX_REG0[],resubmit(,3)",
        "priority=6,udp,actions=write_actions(output:4),goto_table:2",
    ] {
        ofctl(&daemon, "add-flow", &[rule]);
    }
    let rules = rules(&daemon);
    for expected in [
        "cookie=0x1, priority=7,tcp,in_port=1,nw_dst=10.0.0.0/8,tp_dst=80 actions=output:2",
        "table=1, priority=9,ipv6,ipv6_src=2001:db8::/32 actions=dec_ttl,output:3",
        "table=1, priority=8,dl_vlan=5 actions=pop_vlan,output:3",
        "table=2, priority=8,arp,arp_tpa=10.0.0.1 actions=load:0x5->NXM_NX_REG0[],resubmit(,3)",
        "priority=6,udp actions=write_actions(output:4),goto_table:2",
    ] {
        assert!(rules.iter().any(|rule| rule == expected), "{expected} is not in {rules:#?}");
    }
}

#[test]
fn strict_and_loose_changes_select_the_right_rules() {
    let daemon = daemon();
    for rule in [
        "cookie=0x10,priority=5,ip,nw_dst=10.0.0.0/8,actions=output:1",
        "cookie=0x11,priority=5,ip,nw_dst=10.1.0.0/16,actions=output:1",
        "cookie=0x20,priority=6,ip,nw_dst=10.1.0.0/16,actions=output:1",
        "cookie=0x30,priority=5,arp,actions=output:1",
    ] {
        ofctl(&daemon, "add-flow", &[rule]);
    }
    let strict = "priority=6,ip,nw_dst=10.1.0.0/16,actions=output:2";
    ofctl(&daemon, "mod-flows", &["--strict", strict]);
    let count = |daemon: &Daemon, action: &str| {
        rules(daemon).iter().filter(|rule| rule.ends_with(action)).count()
    };
    assert_eq!(count(&daemon, "output:2"), 1);
    ofctl(&daemon, "mod-flows", &["ip,nw_dst=10.1.0.0/16,actions=output:3"]);
    assert_eq!(count(&daemon, "output:3"), 2);
    ofctl(&daemon, "mod-flows", &["cookie=0x10/0xff,ip,actions=output:4"]);
    assert_eq!(count(&daemon, "output:4"), 1);
    ofctl(&daemon, "mod-flows", &["udp6,actions=output:4"]);
    assert_eq!(rules(&daemon).len(), 4, "a modify that matches nothing adds nothing");
    ofctl(&daemon, "del-flows", &["cookie=0x10/0xf0"]);
    assert_eq!(rules(&daemon).len(), 2);
    ofctl(&daemon, "del-flows", &["out_port=3"]);
    assert_eq!(rules(&daemon).len(), 1);
    ofctl(&daemon, "del-flows", &["--strict", "priority=4,arp"]);
    assert_eq!(rules(&daemon).len(), 1);
    ofctl(&daemon, "del-flows", &["--strict", "priority=5,arp"]);
    assert!(rules(&daemon).is_empty());
}

#[test]
fn replace_flows_and_diff_flows_agree() {
    let daemon = daemon();
    ofctl(&daemon, "add-flow", &["priority=5,ip,actions=output:1"]);
    ofctl(&daemon, "add-flow", &["priority=6,arp,actions=output:1"]);
    let file = daemon.run_dir().join("wanted.flows");
    let wanted = "priority=5,ip,actions=output:2\npriority=7,ipv6,actions=output:3\n";
    std::fs::write(&file, wanted).unwrap();
    let path = file.to_string_lossy();
    let differ = error_or_text(&daemon, &path);
    assert!(differ.contains("-priority=6,arp"), "{differ}");
    ofctl(&daemon, "replace-flows", &[&path]);
    assert_eq!(error_or_text(&daemon, &path), "");
    assert_eq!(rules(&daemon).len(), 2);
}

/// Runs `diff-flows`, which exits with status 2 if there are differences.
fn error_or_text(daemon: &Daemon, file: &str) -> String {
    let output = daemon.ovs_ofctl("br0", "diff-flows", &[file]);
    assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_bundle_is_all_or_nothing() {
    let daemon = daemon();
    let file = daemon.run_dir().join("bundle.flows");
    let path = file.to_string_lossy();
    std::fs::write(&file, "priority=1,ip,actions=output:1\npriority=2,arp,actions=drop\n").unwrap();
    ofctl(&daemon, "add-flows", &["--bundle", &path]);
    assert_eq!(rules(&daemon).len(), 2);
    let with_overlap = "priority=3,ipv6,actions=output:1\n\
                        check_overlap,priority=1,ip,nw_dst=10.0.0.1,actions=output:2\n";
    std::fs::write(&file, with_overlap).unwrap();
    let words = error_text(&daemon.ovs_ofctl("br0", "add-flows", &["--bundle", &path]));
    assert!(words.contains("OFPFMFC_OVERLAP"), "{words}");
    assert_eq!(rules(&daemon).len(), 2, "a failed bundle leaves nothing");
}

#[test]
fn missing_objects_are_refused_with_the_right_error() {
    let daemon = daemon();
    for (rule, code) in [
        ("ip,actions=group:7", "OFPBAC_BAD_OUT_GROUP"),
        ("ip,actions=ct(commit)", "OFPBAC_BAD_VENDOR_TYPE"),
        ("ip,actions=ct(commit,nat(src=10.0.0.1))", "OFPBAC_BAD_VENDOR_TYPE"),
        ("ip,actions=ct_clear", "OFPBAC_BAD_VENDOR_TYPE"),
        ("actions=set_field:1->tun_metadata0", "OFPBAC_BAD_SET_TYPE"),
    ] {
        let words = error_text(&daemon.ovs_ofctl("br0", "add-flow", &[rule]));
        assert!(words.contains(code), "{rule}: {words}");
    }
    assert!(rules(&daemon).is_empty());
}

#[test]
fn dumped_groups_and_meters_equal_added_ones() {
    let daemon = daemon();
    for group in [
        "group_id=7,type=all,bucket=output:1,bucket=push_vlan:0x8100,output:2",
        "group_id=8,type=select,bucket=weight:5,output:1,bucket=weight:7,watch_port:2,group:7",
    ] {
        ofctl(&daemon, "add-group", &[group]);
    }
    let groups = ofctl(&daemon, "dump-groups", &[]);
    for expected in [
        "group_id=7,type=all,bucket=actions=output:1,bucket=actions=push_vlan:0x8100,output:2",
        "group_id=8,type=select,bucket=weight:5,actions=output:1,bucket=weight:7,watch_port:",
    ] {
        assert!(groups.contains(expected), "{expected}: {groups}");
    }
    ofctl(&daemon, "add-meter", &["meter=5,kbps,burst,band=type=drop,rate=100,burst_size=50"]);
    let meters = ofctl(&daemon, "dump-meters", &[]);
    assert!(meters.contains("type=drop rate=100 burst_size=50"), "{meters}");
    ofctl(&daemon, "add-flow", &["ip,actions=meter:5,group:8"]);
    assert!(ofctl(&daemon, "dump-group-stats", &[]).contains("group_id=8,"));
    assert!(ofctl(&daemon, "meter-stats", &[]).contains("flow_count:1"));
    ofctl(&daemon, "del-groups", &[]);
    assert!(rules(&daemon).is_empty(), "deleting a group deletes the rules that reference it");
}

#[test]
fn a_packet_out_runs_the_tables() {
    let daemon = daemon();
    ofctl(&daemon, "add-flow", &["cookie=0x7,in_port=3,ip,actions=output:2"]);
    let packet = "in_port=3 packet=ffffffffffff0000000000010800450000140000000040117ae80a0000010a000002 actions=TABLE";
    for _ in 0..3 {
        ofctl(&daemon, "packet-out", &[packet]);
    }
    let dump = ofctl(&daemon, "dump-flows", &["cookie=0x7/-1"]);
    assert!(dump.contains("n_packets=3, n_bytes=102"), "{dump}");
    let ports = ofctl(&daemon, "dump-ports", &["p2"]);
    assert!(ports.contains("tx pkts=3, bytes=102"), "{ports}");
}

#[test]
fn a_port_can_be_taken_down_and_up() {
    let daemon = daemon();
    ofctl(&daemon, "mod-port", &["p2", "down"]);
    assert!(ofctl(&daemon, "show", &[]).contains("PORT_DOWN"));
    ofctl(&daemon, "mod-port", &["p2", "up"]);
    assert!(!ofctl(&daemon, "show", &[]).contains("PORT_DOWN"));
    let words = error_text(&daemon.ovs_ofctl("br0", "mod-port", &["nosuch", "down"]));
    assert!(words.contains("nosuch"), "{words}");
}

#[test]
fn an_idle_rule_expires() {
    let daemon = daemon();
    let rule = "idle_timeout=1,priority=9,udp,actions=output:1";
    ofctl(&daemon, "add-flow", &[rule]);
    assert_eq!(rules(&daemon).len(), 1);
    assert!(shunt_tests::daemon::wait_until(|| rules(&daemon).is_empty()));
}
