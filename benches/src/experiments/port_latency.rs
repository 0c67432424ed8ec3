//! Time of single packets through a switch that is idle, or that has half of its load.
//!
//! A probe arrives each millisecond at the first port, and leaves by the third. The kernel stamps
//! the probe behind the switch, so the time does not include the reader. The load is UDP from the
//! first port to the second, so that load and probes share the receive queue. Both
//! switches get the same load: half of what the slower switch receives without pauses.

use std::{
    fs, iter,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use super::{
    forwarding::FORWARDING_CPU,
    idle_ports::probe_frame,
    kernel_ports::{DevicePort, DeviceSwitch, frame, under_load},
    live::traffic::{Due, StopAtEnd},
};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples, Verdict, quantile_per_mille},
    switch::Contender,
    wire::{Frame, TimedReceiver, WireSender, clock_time},
};

/// The rules for the load and for the probes.
const RULES: [&str; 2] =
    ["udp,in_port=1,actions=output:2", "in_port=1,dl_type=0x88b5,actions=output:3"];

/// The types of ports to compare.
const TYPES: [DevicePort; 4] =
    [DevicePort::Packet, DevicePort::Xdp, DevicePort::PolledXdp, DevicePort::Tap];
/// The reason for longer times with AF_XDP ports as installed.
const WHY_SLEEPS: &str = "a thread of Open vSwitch polls without end; a thread of Shunt sleeps, \
                          unless the port has `busy_poll_us`, as in the rows with busy polling";

/// Ports of the switch.
const PORTS: u32 = 3;
/// Flows of the load.
const FLOWS: u32 = 1000;
/// Length of the frames of the load in bytes.
const LENGTH: u16 = 64;

/// Time until the kernel treats a port as busy, and until the caches are full.
const WARM: Duration = Duration::from_secs(2);
/// Probes that find no cache entry, or a port that has just become busy.
const WARM_PROBES: usize = 100;
/// Time between two probes.
const PAUSE: Duration = Duration::from_millis(1);
/// Time after which a probe counts as lost.
const LOST: Duration = Duration::from_millis(200);
/// Minimum sleep of the sender of the load, which sends the due frames as a burst.
const TICK: Duration = Duration::from_micros(50);

const MEDIAN_TIME: &str = "median time of a packet through the switch";
const TAIL: &str = "p99.9 of the time of a packet through the switch";
const LOSSES: &str = "probes lost";
const RATE: &str = "offered load";

/// Other traffic of the switch, in packets per second.
type OfferedRate = Option<u32>;

/// The probes of one round of one switch.
#[derive(Clone, Debug, Default)]
struct ProbeTimes {
    /// Time of each probe through the switch, in microseconds.
    times: Vec<f64>,
    /// Percent of the probes that did not arrive.
    lost: f64,
}

/// Measures both switches with each type of port, idle and at half load.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    // Only packets of the experiment may arrive.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    let all = Contender::both_on_devices();
    let (rounds, probes) = (run.either(3, 1), run.either(10_000, 200));
    run.begin(TYPES.len() * all.len() * (1 + 2 * rounds));
    let mut rows = Vec::new();
    for port in TYPES {
        let contenders = port.contenders(&all);
        let rates = contenders.iter().map(|contender| {
            let what = format!("the load, {}, {}", port.name(), contender.name());
            run.step(&what, |folder| capacity(port, contender, folder))
        });
        let rates: Vec<u32> = rates.collect();
        let half = rates.into_iter().min().unwrap_or_default() / 2;
        for rate in [None, Some(half)] {
            let mut rounds_of = vec![Vec::new(); contenders.len()];
            for round in 1..=rounds {
                for (contender, rounds_of) in contenders.iter().zip(&mut rounds_of) {
                    let name = title(port, rate);
                    let what = format!("{name}, {}, round {round}", contender.name());
                    let measured =
                        run.step(&what, |folder| measure(port, contender, folder, rate, probes));
                    rounds_of.push(measured);
                }
            }
            let measured = rows_of(&title(port, rate), rate, &contenders, &rounds_of);
            rows.extend(measured.into_iter().map(|row| with_reason(port, row)));
        }
    }
    rows
}

