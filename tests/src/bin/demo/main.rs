//! The demo: two hosts in namespaces on real ports, a policy of three tables, real traffic.
//!
//! `ovs-ofctl` loads the policy, the caches fill, and after a rule change no packet follows the old
//! rule. Without permission to create namespaces, the demo runs the same policy over a capture
//! file.
//!
//! With `--gigaflow`, a NIC is in front of the switch, and the packets come from a capture file.

#![expect(clippy::panic, reason = "a demo that cannot continue panics with the reason")]
#![expect(clippy::print_stdout, reason = "the command prints for its user")]

mod capture;
mod gigaflow;
mod hosts;

use std::{fs, process::Command, thread::sleep, time::Duration};

use shunt_tests::{
    daemon::{Daemon, text, wait_until},
    namespace::Namespace,
};

/// Classify, admit, forward: three tables, so that a cache saves lookups.
const POLICY: &str = "\
table=0,priority=100,in_port=1,actions=write_metadata:1,goto_table:1
table=0,priority=100,in_port=2,actions=write_metadata:2,goto_table:1
table=1,priority=100,arp,actions=goto_table:2
table=1,priority=90,ip,nw_src=10.10.0.0/24,nw_dst=10.10.0.0/24,actions=goto_table:2
table=2,priority=10,metadata=1,actions=output:2
table=2,priority=10,metadata=2,actions=output:1
";

fn main() {
    if std::env::args().any(|argument| argument == "--gigaflow") {
        return gigaflow::run();
    }
    let namespaces = ["a", "b", "s"].map(|label| Namespace::new(&format!("demo-{label}")));
    match namespaces {
        [Ok(host_a), Ok(host_b), Ok(middle)] => hosts::run(&host_a, &host_b, &middle),
        _ => {
            println!(
                "No permission to create namespaces: the same policy runs over a capture \
                      file."
            );
            capture::run();
        }
    }
}

/// Loads the policy with `ovs-ofctl` as one bundle, and shows it.
fn load_policy(daemon: &Daemon) {
    println!("\n2. A policy of three tables, loaded by ovs-ofctl in one bundle");
    let file = daemon.run_dir().join("policy.flows");
    fs::write(&file, POLICY).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text(&daemon.ovs_ofctl("br0", "add-flows", &["--bundle", &file.to_string_lossy()]));
    print!("{}", text(&daemon.ovs_ofctl("br0", "dump-flows", &["--no-stats"])));
}

/// Shows the caches for three seconds.
fn watch_caches(daemon: &Daemon) {
    for _ in 0..6 {
        sleep(Duration::from_millis(500));
        print!("{}", text(&daemon.shuntctl(&["caches", "--line"])));
    }
}

/// Starts a daemon with two ports and the given parts of the configuration.
fn start(caches: &str, ports: &str, wrap: impl FnOnce(&std::path::Path) -> Command) -> Daemon {
    let (head, bridge) = ("[logging]\nfilter = \"warn\"\n\n", "[[bridge]]\nname = \"br0\"\n");
    let daemon = Daemon::start_with(&format!("{head}{caches}{bridge}{ports}"), wrap);
    let mut show = String::new();
    // The kernel may report a link as up a second late.
    let is_up = wait_until(|| {
        show = text(&daemon.shuntctl(&["show"]));
        !show.contains("down")
    });
    print!("{show}");
    assert!(is_up, "a port stays down");
    daemon
}
