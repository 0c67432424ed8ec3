//! `ovs-ofctl` without `-O`, which uses OpenFlow 1.0 with the Nicira extensions.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use shunt_tests::daemon::{Daemon, error_text, output, text, wait_until};

/// A daemon with bridge br0, which has ports 1 and 2.
struct BridgeFixture {
    daemon: Daemon,
}

impl BridgeFixture {
    fn new(settings: &str) -> Self {
        let daemon = Daemon::start(&format!("[[bridge]]\nname = \"br0\"\n{settings}"));
        for number in ["1", "2"] {
            let (name, key) = (format!("p{number}"), format!("number={number}"));
            text(&daemon.shuntctl(&["add-port", "br0", &name, "type=null", &key]));
        }
        Self { daemon }
    }

    fn socket(&self) -> String {
        format!("unix:{}", self.file("br0.mgmt").display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.daemon.run_dir().join(name)
    }

    /// Runs `ovs-ofctl`: options, a verb, and the arguments after the bridge.
    fn run(&self, options: &[&str], verb: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("ovs-ofctl");
        output(command.args(options).arg(verb).arg(self.socket()).args(arguments))
    }

    fn ofctl(&self, verb: &str, arguments: &[&str]) -> String {
        text(&self.run(&[], verb, arguments))
    }

    /// Returns the rules without counters and times.
    fn rules(&self, options: &[&str], arguments: &[&str]) -> Vec<String> {
        let options = [options, &["--no-stats", "--sort"]].concat();
        let dump = text(&self.run(&options, "dump-flows", arguments));
        dump.lines().map(|line| line.trim().to_owned()).collect()
    }
}

#[test]
fn rules_of_openflow_10_work_in_all_versions() {
    let fixture = BridgeFixture::new("");
    fixture.ofctl("add-flow", &["priority=9,tcp,tp_dst=80,actions=mod_vlan_vid:5,output:2"]);
    fixture.ofctl("add-flow", &["table=1,reg0=1,actions=resubmit(,2),enqueue:2:5,mod_nw_tos:4"]);
    fixture.ofctl("add-flow", &["priority=8,ip,actions=strip_vlan,mod_tp_dst:7,dec_ttl,NORMAL"]);
    fixture.ofctl("add-flow", &["table=2,actions=set_queue:5,output:2,pop_queue"]);
    let listed = [
        "table=2, actions=set_queue:5,output:2,pop_queue",
        "priority=9,tcp,tp_dst=80 actions=mod_vlan_vid:5,output:2",
        "table=1, reg0=0x1 actions=resubmit(,2),enqueue:2:5,mod_nw_tos:4",
        "priority=8,ip actions=strip_vlan,mod_tp_dst:7,dec_ttl,NORMAL",
    ];
    let rules = fixture.rules(&[], &[]);
    assert!(listed.iter().all(|rule| rules.iter().any(|own| own == rule)), "{rules:?}");
    fixture.ofctl("add-flow", &["priority=9,arp,dl_vlan=3,actions=mod_vlan_vid:5,enqueue:2:5"]);
    fixture.ofctl("add-flow", &["priority=9,tcp,tp_dst=81,actions=mod_tp_dst:7,output:2"]);
    let in_13 = fixture.rules(&["-O", "OpenFlow13"], &[]).join("\n");
    for actions in [
        "tcp,tp_dst=80 actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:2",
        "arp,dl_vlan=3 actions=set_field:4101->vlan_vid,set_queue:5,output:2,pop_queue",
        "tcp,tp_dst=81 actions=set_field:7->tcp_dst,output:2",
    ] {
        assert!(in_13.contains(actions), "{in_13}");
    }
    // Only OpenFlow 1.0 accepts actions on headers that the packets of the rule may lack.
    fixture.ofctl("add-flow", &["udp,actions=strip_vlan"]);
    let udp = fixture.rules(&["-O", "OpenFlow13"], &["udp"]).join("\n");
    assert!(udp.contains("udp actions=pop_vlan"), "{udp}");
    let goto = ["table=0,priority=7,arp,actions=goto_table:3"];
    text(&fixture.run(&["-O", "OpenFlow13"], "add-flow", &goto));
    let arp = fixture.rules(&[], &["arp"]).join("\n");
    assert!(arp.contains("priority=7,arp actions=resubmit(,3)"), "{arp}");
    let writes = ["table=4,ip,actions=set_field:5->reg0,set_field:2->ip_ecn,output:2"];
    text(&fixture.run(&["-O", "OpenFlow13"], "add-flow", &writes));
    let writes = fixture.rules(&[], &["table=4"]).join("\n");
    let loads = "actions=load:0x5->NXM_NX_REG0[],load:0x2->NXM_NX_IP_ECN[],output:2";
    assert!(writes.contains(loads), "{writes}");
}

#[test]
fn rules_are_changed_and_deleted() {
    let fixture = BridgeFixture::new("");
    fixture.ofctl("add-flow", &["cookie=1,tcp,actions=output:1"]);
    fixture.ofctl("mod-flows", &["tcp,actions=output:2"]);
    let modified = fixture.ofctl("dump-flows", &["tcp"]);
    assert!(modified.contains("cookie=0x0,") && modified.contains("output:2"), "{modified}");
    fixture.ofctl("mod-flows", &["cookie=7,udp,actions=output:1"]);
    assert!(fixture.ofctl("dump-flows", &["udp"]).contains("cookie=0x7"), "the rule was added");
    let aggregate = fixture.ofctl("dump-aggregate", &[]);
    assert!(aggregate.contains("flow_count=2"), "{aggregate}");
    fixture.ofctl("del-flows", &["cookie=7/-1"]);
    text(&fixture.run(&["--strict"], "del-flows", &["priority=32768,tcp"]));
    assert!(fixture.ofctl("dump-aggregate", &[]).contains("flow_count=0"));
    let file = fixture.file("rules");
    fs::write(&file, "ip,actions=1\narp,actions=2\n").unwrap();
    let file = file.display().to_string();
    fixture.ofctl("add-flows", &[&file]);
    fixture.ofctl("replace-flows", &[&file]);
    fixture.ofctl("diff-flows", &[&file]);
    fixture.ofctl("del-flows", &["arp"]);
    let difference = fixture.run(&[], "diff-flows", &[&file]);
    assert!(!difference.status.success(), "a rule is missing");
}

#[test]
fn ports_tables_and_queues_are_listed() {
    let fixture = BridgeFixture::new("");
    let features = fixture.ofctl("show", &[]);
    assert!(features.contains(" 1(p1): addr:") && features.contains("n_tables:254"), "{features}");
    assert!(features.contains("OFPT_GET_CONFIG_REPLY"), "{features}");
    fixture.ofctl("mod-port", &["p1", "no-flood"]);
    let ports = fixture.ofctl("dump-ports-desc", &[]);
    assert!(ports.contains("NO_FLOOD"), "{ports}");
    assert!(fixture.ofctl("dump-ports", &["p1"]).contains("1 ports"));
    assert!(fixture.ofctl("dump-tables", &[]).contains("table 0"));
    assert!(fixture.ofctl("dump-desc", &[]).contains("Hardware: Shunt"));
    assert!(fixture.ofctl("queue-stats", &[]).contains("0 queues"));
    assert!(fixture.ofctl("queue-get-config", &["1"]).contains("QUEUE_GET_CONFIG_REPLY"));
    assert_eq!(fixture.ofctl("get-frags", &[]).trim(), "normal");
    fixture.ofctl("set-frags", &["normal"]);
    fixture.ofctl("probe", &[]);
}

/// `ovs-ofctl monitor`, which ends on drop.
struct Monitor {
    process: Child,
    log: PathBuf,
}

impl Monitor {
    /// Starts the monitor of packet-ins, or of `watched` rules.
    ///
    /// The log has both outputs: `ovs-ofctl` prints the list of rules to stdout, and all later
    /// messages to stderr.
    fn start(fixture: &BridgeFixture, options: &[&str], watched: Option<&str>) -> Self {
        let log = fixture.file("monitor");
        let mut command = Command::new("ovs-ofctl");
        command.args(options).arg("monitor").arg(fixture.socket());
        command.arg(watched.unwrap_or("65534"));
        let stderr = File::create(&log).unwrap();
        let stdout = stderr.try_clone().unwrap();
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        Self { process: command.spawn().unwrap(), log }
    }

