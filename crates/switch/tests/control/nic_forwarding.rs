//! Invariant 1 with a NIC: for random rules and changes, the same packets are sent as without
//! caches.

use std::{cell::Cell, time::Duration};

use proptest::{prelude::*, test_runner::TestRunner};
use shunt_flow::testing::PacketBuilder;
use shunt_switch::{
    Config, NicTraffic,
    config::{self, PredictorName},
};
use tokio::runtime::Runtime;

use crate::{
    fixture::{SwitchFixture, wait_until},
    nic::{NicFixture, add_ports},
};

/// All predictors.
const PREDICTORS: [PredictorName; 4] = [
    PredictorName::Reply,
    PredictorName::Siblings,
    PredictorName::Successor,
    PredictorName::Periodic,
];

/// Groups that rules may use for any packet.
const GROUPS: &[&str] = &[
    "group_id=1,type=indirect,bucket=actions=set_field:02:00:00:00:00:99->eth_dst,output:2",
    "group_id=2,type=all,bucket=actions=output:3,\
     bucket=actions=set_field:02:00:00:00:00:77->eth_src,output:1",
    "group_id=3,type=select,bucket=weight:0,actions=output:1,bucket=weight:5,actions=output:3",
    "group_id=4,type=ff,bucket=watch_port:9,actions=output:1,bucket=watch_port:2,actions=output:2",
    "group_id=5,type=select,bucket=actions=group:1",
];

/// Generates a rule of one of three tables; only the last table sends.
fn rule() -> impl Strategy<Value = String> {
    let matches = prop::sample::select(
        &[
            "ip",
            "udp",
            "ip,nw_src=10.0.0.1",
            "ip,nw_dst=10.0.0.0/31",
            "udp,tp_dst=1",
            "in_port=1",
            "udp,tp_dst=2/2",
            "ip,nw_ttl=9",
            "dl_vlan=7",
            "reg0=1",
            "ip,reg0=2/2",
            "eth_src=02:00:00:00:00:99",
        ][..],
    );
    let writes = prop::sample::select(
        &[
            "",
            "load:1->NXM_NX_REG0[],",
            "load:2->NXM_NX_REG0[],",
            "dec_ttl,",
            "set_field:02:00:00:00:00:99->eth_src,",
            "move:NXM_OF_UDP_SRC[]->NXM_OF_UDP_DST[],",
            "push_vlan:0x8100,set_field:4103->vlan_vid,",
            "pop_vlan,",
            "set_field:10.0.0.3->ip_dst,",
        ][..],
    );
    let ends = prop::sample::select(
        &[
            "output:1",
            "output:2",
            "output:3",
            "drop",
            "output:2,output:3",
            "in_port",
            "group:1",
            "group:2",
            "group:3",
            "group:4",
            "group:5",
            "write_actions(output:2)",
            "write_actions(group:3)",
            "write_actions(set_field:10.0.0.2->ip_dst,output:3)",
        ][..],
    );
    (0..3_u8, 1..9_u16, matches, writes, ends, any::<bool>()).prop_map(
        |(table, priority, matching, write, end, is_over)| {
            let end = match (table, is_over) {
                (2, _) | (_, true) => end.to_owned(),
                // After the first resubmit, the packet continues with the registers and the action
                // set of that resubmit.
                (0, false) if priority > 6 => "resubmit(,1),resubmit(,2)".to_owned(),
                (_, false) => format!("goto_table:{}", table + 1),
            };
            // `drop` allows no other actions; actions on L4 ports need a match on a protocol with
            // ports.
            let write = if end == "drop" { "" } else { write };
            let matching = match write {
                "dec_ttl," | "set_field:10.0.0.3->ip_dst," => "ip",
                "move:NXM_OF_UDP_SRC[]->NXM_OF_UDP_DST[]," => "udp",
                "pop_vlan," if end.contains("ip_dst") => "ip,dl_vlan=7",
                "pop_vlan," => "dl_vlan=7",
                _ if end.contains("ip_dst") => "ip",
                _ => matching,
            };
            let priority = 10 * priority + u16::from(table);
            format!("table={table},priority={priority},{matching},actions={write}{end}")
        },
    )
}

