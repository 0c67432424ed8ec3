//! sFlow of real frames, read by collectors of other projects.

use shunt_flow_export::testing::{DecodedDatagram, DecodedSample, decode_sflow};
use shunt_tests::{
    daemon::{Daemon, output, text, wait_until},
    namespace::{Namespace, namespace_or_skip},
};

use crate::{
    exports::{CollectorProgram, Collectors, PING_BYTES, PINGS, connect_ports, hosts, index_of},
    vsctl::{DaemonFixture, show},
};

/// Bytes of the frame check sequence, which the switch does not receive.
const FCS_BYTES: u32 = 4;

/// The collector of sFlow.
const SFCAPD: CollectorProgram =
    CollectorProgram { name: "sfcapd", port: 6343, dissector: "sflow" };

/// Returns the captured datagrams.
fn datagrams(collectors: &Collectors) -> Vec<DecodedDatagram> {
    let datagram = |bytes: Vec<u8>| decode_sflow(&bytes).expect("an sFlow datagram");
    collectors.payloads().into_iter().map(datagram).collect()
}

/// Returns the captured samples of a format.
fn samples(collectors: &Collectors, format: u32) -> Vec<DecodedSample> {
    let samples = datagrams(collectors).into_iter().flat_map(|datagram| datagram.samples);
    samples.filter(|sample| sample.format == format).collect()
}

#[test]
fn collectors_get_each_frame_of_a_bridge() {
    for fixture in DaemonFixture::both("sflow") {
        let Some(hosts) = hosts(&fixture.namespace, "sflow") else { return };
        let Some(collectors) = Collectors::start_or_skip(&fixture.namespace, &SFCAPD) else {
            return;
        };
        let daemon = fixture.start();
        fixture.done("add-br br0 -- set bridge br0 fail_mode=secure");
        fixture.done("add-port br0 p1 -- add-port br0 p2");
        connect_ports(&daemon);
        fixture.done(
            "-- --id=@s create sflow agent=lo target=\"127.0.0.1:6343\" sampling=1 polling=1 \
             header=64 -- set bridge br0 sflow=@s",
        );
        hosts.ping(PINGS, "0.02");
        let sent = format!("sent {} samples", 2 * PINGS);
        assert!(wait_until(|| show(&daemon).contains(&sent)), "{}", show(&daemon));
        assert!(wait_until(|| samples(&collectors, 1).len() == 2 * PINGS), "{}", show(&daemon));
        let ports = ["p1", "p2"].map(|port| index_of(&fixture.namespace, port));
        check_flow_samples(&collectors, ports);
        check_by_tshark(&collectors, ports);
        let counted = || counters_of(&collectors, "p1").is_some_and(|own| own[8] == 5);
        assert!(wait_until(counted), "{:?}", counters_of(&collectors, "p1"));
        let counters = counters_of(&collectors, "p1").expect("counters of p1");
        let (pings, bytes) = (5, 5 * PING_BYTES);
        assert_eq!((counters[0], counters[5]), (ports[0], 3), "its index, and both up");
        assert_eq!((counters[7], counters[15], counters[16]), (bytes, bytes, pings));
        // For the collector, a device that is set down is down; its link has no fault.
        fixture.namespace.run("ip", &["link", "set", "p2", "down"]);
        let status = || counters_of(&collectors, "p2").map(|own| own[5]);
        assert!(wait_until(|| status() == Some(0)), "{:?}", counters_of(&collectors, "p2"));
        fixture.done("clear bridge br0 sflow");
        assert!(!show(&daemon).contains("sflow"), "{}", show(&daemon));
        assert!(daemon.log().contains("bridge br0: sFlow stopped"), "{}", daemon.log());
        check_flows(&collectors.end(), ports);
    }
}

/// Returns the generic interface counters in the last sample of a port.
fn counters_of(collectors: &Collectors, port: &str) -> Option<Vec<u32>> {
    let samples = samples(collectors, 2);
    let is_own = |sample: &&DecodedSample| sample.port_name().as_deref() == Some(port);
    samples.iter().rev().find(is_own)?.words_of(1)
}

