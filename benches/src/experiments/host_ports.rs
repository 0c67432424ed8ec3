//! TCP, UDP and pings between two hosts, through one switch.
//!
//! Each host is a network namespace with a pair of virtual devices (veth) to the switch, which
//! forwards by the action `NORMAL`. `iperf3` sends from the first host to the second, and the
//! receiver reports the rate of TCP. Of UDP the kernel of the receiving host counts the packets,
//! because a program without CPU time loses packets that passed the switch. Hosts and switch share
//! the CPUs of the machine. So the values include the work of both hosts, and a Linux bridge shows
//! which values the hosts reach with a switch that costs little.

use std::{
    net::Ipv4Addr,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{
    cables::Cables,
    host_reports::{
        cores_during, gigabits, packets_per_second, received_packets, report_of, round_trips,
        text_of,
    },
    kernel_ports::DevicePort,
    namespaces::HostNamespace,
};
use crate::{
    experiment::{Better, Row, Run, Samples, Verdict},
    switch::{Contender, Setup, output},
};

/// The only rule of most switches.
const NORMAL: &str = "actions=NORMAL";

/// The rules that give the second host another address for the first host.
const REWRITE: [&str; 4] = [
    "ip,in_port=1,nw_dst=10.77.0.3,actions=set_field:10.77.0.2->ip_dst,output:2",
    "ip,in_port=2,nw_src=10.77.0.2,actions=set_field:10.77.0.3->ip_src,output:1",
    "arp,in_port=1,arp_tpa=10.77.0.3,actions=set_field:10.77.0.2->arp_tpa,output:2",
    "arp,in_port=2,arp_spa=10.77.0.2,actions=set_field:10.77.0.3->arp_spa,output:1",
];

/// Address of the sending host.
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Address of the receiving host.
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Address of the receiving host behind [`REWRITE`].
const TRANSLATED: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);

/// Prefix of the names of the devices.
const DEVICES: &str = "hosts";

const IPERF_PORT: u16 = 5201;
/// Milliseconds until a sender gives up to connect.
const CONNECT_MS: &str = "3000";
/// Seconds until a run is stopped.
const RUN_SECONDS_MAX: &str = "60";
/// Pings until the switch counts as broken.
const PINGS_MAX: u32 = 20;

/// Bytes of payload of a UDP packet, for the shortest Ethernet frame (60 bytes).
const PAYLOAD_BYTES: u32 = 18;

/// Seconds between two pings.
const PING_INTERVAL: &str = "0.002";

/// Position of Shunt in the list of switches.
const OURS: usize = 0;
/// Position of Open vSwitch in the list of switches.
const OPEN_VSWITCH: usize = 1;
/// Position of the Linux bridge in the list of switches.
const BRIDGE: usize = 2;

/// Name of the device of the Linux bridge.
const BRIDGE_DEVICE: &str = "hosts-bridge";

/// Values of one kind of load, compared with Open vSwitch and with a Linux bridge.
struct HostMetric {
    names: [&'static str; 2],
    unit: &'static str,
    better: Better,
}

const RATE: HostMetric = HostMetric {
    names: ["TCP rate received", "TCP rate received, against a Linux bridge"],
    unit: "Gbit/s",
    better: Better::More,
};
const SHARE: HostMetric = HostMetric {
    names: [
        "share of UDP packets that arrive",
        "share of UDP packets that arrive, against a Linux bridge",
    ],
    unit: "%",
    better: Better::More,
};
const ROUND_TRIP: HostMetric = HostMetric {
    names: ["median round trip time", "median round trip time, against a Linux bridge"],
    unit: "us",
    better: Better::Less,
};
const CORES: &str = "CPU cores of the switch";
const SENT: &str = "UDP packets sent in a second";
const RECEIVED: &str = "share of UDP packets that the program received";

const WHY_COPIES: &str = "the Linux bridge stays in the kernel: it passes on the buffers of the \
                          sender and copies nothing. A userspace switch takes CPU time from the \
                          hosts, and copies each frame out of the kernel and back";
const WHY_WAKE_UP: &str = "the Linux bridge forwards in the context of the sender. A userspace \
                           switch is a process that packets wake up, and copies each frame";
const WHY_NOTHING: &str = "without DPDK, Open vSwitch cannot pass on offloads: frames leave the \
                           hosts with unfinished checksums, and the receiver drops them";
const WHY_CORES: &str = "Shunt forwards more of the offered packets";

/// Traffic from one host to the other.
#[derive(Clone, Copy, Debug)]
enum HostLoad {
    Tcp {
        streams: u32,
    },
    Udp {
        /// Packets offered in a second.
        rate: u32,
    },
    Ping,
}

/// One measured case.
#[derive(Clone, Copy, Debug)]
struct HostCase {
    load: HostLoad,
    mtu: u16,
    has_offloads: bool,
    port: DevicePort,
    rules: HostRules,
}

/// The rules of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostRules {
    Normal,
    Rewrite,
}