fn packet() -> impl Strategy<Value = (usize, Vec<u8>)> {
    (
        0..3_usize,
        1..4_u8,
        0..4_u8,
        1..4_u16,
        prop::sample::select(&[1_u8, 9, 64][..]),
        any::<bool>(),
    )
        .prop_map(|(port, source, target, to, ttl, is_tagged)| {
            let packet = PacketBuilder::ipv4([10, 0, 0, source], [10, 0, 0, target]).ttl(ttl);
            let packet = if is_tagged { packet.tag(0x8100, 7) } else { packet };
            (port, packet.udp(3, to).build())
        })
}

/// Returns a packet of [`packet`] as text in the syntax of an announced flow.
fn flow_of((port, frame): &(usize, Vec<u8>)) -> String {
    let is_tagged = frame[12..14] == [0x81, 0];
    let ip = if is_tagged { 18 } else { 14 };
    let mac = |at: usize| join_bytes(&frame[at..at + 6], ":", |byte| format!("{byte:02x}"));
    let address = |at: usize| join_bytes(&frame[at..at + 4], ".", |byte| byte.to_string());
    let number = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    format!(
        "in_port={},dl_src={},dl_dst={},{}udp,nw_src={},nw_dst={},nw_ttl={},tp_src={},tp_dst={}",
        port + 1,
        mac(6),
        mac(0),
        if is_tagged { "dl_vlan=7," } else { "" },
        address(ip + 12),
        address(ip + 16),
        frame[ip + 8],
        number(ip + 20),
        number(ip + 22),
    )
}

fn join_bytes(bytes: &[u8], separator: &str, text: impl Fn(u8) -> String) -> String {
    bytes.iter().map(|byte| text(*byte)).collect::<Vec<_>>().join(separator)
}

/// Sends packets to a switch; returns the packets that are sent on each port.
async fn leaves(nic_fixture: &NicFixture, packets: &[(usize, Vec<u8>)]) -> [Vec<Vec<u8>>; 3] {
    let sum = |traffic: &NicTraffic| {
        traffic.sent + traffic.missed + traffic.dropped.iter().map(|(_, count)| count).sum::<u64>()
    };
    let (before, seen) = (nic_fixture.traffic(), nic_fixture.fixture.switch.drops().received);
    for (port, frame) in packets {
        nic_fixture.ends[*port].send(frame);
    }
    let is_over = || {
        // All counters are read in one step: of two readings, only the later one may include all
        // packets.
        let (now, drops) = (nic_fixture.traffic(), nic_fixture.fixture.switch.drops());
        let came = now.hits + now.missed - before.hits - before.missed;
        came == packets.len() as u64
            && drops.received - seen == now.missed - before.missed
            && drops.held == 0
            && drops.received + drops.copied == drops.sent + drops.punted + drops.total()
            && now.received == sum(&now)
            && now.received - now.hits - now.missed == drops.sent
    };
    nic_fixture.wait_until(is_over).await;
    [0, 1, 2].map(|port| {
        let mut all_received = nic_fixture.ends[port].all_received();
        all_received.sort_unstable();
        all_received
    })
}

/// Returns the packets that a new switch sends on each port.
/// The switch has the given rules and no NIC.
async fn forward_in_software(rules: &[&str], packets: &[(usize, Vec<u8>)]) -> [Vec<Vec<u8>>; 3] {
    let mut config = Config::default();
    config.caches.exact_entries = 0;
    config.caches.verify_one_in = 1;
    let fixture = SwitchFixture::of(&config).await;
    fixture.add_bridge("br0").await;
    let ends = add_ports(&fixture.switch).await;
    fixture.add_groups(GROUPS).await;
    fixture.switch.add_rules("br0", rules).await.unwrap();
    packets.iter().for_each(|(port, frame)| ends[*port].send(frame));
    wait_until(|| {
        let drops = fixture.switch.drops();
        let went = drops.sent + drops.punted + drops.total();
        drops.received == packets.len() as u64
            && drops.held == 0
            && drops.received + drops.copied == went
    })
    .await;
    ends.map(|end| {
        let mut all_received = end.all_received();
        all_received.sort_unstable();
        all_received
    })
}

