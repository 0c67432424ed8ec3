//! Tests packets on a device, in a network namespace of the test.

use std::process::Command;

use crate::{PROGRAM, answer, errors, pipebench, print_skipped, tool};

/// Runs a script in a new network namespace, where it must succeed.
///
/// Prints a message and returns `None` without permission to create a namespace.
pub(crate) fn in_namespace(script: &str) -> Option<(String, String)> {
    let run = |script: &str| Command::new("unshare").args(["--net", "sh", "-ec", script]).output();
    match run(CABLE) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            print_skipped(&format!("a device needs root: {}", errors(&output)));
            return None;
        }
        Err(error) => {
            print_skipped(&format!("unshare cannot be run: {error}"));
            return None;
        }
    }
    let output = run(script).unwrap();
    assert!(output.status.success(), "{script}: {}", errors(&output));
    Some((String::from_utf8_lossy(&output.stdout).into_owned(), errors(&output)))
}

/// The script that creates a veth pair without other traffic.
const CABLE: &str = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true; \
    ip link add left type veth peer name right; ip link set left up; ip link set right up; \
    for look in $(seq 500); do ip -br link show left | grep -q ' UP ' && break; sleep 0.01; done;";

/// The script that waits until 500 packets have arrived, and prints their number.
const ARRIVED: &str = "for look in $(seq 1000); do \
    arrived=$(awk '/right:/ { print $3 }' /proc/net/dev); \
    [ $arrived -lt 500 ] || break; sleep 0.01; done; echo $arrived";

#[test]
fn every_packet_arrives_at_the_other_end() {
    let script = format!(
        "{CABLE} {PROGRAM} live coflow:low:100 --port left --packets 500 --rate 100k; {ARRIVED}"
    );
    let Some((text, _)) = in_namespace(&script) else { return };
    let mut lines = text.lines();
    let message = lines.next().unwrap_or_default();
    assert!(message.starts_with("500 packets, 759000 bytes in "), "{message}");
    assert_eq!(lines.next(), Some("500"));
}

#[test]
fn tcpreplay_sends_every_packet_of_a_capture() {
    if tool("tcpreplay", &["--version"]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("packets.pcap").display().to_string();
    answer(&["pcap", "coflow:low:100:packets=500", "--out", &capture]);
    let script = format!(
        "{CABLE} tcpreplay --quiet --topspeed --intf1=left {capture} > /dev/null; {ARRIVED}"
    );
    let Some((text, _)) = in_namespace(&script) else { return };
    assert_eq!(text.lines().last(), Some("500"));
}

#[test]
fn missing_packets_are_reported() {
    let script = format!(
        "{CABLE} {PROGRAM} live coflow:low:100:packets=200 --port left --packets 1k --rate 100k"
    );
    let Some((text, message)) = in_namespace(&script) else { return };
    assert!(text.starts_with("200 packets, "), "{text}");
    assert!(message.contains("has 200 packets"), "{message}");
}

#[test]
fn unsent_updates_are_reported() {
    let name =
        "classbench-acl:low:100:rules=100:packets=1k:updates=flap@1ms:rate=100k:gaps=constant";
    let script = format!("{CABLE} {PROGRAM} live {name} --port left --packets 1k");
    let Some((text, message)) = in_namespace(&script) else { return };
    assert!(text.starts_with("1000 packets, "), "{text}");
    assert!(message.contains("updates=flap are not sent"), "{message}");
}

#[test]
fn down_or_missing_device_is_named() {
    let script = format!(
        "{CABLE} ip link set left down; {PROGRAM} live coflow:low:100 --port left --packets 1 || true; \
         {PROGRAM} live coflow:low:100 --port none --packets 1 || true"
    );
    let Some((_, message)) = in_namespace(&script) else { return };
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(message.contains("ip link set left up"), "{message}");
    assert!(message.contains("there is no network device none"), "{message}");
}

#[test]
fn an_invalid_rate_is_refused_before_sending() {
    let output = pipebench(&["live", "coflow:low:100", "--port", "lo", "--rate", "fast"]);
    assert!(!output.status.success());
    assert!(errors(&output).contains("rate=fast"), "{}", errors(&output));
}