/// Checks the samples of alternating requests and replies.
fn check_flow_samples(collectors: &Collectors, [p1, p2]: [u32; 2]) {
    for (sample, number) in samples(collectors, 1).iter().zip(1..) {
        let (input, kind) = if number % 2 == 1 { (p1, 8) } else { (p2, 0) };
        let [sequence, source, rate, pool, drops] = sample.words[..5] else { unreachable!() };
        assert_eq!((sequence, source, rate, drops), (number, 0x0200_03e8, 1, 0));
        assert!((number..=10).contains(&pool), "{pool}");
        assert_eq!(sample.words[5..], [input, p1 + p2 - input]);
        assert_eq!(sample.words_of(1001).as_deref(), Some(&[0, 0, 0, 0][..]));
        let header = sample.words_of(1).expect("a header");
        assert_eq!(header[..4], [1, PING_BYTES + FCS_BYTES, FCS_BYTES, 64]);
        let header = sample.header().expect("a header");
        let addresses = if kind == 8 { [2, 1] } else { [1, 2] };
        assert_eq!([header[5], header[11]], addresses, "the last bytes of the MAC addresses");
        assert_eq!((header.len(), header[34]), (64, kind), "the type of the ICMP message");
    }
    let datagrams = datagrams(collectors);
    for (datagram, number) in datagrams.iter().zip(1..) {
        assert_eq!(
            (datagram.address.to_string().as_str(), datagram.sequence),
            ("127.0.0.1", number)
        );
    }
}

fn check_by_tshark(collectors: &Collectors, [p1, p2]: [u32; 2]) {
    let columns = collectors.by_tshark(
        "sflow.flow_sample.sequence_number",
        &[
            "sflow.flow_sample.sequence_number",
            "sflow.flow_sample.input_interface",
            "sflow.flow_sample.output_interface_value",
            "sflow.flow_sample.sampling_rate",
        ],
    );
    let repeated = |odd: u32, even: u32| -> Vec<String> {
        (0..PINGS).flat_map(|_| [odd, even].map(|value| value.to_string())).collect()
    };
    let numbers: Vec<String> = (1..=2 * PINGS).map(|number| number.to_string()).collect();
    assert_eq!(columns, [numbers, repeated(p1, p2), repeated(p2, p1), repeated(1, 1)]);
}

/// sfcapd stores a flow for each sample, with the bytes on the wire.
fn check_flows(stored: &[String], [p1, p2]: [u32; 2]) {
    let bytes = PING_BYTES + FCS_BYTES;
    let request = format!("10.68.1.1 10.68.1.2 1 {bytes} {p1} {p2}");
    let reply = format!("10.68.1.2 10.68.1.1 1 {bytes} {p2} {p1}");
    assert!(stored.iter().all(|flow| *flow == request || *flow == reply), "{stored:?}");
    let requests = stored.iter().filter(|flow| **flow == request).count();
    assert_eq!((stored.len(), requests), (2 * PINGS, PINGS), "{stored:?}");
}