/// One TCP stream with frames of usual length.
const TCP: HostCase = HostCase {
    load: HostLoad::Tcp { streams: 1 },
    mtu: 1500,
    has_offloads: true,
    port: DevicePort::Packet,
    rules: HostRules::Normal,
};
/// UDP at 50,000 packets per second.
const UDP: HostCase = HostCase { load: HostLoad::Udp { rate: 50_000 }, has_offloads: false, ..TCP };

const CASES: [HostCase; 12] = [
    TCP,
    HostCase { has_offloads: false, ..TCP },
    HostCase { has_offloads: false, mtu: 9000, ..TCP },
    HostCase { load: HostLoad::Tcp { streams: 4 }, ..TCP },
    UDP,
    HostCase { load: HostLoad::Udp { rate: 100_000 }, ..UDP },
    HostCase { load: HostLoad::Udp { rate: 150_000 }, ..UDP },
    HostCase { load: HostLoad::Ping, ..UDP },
    HostCase { rules: HostRules::Rewrite, ..TCP },
    HostCase { rules: HostRules::Rewrite, has_offloads: false, ..TCP },
    HostCase { port: DevicePort::Tap, ..TCP },
    // AF_XDP ports do not see which packets are unfinished.
    HostCase { port: DevicePort::Xdp, has_offloads: false, ..TCP },
];

/// A switch between the hosts.
#[derive(Clone, Debug)]
enum HostSwitch {
    Daemon(Contender),
    Bridge,
}

/// Values of one run.
#[derive(Clone, Copy, Debug, Default)]
struct HostSample {
    /// Gbit/s, percent or microseconds, by the load.
    value: f64,
    /// Percent of the UDP packets that the receiving program got.
    received: f64,
    /// UDP packets that the sender sent in a second.
    sent: f64,
    /// CPU cores of the switch; zero for a Linux bridge.
    cores: f64,
}

/// A bridge of the kernel, which is deleted on drop.
struct KernelBridge;

/// Two hosts at a switch.
struct HostPair {
    sender: HostNamespace,
    receiver: HostNamespace,
    /// The address at which the sender reaches the receiver.
    target: Ipv4Addr,
}

/// The reports of both ends of a run, and the CPU cores of the switch meanwhile.
struct IperfReports {
    sender: Value,
    receiver: Value,
    cores: f64,
}

/// Runs all switches in turns with each load.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let all = host_switches();
    if all.is_empty() {
        return Vec::new();
    }
    let of_case = |case: HostCase| all.iter().filter(move |switch| switch.has(case));
    let (rounds, seconds) = (run.either(3, 1), run.either(5, 1));
    run.begin(rounds * CASES.into_iter().map(|case| of_case(case).count()).sum::<usize>());
    let mut rows = Vec::new();
    for case in CASES {
        let switches: Vec<&HostSwitch> = of_case(case).collect();
        let mut samples = vec![Vec::new(); switches.len()];
        for round in 0..rounds {
            for (switch, samples) in switches.iter().zip(&mut samples) {
                let what = format!("{}, {}, round {}", case.name(), switch.name(), round + 1);
                samples.push(run.step(&what, |folder| measure(switch, folder, case, seconds)));
            }
        }
        let names: Vec<String> = switches.iter().map(|switch| switch.name()).collect();
        rows.extend(rows_of(case, &names, &samples));
    }
    rows
}

