//! Cost of idle ports: CPU, memory, and the time until one packet wakes the switch.
//!
//! Most ports of a host are idle at most times. A bridge has 1 to 1,000 TAP ports that receive
//! nothing, and one more port for the output. Idle CPU is the minimum of several windows, because
//! other load on the machine only adds CPU time. Then single packets arrive on one port after the
//! other, with pauses in which the switch goes to sleep.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    capture::FRAME_BYTES,
    cpu,
    experiment::{Better, Row, Run, Samples, Verdict, quantile},
    switch::{Contender, PortSpec, Setup, Switch},
    wire::{Frame, WireReceiver, WireSender},
};

/// Numbers of idle TAP ports.
const COUNTS: [usize; 4] = [1, 50, 200, 1000];
const QUICK_COUNTS: [usize; 2] = [1, 20];

/// Windows of idle time; the window with the least CPU counts.
const WINDOWS: usize = 3;
/// Length of a window.
const WINDOW_TIME: Duration = Duration::from_secs(1);
/// Pause between two packets.
const PAUSE: Duration = Duration::from_millis(2);
/// Time after which a packet counts as lost.
const LOST: Duration = Duration::from_secs(1);

const IDLE: &str = "CPU of the idle switch";
const MEDIAN_TIME: &str = "median time for a packet to pass the sleeping switch";
const TAIL: &str = "99th percentile of the time for a packet to pass the sleeping switch";
const MEMORY: &str = "memory that the idle ports add";
const LOSSES: &str = "packets lost";

const WHY_MEMORY: &str = "Shunt has the options of each port twice, in force and as last loaded, \
                          because a reload compares both. Each packet thread has a transmit queue \
                          and counters for each port. The heaps keep memory that the start has \
                          freed";

/// The kind of the idle ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tap,
    Device,
}

/// Results of one round of one switch with one number of ports.
#[derive(Default)]
struct Round {
    /// CPU time without packets, in percent of a CPU.
    idle: f64,
    /// Time of each packet from sending to arrival, in microseconds.
    latencies: Vec<f64>,
    lost: f64,
    /// Resident memory of the switch in bytes.
    resident: f64,
}

/// Runs both switches with each number of ports.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    // Only packets of the experiment may arrive.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    let contenders = Contender::both_on_devices();
    let counts = if run.is_quick { &QUICK_COUNTS[..] } else { &COUNTS[..] };
    let (rounds, probes) = (run.either(3, 1), run.either(1000, 50));
    run.begin(contenders.len() * (rounds * counts.len() + 2));
    let mut rows = Vec::new();
    let mut resident = Vec::new();
    for count in counts {
        let mut results: Vec<Vec<Round>> = contenders.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (contender, results) in contenders.iter().zip(&mut results) {
                let what = format!("{count} TAP ports, {}", contender.name());
                results.push(run.step(&what, |folder| measure(contender, folder, *count, probes)));
            }
        }
        rows.extend(rows_of(&contenders, &title(Kind::Tap, *count), &results));
        resident.push(values_of(&results, |round| round.resident));
    }
    if let ([base, ..], [.., all]) = (&resident[..], &resident[..]) {
        let most = counts.last().copied().unwrap_or_default();
        rows.push(memory_row(&contenders, Kind::Tap, most, [base, all]));
        let mut devices = [Vec::new(), Vec::new()];
        for contender in &contenders {
            for (values, count) in devices.iter_mut().zip([1, most]) {
                let what = format!("{count} veth ports, {}", contender.name());
                let bytes = run.step(&what, |folder| device_memory(contender, folder, count));
                values.push(Samples::from(bytes));
            }
        }
        let [base, all] = &devices;
        rows.push(memory_row(&contenders, Kind::Device, most, [base, all]));
    }
    let metrics = [IDLE, MEDIAN_TIME, TAIL, LOSSES, MEMORY];
    rows.sort_by_key(|row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

/// Returns a value of each round of each switch.
fn values_of(results: &[Vec<Round>], read: impl Fn(&Round) -> f64) -> Vec<Samples> {
    results.iter().map(|rounds| Samples(rounds.iter().map(&read).collect())).collect()
}

/// Returns the row of the memory that ports add to the memory of one port.
fn memory_row(
    contenders: &[Contender],
    kind: Kind,
    count: usize,
    [base, all]: [&Vec<Samples>; 2],
) -> Row {
    let added =
        base.iter().zip(all).map(|(base, all)| all.map(|bytes| (bytes - base.least()) / 1e6));
    let added: Vec<Samples> = added.collect();
    with_reason(row(contenders, &title(kind, count), MEMORY, "MB", &added))
}

/// Adds the reason if our ports take more memory.
fn with_reason(memory: Row) -> Row {
    let is_worse = memory.ratio().is_some_and(|ratio| ratio.verdict() == Verdict::Worse);
    Row { reason: if is_worse { WHY_MEMORY } else { "" }, ..memory }
}

fn title(kind: Kind, count: usize) -> String {
    let kind = match kind {
        Kind::Tap => "TAP",
        Kind::Device => "veth",
    };
    format!("{count} {kind} port{}", if count == 1 { "" } else { "s" })
}

fn row(
    contenders: &[Contender],
    name: &str,
    metric: &'static str,
    unit: &'static str,
    values: &[Samples],
) -> Row {
    Row {
        ours: values.first().cloned().unwrap_or_default(),
        rival: contenders.get(1).map(Contender::name).zip(values.get(1).cloned()),
        ..Row::new(name, metric, unit)
    }
}

fn rows_of(contenders: &[Contender], name: &str, results: &[Vec<Round>]) -> Vec<Row> {
    let latency =
        |percent| move |round: &Round| quantile(&round.latencies, percent).unwrap_or_default();
    let lost = row(contenders, name, LOSSES, "%", &values_of(results, |round| round.lost));
    vec![
        row(contenders, name, IDLE, "%", &values_of(results, |round| round.idle)),
        row(contenders, name, MEDIAN_TIME, "us", &values_of(results, latency(50))),
        row(contenders, name, TAIL, "us", &values_of(results, latency(99))),
        Row { better: Better::Neither, ..lost },
    ]
}

/// Returns the names of idle ports, and the name of the port that sends.
///
/// The names differ by switch, because a device of the previous switch may still be closing.
fn names(contender: &Contender, kind: Kind, count: usize) -> (Vec<String>, String) {
    let switch = if *contender == Contender::ours() { "own" } else { "rival" };
    let prefix = match kind {
        Kind::Tap => "t",
        Kind::Device => "d",
    };
    let idle = (1..=count).map(|number| format!("{switch}-{prefix}{number}"));
    (idle.collect(), format!("{switch}-out"))
}

/// Runs several `ip` commands in one process.
fn ip(commands: &str) {
    let child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("ip: {error}"));
    let written = child.stdin.take().map(|mut input| input.write_all(commands.as_bytes()));
    assert!(written.is_some_and(|written| written.is_ok()), "ip takes no commands");
    assert!(child.wait().is_ok_and(|status| status.success()), "ip -batch failed");
}