/// Generates a partition policy, and limits of the NIC.
/// The limits are stages, entries, masks and update time.
fn set_up() -> impl Strategy<Value = (config::PolicyName, config::OffloadOptions)> {
    use config::PolicyName::{Disjoint, FirstFit, Joint, Megaflow, OneToOne, Profiled, Random};
    let policies = [Joint, Disjoint, Profiled, FirstFit, OneToOne, Megaflow, Random];
    let policy = prop::sample::select(policies.to_vec());
    let entries = prop::sample::select(&[2_u32, 16, 8192][..]);
    let masks = prop::sample::select(&[0_usize, 3][..]);
    (policy, 1..=5_u8, entries, masks, 0..50_u64).prop_map(
        |(policy, stages, stage_entries, masks, update_us)| {
            let limits = config::OffloadOptions::default();
            (policy, config::OffloadOptions { stages, stage_entries, masks, update_us, ..limits })
        },
    )
}

/// A test case: options of the NIC, rules, later rules,
/// and packets with their ingress ports.
type Case =
    ((config::PolicyName, config::OffloadOptions), Vec<String>, Vec<String>, Vec<(usize, Vec<u8>)>);

/// Number of test cases of a batch.
const CASES: u32 = 24;

/// Maximum number of batches of test cases.
const BATCHES_MAX: u32 = 10;

/// Number of forecasts that hit, beyond which the test has enough of them.
const FORECAST_HITS_MIN: u64 = 20;

/// Invariant 1 for a NIC: packets are forwarded as the tables decide.
/// The invariant is true for any entries that the NIC has.
///
/// A forecast hits if its entry exists before the packet arrives and before the NIC forwards the
/// flow. So the test runs more cases until enough forecasts have hit.
#[test]
fn packets_are_forwarded_by_tables_with_nic() {
    let runtime = Runtime::new().unwrap();
    let rules = prop::collection::vec(rule(), 4..20);
    let changes = prop::collection::vec(rule(), 3);
    let (hits, sent, forecast) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let cases = (set_up(), rules, changes, prop::collection::vec(packet(), 1..20));
    let invariant = |((policy, target), rules, changes, packets): Case| {
        runtime.block_on(async {
            let nic_fixture = NicFixture::with_predictors(2, &PREDICTORS, |gigaflow| {
                gigaflow.policy = policy;
                let (kind, bridge) = (gigaflow.offload.kind, gigaflow.offload.bridge.clone());
                gigaflow.offload = config::OffloadOptions { kind, bridge, ..target };
            })
            .await;
            nic_fixture.fixture.add_groups(GROUPS).await;
            let mut rules: Vec<&str> = rules.iter().map(String::as_str).collect();
            nic_fixture.add(&rules).await;
            for change in [None].into_iter().chain(changes.iter().map(Some)) {
                if let Some(change) = change {
                    nic_fixture.add(&[change]).await;
                    rules.push(change);
                }
                let expected = forward_in_software(&rules, &packets).await;
                for round in 0..3 {
                    sent.set(sent.get() + packets.len());
                    let flows: Vec<String> = packets.iter().map(flow_of).collect();
                    let flows: Vec<&str> = flows.iter().map(String::as_str).collect();
                    // Half of the flows are announced, so the first round has forecasts for these
                    // flows.
                    let (valid, half) = (Duration::from_secs(2), &flows[..flows.len() / 2]);
                    nic_fixture.fixture.switch.announce("br0", half, valid).unwrap();
                    let left = leaves(&nic_fixture, &packets).await;
                    assert_eq!(left, expected, "{change:?}, round {round}");
                    nic_fixture.wait_until_settled().await;
                }
            }
            assert_eq!(nic_fixture.fixture.switch.caches().differences, 0);
            hits.set(hits.get() + nic_fixture.traffic().hits);
            let sources = nic_fixture.fixture.switch.forecasts().sources;
            forecast.set(forecast.get() + sources.iter().map(|own| own.hits).sum::<u64>());
        });
        Ok(())
    };
    for batch in 0..BATCHES_MAX {
        TestRunner::new(ProptestConfig::with_cases(CASES)).run(&cases, invariant).unwrap();
        if batch == 0 {
            let (hits, sent) = (hits.get(), sent.get());
            assert!(hits > 200 && sent > 1000, "the NIC forwards {hits} of {sent}");
        }
        if forecast.get() > FORECAST_HITS_MIN {
            break;
        }
    }
    let forecast = forecast.get();
    assert!(forecast > FORECAST_HITS_MIN, "the packets of {forecast} forecasts hit");
}
