//! Mirrors of a running switch: their limit, and log lines about their ports.

use shunt_switch::{
    Config, Switch,
    config::{BondOptions, BridgeOptions, MirrorOptions, PortOptions, PortType},
};

use crate::log::Log;

fn null(name: &str) -> PortOptions {
    PortOptions { name: name.into(), kind: PortType::Null, ..PortOptions::default() }
}

/// A mirror of the packets that arrive on `p1`, with its copies on `p9`.
fn mirror(name: &str) -> MirrorOptions {
    MirrorOptions {
        name: name.into(),
        select_src_port: vec!["p1".into()],
        output_port: "p9".into(),
        ..MirrorOptions::default()
    }
}

/// A bridge with the given ports and mirrors.
fn bridge(ports: &[&str], mirrors: Vec<MirrorOptions>) -> BridgeOptions {
    let ports = ports.iter().map(|name| null(name)).collect();
    BridgeOptions { name: "br0".into(), ports, mirrors, ..BridgeOptions::default() }
}

async fn switch() -> Switch {
    Switch::start(&Config::default(), None, 1).await.unwrap()
}

fn mirrors(from: usize, to: usize) -> Vec<MirrorOptions> {
    (from..to).map(|number| mirror(&format!("m{number}"))).collect()
}

/// Returns the log lines about the ports of the mirror `m1`.
fn lines(log: &Log) -> Vec<String> {
    log.lines_with("mirror m1 of br0: ")
}

#[tokio::test]
async fn the_log_names_ports_that_go_and_come() {
    let log = Log::capture();
    let switch = switch().await;
    switch.add_bridge(&bridge(&["p1", "p9"], vec![mirror("m1")])).await.unwrap();
    assert_eq!(lines(&log), [""; 0]);
    switch.remove_port("p9").await.unwrap();
    switch.set_bridge("br0", &[("table_rules", "7")]).await.unwrap();
    let idle = "copies nothing until output_port p9 is added to the bridge";
    assert!(matches!(&*lines(&log), [one] if one.contains(idle)), "{:?}", lines(&log));
    switch.remove_port("p1").await.unwrap();
    assert_eq!(lines(&log).len(), 1, "the mirror copies nothing anyway");
    switch.add_port("br0", null("p9")).await.unwrap();
    let missing = "the bridge has no port p1";
    assert!(matches!(&*lines(&log), [_, two] if two.contains(missing)), "{:?}", lines(&log));
    switch.add_port("br0", null("p1")).await.unwrap();
    let complete = "ports ready: p1";
    assert!(matches!(&*lines(&log), [.., three] if three.contains(complete)), "{:?}", lines(&log));
    switch.remove_port("p9").await.unwrap();
    let other = MirrorOptions { output_port: "p1".into(), ..mirror("m1") };
    switch.set_mirrors("br0", vec![other]).await.unwrap();
    assert_eq!(lines(&log).len(), 4, "a changed mirror is logged as such");
    switch.remove_bridge("br0").await.unwrap();
    assert_eq!(lines(&log).len(), 4, "{:?}", lines(&log));
}

/// The changes are all that end static addresses but the removal of the bridge.
#[tokio::test]
async fn the_log_counts_static_addresses_that_end() {
    let log = Log::capture();
    let switch = switch().await;
    let ports = ["p1", "p2", "p3", "p4", "p9"];
    switch.add_bridge(&bridge(&ports, Vec::new())).await.unwrap();
    for (port, count) in ports.into_iter().zip(1..) {
        for last in 0..count {
            let mac = [2, 0, 0, 0, count, last];
            switch.add_static_mac("br0", port, 0, mac).await.unwrap();
        }
    }
    switch.set_vlans(&PortOptions { tag: Some(5), ..null("p1") }).await.unwrap();
    switch.remove_port("p2").await.unwrap();
    let members = vec!["p3".to_owned(), "p4".to_owned()];
    let bond = BondOptions { name: "bond0".into(), members, ..BondOptions::default() };
    switch.add_bond("br0", bond).await.unwrap();
    switch.add_mirror("br0", mirror("m1")).await.unwrap();
    let lines = log.lines_with("bridge br0: changed ports or mirrors end static MAC addresses");
    let counts = ["removed=1", "removed=2", "removed=7", "removed=5"];
    assert_eq!(lines.len(), counts.len(), "{lines:?}");
    assert!(lines.iter().zip(counts).all(|(line, count)| line.ends_with(count)), "{lines:?}");
    assert_eq!(switch.mac_table("br0").unwrap().statics, 0);
}

