//! NetFlow of real frames, read by collectors of other projects.

use std::{collections::BTreeMap, path::Path};

use shunt_flow_export::{
    netflow::NetflowRecord,
    testing::{DecodedNetflow, decode_netflow},
};
use shunt_tests::{
    daemon::{Daemon, text, wait_until},
    namespace::namespace_or_skip,
};

use crate::{
    exports::{CollectorProgram, Collectors, PING_BYTES, PINGS, connect_ports, hosts},
    vsctl::{DaemonFixture, show},
};

/// The collector of NetFlow.
const NFCAPD: CollectorProgram =
    CollectorProgram { name: "nfcapd", port: 2055, dissector: "cflow" };

/// Returns the captured datagrams.
fn datagrams(collectors: &Collectors) -> Vec<DecodedNetflow> {
    let datagram = |bytes: Vec<u8>| decode_netflow(&bytes).expect("a NetFlow datagram");
    collectors.payloads().into_iter().map(datagram).collect()
}

fn records(collectors: &Collectors) -> Vec<NetflowRecord> {
    datagrams(collectors).into_iter().flat_map(|datagram| datagram.records).collect()
}

/// Returns the packets and bytes of each flow, by source and interfaces.
fn totals(records: &[NetflowRecord]) -> BTreeMap<(String, u16, u16), (u64, u64)> {
    let mut totals = BTreeMap::new();
    for record in records {
        let key = (record.source.to_string(), record.input, record.output);
        let total: &mut (u64, u64) = totals.entry(key).or_default();
        (total.0, total.1) = (total.0 + record.packets, total.1 + record.bytes);
    }
    totals
}

/// Returns the totals of pings between the ports 1 and 2.
fn pings(count: u64) -> BTreeMap<(String, u16, u16), (u64, u64)> {
    let total = (count, count * u64::from(PING_BYTES));
    let flows = [(("10.68.1.1".to_owned(), 1, 2), total), (("10.68.1.2".to_owned(), 2, 1), total)];
    flows.into_iter().collect()
}

#[test]
fn collectors_get_each_flow_of_a_bridge() {
    for fixture in DaemonFixture::both("netflow") {
        let Some(hosts) = hosts(&fixture.namespace, "netflow") else { return };
        let Some(collectors) = Collectors::start_or_skip(&fixture.namespace, &NFCAPD) else {
            return;
        };
        let daemon = fixture.start();
        fixture.done("add-br br0 -- set bridge br0 fail_mode=secure");
        fixture.done("add-port br0 p1 -- add-port br0 p2");
        connect_ports(&daemon);
        fixture.done(
            "-- --id=@n create netflow targets=\"127.0.0.1:2055\" active_timeout=1 engine_id=3 \
             engine_type=4 -- set bridge br0 netflow=@n",
        );
        hosts.ping(PINGS, "0.02");
        let expected = pings(PINGS as u64);
        assert!(wait_until(|| totals(&records(&collectors)) == expected), "{}", show(&daemon));
        check_records(&collectors);
        check_by_tshark(&collectors);
        // An invalid value changes nothing.
        fixture.done("set netflow . targets=collector");
        let kept = "bridge br0 keeps the options in force: netflow.targets[0] = collector";
        assert!(wait_until(|| daemon.log().contains(kept)), "{}", daemon.log());
        assert!(show(&daemon).contains("netflow (targets=127.0.0.1:2055"), "{}", show(&daemon));
        fixture.done("set netflow . targets=\"127.0.0.1:2055\"");
        // Flows that are still active are reported when NetFlow is disabled.
        fixture.done("set netflow . active_timeout=600");
        assert!(wait_until(|| show(&daemon).contains("active_timeout=600")), "{}", show(&daemon));
        hosts.ping(PINGS, "0.02");
        fixture.done("clear bridge br0 netflow");
        assert!(wait_until(|| totals(&records(&collectors)) == pings(2 * PINGS as u64)));
        assert!(!show(&daemon).contains("netflow"), "{}", show(&daemon));
        let stopped = "bridge br0: NetFlow stopped";
        assert!(wait_until(|| daemon.log().contains(stopped)), "{}", daemon.log());
        check_sequence(&collectors);
        check_flows(&collectors.end());
    }
}

fn check_records(collectors: &Collectors) {
    for DecodedNetflow { header, records } in datagrams(collectors) {
        assert_eq!((header.engine.kind, header.engine.id), (4, 3));
        for record in records {
            let kind = if record.input == 1 { 8 << 8 } else { 0 };
            assert_eq!((record.source_port, record.destination_port), (0, kind));
            assert_eq!((record.protocol, record.tcp_flags), (1, 0));
            let times = [record.first_ms, record.last_ms, header.uptime_ms];
            assert!(times.is_sorted(), "{times:?}");
        }
    }
}

