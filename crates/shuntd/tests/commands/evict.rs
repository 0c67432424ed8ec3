//! Tests of names of cache entries, and of explanations of evictions.

use std::fs;

use crate::{Daemon, wait_until};

/// Returns a capture file with one frame of an unknown protocol.
pub(crate) fn capture() -> Vec<u8> {
    let mut file =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    file.extend([0, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 60, 0, 0, 0]);
    file.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    file.extend([0; 46]);
    file
}

#[test]
fn an_entry_is_listed_by_name_and_explained() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n");
    let path = daemon.run_dir().join("in.pcap");
    fs::write(&path, capture()).unwrap();
    let rx = format!("rx={}", path.display());
    daemon.answer(&["add-port", "br0", "p1", "type=pcap", &rx, "repeat=endless"]);
    let name = || {
        let list = daemon.answer(&["entries"]);
        list.lines().nth(1)?.split_whitespace().next().map(str::to_owned)
    };
    assert!(wait_until(|| name().is_some()));
    let name = name().unwrap();
    let explanation = daemon.answer(&["why", &name]);
    assert!(explanation.starts_with(&format!("entry {name}: ")), "{explanation}");
    assert!(
        explanation.contains("  actions    drop\n")
            && explanation.contains("br0 table 0: no rule\n"),
        "{explanation}"
    );
    let evict = daemon.answer(&["evict"]);
    assert!(evict.starts_with("engine direct, version "), "{evict}");
    let metrics = daemon.answer(&["evict", "--metrics"]);
    assert!(metrics.contains("shunt_eviction_rows{relation=\"entries\"} 1\n"), "{metrics}");

    daemon.answer(&["del-br", "br0"]);
    let explanation = daemon.answer(&["why", &name]);
    assert!(
        explanation.ends_with("the settings and mirrors of a deleted bridge changed\n"),
        "{explanation}"
    );
}

#[test]
fn a_missing_entry_is_refused_with_a_hint() {
    let daemon = Daemon::start("");
    let message = daemon.error_text(&["why", "0.9.9"]);
    let expected = "there is no cache entry 0.9.9: its slot is empty (idle entries are removed), and it is not among \
                    the last 1024";
    assert!(message.contains(expected), "{message}");
    assert!(message.contains("shuntctl entries"), "{message}");
    assert!(daemon.error_text(&["why", "nine"]).contains("three numbers with dots between them"));
    let help = daemon.answer(&["why", "--help"]);
    assert!(help.contains("higher priority"), "{help}");
}