/// Adds the reason to a row that is worse because a thread of Shunt sleeps.
fn with_reason(port: DevicePort, row: Row) -> Row {
    let is_worse = row.ratio().is_some_and(|ratio| ratio.verdict() == Verdict::Worse);
    let reason = if is_worse && port == DevicePort::Xdp { WHY_SLEEPS } else { "" };
    Row { reason, ..row }
}

fn title(port: DevicePort, rate: OfferedRate) -> String {
    let load = if rate.is_some() { "half load" } else { "idle" };
    format!("{}, {load}", port.name())
}

fn rows_of(
    name: &str,
    rate: OfferedRate,
    contenders: &[Contender],
    rounds: &[Vec<ProbeTimes>],
) -> Vec<Row> {
    let row = |metric, unit, better, read: &dyn Fn(&ProbeTimes) -> f64| {
        let values = |rounds: &Vec<ProbeTimes>| Samples(rounds.iter().map(read).collect());
        Row {
            better,
            ours: rounds.first().map(values).unwrap_or_default(),
            rival: contenders.get(1).map(Contender::name).zip(rounds.get(1).map(values)),
            ..Row::new(name, metric, unit)
        }
    };
    let part = |per_mille| {
        move |round: &ProbeTimes| quantile_per_mille(&round.times, per_mille).unwrap_or_default()
    };
    if contenders.is_empty() {
        return Vec::new();
    }
    let mut rows = vec![
        row(MEDIAN_TIME, "us", Better::Less, &part(500)),
        row(TAIL, "us", Better::Less, &part(999)),
        row(LOSSES, "%", Better::Neither, &|round: &ProbeTimes| round.lost),
    ];
    // The rate is the same for both switches.
    rows.extend(rate.map(|rate| Row {
        better: Better::Neither,
        ours: f64::from(rate).into(),
        ..Row::new(name, RATE, "1/s")
    }));
    rows
}

/// Returns the packets per second that a switch receives without pauses.
fn capacity(port: DevicePort, contender: &Contender, folder: &Path) -> u32 {
    let devices = start(port, contender, folder);
    under_load(&devices.outside[0], LENGTH, || {
        sleep(WARM);
        let (packets, start) = (devices.switch.received(), Instant::now());
        sleep(Duration::from_secs(1));
        per_second(devices.switch.received() - packets, start.elapsed())
    })
}

fn per_second(packets: u64, time: Duration) -> u32 {
    let rate = u128::from(packets) * 1_000_000 / time.as_micros().max(1);
    u32::try_from(rate).unwrap_or(u32::MAX)
}

fn start(port: DevicePort, contender: &Contender, folder: &Path) -> DeviceSwitch {
    let devices = DeviceSwitch::start(contender, folder, port, "probe", PORTS);
    for rule in RULES {
        devices.switch.ofctl(&[], "add-flow", &[rule]);
    }
    devices
}

fn measure(
    port: DevicePort,
    contender: &Contender,
    folder: &Path,
    rate: OfferedRate,
    probes: usize,
) -> ProbeTimes {
    let devices = start(port, contender, folder);
    let [input, _, output] = &devices.outside[..] else { panic!("there are {PORTS} ports") };
    let (sender, receiver) = (WireSender::open(input), TimedReceiver::open(output));
    let is_over = &AtomicBool::new(false);
    scope(|scope| {
        // The sender of the load also ends if a probe fails.
        let _stop = StopAtEnd(is_over);
        if let Some(rate) = rate {
            scope.spawn(move || send_evenly(input, rate, is_over));
        }
        sleep(WARM);
        send_probes(&sender, &receiver, WARM_PROBES);
        send_probes(&sender, &receiver, probes)
    })
}

/// Sends the load until `is_over`.
pub(super) fn send_evenly(device: &str, rate: u32, is_over: &AtomicBool) {
    let frames: Vec<Vec<u8>> = (0..FLOWS).map(|flow| frame(flow, LENGTH)).collect();
    cpu::avoid(FORWARDING_CPU);
    let (sender, start) = (WireSender::open(device), Instant::now());
    let (mut due, mut next) = (Due::new(rate.max(1)), frames.iter().cycle());
    while !is_over.load(Ordering::Relaxed) {
        let count = due.take(start.elapsed()) as usize;
        let burst: Vec<&Vec<u8>> = next.by_ref().take(count).collect();
        sender.send(&burst);
        sleep(TICK);
    }
}

