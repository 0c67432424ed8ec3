//! Tests that the defaults in docs/configuration.md and docs/example.toml are the defaults of the
//! daemon.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;

/// The page of the configuration.
const PAGE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md"));

/// The example of a configuration file.
const EXAMPLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/example.toml"));

/// The sections: heading, a file that omits all keys,
/// and the section in the parsed values.
const SECTIONS: [(&str, &str, &str); 21] = [
    ("[[bridge]]", "[[bridge]]", "/bridge/0"),
    ("[[bridge.port]]", "[[bridge]]\n[[bridge.port]]", "/bridge/0/port/0"),
    ("[bridge.port.bfd]", "[[bridge]]\n[[bridge.port]]\n[bridge.port.bfd]", "/bridge/0/port/0/bfd"),
    ("[[bridge.bond]]", "[[bridge]]\n[[bridge.bond]]", "/bridge/0/bond/0"),
    ("[[bridge.mirror]]", "[[bridge]]\n[[bridge.mirror]]", "/bridge/0/mirror/0"),
    ("[bridge.sflow]", "[[bridge]]", "/bridge/0/sflow"),
    ("[bridge.netflow]", "[[bridge]]", "/bridge/0/netflow"),
    ("[bridge.ipfix]", "[[bridge]]", "/bridge/0/ipfix"),
    (
        "[[bridge.collector_set]]",
        "[[bridge]]\n[[bridge.collector_set]]",
        "/bridge/0/collector_set/0",
    ),
    ("[logging]", "", "/logging"),
    ("[ovsdb]", "", "/ovsdb"),
    ("[http]", "", "/http"),
    ("[tls]", "", "/tls"),
    ("[threads]", "[threads]", "/threads"),
    ("[caches]", "[caches]", "/caches"),
    ("[packets]", "[packets]", "/packets"),
    ("[eviction]", "[eviction]", "/eviction"),
    ("[foresight]", "[foresight]", "/foresight"),
    ("[dpdk]", "[dpdk]", "/dpdk"),
    ("[caches.gigaflow]", "[caches.gigaflow]", "/caches/gigaflow"),
    ("[caches.gigaflow.offload]", "[caches.gigaflow.offload]", "/caches/gigaflow/offload"),
];

/// Returns the values that the daemon reads from a file.
fn values(text: &str) -> Value {
    let file: ConfigFile = toml::from_str(text).unwrap();
    let mut values = serde_json::to_value(file.switch()).unwrap();
    values["logging"] = json!({ "filter": file.logging.filter });
    let HttpOptions { listen, token_file, private_key, certificate, window } = file.http;
    values["http"] = json!({
        "listen": listen,
        "token_file": token_file,
        "private_key": private_key,
        "certificate": certificate,
        "window": window,
    });
    let TlsOptions { private_key, certificate, ca_certificate } = file.tls;
    values["tls"] = json!({
        "private_key": private_key,
        "certificate": certificate,
        "ca_certificate": ca_certificate,
    });
    let OvsdbOptions { socket, log, remote } = file.ovsdb;
    let remote = remote.map_or_else(String::new, |remote| remote.to_string());
    values["ovsdb"] = json!({ "socket": socket, "log": log, "remote": remote });
    values
}

/// Returns the keys and the default cells in each section of the page.
fn documented_keys() -> BTreeMap<&'static str, Vec<(&'static str, &'static str)>> {
    let mut sections = BTreeMap::new();
    let (mut section, mut in_table) = ("", false);
    for line in PAGE.lines() {
        if line.starts_with('#') {
            let heading = line.trim_start_matches('#').trim();
            section =
                heading.strip_prefix('`').and_then(|code| code.strip_suffix('`')).unwrap_or("");
        }
        in_table = line.starts_with("| key | default |") || in_table && line.starts_with('|');
        let mut cells = line.split('|').map(str::trim).skip(1);
        if let (true, Some(key), Some(default)) = (in_table, cells.next(), cells.next())
            && let Some(key) = code(key)
        {
            sections.entry(section).or_insert_with(Vec::new).push((key, default));
        }
    }
    sections
}

/// Returns the content of a table cell that is one code span.
fn code(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`').filter(|text| !text.contains('`'))
}

/// Compares the tables of docs/configuration.md with the defaults in the code.
#[test]
fn the_page_has_every_key_with_its_default() {
    let documented = documented_keys();
    let known: BTreeSet<&str> = SECTIONS.iter().map(|(heading, ..)| *heading).collect();
    assert_eq!(documented.keys().copied().collect::<BTreeSet<_>>(), known);
    for (heading, text, pointer) in SECTIONS {
        let values = values(text);
        let values = values.pointer(pointer).unwrap().as_object().unwrap();
        for (key, default) in &documented[heading] {
            let value = values.get(*key).unwrap_or_else(|| panic!("{heading} has no key {key}"));
            // A cell may have several parts, such as "`"embedded"`; `"none"` without this table".
            match code(default.split(';').next().unwrap_or_default().trim()) {
                Some(literal) => assert_eq!(literal, value.to_string(), "{heading} {key}"),
                // The cell describes in words a value that the daemon chooses if the key is
                // omitted.
                None => assert!(
                    [json!(""), json!([]), Value::Null].contains(value),
                    "{heading} {key} is {value}"
                ),
            }
        }
        let documented: BTreeSet<&str> = documented[heading].iter().map(|(key, _)| *key).collect();
        let is_section = |key: &str| {
            SECTIONS.iter().any(|(.., other)| {
                *other == format!("{pointer}/{key}") || *other == format!("{pointer}/{key}/0")
            })
        };
        let keys = values.keys().map(String::as_str).filter(|key| !is_section(key));
        assert_eq!(keys.collect::<BTreeSet<_>>(), documented, "{heading}");
    }
}

#[test]
fn every_section_is_on_the_page() {
    let values = values("");
    for key in values.as_object().unwrap().keys() {
        let pointer = format!("/{key}");
        assert!(SECTIONS.iter().any(|(.., other)| other.starts_with(&pointer)), "{key}");
    }
}

#[test]
fn the_example_shows_the_defaults() {
    let mut example = values(EXAMPLE);
    assert_ne!(example["bridge"].take(), json!([]), "the example has a bridge");
    let mut defaults = values("");
    defaults["bridge"].take();
    assert_eq!(example, defaults);
}
