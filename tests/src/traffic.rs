//! Traffic between hosts in namespaces: pings and TCP streams.

use std::process::Stdio;

use crate::{
    daemon::{output, wait_until},
    namespace::Namespace,
};

/// Sends five pings; returns whether all pings were answered.
#[must_use]
pub fn ping(from: &Namespace, to: &str) -> bool {
    let arguments = ["-q", "-i", "0.05", "-c", "5", "-W", "2", to];
    output(from.command("ping").args(arguments)).status.success()
}

/// Sends one ping; returns whether the ping was answered within a second.
#[must_use]
pub fn ping_once(from: &Namespace, to: &str) -> bool {
    let arguments = ["-q", "-c", "1", "-W", "1", to];
    output(from.command("ping").args(arguments)).status.success()
}

/// Runs one TCP stream from `client` to `server` for a second.
///
/// Returns the rate of the stream in Mbit/s.
///
/// # Panics
///
/// If `iperf3` cannot run.
#[must_use]
pub fn tcp_stream(client: &Namespace, server: &Namespace, address: &str) -> f64 {
    let mut listening = server.command("iperf3");
    let mut listening = listening
        .args(["-s", "-1"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("iperf3: {error}"));
    let listens = || server.run("ss", &["-ltn"]).contains(":5201");
    assert!(wait_until(listens), "iperf3 does not listen");
    let arguments = ["30", "iperf3", "-c", address, "-t", "1", "-J", "--connect-timeout", "5000"];
    // Without an answer, the client waits for minutes.
    let report = output(client.command("timeout").args(arguments));
    let _ = listening.kill();
    let _ = listening.wait();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap_or_default();
    report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_default() / 1e6
}