/// Returns the switches that can be measured here: ours first.
fn host_switches() -> Vec<HostSwitch> {
    for program in ["iperf3", "ethtool", "ping", "nsenter", "unshare"] {
        if Command::new(program).arg("--version").output().is_err() {
            println!("the hosts need {program}, which is not installed: SKIPPED");
            return Vec::new();
        }
    }
    let daemons = Contender::both_on_devices().into_iter().map(HostSwitch::Daemon);
    let mut switches: Vec<HostSwitch> = daemons.collect();
    // Without Open vSwitch, Shunt is measured alone, and the run replaces no published results.
    if switches.len() > OPEN_VSWITCH {
        switches.push(HostSwitch::Bridge);
    }
    switches
}

/// Returns the rows of a case from the samples of each switch.
fn rows_of(case: HostCase, names: &[String], samples: &[Vec<HostSample>]) -> Vec<Row> {
    let values = |switch: usize, read: fn(&HostSample) -> f64| {
        Samples(samples[switch].iter().map(read).collect())
    };
    let row = |metric, unit, better, rival: Option<usize>, read: fn(&HostSample) -> f64| {
        let rival = rival.map(|rival| (names[rival].clone(), values(rival, read)));
        Row { better, ours: values(OURS, read), rival, ..Row::new(case.name(), metric, unit) }
    };
    let rivals = [OPEN_VSWITCH, BRIDGE].map(|rival| (rival < names.len()).then_some(rival));
    let metric = case.load.metric();
    let mut rows = Vec::new();
    for (rival, name) in rivals.into_iter().zip(metric.names) {
        if rival.is_none() && !rows.is_empty() {
            continue;
        }
        let value = row(name, metric.unit, metric.better, rival, |sample| sample.value);
        let find_reason = if rival == Some(BRIDGE) { reason_of_bridge } else { reason_of_nothing };
        rows.push(Row { reason: find_reason(case, &value), ..value });
    }
    let [rival, _] = rivals;
    if let HostLoad::Udp { .. } = case.load {
        let has_more = rows[0].ratio().is_some_and(|ratio| ratio.verdict() == Verdict::Better);
        let cores = row(CORES, "cores", Better::Less, rival, |sample| sample.cores);
        let reason = if has_more && is_worse(&cores) { WHY_CORES } else { "" };
        rows.push(Row { reason, ..cores });
        rows.push(row(SENT, "1/s", Better::Neither, rival, |sample| sample.sent));
        rows.push(row(RECEIVED, "%", Better::Neither, rival, |sample| sample.received));
    } else {
        // The rates differ, so more CPU time is not worse.
        rows.push(row(CORES, "cores", Better::Neither, rival, |sample| sample.cores));
    }
    rows
}

/// Returns the reason why our value is worse than that of a Linux bridge.
fn reason_of_bridge(case: HostCase, row: &Row) -> &'static str {
    match case.load {
        _ if !is_worse(row) => "",
        HostLoad::Tcp { .. } | HostLoad::Udp { .. } => WHY_COPIES,
        HostLoad::Ping => WHY_WAKE_UP,
    }
}

/// Returns the reason why nothing passed Open vSwitch.
fn reason_of_nothing(case: HostCase, row: &Row) -> &'static str {
    let is_nothing = row.rival.as_ref().is_some_and(|(_, rival)| rival.most() == 0.0);
    if case.has_offloads && is_nothing && row.ours.least() > 0.0 { WHY_NOTHING } else { "" }
}

fn is_worse(row: &Row) -> bool {
    row.ratio().is_some_and(|ratio| ratio.verdict() == Verdict::Worse)
}

