//! IPFIX of real frames, read by collectors of other projects.

use shunt_flow_export::testing::{DecodedIpfixRecord, IpfixDecoder};
use shunt_tests::daemon::{text, wait_until};

use crate::{
    exports::{CollectorProgram, Collectors, PING_BYTES, PINGS, connect_ports, hosts, index_of},
    vsctl::{DaemonFixture, show},
};

/// The collector of IPFIX.
const NFCAPD: CollectorProgram =
    CollectorProgram { name: "nfcapd", port: 4739, dissector: "cflow" };

/// Returns the flows of the captured messages.
fn flows(collectors: &Collectors) -> Vec<DecodedIpfixRecord> {
    let (mut decoder, mut sequence) = (IpfixDecoder::default(), 0);
    let mut flows = Vec::new();
    for payload in collectors.payloads() {
        let message = decoder.decode(&payload).expect("an IPFIX message");
        assert_eq!((message.domain, message.sequence), (11, sequence));
        sequence += u32::try_from(message.records.len()).expect("a small number");
        // Records with a number of packets are flows.
        flows.extend(message.records.into_iter().filter(|own| own.value(2).is_some()));
    }
    flows
}

#[test]
fn collectors_get_the_flows_of_sampled_packets() {
    for fixture in DaemonFixture::both("ipfix") {
        let Some(hosts) = hosts(&fixture.namespace, "ipfix") else { return };
        let Some(collectors) = Collectors::start_or_skip(&fixture.namespace, &NFCAPD) else {
            return;
        };
        let daemon = fixture.start();
        fixture.done("add-br br0 -- set bridge br0 fail_mode=secure");
        fixture.done("add-port br0 p1 -- add-port br0 p2");
        connect_ports(&daemon);
        fixture.done(
            "-- --id=@i create ipfix targets=\"127.0.0.1:4739\" sampling=1 obs_domain_id=11 \
             obs_point_id=22 cache_active_timeout=2 cache_max_flows=100 -- set bridge br0 ipfix=@i",
        );
        hosts.ping(PINGS, "0.02");
        let packets = |flows: &[DecodedIpfixRecord]| {
            flows.iter().filter_map(|own| own.value(2)).sum::<u128>()
        };
        let all = 2 * PINGS as u128;
        assert!(wait_until(|| packets(&flows(&collectors)) == all), "{}", show(&daemon));
        let ports = ["p1", "p2"].map(|port| index_of(&fixture.namespace, port));
        check_flows(&flows(&collectors), ports);
        check_by_tshark(&collectors);
        fixture.done("clear bridge br0 ipfix");
        assert!(!show(&daemon).contains("ipfix"), "{}", show(&daemon));
        let stopped = "bridge br0: IPFIX stopped";
        assert!(wait_until(|| daemon.log().contains(stopped)), "{}", daemon.log());
        check_stored(&collectors.end(), ports);
    }
}

fn check_flows(flows: &[DecodedIpfixRecord], [p1, p2]: [u32; 2]) {
    for flow in flows {
        let value = |element| flow.value(element).expect("the element");
        let is_request = value(10) == u128::from(p1);
        let (input, output, kind) = if is_request { (p1, p2, 8) } else { (p2, p1, 0) };
        assert_eq!((value(10), value(14)), (input.into(), output.into()));
        assert_eq!((value(138), value(61)), (22, 0));
        assert_eq!((value(4), value(176), value(177)), (1, kind, 0), "ICMP, type and code");
        let (source, destination) = if is_request { (1, 2) } else { (2, 1) };
        let address = |host: u128| 0x0a44_0100 + host;
        assert_eq!((value(8), value(12)), (address(source), address(destination)));
        assert_eq!((value(56) & 0xff, value(80) & 0xff), (source, destination), "MAC addresses");
        let packets = value(2);
        assert_eq!(value(352), packets * u128::from(PING_BYTES));
        assert_eq!(value(1), packets * u128::from(PING_BYTES - 14));
        assert_eq!((value(60), value(52), value(53), value(136)), (4, 64, 64, 2));
        assert!(value(152) <= value(153));
    }
}