/// Each datagram contains the number of previous records.
fn check_sequence(collectors: &Collectors) {
    let mut count = 0;
    for DecodedNetflow { header, records } in datagrams(collectors) {
        assert_eq!(header.sequence, count);
        count += u32::try_from(records.len()).expect("a small number");
    }
}

fn check_by_tshark(collectors: &Collectors) {
    let fields = ["cflow.version", "cflow.engine_id", "cflow.srcaddr", "cflow.packets"];
    let [versions, engines, sources, packets] = &collectors.by_tshark("cflow", &fields)[..] else {
        unreachable!()
    };
    assert!(versions.iter().all(|own| own == "5") && engines.iter().all(|own| own == "3"));
    let of_a = |(source, _): &(&String, &String)| *source == "10.68.1.1";
    let counts = sources.iter().zip(packets).filter(of_a).map(|(_, count)| count.parse::<usize>());
    let sum: Result<usize, _> = counts.sum();
    assert_eq!(sum, Ok(PINGS));
}

/// nfcapd stores a flow for each record.
fn check_flows(stored: &[String]) {
    let mut counts = BTreeMap::new();
    for flow in stored {
        let words: Vec<_> = flow.split(' ').collect();
        assert_eq!(words.len(), 6, "{flow}");
        let (source, destination, packets, bytes) = (words[0], words[1], words[2], words[3]);
        let (input, output) = (words[4], words[5]);
        let count: &mut (usize, usize) =
            counts.entry([source, destination, input, output]).or_default();
        count.0 += packets.parse::<usize>().expect("a number");
        count.1 += bytes.parse::<usize>().expect("a number");
    }
    let total = (2 * PINGS, 2 * PINGS * PING_BYTES as usize);
    let expected = [
        (["10.68.1.1", "10.68.1.2", "1", "2"], total),
        (["10.68.1.2", "10.68.1.1", "2", "1"], total),
    ];
    assert_eq!(counts, BTreeMap::from(expected), "{stored:?}");
}

#[test]
fn a_flow_is_reported_when_it_ends() {
    let Some(middle) = namespace_or_skip("netflow") else { return };
    let Some(hosts) = hosts(&middle, "netflow") else { return };
    let Some(collectors) = Collectors::start_or_skip(&middle, &NFCAPD) else { return };
    let port = |name: &str| format!("[[bridge.port]]\nname = \"{name}\"\n");
    let file = format!(
        "[[bridge]]\nname = \"br0\"\n{}{}[bridge.netflow]\ntargets = [\"127.0.0.1\"]\n\
         add_id_to_interface = true\n[caches]\nidle_ms = 1000\n",
        port("p1"),
        port("p2")
    );
    let daemon = Daemon::start_with(&file, |program| middle.command(&program.to_string_lossy()));
    text(&daemon.ovs_ofctl("br0", "add-flow", &["in_port=p1,actions=drop"]));
    text(&daemon.ovs_ofctl("br0", "add-flow", &["in_port=p2,actions=output:p1"]));
    hosts.ping_in_vain(PINGS);
    assert!(wait_until(|| !records(&collectors).is_empty()), "{}", show(&daemon));
    let records = records(&collectors);
    // The bridge has number 1. The tables of the bridge drop the packets: 65533.
    let expected = (("10.68.1.1".to_owned(), 0x201, 0x3fd), (5, 5 * u64::from(PING_BYTES)));
    assert_eq!(totals(&records), BTreeMap::from([expected]));
    assert_eq!(datagrams(&collectors)[0].header.engine.id, 1);
}

#[test]
fn flows_are_reported_when_the_daemon_ends() {
    let Some(middle) = namespace_or_skip("netflow") else { return };
    let Some(hosts) = hosts(&middle, "netflow") else { return };
    let Some(collectors) = Collectors::start_or_skip(&middle, &NFCAPD) else { return };
    let port = |name: &str| format!("[[bridge.port]]\nname = \"{name}\"\n");
    let file = format!(
        "[[bridge]]\nname = \"br0\"\n{}{}[bridge.netflow]\ntargets = [\"127.0.0.1\"]\n",
        port("p1"),
        port("p2")
    );
    let start = |program: &Path| middle.command(&program.to_string_lossy());
    let mut daemon = Daemon::start_with(&file, start);
    connect_ports(&daemon);
    hosts.ping(PINGS, "0.02");
    assert!(records(&collectors).is_empty(), "the flows last");
    daemon.start_next("-TERM", start);
    assert!(
        wait_until(|| totals(&records(&collectors)) == pings(PINGS as u64)),
        "{}",
        daemon.log()
    );
    check_sequence(&collectors);
}
