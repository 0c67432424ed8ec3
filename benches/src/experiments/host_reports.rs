//! The reports of `iperf3` and `ping`, and the CPU time of the switch meanwhile.

use std::{
    process::{Child, Command},
    thread::sleep,
    time::Duration,
};

use serde_json::Value;

use crate::{cpu::Account, experiment::Samples};

/// Time until the receiver must have written its report.
const REPORT_LOOKS_MAX: u32 = 60;
/// Pause between two checks for the report.
const REPORT_PAUSE: Duration = Duration::from_millis(50);

/// Returns the report of a receiver; null if no sender reached the receiver.
pub(super) fn report_of(mut receiver: Child) -> Value {
    let is_over = (0..REPORT_LOOKS_MAX).any(|_| {
        sleep(REPORT_PAUSE);
        matches!(receiver.try_wait(), Ok(Some(_)))
    });
    if !is_over {
        let _ = receiver.kill();
    }
    let report = receiver.wait_with_output().map(|output| output.stdout).unwrap_or_default();
    serde_json::from_slice(&report).unwrap_or_default()
}

/// Runs some work; returns the CPU cores that a process took meanwhile.
pub(super) fn cores_during<T>(process: Option<u32>, work: impl FnOnce() -> T) -> (T, f64) {
    let account = process.map(Account::open);
    let result = work();
    (result, account.map_or(0.0, |account| account.spent().share() / 100.0))
}

/// Runs a command, and returns what it prints, also if it fails.
pub(super) fn text_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the Gbit/s of a receiver's report; zero without a connection.
pub(super) fn gigabits(report: &Value) -> f64 {
    report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_default() / 1e9
}

/// Returns the UDP packets of a receiver's report.
pub(super) fn received_packets(report: &Value) -> f64 {
    let sum = &report["end"]["sum_received"];
    // The receiver counts up to the last sequence number that arrived.
    let count = |name: &str| sum[name].as_f64().unwrap_or_default();
    (count("packets") - count("lost_packets")).max(0.0)
}

/// Returns the UDP packets of a sender's report, by the seconds of the run.
pub(super) fn packets_per_second(report: &Value) -> f64 {
    let sum = &report["end"]["sum_sent"];
    let seconds = sum["seconds"].as_f64().filter(|seconds| *seconds > 0.0);
    seconds.map_or(0.0, |seconds| sum["packets"].as_f64().unwrap_or_default() / seconds)
}

/// Returns the round trip times that `ping` prints, in microseconds.
pub(super) fn round_trips(text: &str) -> Samples {
    let times = text.lines().filter_map(|line| {
        line.split("time=").nth(1)?.split_whitespace().next()?.parse::<f64>().ok()
    });
    Samples(times.map(|milliseconds| milliseconds * 1e3).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_of_iperf_are_read() {
        let tcp = json!({"end": {"sum_received": {"bits_per_second": 2.5e9}}});
        assert_eq!(gigabits(&tcp), 2.5);
        let received = json!({"packets": 1000, "lost_packets": 250, "bytes": 13_500});
        let sent = json!({"packets": 1200, "seconds": 2.0});
        let udp = json!({"end": {"sum_received": received, "sum_sent": sent}});
        assert_eq!((received_packets(&udp), packets_per_second(&udp)), (750.0, 600.0));
        for nothing in [Value::Null, json!({"end": {}, "error": "unable to connect"})] {
            assert_eq!(gigabits(&nothing), 0.0);
            assert_eq!((received_packets(&nothing), packets_per_second(&nothing)), (0.0, 0.0));
        }
    }

    #[test]
    fn round_trips_of_ping_become_microseconds() {
        let text = "PING 10.77.0.2 (10.77.0.2) 56(84) bytes of data.\n\
                    64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 time=0.045 ms\n\
                    64 bytes from 10.77.0.2: icmp_seq=2 ttl=64 time=1.20 ms\n\n\
                    2 packets transmitted, 2 received, 0% packet loss, time 213ms\n";
        let Samples(times) = round_trips(text);
        assert_eq!(times.iter().map(|time| time.round()).collect::<Vec<_>>(), [45.0, 1200.0]);
    }
}