/// Starts hosts and a switch, and sends for some seconds.
fn measure(switch: &HostSwitch, folder: &Path, case: HostCase, seconds: usize) -> HostSample {
    let cables = (case.port != DevicePort::Tap).then(|| case.plug());
    let ends = cables.as_ref().map(|cables| [1, 2].map(|number| cables.far(number)));
    let first = ends.map(|ends| HostPair::new(ends, case));
    let daemon = switch.contender().map(|contender| {
        let names = [1, 2].map(|number| format!("{DEVICES}{number}"));
        let ports = Vec::from(names.map(case.port.spec()));
        let daemon = contender.start(folder, &Setup { ports, ..Setup::default() });
        for rule in case.rules() {
            daemon.ofctl(&[], "add-flow", &[rule]);
        }
        daemon
    });
    let bridge = cables.as_ref().filter(|_| daemon.is_none()).map(KernelBridge::new);
    // The switch creates TAP devices, which are the devices of the hosts.
    let hosts = first
        .unwrap_or_else(|| HostPair::new([1, 2].map(|number| format!("{DEVICES}{number}")), case));
    hosts.await_path(&switch.name());
    let sample = hosts.send(case.load, daemon.as_ref().map(|daemon| daemon.id()), seconds);
    // The switch ends before its devices.
    drop((daemon, bridge));
    sample
}

impl HostCase {
    /// Creates the devices of both hosts, with their other ends at the switch.
    fn plug(self) -> Cables {
        let cables = Cables::plug(DEVICES, 2);
        let mtu = self.mtu.to_string();
        for device in cables.near().chain([1, 2].map(|number| cables.far(number))) {
            output("ip", &["link", "set", &device, "mtu", &mtu]);
        }
        cables
    }

    const fn rules(self) -> &'static [&'static str] {
        match self.rules {
            HostRules::Normal => &[NORMAL],
            HostRules::Rewrite => &REWRITE,
        }
    }

    /// Returns the address at which the first host reaches the second.
    const fn target(self) -> Ipv4Addr {
        match self.rules {
            HostRules::Normal => RECEIVER,
            HostRules::Rewrite => TRANSLATED,
        }
    }

    fn name(self) -> String {
        let Self { load, mtu, has_offloads, port, rules } = self;
        let offloads = if has_offloads { "offloads" } else { "no offloads" };
        let port = match port {
            DevicePort::Packet => "",
            DevicePort::Xdp | DevicePort::PolledXdp => ", AF_XDP ports",
            DevicePort::Tap => ", TAP ports",
        };
        let rules = match rules {
            HostRules::Normal => "",
            HostRules::Rewrite => ", rewritten addresses",
        };
        match load {
            HostLoad::Tcp { streams } => {
                let ending = if streams == 1 { "" } else { "s" };
                format!("TCP, {streams} stream{ending}, MTU {mtu}, {offloads}{port}{rules}")
            }
            HostLoad::Udp { rate } => format!("UDP, {},000 packets/s, {offloads}", rate / 1000),
            HostLoad::Ping => format!("ping -i {PING_INTERVAL}"),
        }
    }
}

impl HostLoad {
    const fn metric(self) -> HostMetric {
        match self {
            Self::Tcp { .. } => RATE,
            Self::Udp { .. } => SHARE,
            Self::Ping => ROUND_TRIP,
        }
    }
}

impl HostSwitch {
    const fn contender(&self) -> Option<&Contender> {
        match self {
            Self::Daemon(contender) => Some(contender),
            Self::Bridge => None,
        }
    }

    /// Returns whether the switch has the ports and rules of a case.
    fn has(&self, case: HostCase) -> bool {
        match self {
            Self::Daemon(contender) => case.port.is_of(contender),
            Self::Bridge => case.port == DevicePort::Packet && case.rules == HostRules::Normal,
        }
    }

    fn name(&self) -> String {
        self.contender().map_or_else(|| "Linux bridge".to_owned(), Contender::name)
    }
}

impl KernelBridge {
    /// Creates a bridge with all devices at the switch.
    fn new(cables: &Cables) -> Self {
        output("ip", &["link", "add", BRIDGE_DEVICE, "type", "bridge"]);
        let bridge = Self;
        for device in cables.near() {
            output("ip", &["link", "set", &device, "master", BRIDGE_DEVICE]);
        }
        output("ip", &["link", "set", BRIDGE_DEVICE, "up"]);
        bridge
    }
}

