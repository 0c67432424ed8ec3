//! Tests of a NIC that an operator removes, and of ports that a NIC does not have.

use serde_json::Value;

use crate::{Daemon, wait_until};

/// The end of a NIC is not a failure if a setting has removed it.
#[test]
fn nic_is_removed_by_setting_without_warning() {
    let mut daemon = Daemon::start(
        "[caches.gigaflow.offload]\nkind = \"embedded\"\n[[bridge]]\nname = \"br0\"\n\
         [[bridge.port]]\nname = \"p1\"\ntype = \"null\"\n",
    );
    let state = || -> Value {
        let caches: Value = serde_json::from_str(&daemon.answer(&["caches", "--json"])).unwrap();
        caches["nic"]["state"].clone()
    };
    assert!(wait_until(|| state() == "connected"), "{}", daemon.log());
    daemon.answer(&["set", "caches.gigaflow.offload.kind=none"]);
    let removed = "bridge br0: NIC removed by setting";
    assert!(wait_until(|| daemon.log().contains(removed)), "{}", daemon.log());
    daemon.answer(&["exit"]);
    daemon.process.wait().unwrap();
    assert!(!daemon.log().contains("WARN"), "{}", daemon.log());
}

/// The port numbers of the P4 program have nine bits.
#[test]
fn a_port_without_the_nic_is_shown() {
    let daemon = Daemon::start(
        "[caches.gigaflow.offload]\nkind = \"p4runtime\"\naddress = \"127.0.0.1:9\"\n\
         [[bridge]]\nname = \"br0\"\n\
         [[bridge.port]]\nname = \"p1\"\ntype = \"null\"\nnumber = 509\n\
         [[bridge.port]]\nname = \"p2\"\ntype = \"null\"\nnumber = 510\n",
    );
    let problem = "; not on the NIC: its P4 program has ports 1 to 509: give the port a `number` \
                   up to 509";
    for command in ["show", "ports"] {
        let shown = daemon.answer(&[command]);
        let with_problem: Vec<_> = shown.lines().filter(|line| line.contains(problem)).collect();
        let [line] = with_problem.as_slice() else { panic!("{shown}") };
        assert!(line.contains("p2"), "{line}");
    }
}
