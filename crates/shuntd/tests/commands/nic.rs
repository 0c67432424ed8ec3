//! Tests of a NIC that an operator removes.

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
