//! The HTTP server: metrics that equal the counters, health, readiness, access and limits.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    time::Duration,
};

use serde_json::Value;
use shunt_pcap::PcapWriter;

use crate::{Daemon, check, errors, shuntd, wait_until};

pub(crate) const HTTP: &str = "[http]\nlisten = \"127.0.0.1:0\"\n";

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md"));

/// A valid bearer token.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A response of the HTTP server.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

/// Returns the addresses of the HTTP server, read from the log.
pub(crate) fn addresses(daemon: &Daemon) -> Vec<String> {
    let log = daemon.log();
    let lines = log.lines().filter_map(|line| line.split_once("http: ready address="));
    lines.map(|(_, rest)| rest.split_whitespace().next().unwrap().to_owned()).collect()
}

/// Sends bytes to the server; returns everything that the server answers.
fn exchange(daemon: &Daemon, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(&addresses(daemon)[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The server may close the connection before it has read all bytes.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// Requests a page; `headers` has further header lines.
pub(crate) fn get(daemon: &Daemon, path: &str, headers: &str) -> Response {
    request(daemon, "GET", path, headers)
}

fn request(daemon: &Daemon, method: &str, path: &str, headers: &str) -> Response {
    let host = if headers.contains("Host:") { "" } else { "Host: 127.0.0.1\r\n" };
    let text = format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{headers}\r\n");
    let answer = exchange(daemon, text.as_bytes());
    let (headers, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, headers: headers.to_owned(), body: body.to_owned() }
}

/// Requests the metrics; returns the values by series.
///
/// Every metric family must be documented in docs/metrics.md.
fn scrape(daemon: &Daemon) -> BTreeMap<String, f64> {
    let page = get(daemon, "/metrics", "");
    assert_eq!(page.status, 200);
    assert!(page.headers.contains("content-type: text/plain; version=0.0.4"), "{}", page.headers);
    let mut values = BTreeMap::new();
    for line in page.body.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let name = family.split(' ').next().unwrap();
            assert!(PAGE.contains(&format!("| `{name}` |")), "docs/metrics.md lacks {name}");
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let before = values.insert(series.to_owned(), value.parse().unwrap());
            assert!(before.is_none(), "{series} is there twice");
        }
    }
    values
}

/// Returns a UDP frame to a destination port.
fn frame(source: u8, destination: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, source, 10, 0, 0, 99]);
    frame.extend([0x10, source]);
    frame.extend(destination.to_be_bytes());
    frame.extend([0, 26, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// Number of packets to each destination port.
///
/// Rules forward packets to the first port, drop packets to the second port, and send packets to
/// the third port to controllers.
const PACKETS: [(u16, u64); 3] = [(1, 40), (2, 30), (3, 20)];

/// Starts a daemon, and sends a known number of packets through it.
pub(crate) fn switch_with_traffic(configuration: &str) -> Daemon {
    let daemon = Daemon::start(&format!(
        "[caches]\nidle_ms = 600000\n{configuration}[[bridge]]\nname = \"br0\"\n"
    ));
    daemon.answer(&["add-port", "br0", "p2", "type=null", "number=2"]);
    let mut saved: Value = serde_json::from_str(&daemon.answer(&["save"])).unwrap();
    saved["state"]["tables"][0]["rules"] = serde_json::json!([
        "table=0,priority=5,udp,tp_dst=2,actions=drop",
        "table=0,priority=5,udp,tp_dst=3,actions=controller",
        "table=0,priority=1,actions=goto_table:7",
        "table=7,priority=1,actions=output:2",
    ]);
    let state = daemon.run_dir().join("saved");
    fs::write(&state, saved.to_string()).unwrap();
    daemon.answer(&["restore", state.to_str().unwrap()]);
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    for (destination, count) in PACKETS {
        for packet in 0..count {
            writer.write(1, &frame(u8::try_from(packet % 4).unwrap(), destination)).unwrap();
        }
    }
    let capture = daemon.run_dir().join("in.pcap");
    fs::write(&capture, writer.into_inner()).unwrap();
    let rx = format!("rx={}", capture.display());
    daemon.answer(&["add-port", "br0", "p1", "type=pcap", "number=1", &rx]);
    let is_counted = || {
        let values = scrape(&daemon);
        values.get("shunt_table_lookups_total{bridge=\"br0\",table=\"7\"}") == Some(&40.0)
            && values["shunt_received_packets_total"] >= 90.0
            && values["shunt_held_packets"] == 0.0
            && values["shunt_packet_ins_total{end=\"no_connection\"}"] >= 20.0
    };
    assert!(wait_until(is_counted), "{:?}", scrape(&daemon));
    daemon
}

fn json(daemon: &Daemon, command: &[&str]) -> Value {
    serde_json::from_str(&daemon.answer(command)).unwrap()
}

/// Expected totals after the known number of packets.
const TOTALS: [(&str, f64); 14] = [
    ("shunt_received_packets_total", 90.0),
    ("shunt_port_received_packets_total{bridge=\"br0\",port=\"p1\"}", 90.0),
    ("shunt_port_received_bytes_total{bridge=\"br0\",port=\"p1\"}", 5400.0),
    ("shunt_port_received_copies_total{bridge=\"br0\",port=\"p1\"}", 90.0),
    ("shunt_port_received_copied_bytes_total{bridge=\"br0\",port=\"p1\"}", 5400.0),
    ("shunt_port_sent_packets_total{bridge=\"br0\",port=\"p2\"}", 40.0),
    ("shunt_sent_packets_total", 40.0),
    ("shunt_dropped_packets_total{reason=\"rule_without_output\"}", 30.0),
    ("shunt_punted_packets_total", 20.0),
    ("shunt_packet_ins_total{end=\"no_connection\"}", 20.0),
    ("shunt_table_lookups_total{bridge=\"br0\",table=\"0\"}", 90.0),
    ("shunt_table_matches_total{bridge=\"br0\",table=\"0\"}", 90.0),
    ("shunt_table_rules{bridge=\"br0\",table=\"0\"}", 3.0),
    ("shunt_bridge_rules{bridge=\"br0\"}", 4.0),
];

/// Metrics with one value: command of `shuntctl`, path in its JSON,
/// and metric family.
const SINGLES: [(&str, &str, &str); 21] = [
    ("drops", "/injected", "shunt_injected_packets_total"),
    ("drops", "/copied", "shunt_copied_packets_total"),
    ("drops", "/sent", "shunt_sent_packets_total"),
    ("drops", "/punted", "shunt_punted_packets_total"),
    ("drops", "/held", "shunt_held_packets"),
    ("drops", "/packet_ins/no_connection", "shunt_packet_ins_total{end=\"no_connection\"}"),
    ("caches", "/received", "shunt_received_packets_total"),
    ("caches", "/exact_hits", "shunt_cache_hits_total{cache=\"exact\"}"),
    ("caches", "/signature_hits", "shunt_cache_hits_total{cache=\"signature\"}"),
    ("caches", "/megaflow_hits", "shunt_cache_hits_total{cache=\"megaflow\"}"),
    ("caches", "/upcalls", "shunt_upcalls_total"),
    ("caches", "/set_up_time/count", "shunt_set_up_seconds_count"),
    ("caches", "/entries", "shunt_cache_entries"),
    ("caches", "/masks", "shunt_cache_masks"),
    ("caches", "/evicted", "shunt_cache_evicted_total"),
    ("caches", "/version", "shunt_table_version"),
    ("evict", "/installed", "shunt_eviction_installed_total"),
    ("evict", "/changes", "shunt_eviction_changes_total"),
    ("evict", "/removed", "shunt_eviction_removed_total"),
    ("evict", "/list_time/count", "shunt_eviction_list_seconds_count"),
    ("evict", "/ack_time/count", "shunt_eviction_ack_seconds_count"),
];

#[test]
fn scraped_totals_equal_the_counters() {
    let daemon = switch_with_traffic(HTTP);
    let values = scrape(&daemon);
    for (series, expected) in TOTALS {
        assert_eq!(values.get(series), Some(&expected), "{series}");
    }
    let is = |series: &str, expected: &Value| {
        assert!(expected.is_number(), "{series}");
        assert_eq!(values.get(series).copied(), expected.as_f64(), "{series}");
    };
    for (command, path, series) in SINGLES {
        let shown = json(&daemon, &[command, "--json"]);
        is(series, shown.pointer(path).unwrap_or_else(|| panic!("{command} has no {path}")));
    }
    for port in json(&daemon, &["ports", "--json"]).as_array().unwrap() {
        let labels = format!("{{bridge=\"br0\",port={}}}", port["name"]);
        for (family, key) in [
            ("received_packets", "rx_packets"),
            ("received_bytes", "rx_bytes"),
            ("sent_packets", "tx_packets"),
            ("sent_bytes", "tx_bytes"),
            ("received_copies", "rx_copies"),
            ("received_copied_bytes", "rx_copied_bytes"),
            ("sent_copies", "tx_copies"),
            ("sent_copied_bytes", "tx_copied_bytes"),
        ] {
            is(&format!("shunt_port_{family}_total{labels}"), &port[key]);
        }
    }
    let drops = json(&daemon, &["drops", "--json"]);
    assert_eq!(drops["dropped"].as_array().unwrap().len(), 1, "{drops}");
    for pair in drops["dropped"].as_array().unwrap() {
        is(&format!("shunt_dropped_packets_total{{reason={}}}", pair[0]), &pair[1]);
    }
    assert!(values["shunt_thread_iterations_total{thread=\"packet-0\"}"] > 0.0);
    assert!(values["shunt_thread_cpu_seconds_total{thread=\"packet-0\"}"] > 0.0);
    // Every translated packet of this traffic waited in the upcall queue.
    assert!(values["shunt_set_up_seconds_count"] > 0.0);
    assert_eq!(values["shunt_set_up_seconds_count"], values["shunt_upcalls_total"]);
    let uses = values.iter().filter(|(series, _)| series.starts_with("shunt_process_memory_bytes"));
    let uses: f64 = uses.map(|(_, size)| size).sum();
    let resident = values["shunt_process_resident_bytes"];
    // The two values are read one after the other, so they differ slightly.
    assert!((uses - resident).abs() < resident / 10.0, "{uses} of {resident}");
    // The command prints the same text as the HTTP page.
    let printed = daemon.answer(&["metrics"]);
    assert!(printed.contains("\nshunt_received_packets_total 90\n"), "{printed}");
}

#[test]
fn the_accept_header_selects_open_metrics() {
    let daemon = Daemon::start(HTTP);
    let page = get(&daemon, "/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n");
    assert!(page.headers.contains("content-type: application/openmetrics-text"), "{page:?}");
    assert!(page.body.contains("# TYPE shunt_sent_packets counter\nshunt_sent_packets_total 0\n"));
    assert!(page.body.ends_with("\n# EOF\n"));
    let page = get(&daemon, "/metrics", "Accept: \u{fffd};q=2,,\r\n");
    assert!(page.status == 200 && !page.body.contains("# EOF"), "{page:?}");
}

#[test]
fn health_and_readiness_follow_the_switch() {
    let configuration = format!("{HTTP}[[bridge]]\nname = \"br0\"\n");
    let daemon = Daemon::start(&configuration);
    let ready = || get(&daemon, "/readyz", "");
    assert_eq!((ready().status, ready().body.as_str()), (200, "ok\n"));
    let health = get(&daemon, "/healthz", "");
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));

    daemon.answer(&["add-port", "br0", "a", "type=patch", "peer=b"]);
    assert_eq!((ready().status, ready().body.as_str()), (503, "port a of bridge br0: no peer\n"));
    daemon.answer(&["del-port", "a"]);
    assert_eq!(ready().status, 200);

    let file = daemon.run_dir().join("shunt.toml");
    fs::write(&file, format!("[threads]\npacket = 2\n{configuration}")).unwrap();
    daemon.answer(&["reload"]);
    let waits = "configuration: threads.packet takes effect at the next start\n";
    assert_eq!((ready().status, ready().body.as_str()), (503, waits));
    fs::write(&file, configuration.replace(HTTP, "[http]\nlisten = \"[::1]:1\"\n")).unwrap();
    let report = daemon.answer(&["reload"]);
    assert_eq!(report, "takes effect at the next start: http.listen\n");
    let port = "[[bridge.port]]\nname = \"p1\"\ntype = \"null\"\nnumber = 8\n";
    daemon.answer(&["add-port", "br0", "p1", "type=null", "number=7"]);
    fs::write(&file, format!("{configuration}{port}")).unwrap();
    let reload = daemon.shuntctl(&["reload"]);
    assert_eq!(
        (reload.status.code(), errors(&reload).as_str()),
        (Some(1), "shuntctl: 1 change refused\n")
    );
    assert!(String::from_utf8_lossy(&reload.stdout).starts_with("refused: port p1: "));
    assert!(ready().body.starts_with("configuration: refused: port p1: "), "{:?}", ready());
    daemon.answer(&["del-port", "p1"]);
    fs::write(&file, "[threads]\npacket = 0\n").unwrap();
    daemon.error_text(&["reload"]);
    assert!(ready().body.starts_with("configuration: not reloaded: "), "{:?}", ready());
    fs::write(&file, &configuration).unwrap();
    daemon.answer(&["reload"]);
    assert_eq!(ready().status, 200);
}

