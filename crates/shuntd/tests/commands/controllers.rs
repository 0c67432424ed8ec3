//! The state of controllers in `show` and in the log.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use serde_json::Value;

use crate::{Daemon, check, errors, wait_until};

fn daemon(address: &str) -> Daemon {
    Daemon::start(&format!(
        "[[bridge]]\nname = \"br0\"\ncontrollers = [\"tcp:{address}\"]\nlisten = [\"ptcp:0:127.0.0.1\"]\n"
    ))
}

fn controllers(daemon: &Daemon) -> Value {
    let bridges: Value = serde_json::from_str(&daemon.answer(&["show", "--json"])).unwrap();
    bridges[0]["controllers"].clone()
}

/// Sends hello, and requests the master role.
fn become_master(stream: &mut TcpStream) {
    stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    stream.write_all(&[4, 24, 0, 24, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0]).unwrap();
    stream.write_all(&[0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
    // The test does not need the replies.
    stream.read_exact(&mut [0; 16]).unwrap();
}

#[test]
fn a_missing_controller_is_shown_and_logged_once() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = gone.local_addr().unwrap().to_string();
    drop(gone);
    let daemon = daemon(&address);
    let shown = |words: &str| wait_until(|| daemon.answer(&["show"]).contains(words));
    assert!(shown(&format!("controller tcp:{address} (not connected: Connection refused")));
    // After the third failed attempt the pause is four seconds.
    assert!(shown("next attempt in 4 s)"), "{}", daemon.answer(&["show"]));
    assert_eq!(
        daemon.log().matches("controller unreachable, retrying").count(),
        1,
        "{}",
        daemon.log()
    );
    let list = controllers(&daemon);
    assert_eq!((&list[0]["state"], &list[1]["state"]), (&"waiting".into(), &"listening".into()));
    assert!(list[1]["port"].as_u64() > Some(0), "the system chose a port: {list}");
    assert!(list[0]["retry_in_s"].is_u64() && list[0]["reason"].is_string(), "{list}");
    // The controller connects, becomes master, and disconnects.
    let listener = TcpListener::bind(&address).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    become_master(&mut stream);
    assert!(shown(&format!("controller tcp:{address} (connected, role master)")));
    assert_eq!(controllers(&daemon)[0]["role"], "master");
    assert_eq!(daemon.log().matches("controller connected").count(), 1);
    drop((stream, listener));
    assert!(
        wait_until(|| daemon.log().matches("controller unreachable, retrying").count() == 2),
        "{}",
        daemon.log()
    );
    let log = daemon.log();
    let lost: Vec<_> =
        log.lines().filter(|line| line.contains("controller disconnected")).collect();
    let [line] = lost.as_slice() else { panic!("{log}") };
    assert!(line.contains("WARN"), "{line}");
}

/// A check of the configuration prints the warning that the daemon logs.
#[test]
fn a_check_warns_of_a_shared_datapath_id() {
    let bridge = |name: &str, id: char| {
        format!("[[bridge]]\nname = \"{name}\"\ndatapath_id = \"00000000000000c{id}\"\n")
    };
    let configuration = [bridge("br0", '1'), bridge("br1", '2'), bridge("br2", '1')].concat();
    let warning = "bridge br2: bridge br0 has the datapath id 00000000000000c1 too, so controllers \
                   cannot distinguish the bridges: set another `datapath_id` or `mac`";
    assert_eq!(check(&configuration), format!("warning: {warning}\n"));
    let daemon = Daemon::start(&configuration);
    assert!(wait_until(|| daemon.log().contains(warning)), "{}", daemon.log());
    assert_eq!(check(&[bridge("br0", '1'), bridge("br1", '2')].concat()), "");
}

/// Controllers take two bridges with one datapath id for one.
#[test]
fn a_shared_datapath_id_is_a_warning() {
    let id = "00000000000000c1";
    let daemon = Daemon::start(&format!("[[bridge]]\nname = \"br0\"\ndatapath_id = \"{id}\"\n"));
    let own = format!("datapath_id={id}");
    let remarks = |words: &[&str]| {
        let output = daemon.shuntctl(words);
        assert!(output.status.success(), "{output:?}");
        errors(&output)
    };
    let warning = format!("bridge br1: bridge br0 has the datapath id {id} too");
    let added = remarks(&["add-br", "br1", &own]);
    assert!(added.starts_with(&format!("warning: {warning}")), "{added}");
    assert!(wait_until(|| daemon.log().contains(&warning)), "{}", daemon.log());
    let shown = daemon.answer(&["show"]);
    assert!(shown.contains("    bridge br0 has the datapath id"), "{shown}");
    assert!(shown.contains("    bridge br1 has the datapath id"), "{shown}");
    assert_eq!(remarks(&["set-br", "br1", "mac_ageing_s=60"]), "");
    assert_eq!(remarks(&["set-br", "br1", "datapath_id=00000000000000c2"]), "");
    assert!(!daemon.answer(&["show"]).contains("too, so"));
    assert!(remarks(&["set-br", "br1", &own]).contains(&warning));
    assert!(wait_until(|| daemon.log().matches(&warning).count() == 2), "{}", daemon.log());
}

/// The commands have the rule of the configuration file.
#[test]
fn an_address_with_tls_needs_its_files() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n");
    for words in [
        ["set-br", "br0", "controllers=tcp:127.0.0.1:1,ssl:127.0.0.1:1"],
        ["add-br", "br1", "controllers=ssl:127.0.0.1:1"],
    ] {
        let output = daemon.shuntctl(&words);
        let message = errors(&output);
        assert!(!output.status.success(), "{words:?}");
        assert!(message.contains("`ssl:127.0.0.1:1` needs TLS: set private_key"), "{message}");
    }
    let shown = daemon.answer(&["show"]);
    assert!(!shown.contains("controller") && !shown.contains("br1"), "{shown}");
    let wrong = errors(&daemon.shuntctl(&["set-br", "br0", "controllers=ssl:localhost"]));
    assert!(wrong.contains("`ssl:localhost` is not an address"), "{wrong}");
}

#[test]
fn a_controller_is_set_at_run_time() {
    let daemon = Daemon::start("");
    daemon.answer(&["add-br", "br0", "table_rules=7", "mac=02:00:00:00:00:07"]);
    let controller = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", controller.local_addr().unwrap());
    daemon.answer(&["set-br", "br0", &format!("controllers={target}")]);
    let (mut stream, _) = controller.accept().unwrap();
    become_master(&mut stream);
    let shown = |words: &str| wait_until(|| daemon.answer(&["show"]).contains(words));
    assert!(shown(&format!("controller {target} (connected, role master)")));
    let error = daemon.error_text(&["set-br", "br0", "local=tap"]);
    assert!(error.contains("`local` cannot change while the bridge exists"), "{error}");
    let saved = daemon.answer(&["save"]);
    assert!(saved.contains(&target) && saved.contains("\"table_rules\": 7"), "{saved}");
    daemon.answer(&["set-br", "br0", "controllers="]);
    assert_eq!(controllers(&daemon), Value::Array(Vec::new()));
    assert!(daemon.log().contains("bridge br0: set controllers="), "{}", daemon.log());
}
