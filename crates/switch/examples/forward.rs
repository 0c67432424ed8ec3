//! Embeds the switch, loads two rules and forwards a capture:
//! `cargo run --release --package shunt-switch --example forward -- IN.pcap OUT.pcap`.

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::{env, error::Error, time::Duration};

use shunt_switch::{
    Config, Switch,
    config::{BridgeOptions, PortOptions, PortType},
};

/// Forwards the frames of one capture to another, until no more arrive.
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut files = env::args().skip(1).map(Into::into);
    let (Some(rx), Some(tx)) = (files.next(), files.next()) else {
        return Err("usage: forward IN.pcap OUT.pcap".into());
    };
    let bridge = BridgeOptions { name: "br0".into(), ..BridgeOptions::default() };
    let switch =
        Switch::start(&Config { bridges: vec![bridge], ..Config::default() }, None, 1).await?;
    let port = |name: &str, number| PortOptions {
        name: name.into(),
        number,
        kind: PortType::Pcap,
        ..PortOptions::default()
    };
    switch.add_port("br0", PortOptions { tx, ..port("out", 2) }).await?;
    let rules = ["priority=10,in_port=1,ip,actions=dec_ttl,output:2", "priority=0,actions=drop"];
    switch.add_rules("br0", &rules).await?;
    switch.add_port("br0", PortOptions { rx, ..port("in", 1) }).await?;
    let mut received = u64::MAX;
    while received != switch.caches().received {
        received = switch.caches().received;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("{:#?}", switch.drops());
    switch.remove_port("out").await?;
    Ok(())
}
