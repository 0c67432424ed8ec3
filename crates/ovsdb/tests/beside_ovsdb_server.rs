//! Compares the results of the same commands to this server and to `ovsdb-server` of Open vSwitch.

#![expect(clippy::unwrap_used, reason = "a failure of the fixture ends the test")]

mod rival;

use std::path::Path;

use rival::{Pair, Side};

/// Commands of an operator, in which `DB` is replaced by the socket.
const COMMANDS: &str = include_str!("data/commands.txt");

/// Requests of a client, valid and invalid.
const REQUESTS: &str = include_str!("data/requests.jsonl");

#[test]
fn ovsdb_tools_print_equal_results() {
    let Some(pair) = Pair::start() else { return };
    for line in COMMANDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let [ours, theirs] = pair.each(|side| side.command(line));
        assert_eq!(ours, theirs, "{line}");
    }
    let [ours, theirs] = pair.each(Side::dump);
    assert!(ours.contains("br0") && ours.contains("veth1"), "{ours}");
    assert_eq!(ours, theirs, "the databases differ");
}

#[test]
fn answers_equal_those_of_ovsdb_server() {
    let Some(pair) = Pair::start() else { return };
    let [mut ours, mut theirs] = pair.each(Side::connect);
    for line in REQUESTS.lines().filter(|line| !line.is_empty()) {
        let answers = [&mut ours, &mut theirs].map(|client| client.call(line));
        assert_eq!(answers[0], answers[1], "{line}");
    }
}

#[test]
fn each_server_reads_the_log_of_the_other() {
    let Some(mut pair) = Pair::start() else { return };
    for line in COMMANDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        pair.ours.command(line);
    }
    let before = pair.ours.dump_persistent();
    pair.ours.stop();
    let log = pair.ours.log().to_owned();
    let shown = rival::output("ovsdb-tool", &["show-log", path(&log)]);
    assert!(shown.contains("add-br"), "{shown}");

    // `ovsdb-server` opens the log of this server, and this server opens the log that `ovsdb-tool`
    // compacted.
    pair.theirs.stop();
    pair.theirs.restart_with(&log);
    assert_eq!(pair.theirs.dump_persistent(), before);
    pair.theirs.stop();
    rival::output("ovsdb-tool", &["compact", path(&log)]);
    pair.ours.restart();
    assert_eq!(pair.ours.dump_persistent(), before);
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
