//! The live page (window): its files, its events, and access to it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

use crate::{
    Daemon,
    http::{HTTP, TOKEN, addresses, get, switch_with_traffic},
};

/// Opens the event stream of a daemon.
fn events(daemon: &Daemon) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(&addresses(daemon)[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // A response to HTTP/1.0 is not chunked.
    stream.write_all(b"GET /events HTTP/1.0\r\n\r\n").unwrap();
    BufReader::new(stream)
}

/// Returns the next event of the stream.
fn next(events: &mut BufReader<TcpStream>) -> Value {
    loop {
        let mut line = String::new();
        assert_ne!(events.read_line(&mut line).unwrap(), 0, "the events have ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).unwrap();
        }
    }
}

#[test]
fn the_window_is_off_by_default() {
    let daemon = Daemon::start(HTTP);
    assert!(get(&daemon, "/", "").headers.contains("content-type: text/plain"));
    for path in ["/events", "/flows", "/trace?bridge=br0&flow=udp"] {
        let missing = get(&daemon, path, "");
        assert!(missing.status == 404 && missing.body.contains("`window = true`"), "{missing:?}");
    }
    assert_eq!(get(&daemon, "/window.js", "").status, 404);
}

#[test]
fn events_have_the_counters_of_the_switch() {
    let daemon = switch_with_traffic(&format!("{HTTP}window = true\n"));
    for (path, kind) in [
        ("/", "html"),
        ("/window.css", "css"),
        ("/window.js", "javascript"),
        ("/objects.js", "javascript"),
    ] {
        let file = get(&daemon, path, "");
        assert!(file.status == 200 && file.headers.contains(&format!("text/{kind}")), "{path}");
        assert!(file.headers.contains("content-security-policy: default-src 'none'"), "{path}");
    }
    let mut events = events(&daemon);
    let (first, second) = (next(&mut events), next(&mut events));
    assert!(first["time_ms"].as_f64() < second["time_ms"].as_f64());
    assert_eq!(second["caches"]["received"], 90);
    for level in ["exact_hits", "signature_hits", "megaflow_hits", "gigaflow_hits", "decided"] {
        assert!(second["caches"][level].is_u64(), "{level}");
    }
    assert_eq!(second["drops"]["dropped"], serde_json::json!([["rule_without_output", 30]]));
    let link =
        serde_json::json!([{"bridge": "br0", "from": 0, "to": 7, "rules": 1, "packets": 40}]);
    assert_eq!(second["links"], link);
    assert_eq!(second["tables"][0]["lookups"], 90);
    assert_eq!(second["bridges"][0]["ports"].as_array().unwrap().len(), 3);
    // The page adds these to the losses.
    for loss in [
        "/device_lost",
        "/snooping_inbox_full",
        "/packet_ins/listener_full",
        "/packet_ins/no_connection",
        "/packet_ins/no_bridge",
    ] {
        assert!(second["drops"].pointer(loss).is_some_and(Value::is_u64), "{loss}");
    }
    assert_eq!(second["bridges"][0]["ports"][0]["forward_dropped"], 30);
    assert!(second["threads"][0]["iterations"].is_u64());
    assert!(second["evictions"]["by_cause"].is_array());
    let empty = serde_json::json!([]);
    assert_eq!((&second["unhealthy"], &second["missing"]), (&empty, &empty));
    let flows: Value = serde_json::from_str(&get(&daemon, "/flows", "").body).unwrap();
    assert!(flows["entries"][0]["packets"].as_u64() > Some(0), "{flows}");

    let trace = get(&daemon, "/trace?bridge=br0&flow=in_port%3Dp1%2Cudp%2Ctp_dst%3D1", "");
    assert!(trace.status == 200 && trace.body.contains("output:p2"), "{trace:?}");
    for query in
        ["", "?bridge=br0", "?bridge=br9&flow=udp", "?bridge=br0&flow=%zz", "?bridge=br0&flow=%ff"]
    {
        assert_eq!(get(&daemon, &format!("/trace{query}"), "").status, 400, "{query}");
    }

    daemon.answer(&["exit"]);
    // An open event stream does not delay the end of the daemon.
    let _ = events.read_to_end(&mut Vec::new());
}

/// The keys of each object that the page reads, as paths in the status of a bridge.
const OBJECT_KEYS: [(&str, &[&str]); 4] = [
    ("/bonds/0", &["name", "mode", "lacp_status"]),
    ("/bonds/0/member_status/1", &["name", "enabled", "active", "delay_ms", "lacp"]),
    (
        "/mirrors/0",
        &[
            "name",
            "select_all",
            "select_src_port",
            "select_dst_port",
            "select_vlan",
            "output_port",
            "output_vlan",
            "snaplen",
            "tx_packets",
            "problem",
        ],
    ),
    (
        "/nic",
        &[
            "kind",
            "address",
            "state",
            "stale_s",
            "reason",
            "error",
            "stages",
            "waiting",
            "entry_hits",
            "traffic",
            "operations",
        ],
    ),
];

/// Number of events until the status of all objects must be complete.
const EVENTS_MAX: usize = 30;

/// The page shows these values of bonds, mirrors, BFD sessions and the NIC.
#[test]
fn events_have_the_objects_of_bridges() {
    let ports: String = ["p1", "p2", "p3", "p4"]
        .map(|name| format!("[[bridge.port]]\nname = \"{name}\"\ntype = \"null\"\n"))
        .concat();
    let daemon = Daemon::start(&format!(
        "{HTTP}window = true\n[caches.gigaflow.offload]\nkind = \"embedded\"\n\
         [[bridge]]\nname = \"br0\"\n{ports}"
    ));
    let before = next(&mut events(&daemon));
    let empty = serde_json::json!([]);
    for kind in ["bonds", "mirrors"] {
        assert_eq!(before["bridges"][0][kind], empty, "{kind}");
    }
    let port = |event: &Value, name: &str| -> Value {
        let ports = event["bridges"][0]["ports"].as_array().unwrap();
        ports.iter().find(|port| port["name"] == name).unwrap().clone()
    };
    assert_eq!(port(&before, "p3").get("bfd"), None);

    let bond = ["add-bond", "br0", "bond0", "members=p1,p2", "mode=balance-tcp", "lacp=active"];
    daemon.answer(&bond);
    daemon.answer(&["add-mirror", "br0", "m1", "select_src_port=p1", "output_port=p4"]);
    daemon.answer(&["set-bfd", "p3", "min_tx_ms=300"]);
    // The NIC connects late, and the first event may have been made before the last command.
    let mut events = events(&daemon);
    let is_whole = |event: &Value| {
        let is_connected = event["bridges"][0]["nic"]["state"] == "connected";
        is_connected && port(event, "p3").get("bfd").is_some()
    };
    let event = (0..EVENTS_MAX).map(|_| next(&mut events)).find(is_whole).unwrap();
    for (path, keys) in OBJECT_KEYS {
        let object = event["bridges"][0].pointer(path).unwrap();
        for key in keys {
            assert!(object.get(key).is_some(), "{path}/{key}: {object}");
        }
    }
    let bridge = &event["bridges"][0];
    assert_eq!(bridge["bonds"][0]["lacp_status"], "configured");
    let lacp = &bridge["bonds"][0]["member_status"][0]["lacp"];
    assert!(lacp["receive"].is_string() && lacp["mux"].is_string(), "{lacp}");
    assert_eq!(bridge["mirrors"][0]["select_src_port"], serde_json::json!(["p1"]));
    assert!(bridge["nic"]["stages"][0]["entries_max"].as_u64() > Some(0), "{bridge}");
    assert!(bridge["nic"]["operations"]["failed"].is_u64(), "{bridge}");
    for counter in ["hits", "missed"] {
        assert!(bridge["nic"]["traffic"][counter].is_u64(), "{bridge}");
    }
    let bfd = port(&event, "p3")["bfd"].clone();
    for key in ["state", "diagnostic", "remote_state", "remote_diagnostic"] {
        assert!(bfd[key].is_string(), "{key}: {bfd}");
    }
    assert!(bfd["forwarding"].is_boolean() && bfd["flap_count"].is_u64(), "{bfd}");
}

/// The port of the host has the name of the standard in all outputs.
#[test]
fn every_output_says_local_in_capitals() {
    let daemon = Daemon::start(&format!("{HTTP}window = true\n[[bridge]]\nname = \"br0\"\n"));
    for command in ["show", "ports"] {
        let shown = daemon.answer(&[command]);
        assert!(shown.contains(" LOCAL "), "{command}: {shown}");
    }
    let traced = daemon.answer(&["trace", "br0", "in_port=local,tcp"]);
    assert!(traced.contains("in_port=LOCAL") && !traced.contains("in_port=local"), "{traced}");
    let metrics = get(&daemon, "/metrics", "").body;
    assert!(metrics.contains("number=\"LOCAL\""), "{metrics}");
    let page = get(&daemon, "/window.js", "").body;
    assert!(page.contains("\"LOCAL\"") && !page.contains("\"local\""), "the page has another name");
}

#[test]
fn the_data_of_the_window_needs_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    fs::write(&token_file, TOKEN).unwrap();
    let token_file = token_file.display();
    let daemon = Daemon::start(&format!("{HTTP}window = true\ntoken_file = \"{token_file}\"\n"));
    // A browser cannot send a token when it requests a page by its address; these files contain no
    // data.
    for path in ["/", "/window.css", "/window.js", "/objects.js"] {
        assert_eq!(get(&daemon, path, "").status, 200, "{path}");
    }
    for path in
        ["/events", "/flows", "/trace?bridge=br0&flow=udp", "/metrics", "/window.html", "/nosuch"]
    {
        assert_eq!(get(&daemon, path, "").status, 401, "{path}");
    }
    let own = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(get(&daemon, "/flows", &own).status, 200);
}