fn send_probes(sender: &WireSender, receiver: &TimedReceiver, count: usize) -> ProbeTimes {
    let (mut sent, mut times) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for number in 0..count {
        sent.push(clock_time());
        sender.send(&[probe_frame(number)]);
        sleep(PAUSE);
        times.extend(arrivals(receiver, &sent));
    }
    sleep(LOST);
    times.extend(arrivals(receiver, &sent));
    let lost = 100.0 * count.saturating_sub(times.len()) as f64 / count.max(1) as f64;
    ProbeTimes { times, lost }
}

/// Returns the times of the probes that have arrived since the last call.
fn arrivals(receiver: &TimedReceiver, sent: &[Duration]) -> impl Iterator<Item = f64> {
    iter::from_fn(move || receiver.receive())
        .filter_map(move |(frame, time)| microseconds(&frame, time, sent))
}

/// Returns the time of a probe through the switch; `None` for another frame.
fn microseconds(frame: &Frame, arrived: Duration, sent: &[Duration]) -> Option<f64> {
    let number = u64::from_be_bytes(frame.get(14..22)?.try_into().ok()?);
    let number = usize::try_from(number).ok()?;
    let sent = sent.get(number).filter(|_| *frame == probe_frame(number))?;
    Some(arrived.checked_sub(*sent)?.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::FRAME_BYTES;

    #[test]
    fn only_a_probe_has_a_time() {
        let sent = [Duration::from_micros(100), Duration::from_micros(300)];
        let arrived = Duration::from_micros(350);
        let time = |frame: &Frame| microseconds(frame, arrived, &sent);
        assert!(time(&probe_frame(1)).is_some_and(|time| (time - 50.0).abs() < 1e-6));
        assert_eq!(time(&probe_frame(2)), None, "this probe was not sent");
        assert_eq!(time(&[0; FRAME_BYTES]), None, "a frame of the load");
        assert_eq!(microseconds(&probe_frame(1), Duration::ZERO, &sent), None);
    }

    #[test]
    fn the_load_is_a_rate_per_second() {
        assert_eq!(per_second(300, Duration::from_millis(1500)), 200);
        assert_eq!(per_second(1, Duration::ZERO), 1_000_000);
    }

    #[test]
    fn only_a_loaded_switch_has_an_offered_load() {
        let contenders = [Contender::ours(), Contender::OpenVSwitch];
        let round = ProbeTimes { times: vec![20.0, 10.0, 30.0], lost: 5.0 };
        let rounds = [vec![round.clone(); 3], vec![round; 3]];
        let metrics = |rate| {
            let rows = rows_of("x", rate, &contenders, &rounds);
            rows.into_iter().map(|row| (row.metric, row.ours.median())).collect::<Vec<_>>()
        };
        let idle = [(MEDIAN_TIME, 20.0), (TAIL, 30.0), (LOSSES, 5.0)];
        assert_eq!(metrics(None), idle);
        assert_eq!(metrics(Some(7)), [&idle[..], &[(RATE, 7.0)]].concat());
        assert!(rows_of("x", None, &[], &[]).is_empty());
    }

    #[test]
    fn only_sleeping_af_xdp_ports_explain_longer_times() {
        let row = |ours: f64| Row {
            better: Better::Less,
            ours: Samples(vec![ours; 3]),
            rival: Some(("Open vSwitch".to_owned(), Samples(vec![10.0; 3]))),
            ..Row::new("x", MEDIAN_TIME, "us")
        };
        assert_eq!(with_reason(DevicePort::Xdp, row(20.0)).reason, WHY_SLEEPS);
        assert_eq!(with_reason(DevicePort::Xdp, row(5.0)).reason, "");
        assert_eq!(with_reason(DevicePort::Packet, row(20.0)).reason, "");
    }
}