#[test]
fn one_frame_in_n_is_sampled() {
    let Some(middle) = namespace_or_skip("sflow") else { return };
    let Some(hosts) = hosts(&middle, "sflow") else { return };
    let Some(collectors) = Collectors::start_or_skip(&middle, &SFCAPD) else { return };
    let port = |name: &str| format!("[[bridge.port]]\nname = \"{name}\"\n");
    let file = format!(
        "[[bridge]]\nname = \"br0\"\n{}{}[bridge.sflow]\ntargets = [\"127.0.0.1\"]\nsampling = 8\n\
         polling = 0\n",
        port("p1"),
        port("p2")
    );
    let daemon = Daemon::start_with(&file, |program| middle.command(&program.to_string_lossy()));
    connect_ports(&daemon);
    hosts.ping(1000, "0.001");
    // 250 of 2000 frames on average, with a standard deviation of about 9: five of them are 45.
    let expected = 205..=295;
    let is_expected = || expected.contains(&samples(&collectors, 1).len());
    assert!(wait_until(is_expected), "{}", show(&daemon));
    // The sampled frames of a round are known when a frame of the next round is sampled.
    text(&daemon.shuntctl(&["set-br", "br0", "sflow.sampling=1"]));
    text(&daemon.ovs_ofctl("br0", "add-flow", &["priority=40000,in_port=p2,actions=drop"]));
    output(hosts.a.command("ping").args(["-c", "1", "-W", "1", "10.68.1.2"]));
    let rate = |rate: u32| {
        let samples = samples(&collectors, 1).into_iter();
        samples.filter(|sample| sample.words[2] == rate).collect::<Vec<_>>()
    };
    assert!(wait_until(|| rate(1).len() == 2), "{:?}", rate(1));
    let p2 = index_of(&middle, "p2");
    assert_eq!(rate(1)[1].words[5..], [p2, 0x4000_0100], "a packet that the tables drop");
    let chosen = rate(8);
    assert!(expected.contains(&chosen.len()), "{} samples", chosen.len());
    let pool = chosen.last().map(|sample| sample.words[3]).unwrap_or_default();
    assert!((1900..=2000).contains(&pool), "{pool}");
    assert!(samples(&collectors, 2).is_empty(), "no counters");
}

/// Returns the number of datagrams that arrived for a UDP port without a listener.
fn unheard_datagrams(namespace: &Namespace) -> u64 {
    let snmp = namespace.run("cat", &["/proc/net/snmp"]);
    let mut lines = snmp.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let place = names.split(' ').position(|name| name == "NoPorts").expect("the counter");
    values.split(' ').nth(place).and_then(|value| value.parse().ok()).expect("a number")
}

/// Datagrams come from the new address,
/// and the log has the error and the end of the error.
#[test]
fn sflow_follows_the_address_of_the_host() {
    let (Some(middle), Some(far)) = (namespace_or_skip("sflow"), namespace_or_skip("sflow")) else {
        return;
    };
    far.connect("eth0", &middle, "up0");
    far.run("ip", &["addr", "add", "10.69.0.2/24", "dev", "eth0"]);
    let address = |verb: &str, own: &str| {
        middle.run("ip", &["addr", verb, &format!("{own}/24"), "dev", "up0"]);
    };
    address("add", "10.69.0.1");
    let file = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\ntype = \"null\"\n\
                [bridge.sflow]\ntargets = [\"10.69.0.2\"]\npolling = 1\n";
    let daemon = Daemon::start_with(file, |program| middle.command(&program.to_string_lossy()));
    assert!(wait_until(|| unheard_datagrams(&far) > 0), "{}", show(&daemon));
    assert!(show(&daemon).contains("agent=10.69.0.1 "), "{}", show(&daemon));
    address("del", "10.69.0.1");
    assert!(wait_until(|| show(&daemon).contains("cannot be reached")), "{}", show(&daemon));
    let before = unheard_datagrams(&far);
    address("add", "10.69.0.11");
    assert!(wait_until(|| unheard_datagrams(&far) > before), "{}", show(&daemon));
    assert!(wait_until(|| show(&daemon).contains("agent=10.69.0.11 ")), "{}", show(&daemon));
    assert!(wait_until(|| !show(&daemon).contains("cannot be reached")), "{}", show(&daemon));
    // An address also changes between two refreshes. Such refreshes find no error.
    address("del", "10.69.0.11");
    address("add", "10.69.0.12");
    assert!(wait_until(|| show(&daemon).contains("agent=10.69.0.12 ")), "{}", show(&daemon));
    let before = unheard_datagrams(&far);
    assert!(wait_until(|| unheard_datagrams(&far) > before), "{}", show(&daemon));
    assert!(wait_until(|| !show(&daemon).contains("cannot be reached")), "{}", show(&daemon));
    let log = daemon.log();
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    let (lost, returned) = (lines("cannot be reached"), lines("is reachable again"));
    assert_eq!(lost, returned, "{log}");
    assert!((1..=2).contains(&lost), "{log}");
}