fn check_by_tshark(collectors: &Collectors) {
    let fields = ["cflow.version", "cflow.od_id", "cflow.srcaddr", "cflow.packets"];
    let [versions, domains, sources, packets] = &collectors.by_tshark("cflow", &fields)[..] else {
        unreachable!()
    };
    assert!(versions.iter().all(|own| own == "10") && domains.iter().all(|own| own == "11"));
    let of_a = |(source, _): &(&String, &String)| *source == "10.68.1.1";
    // A message without flows has an empty field.
    let filled = |fields: &[String]| -> Vec<String> {
        fields.iter().filter(|own| !own.is_empty()).cloned().collect()
    };
    let (sources, packets) = (filled(sources), filled(packets));
    let counts = sources.iter().zip(&packets).filter(of_a).map(|(_, count)| count.parse::<usize>());
    let sum: Result<usize, _> = counts.sum();
    assert_eq!(sum, Ok(PINGS));
}

/// nfcapd stores a flow for each record.
fn check_stored(stored: &[String], [p1, p2]: [u32; 2]) {
    let (mut requests, mut replies) = (0, 0);
    for flow in stored {
        let words: Vec<_> = flow.split(' ').collect();
        assert_eq!(words.len(), 6, "{flow}");
        let (source, destination, packets) = (words[0], words[1], words[2]);
        let (input, output) = (words[4], words[5]);
        let packets: usize = packets.parse().expect("a number");
        let ports = [input, output].map(|port| port.parse::<u32>().expect("a number"));
        if source == "10.68.1.1" {
            assert_eq!((destination, ports), ("10.68.1.2", [p1, p2]));
            requests += packets;
        } else {
            assert_eq!((source, destination, ports), ("10.68.1.2", "10.68.1.1", [p2, p1]));
            replies += packets;
        }
    }
    assert_eq!((requests, replies), (PINGS, PINGS), "{stored:?}");
}

#[test]
fn collectors_get_the_packets_that_rules_sample() {
    for fixture in DaemonFixture::both("sample") {
        let Some(hosts) = hosts(&fixture.namespace, "sample") else { return };
        let Some(collectors) = Collectors::start_or_skip(&fixture.namespace, &NFCAPD) else {
            return;
        };
        let daemon = fixture.start();
        fixture.done("add-br br0 -- set bridge br0 fail_mode=secure");
        fixture.done("add-port br0 p1 -- add-port br0 p2");
        fixture.done(
            "-- --id=@b get bridge br0 -- --id=@i create ipfix targets=\"127.0.0.1:4739\" -- create \
             Flow_Sample_Collector_Set id=5 bridge=@b ipfix=@i",
        );
        let shown = "collector-set 5 (targets=127.0.0.1:4739";
        assert!(wait_until(|| show(&daemon).contains(shown)), "{}", show(&daemon));
        let sample =
            "sample(probability=65535,collector_set_id=5,obs_domain_id=11,obs_point_id=22)";
        let rule = format!("in_port=p1,actions={sample},output:p2");
        for rule in [rule.as_str(), "in_port=p2,actions=output:p1"] {
            text(&daemon.ovs_ofctl("br0", "add-flow", &[rule]));
        }
        hosts.ping(PINGS, "0.02");
        assert!(wait_until(|| flows(&collectors).len() == PINGS), "{}", show(&daemon));
        let p1 = index_of(&fixture.namespace, "p1");
        for flow in flows(&collectors) {
            let value = |element| flow.value(element).expect("the element");
            assert_eq!((value(138), value(2), value(61)), (22, 1, 0));
            assert_eq!((value(10), value(14)), (p1.into(), 0));
            assert_eq!((value(8), value(12)), (0x0a44_0101, 0x0a44_0102));
        }
        let stored = collectors.end();
        assert_eq!(stored.len(), PINGS, "{stored:?}");
    }
}