impl Drop for KernelBridge {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "delete", BRIDGE_DEVICE]).output();
    }
}

impl HostPair {
    /// Creates hosts, and moves the devices to them.
    fn new([first, second]: [String; 2], case: HostCase) -> Self {
        let sender = HostNamespace::new(first, SENDER);
        let receiver = HostNamespace::new(second, RECEIVER);
        let pair = Self { sender, receiver, target: case.target() };
        if !case.has_offloads {
            pair.sender.disable_offloads();
            pair.receiver.disable_offloads();
        }
        pair
    }

    /// Waits until a ping passes the switch in both directions.
    fn await_path(&self, switch: &str) {
        let passes = (0..PINGS_MAX).any(|_| {
            let mut ping = self.sender.command("ping");
            ping.args(["-q", "-c", "1", "-W", "1"]).arg(self.target.to_string());
            ping.output().is_ok_and(|output| output.status.success())
        });
        assert!(passes, "{switch} forwards no ping between the hosts");
    }

    /// Sends for some seconds, while `process` forwards.
    fn send(&self, load: HostLoad, process: Option<u32>, seconds: usize) -> HostSample {
        match load {
            HostLoad::Tcp { streams } => {
                let reports = self.iperf(&["-P", &streams.to_string()], process, seconds);
                let value = gigabits(&reports.receiver);
                HostSample { value, cores: reports.cores, ..HostSample::default() }
            }
            HostLoad::Udp { rate } => {
                let (length, bits) = (PAYLOAD_BYTES, rate * PAYLOAD_BYTES * 8);
                let [length, bits] = [length, bits].map(|number| number.to_string());
                let options = ["-u", "-l", &length, "-b", &bits];
                let reports = self.iperf(&options, process, seconds);
                let share = |packets| 100.0 * packets / (f64::from(rate) * seconds as f64);
                HostSample {
                    value: share(self.receiver.udp_arrivals()),
                    received: share(received_packets(&reports.receiver)),
                    sent: packets_per_second(&reports.sender),
                    cores: reports.cores,
                }
            }
            HostLoad::Ping => {
                // On a busy machine, a number of pings would take a multiple of the time.
                let deadline = seconds.to_string();
                let mut ping = self.sender.command("ping");
                ping.args(["-i", PING_INTERVAL, "-w", &deadline]);
                ping.arg(self.target.to_string());
                let (text, cores) = cores_during(process, || text_of(&mut ping));
                let value = round_trips(&text).median();
                HostSample { value, cores, ..HostSample::default() }
            }
        }
    }

