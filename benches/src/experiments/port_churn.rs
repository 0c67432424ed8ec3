//! Ports that come and go on a switch with a hundred ports, while other ports forward.
//!
//! The hundred ports are veth devices. Frames pass from the first port to the second at a constant
//! rate, and the devices behind both ports count them. Meanwhile, TAP ports are added and deleted
//! one after the other, each by a process of the switch's own tool. A thousand ports come and go in
//! all rounds together.

use std::{
    fs,
    path::Path,
    sync::atomic::AtomicBool,
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use super::{
    kernel_ports::{DevicePort, DeviceSwitch},
    live::traffic::StopAtEnd,
    port_latency::send_evenly,
};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples, quantile},
    switch::{Contender, Switch},
};

/// Ports that stay.
const PORTS: u32 = 100;
/// Frames per second from the first port to the second.
const RATE: u32 = 20_000;
/// The rule for the frames.
const RULE: &str = "udp,in_port=1,actions=output:2";

/// Time until the kernel treats a port as busy, and until the caches are full.
const WARM: Duration = Duration::from_secs(2);
/// Time until all frames that were sent have passed the switch.
const DRAIN: Duration = Duration::from_millis(500);

const TIME: &str = "median time to add and delete a port";
const LOSSES: &str = "frames of other ports that are lost";
const MEMORY: &str = "memory that ports leave behind";

/// The values of one round.
#[derive(Clone, Copy, Debug)]
struct ChurnRound {
    /// Milliseconds to add and delete a port, both commands together.
    time: f64,
    /// Percent of the frames.
    lost: f64,
    /// Growth of the resident memory in MB, after the first tenth of the ports.
    memory: f64,
}

/// Measures both switches in turns.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    let (rounds, ports) = (run.either(3, 1), run.either(350, 20));
    run.begin(rounds * contenders.len());
    let mut results = vec![Vec::new(); contenders.len()];
    for round in 1..=rounds {
        for (contender, results) in contenders.iter().zip(&mut results) {
            let what = format!("{}, round {round}", contender.name());
            results.push(run.step(&what, |folder| measure(contender, folder, ports)));
        }
    }
    if contenders.is_empty() { Vec::new() } else { rows_of(&contenders, &results) }
}

fn rows_of(contenders: &[Contender], results: &[Vec<ChurnRound>]) -> Vec<Row> {
    let row = |metric, unit, better, read: fn(&ChurnRound) -> f64| {
        let values = |rounds: &Vec<ChurnRound>| Samples(rounds.iter().map(read).collect());
        Row {
            better,
            ours: results.first().map(values).unwrap_or_default(),
            rival: contenders.get(1).map(Contender::name).zip(results.get(1).map(values)),
            ..Row::new(format!("{PORTS} ports"), metric, unit)
        }
    };
    vec![
        row(TIME, "ms", Better::Less, |round| round.time),
        row(LOSSES, "%", Better::Less, |round| round.lost),
        row(MEMORY, "MB", Better::Neither, |round| round.memory),
    ]
}

fn measure(contender: &Contender, folder: &Path, ports: usize) -> ChurnRound {
    let devices = DeviceSwitch::start(contender, folder, DevicePort::Packet, "churn", PORTS);
    let switch = &*devices.switch;
    switch.ofctl(&[], "add-flow", &[RULE]);
    let [input, output, ..] = &devices.outside[..] else { panic!("there are {PORTS} ports") };
    let is_over = &AtomicBool::new(false);
    let (before, churn) = scope(|scope| {
        // The sender also ends if a command fails.
        let _stop = StopAtEnd(is_over);
        scope.spawn(move || send_evenly(input, RATE, is_over));
        sleep(WARM);
        (DeviceFrames::read(), add_and_delete(switch, ports))
    });
    sleep(DRAIN);
    let after = DeviceFrames::read();
    let sent = after.sent(input) - before.sent(input);
    let arrived = after.received(output) - before.received(output);
    let lost = 100.0 * sent.saturating_sub(arrived) as f64 / sent.max(1) as f64;
    ChurnRound { lost, ..churn }
}

/// Adds and deletes ports one after the other, without a pause.
fn add_and_delete(switch: &dyn Switch, ports: usize) -> ChurnRound {
    let (mut times, mut resident) = (Vec::with_capacity(ports), 0.0);
    for number in 0..ports {
        if number == ports / 10 {
            resident = cpu::resident_bytes(switch.id());
        }
        let (name, start) = (format!("comes{number}"), Instant::now());
        switch.add_tap(&name);
        switch.remove_port(&name);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let memory = (cpu::resident_bytes(switch.id()) - resident) / 1e6;
    ChurnRound { time: quantile(&times, 50).unwrap_or_default(), lost: 0.0, memory }
}

/// The frame counters of all devices of the network namespace.
struct DeviceFrames(String);

impl DeviceFrames {
    fn read() -> Self {
        // The folder `/sys/class/net` shows the devices of another namespace.
        Self(fs::read_to_string("/proc/self/net/dev").unwrap_or_default())
    }

    fn received(&self, device: &str) -> u64 {
        self.column(device, 1)
    }

    fn sent(&self, device: &str) -> u64 {
        self.column(device, 9)
    }

    /// Returns a counter of a device; zero without the device.
    fn column(&self, device: &str, column: usize) -> u64 {
        let mut lines = self.0.lines().filter_map(|line| line.trim().split_once(':'));
        let counters = lines.find(|(name, _)| *name == device).map(|(_, counters)| counters);
        let count = counters.and_then(|counters| counters.split_whitespace().nth(column));
        count.and_then(|count| count.parse().ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Verdict;

    #[test]
    fn counters_of_a_device_are_read() {
        let text = "Inter-|   Receive                        |  Transmit\n \
                    face |bytes    packets errs\n  churn1f: 10 11 0 0 0 0 0 0 20 21 0 0 0 0 0 0\n\
                    churn2f:30 31 0 0 0 0 0 0 40 41 0 0 0 0 0 0\n";
        let frames = DeviceFrames(text.to_owned());
        assert_eq!((frames.received("churn1f"), frames.sent("churn1f")), (11, 21));
        assert_eq!((frames.received("churn2f"), frames.sent("churn2f")), (31, 41));
        assert_eq!(frames.sent("churn"), 0);
    }

    #[test]
    fn a_leak_is_context_and_a_loss_is_worse() {
        let rounds = |lost| vec![ChurnRound { time: 10.0, lost, memory: 5.0 }; 3];
        let contenders = [Contender::ours(), Contender::OpenVSwitch];
        let rows = rows_of(&contenders, &[rounds(2.0), rounds(1.0)]);
        let verdicts = rows.iter().map(|row| row.ratio().map(|ratio| ratio.verdict()));
        let expected = [Some(Verdict::Noise), Some(Verdict::Worse), None];
        assert_eq!(verdicts.collect::<Vec<_>>(), expected);
    }
}