#[test]
fn pages_can_only_be_read() {
    let daemon = Daemon::start(HTTP);
    assert!(get(&daemon, "/", "").body.contains("/metrics"));
    assert_eq!(get(&daemon, "/?a=b", "").status, 200);
    let missing = get(&daemon, "/nosuch", "");
    assert!(missing.status == 404 && missing.body.contains("/readyz"), "{missing:?}");
    let head = request(&daemon, "HEAD", "/metrics", "");
    assert!(head.status == 200 && head.body.is_empty(), "{head:?}");
    assert!(head.headers.contains("content-length: "), "{head:?}");
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "NONSENSE"] {
        let refused = request(&daemon, method, "/metrics", "");
        assert_eq!(refused.status, 405, "{method}");
        assert!(refused.headers.contains("allow: GET, HEAD"), "{refused:?}");
    }
    let foreign = get(&daemon, "/metrics", "Host: evil.example\r\n");
    assert!(foreign.status == 421 && foreign.body.contains("http.token_file"), "{foreign:?}");
}

#[test]
fn garbage_ends_its_connection_alone() {
    let daemon = Daemon::start(HTTP);
    let long = format!("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    let lines = format!("GET / HTTP/1.1\r\n{}\r\n", "X: a\r\n".repeat(1000));
    let inputs: [&[u8]; 6] = [
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        long.as_bytes(),
        lines.as_bytes(),
    ];
    for input in inputs {
        let answer = exchange(&daemon, input);
        assert!(!answer.contains("200 OK"), "{answer}");
        assert_eq!(get(&daemon, "/healthz", "").status, 200);
    }
}

/// Opens a connection and requests a page; `None` if the server closes it.
fn open_connection(address: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    stream.read_exact(&mut [0; 12]).ok()?;
    Some(stream)
}

/// Connections without a request cannot keep other clients away.
#[test]
fn an_idle_connection_makes_room() {
    let daemon = Daemon::start(HTTP);
    let address = addresses(&daemon)[0].clone();
    let mut idle: Vec<_> = (0..64).map(|_| TcpStream::connect(&address).unwrap()).collect();
    idle[0].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(get(&daemon, "/healthz", "").status, 200);
    assert_eq!(idle[0].read(&mut [0; 1]).unwrap(), 0, "the oldest connection is closed");
}

#[test]
fn connections_are_bounded() {
    let daemon = Daemon::start(HTTP);
    let address = addresses(&daemon)[0].clone();
    let mut open = Vec::new();
    let is_full = || {
        open.extend(open_connection(&address));
        open.len() == 64
    };
    assert!(wait_until(is_full));
    let is_refused = || exchange(&daemon, b"GET / HTTP/1.0\r\n\r\n").is_empty();
    assert!(wait_until(is_refused), "the 65th connection was served");
    assert!(wait_until(|| daemon.log().contains(
        "http: a connection is refused, because too many \
         clients are connected: end some of them"
    )));
    open.iter().for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
    assert!(wait_until(|| !is_refused()), "places are free again");
}

#[test]
fn an_address_of_other_hosts_needs_a_token() {
    let refused = check("[http]\nlisten = [\"127.0.0.1:9475\", \"0.0.0.0:9475\"]\n");
    for words in ["needs a bearer token", "`token_file`", "\"0.0.0.0:9475\""] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    let with_token = || {
        let token_file = token_file.display();
        check(&format!("[http]\nlisten = \"0.0.0.0:9475\"\ntoken_file = \"{token_file}\"\n"))
    };
    let missing = in_one_line(&with_token());
    assert!(missing.contains("http.token_file: cannot read the bearer token in"), "{missing}");
    fs::write(&token_file, "short").unwrap();
    let short = in_one_line(&with_token());
    assert!(short.contains("has 5 characters, and must have 16 to 512: write one"), "{short}");
    fs::write(&token_file, TOKEN).unwrap();
    assert_eq!(with_token(), "");
    let misspelled = check("[http]\nlisten = \"localhost:9475\"\n");
    assert!(misspelled.contains("write an IP address"), "{misspelled}");
    assert!(check("[http]\nlisten = 9475\n").contains("an address in quotes"));
}

/// Returns the words of a report, which has broken its lines.
fn in_one_line(report: &str) -> String {
    let words: Vec<&str> = report.split_whitespace().filter(|word| *word != "│").collect();
    words.join(" ")
}

/// Starts a daemon with a token file and returns its error output.
fn failed_start(folder: &Path, token: &str) -> String {
    fs::write(folder.join("token"), token).unwrap();
    let file = folder.join("shunt.toml");
    let token_file = folder.join("token").display().to_string();
    fs::write(&file, format!("{HTTP}token_file = \"{token_file}\"\n")).unwrap();
    let output = shuntd(folder).arg("--config").arg(&file).output().unwrap();
    assert!(!output.status.success());
    errors(&output)
}

#[test]
fn every_page_needs_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let refused = failed_start(folder.path(), "short");
    assert_eq!(in_one_line(&refused).matches("must have 16 to 512").count(), 1, "{refused}");
    let token_file = folder.path().join("token");
    fs::write(&token_file, format!("{TOKEN}\n")).unwrap();
    let daemon = Daemon::start(&format!("{HTTP}token_file = \"{}\"\n", token_file.display()));
    for path in ["/", "/metrics", "/healthz", "/readyz", "/nosuch"] {
        for headers in ["", "Authorization: Bearer 0123456789abcdef\r\n", "Authorization: \r\n"] {
            let refused = get(&daemon, path, headers);
            assert_eq!(refused.status, 401, "{path} {headers}");
            assert!(refused.headers.contains("www-authenticate: Bearer"), "{refused:?}");
            assert!(!refused.body.contains("shunt_"), "{refused:?}");
        }
    }
    let kept = exchange(&daemon, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert!(kept.contains("connection: close"), "a client without a token keeps its place: {kept}");
    let own = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(get(&daemon, "/metrics", &own).status, 200);
    // A proxy may request by another name of the host.
    assert_eq!(get(&daemon, "/metrics", &format!("Host: shunt.example\r\n{own}")).status, 200);
    assert!(!daemon.log().contains(TOKEN));
}

/// The switch starts without the used address, and listens on it once it is free.
#[test]
fn a_used_address_is_tried_again() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let listen = format!("[http]\nlisten = [\"127.0.0.1:0\", \"{address}\"]\n");
    let daemon = Daemon::start(&listen);
    let ready = get(&daemon, "/readyz", "");
    let expected = format!("http.listen: {address}: Address already in use (os error 98)\n");
    assert_eq!((ready.status, ready.body), (503, expected));
    drop(other);
    assert!(wait_until(|| get(&daemon, "/readyz", "").status == 200), "{}", daemon.log());
    assert!(addresses(&daemon).contains(&address.to_string()), "{}", daemon.log());
    assert_eq!(daemon.log().matches("http.listen: cannot listen on").count(), 1);
}

/// A management address may be assigned after the start,
/// and the daemon must forward meanwhile.
#[test]
fn foreign_address_does_not_prevent_start() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    fs::write(&token_file, format!("{TOKEN}\n")).unwrap();
    let listen = "[http]\nlisten = [\"127.0.0.1:0\", \"[2001:db8::1]:9475\"]\n";
    let daemon = Daemon::start(&format!("{listen}token_file = \"{}\"\n", token_file.display()));
    let ready = get(&daemon, "/readyz", &format!("Authorization: Bearer {TOKEN}\r\n"));
    assert_eq!(ready.status, 503, "{ready:?}");
    assert!(ready.body.contains("http.listen: [2001:db8::1]:9475: "), "{ready:?}");
}