/// A later step of the same change adds the port, so no line is logged.
#[tokio::test]
async fn future_mirror_port_is_not_missing() {
    let whole =
        Config { bridges: vec![bridge(&["p1", "p9"], vec![mirror("m1")])], ..Config::default() };
    let saved = Switch::start(&whole, None, 1).await.unwrap().save();
    let log = Log::capture();
    let restored = switch().await;
    assert_eq!(restored.restore(&saved).await.unwrap().refused, [""; 0]);
    let resumed = switch().await;
    let [report, _] = resumed.resume(&saved, &whole, &whole).await.unwrap();
    assert_eq!(report.refused, [""; 0]);
    let reloaded = switch().await;
    assert_eq!(reloaded.reload(&Config::default(), &whole).await.refused, [""; 0]);
    let empty = Config { bridges: vec![bridge(&[], Vec::new())], ..Config::default() };
    let changed = Switch::start(&empty, None, 1).await.unwrap();
    assert_eq!(changed.reload(&empty, &whole).await.refused, [""; 0]);
    for switch in [&restored, &resumed, &reloaded, &changed] {
        assert_eq!(switch.running_config().bridges[0].mirrors, [mirror("m1")]);
    }
    assert_eq!(lines(&log), [""; 0]);
}

#[tokio::test]
async fn no_change_exceeds_the_limit_of_mirrors() {
    let limit = MirrorOptions::COUNT_MAX;
    let full = switch().await;
    full.add_bridge(&bridge(&[], mirrors(0, limit))).await.unwrap();
    let saved = full.save();
    let names = |switch: &Switch| switch.running_config().bridges[0].mirrors.clone();
    let reason = "mirror m32: bridge br0 has 32 other mirrors, which is the limit: delete one \
                  first";
    let error = full.add_mirror("br0", mirror("m32")).await.unwrap_err();
    assert_eq!(error.to_string(), reason);
    assert_eq!(names(&full), mirrors(0, limit));
    let other = switch().await;
    other.add_bridge(&bridge(&[], vec![mirror("own")])).await.unwrap();
    let report = other.restore(&saved).await.unwrap();
    let refused = "mirror m31: not set on br0: mirror m31: bridge br0 has 32 other mirrors";
    assert!(matches!(&*report.refused, [one] if one.starts_with(refused)), "{report:?}");
    assert_eq!(names(&other).len(), limit);
    let error = switch().await.add_bridge(&bridge(&[], mirrors(0, limit + 1))).await.unwrap_err();
    assert_eq!(error.to_string(), reason);
}

#[tokio::test]
async fn trace_names_port_that_has_no_copy() {
    let switch = switch().await;
    switch.add_bridge(&bridge(&["p1", "p9"], vec![mirror("m1")])).await.unwrap();
    let trace = || switch.trace("br0", "in_port=p1").unwrap().to_text();
    assert!(trace().contains("mirror m1: copied to port p9"), "{}", trace());
    switch.remove_port("p9").await.unwrap();
    let kind = PortType::Patch;
    let patch = PortOptions { kind, peer: "none".into(), number: 9, ..null("p9") };
    switch.add_port("br0", patch).await.unwrap();
    let none = "mirror m1: no copy to port 9 (p9), which is disabled or has no device";
    assert!(trace().contains(none), "{}", trace());
    assert!(!trace().contains("copied"), "{}", trace());
}