    /// Sends with `iperf3` for some seconds.
    fn iperf(&self, options: &[&str], process: Option<u32>, seconds: usize) -> IperfReports {
        let mut server = self.receiver.command("iperf3");
        server.args(["-4", "-s", "-1", "-J", "-i", "0", "--idle-timeout", RUN_SECONDS_MAX]);
        let server = server.stdout(Stdio::piped()).spawn();
        let server = server.unwrap_or_else(|error| panic!("iperf3: {error}"));
        self.receiver.await_listener(IPERF_PORT);
        let mut client = self.sender.command("timeout");
        client.args([RUN_SECONDS_MAX, "iperf3", "-4", "-J", "-i", "0"]);
        client.args(["--connect-timeout", CONNECT_MS, "-c", &self.target.to_string()]);
        client.args(["-t", &seconds.to_string()]).args(options);
        let (sender, cores) = cores_during(process, || text_of(&mut client));
        let sender = serde_json::from_str(&sender).unwrap_or_default();
        IperfReports { sender, receiver: report_of(server), cores }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The case with the highest rate of UDP packets.
    const UDP_FASTEST: HostCase = CASES[6];

    /// Returns the rows of three rounds, with one value for each switch.
    fn rows_of_values(case: HostCase, values: &[f64]) -> Vec<Row> {
        let names = ["Shunt", "Open vSwitch", "Linux bridge"].map(str::to_owned);
        let samples: Vec<Vec<HostSample>> = values
            .iter()
            .map(|value| {
                vec![HostSample { value: *value, cores: *value, ..HostSample::default() }; 3]
            })
            .collect();
        rows_of(case, &names[..values.len()], &samples)
    }

    #[test]
    fn each_rival_has_its_metric() {
        let rows = rows_of_values(TCP, &[2.0, 1.0, 8.0]);
        let rivals = rows.iter().map(|row| {
            let (name, samples) = row.rival.clone().unwrap();
            (row.metric, name, samples.median(), row.ratio().map(|ratio| ratio.middle))
        });
        let expected = [
            (RATE.names[0], "Open vSwitch".to_owned(), 1.0, Some(2.0)),
            (RATE.names[1], "Linux bridge".to_owned(), 8.0, Some(0.25)),
            (CORES, "Open vSwitch".to_owned(), 1.0, None),
        ];
        assert_eq!(rivals.collect::<Vec<_>>(), expected);
        assert_eq!(rows.iter().map(|row| row.reason).collect::<Vec<_>>(), ["", WHY_COPIES, ""]);
    }

    #[test]
    fn a_rival_without_traffic_has_the_reason() {
        let of_rival = |case, values: &[f64]| rows_of_values(case, values)[0].reason;
        assert_eq!(of_rival(TCP, &[2.0, 0.0, 8.0]), WHY_NOTHING);
        assert_eq!(of_rival(CASES[1], &[2.0, 0.0, 8.0]), "", "there are no offloads");
        assert_eq!(of_rival(TCP, &[0.0, 0.0, 8.0]), "", "nothing passed Shunt either");
    }

    #[test]
    fn only_a_worse_value_has_a_reason() {
        let rows = rows_of_values(CASES[7], &[20.0, 30.0, 40.0]);
        assert!(rows.iter().all(|row| row.reason.is_empty()), "{rows:?}");
        assert_eq!(rows_of_values(CASES[7], &[20.0, 30.0, 5.0])[1].reason, WHY_WAKE_UP);
        // Shunt takes more CPU time, and forwards more packets.
        let rows = rows_of_values(UDP_FASTEST, &[90.0, 50.0, 95.0]);
        let reasons: Vec<&str> = rows.iter().map(|row| row.reason).collect();
        assert_eq!(reasons, ["", WHY_COPIES, WHY_CORES, "", ""]);
    }

    #[test]
    fn shunt_alone_has_each_value_once() {
        let metrics = |case| {
            let rows = rows_of_values(case, &[1.0]);
            assert!(rows.iter().all(|row| row.rival.is_none()));
            rows.iter().map(|row| row.metric).collect::<Vec<_>>()
        };
        assert_eq!(metrics(TCP), [RATE.names[0], CORES]);
        assert_eq!(metrics(UDP), [SHARE.names[0], CORES, SENT, RECEIVED]);
    }

    #[test]
    fn cases_have_different_names() {
        let mut names: Vec<String> = CASES.into_iter().map(HostCase::name).collect();
        assert_eq!(names[3], "TCP, 4 streams, MTU 1500, offloads");
        assert_eq!(names[6], "UDP, 150,000 packets/s, no offloads");
        assert_eq!(names[8], "TCP, 1 stream, MTU 1500, offloads, rewritten addresses");
        assert_eq!(names[10], "TCP, 1 stream, MTU 1500, offloads, TAP ports");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
    }

    #[test]
    fn a_linux_bridge_has_only_plain_cases() {
        let cases = CASES.into_iter().filter(|case| HostSwitch::Bridge.has(*case));
        assert_eq!(cases.count(), 8);
        let ours = HostSwitch::Daemon(Contender::ours());
        assert!(CASES.into_iter().all(|case| ours.has(case)));
        let rewritten = CASES[8];
        assert_eq!((rewritten.target(), rewritten.rules()), (TRANSLATED, &REWRITE[..]));
        assert!(REWRITE[0].contains(&TRANSLATED.to_string()));
    }
}