    fn shows(&self, words: &str) -> bool {
        fs::read_to_string(&self.log).unwrap_or_default().contains(words)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_packet_without_a_rule_reaches_the_monitor() {
    let fixture = BridgeFixture::new("[[bridge]]\nname = \"br1\"\n");
    // A packet of the other bridge arrives at a patch port.
    let patch = |bridge, name, peer| {
        let (number, peer) = ("number=9", format!("peer={peer}"));
        let arguments = ["add-port", bridge, name, "type=patch", &peer, number];
        text(&fixture.daemon.shuntctl(&arguments))
    };
    patch("br1", "pb", "pa");
    patch("br0", "pa", "pb");
    let send = |ethertype: &str| {
        let packet = format!("in_port=LOCAL packet=ffffffffffff001122334455{ethertype} actions=9");
        text(&fixture.daemon.ovs_ofctl("br1", "packet-out", &[&packet]));
    };
    for format in ["standard", "nxt_packet_in", "nxt_packet_in2"] {
        let monitor = Monitor::start(&fixture, &["-P", format], None);
        let arrives = || {
            send("0800");
            monitor.shows("no_match")
        };
        assert!(wait_until(arrives), "{format}: {:?}", fs::read_to_string(&monitor.log));
    }
    // A client of OpenFlow 1.3 needs a rule for misses to get misses.
    let monitor = Monitor::start(&fixture, &["-O", "OpenFlow13"], None);
    fixture.ofctl("add-flow", &["priority=9,dl_type=0x88cc,actions=CONTROLLER"]);
    let arrives = || {
        send("0800");
        send("88cc");
        monitor.shows("(via action)")
    };
    assert!(wait_until(arrives), "{:?}", fs::read_to_string(&monitor.log));
    assert!(!monitor.shows("no_match"), "a miss is dropped");
}

#[test]
fn protocols_restrict_the_versions_of_a_bridge() {
    let fixture = BridgeFixture::new("protocols = [\"OpenFlow13\"]\n");
    let refused = error_text(&fixture.run(&[], "dump-flows", &[]));
    assert!(refused.contains("version negotiation failed"), "{refused}");
    text(&fixture.run(&["-O", "OpenFlow13"], "dump-flows", &[]));
    text(&fixture.daemon.shuntctl(&["set-br", "br0", "protocols=OpenFlow10"]));
    fixture.ofctl("dump-flows", &[]);
    error_text(&fixture.run(&["-O", "OpenFlow13"], "dump-flows", &[]));
    text(&fixture.daemon.shuntctl(&["set-br", "br0", "protocols="]));
    text(&fixture.run(&["-O", "OpenFlow13"], "dump-flows", &[]));
}

/// Flow monitors of both versions, as `ovs-ofctl` prints them.
#[test]
fn a_watch_shows_the_changes_of_rules() {
    let versions: [&[&str]; 2] = [&[], &["-O", "OpenFlow13"]];
    for options in versions {
        let fixture = BridgeFixture::new("");
        let change = |verb, rule: &str| text(&fixture.run(&["-O", "OpenFlow13"], verb, &[rule]));
        change("add-flow", "table=1,cookie=0x7,ip,actions=output:1");
        let monitor = Monitor::start(&fixture, options, Some("watch:table=1"));
        let await_line = |line: &str| {
            let log = || fs::read_to_string(&monitor.log);
            assert!(wait_until(|| monitor.shows(line)), "{line} is not in {:?}", log());
        };
        await_line("event=ADDED table=1 cookie=0x7 ip actions=output:1");
        change("add-flow", "cookie=0x6,arp,actions=output:2");
        change("add-flow", "table=1,cookie=0x8,arp,actions=output:2");
        await_line("event=ADDED table=1 cookie=0x8 arp actions=output:2");
        change("mod-flows", "table=1,arp,actions=output:1");
        await_line("event=MODIFIED table=1 cookie=0x8 arp actions=output:1");
        change("del-flows", "table=1,arp");
        await_line("event=DELETED reason=delete table=1 cookie=0x8 arp actions=output:1");
        assert!(!monitor.shows("cookie=0x6"), "the rule is in another table");
    }
}