/// Starts a switch with idle TAP ports and one port that gets all packets.
fn start_with_taps(contender: &Contender, folder: &Path, count: usize) -> Box<dyn Switch> {
    let (idle, collector) = names(contender, Kind::Tap, count);
    let all: Vec<String> = idle.into_iter().chain([collector]).collect();
    let ports = all.iter().cloned().map(PortSpec::Tap).collect();
    let switch = contender.start(folder, &Setup { ports, ..Setup::default() });
    let mut commands = String::new();
    for name in &all {
        let _ = writeln!(commands, "link set {name} up");
    }
    ip(&commands);
    let rule = format!("actions=output:{}", count + 1);
    switch.ofctl(&[], "add-flow", &[&rule]);
    switch
}

fn measure(contender: &Contender, folder: &Path, count: usize, probes: usize) -> Round {
    let switch = start_with_taps(contender, folder, count);
    sleep(Duration::from_secs(2));
    let resident = cpu::resident_bytes(switch.id());
    let idle = |_| {
        let account = cpu::Account::open(switch.id());
        sleep(WINDOW_TIME);
        account.spent().share()
    };
    let idle: Vec<f64> = (0..WINDOWS).map(idle).collect();
    let (names, collector) = names(contender, Kind::Tap, count);
    let senders: Vec<WireSender> = names.iter().map(|name| WireSender::open(name)).collect();
    let receiver = WireReceiver::open(&collector);
    let mut latencies = Vec::with_capacity(probes);
    let mut lost = 0;
    // The first packet of each port finds no cache entry.
    let warm = count.min(probes);
    for number in 0..warm + probes {
        // No two consecutive probes use neighbouring ports.
        let port = number * 389 % count;
        sleep(PAUSE);
        match probe(&senders[port], &receiver, number) {
            Some(_) if number < warm => {}
            Some(latency) => latencies.push(latency.as_secs_f64() * 1e6),
            None => lost += 1,
        }
    }
    let lost = 100.0 * f64::from(lost) / (warm + probes) as f64;
    Round { idle: Samples(idle).least(), latencies, lost, resident }
}

/// Sends one frame; returns the time until it arrives behind the switch.
fn probe(sender: &WireSender, receiver: &WireReceiver, number: usize) -> Option<Duration> {
    let frame = probe_frame(number);
    let start = Instant::now();
    sender.send(&[frame]);
    while start.elapsed() < LOST {
        if receiver.receive().is_some_and(|received| received[12..22] == frame[12..22]) {
            return Some(start.elapsed());
        }
    }
    None
}

/// Returns a frame of the EtherType for experiments, with a number.
pub(super) fn probe_frame(number: usize) -> Frame {
    let mut frame: Frame = [0; FRAME_BYTES];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame[14..22].copy_from_slice(&(number as u64).to_be_bytes());
    frame
}

/// Returns the resident memory with veth ports, in bytes.
fn device_memory(contender: &Contender, folder: &Path, count: usize) -> f64 {
    let (idle, _) = names(contender, Kind::Device, count);
    let mut commands = String::new();
    for name in &idle {
        let _ = writeln!(
            commands,
            "link add {name} type veth peer name p{name}\nlink set {name} up\nlink set p{name} up"
        );
    }
    ip(&commands);
    let bytes = {
        let ports = idle.iter().cloned().map(PortSpec::Device).collect();
        let switch = contender.start(folder, &Setup { ports, ..Setup::default() });
        sleep(Duration::from_secs(2));
        cpu::resident_bytes(switch.id())
    };
    ip(&idle.iter().map(|name| format!("link delete {name}\n")).collect::<String>());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_more_memory_has_a_reason() {
        let reason_of = |ours: f64| {
            let rival = Some(("Open vSwitch".to_owned(), Samples(vec![15.0; 3])));
            let row = Row { ours: Samples(vec![ours; 3]), rival, ..Row::new("", MEMORY, "MB") };
            with_reason(row).reason
        };
        assert_eq!([29.0, 15.0, 9.0].map(reason_of), [WHY_MEMORY, "", ""]);
    }
}
