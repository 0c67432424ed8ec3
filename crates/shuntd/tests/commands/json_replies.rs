//! Replies in JSON, as `ovs-appctl --format json` of Open vSwitch 3.4 and later asks for them.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
};

use serde_json::{Deserializer, Value, json};

use crate::Daemon;

/// A bridge with one port.
const BRIDGE: &str =
    "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\ntype = \"null\"\n";

/// Chooses JSON, sends commands, and returns their replies.
fn replies(daemon: &Daemon, commands: &[&[&str]]) -> Vec<Value> {
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    let all =
        [&["set-options", "--format", "json"][..]].into_iter().chain(commands.iter().copied());
    for (id, words) in all.enumerate() {
        let request = json!({"id": id, "method": words[0], "params": words[1..]});
        stream.write_all(request.to_string().as_bytes()).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let parsed = Deserializer::from_str(&text).into_iter::<Value>();
    let parsed: Vec<Value> = parsed.collect::<Result<_, _>>().unwrap();
    assert_eq!(parsed.len(), commands.len() + 1, "{text}");
    parsed.into_iter().skip(1).collect()
}

#[test]
fn macs_and_ports_are_shown_in_json() {
    let daemon = Daemon::start(BRIDGE);
    let all = replies(
        &daemon,
        &[
            &["fdb/add", "br0", "p1", "7", "02:00:00:00:00:01"],
            &["fdb/show", "br0"],
            &["fdb/stats-show", "br0"],
            &["dpif/show"],
            &["list-commands"],
            &["fdb/show", "br9"],
            &["fdb/show"],
        ],
    );
    let result = |at: usize| &all[at]["result"];
    assert_eq!(*result(0), json!({"reply-format": "plain", "reply": ""}));
    let mac = "02:00:00:00:00:01";
    let row = json!({"port": 1, "vlan": 7, "mac": mac, "static": true, "age": null});
    assert_eq!(*result(1), json!([row]));
    assert_eq!((&result(2)["static"], &result(2)["maximum"]), (&json!(1), &json!(8192)));
    let datapath = &result(3)["netdev@ovs-netdev"];
    assert_eq!(datapath["bridges"]["br0"]["ports"]["p1"]["ofport"], 1, "{datapath}");
    assert!(datapath["stats"]["n_hit"].is_u64() && datapath["stats"]["n_missed"].is_u64());
    assert_eq!(result(4)["fdb/add"], "bridge port vlan mac");
    assert!(all[5]["error"].as_str().unwrap().starts_with("no such bridge: br9"), "{}", all[5]);
    assert!(all[6]["error"].as_str().unwrap().contains("at least 1 arguments"), "{}", all[6]);
}

/// Returns whether all arguments of a command are optional, and so in brackets.
fn needs_nothing(arguments: &str) -> bool {
    let mut depth = 0;
    arguments.chars().all(|own| {
        depth += i32::from(own == '[') - i32::from(own == ']');
        depth > 0 || matches!(own, ' ' | ']')
    })
}

/// The commands without arguments that have JSON replies of their own.
///
/// All other commands wrap their text.
const OWN_FORM: [&str; 2] = ["dpif/show", "list-commands"];

/// The reply to each command without arguments that only reads is valid JSON.
#[test]
fn every_reading_command_replies_in_json() {
    let daemon = Daemon::start(BRIDGE);
    let [listed] = &replies(&daemon, &[&["list-commands"]])[..] else { panic!("one reply") };
    let changes = ["exit", "revalidator/purge", "shunt/reload", "shunt/preload-start"];
    let commands = listed["result"].as_object().unwrap().iter();
    let reads = commands.filter(|(name, arguments)| {
        let arguments = arguments.as_str().unwrap();
        let is_change = changes.contains(&name.as_str())
            || ["flush", "clear", "reconnect", "rebalance"].iter().any(|own| name.ends_with(own));
        needs_nothing(arguments) && !is_change
    });
    let names: Vec<[&str; 1]> = reads.map(|(name, _)| [name.as_str()]).collect();
    assert!(names.len() > 20, "{names:?}");
    let commands: Vec<&[&str]> = names.iter().map(|name| &name[..]).collect();
    for (reply, name) in replies(&daemon, &commands).iter().zip(&names) {
        let result = &reply["result"];
        let mut keys: Vec<&String> = result.as_object().unwrap().keys().collect();
        keys.sort();
        let is_wrapped = keys == ["reply", "reply-format"];
        assert_eq!(is_wrapped, !OWN_FORM.contains(&name[0]), "{name:?}: {reply}");
        assert!(!is_wrapped || result["reply"].is_string(), "{name:?}: {reply}");
    }
}
