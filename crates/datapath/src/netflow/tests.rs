//! Tests that compare the NetFlow cache with a map.

use std::collections::BTreeMap;

use proptest::prelude::*;
use shunt_flow::{FieldId, PortNo, extract::extract, testing::packet::PacketBuilder};
use shunt_pipeline::DatapathPort;

use super::*;

const BRIDGE: BridgeId = BridgeId::new(1);

/// Returns the key of a UDP packet of a flow.
fn packet(flow: u16) -> FlowKey {
    let frame = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(flow, 53).build();
    let mut key = FlowKey::ZERO;
    extract(&frame, shunt_flow::extract::VlanLimit::default(), &mut key);
    key.set_in_port(PortNo::new(7));
    key
}

/// Returns the time after some seconds.
const fn seconds(seconds: u64) -> Time {
    Time::from_nanoseconds(seconds * 1_000_000_000)
}

/// Time after which an idle flow ends.
const MAX_IDLE: Duration = Duration::from_secs(10);

/// Scans all flows at `now`.
fn scan(cache: &mut NetflowCache, now: Time) {
    while cache.scan(3, MAX_IDLE, now) && cache.is_scanning() {}
}

fn take_flows(receiver: &mut NetflowReceiver) -> Vec<ExpiredFlow> {
    std::iter::from_fn(|| receiver.pop()).collect()
}

#[test]
fn a_flow_is_reported_when_it_is_idle() {
    let (mut cache, mut receiver) = netflow_cache(BRIDGE, 10, 1);
    for second in 0..3 {
        let flow = cache.count(&packet(5), 100, seconds(second)).unwrap();
        let decision = DecisionId(1);
        if cache.is_egress_of_other(flow, decision) {
            cache.set_egress(flow, SampledEgress::Port(DatapathPort::new(4)), decision);
        }
        scan(&mut cache, seconds(second));
    }
    scan(&mut cache, seconds(12));
    assert_eq!((take_flows(&mut receiver), receiver.flows()), (vec![], 1));
    assert_eq!(cache.time_to_scan(seconds(12)), SCAN_PERIOD);
    scan(&mut cache, seconds(13));
    let key = NetflowKey {
        in_port: 7,
        source: 0x0a00_0001,
        destination: 0x0a00_0002,
        source_port: 5,
        destination_port: 53,
        protocol: 17,
        tos: 0,
    };
    let counts =
        FlowCounts { packets: 3, bytes: 300, first: seconds(0), last: seconds(2), tcp_flags: 0 };
    let egress = SampledEgress::Port(DatapathPort::new(4));
    assert_eq!(take_flows(&mut receiver), [ExpiredFlow { key, counts, egress }]);
    assert!(cache.is_empty() && cache.time_to_scan(seconds(13)) == Duration::MAX);
}

#[test]
fn a_flow_that_lasts_is_reported_at_intervals() {
    let (mut cache, mut receiver) = netflow_cache(BRIDGE, 10, 1);
    receiver.set_active_timeout(Some(Duration::from_secs(20)));
    let mut reported = Vec::new();
    for second in 0..70 {
        cache.count(&packet(5), 10, seconds(second)).unwrap();
        scan(&mut cache, seconds(second));
        reported.extend(take_flows(&mut receiver));
    }
    let times: Vec<_> = reported.iter().map(|own| (own.counts.first, own.counts.last)).collect();
    let expected = [(0, 20), (21, 41), (42, 62)].map(|(a, b)| (seconds(a), seconds(b)));
    assert_eq!(times, expected);
    assert!(reported.iter().all(|own| (own.counts.packets, own.counts.bytes) == (21, 210)));
    receiver.set_active_timeout(None);
    for second in 70..900 {
        cache.count(&packet(5), 10, seconds(second)).unwrap();
        scan(&mut cache, seconds(second));
    }
    assert!(receiver.is_empty(), "without a timeout only the end is reported");
    scan(&mut cache, seconds(911));
    assert_eq!(take_flows(&mut receiver)[0].counts.packets, 7 + 830);
}

#[test]
fn only_ipv4_is_counted() {
    let (mut cache, _receiver) = netflow_cache(BRIDGE, 10, 1);
    let mut other = packet(5);
    other.set_field(FieldId::EthType, 0x86dd);
    assert_eq!(cache.count(&other, 10, Time::ZERO), None);
    assert_eq!(cache.position(&packet(5)), None);
}

#[test]
fn tcp_flags_are_joined_without_ecn() {
    let (mut cache, mut receiver) = netflow_cache(BRIDGE, 10, 1);
    for (flags, ecn) in [(0x02, 0), (0x18, 1), (0x11, 3)] {
        let mut key = packet(5);
        key.set_field(FieldId::IpProto, 6);
        key.set_field(FieldId::TcpFlags, flags);
        key.set_field(FieldId::IpDscp, 10);
        key.set_field(FieldId::IpEcn, ecn);
        cache.count(&key, 10, Time::ZERO).unwrap();
    }
    scan(&mut cache, seconds(11));
    let flows = take_flows(&mut receiver);
    assert_eq!(flows.len(), 1);
    assert_eq!((flows[0].counts.tcp_flags, flows[0].key.tos), (0x1b, 40));
}

/// While the reader takes no flows, flows stay in the cache as long as it has room.
#[test]
fn a_full_ring_keeps_flows_in_the_cache() {
    let flows = EXPIRED_MAX + 10;
    let (mut cache, mut receiver) = netflow_cache(BRIDGE, flows, 1);
    for flow in 0..u16::try_from(flows).unwrap() {
        cache.count(&packet(flow), 10, Time::ZERO).unwrap();
    }
    scan(&mut cache, seconds(11));
    assert_eq!((receiver.len(), cache.flows.len()), (EXPIRED_MAX, 10));
    assert!(
        !cache.is_scanning() && !cache.scan(3, MAX_IDLE, seconds(11)),
        "the scan is tried later"
    );
    assert_eq!(take_flows(&mut receiver).len(), EXPIRED_MAX);
    scan(&mut cache, seconds(12));
    assert_eq!((take_flows(&mut receiver).len(), receiver.lost()), (10, 0));
}

#[test]
fn flows_of_a_lost_cache_are_counted() {
    let (mut cache, receiver) = netflow_cache(BRIDGE, 10, 1);
    for flow in 0..3 {
        cache.count(&packet(flow), 10, Time::ZERO).unwrap();
    }
    scan(&mut cache, seconds(1));
    assert_eq!((receiver.flows(), receiver.lost()), (3, 0));
    drop(cache);
    assert_eq!((receiver.flows(), receiver.lost()), (0, 3));
}

/// Flows that were reported before have a last report, too.
#[test]
fn a_cache_that_ends_returns_its_flows() {
    let (mut cache, mut receiver) = netflow_cache(BRIDGE, 10, 1);
    receiver.set_active_timeout(Some(Duration::from_secs(1)));
    for (flow, bytes) in [(1, 10), (2, 20), (1, 30)] {
        cache.count(&packet(flow), bytes, Time::ZERO).unwrap();
    }
    scan(&mut cache, seconds(1));
    assert_eq!(take_flows(&mut receiver).len(), 2);
    cache.count(&packet(2), 5, seconds(2)).unwrap();
    // The other flow has had no packet since its report.
    let flows: Vec<_> = cache.into_flows().collect();
    assert_eq!((flows.len(), flows[0].counts.bytes, flows[0].key.source_port), (1, 5, 2));
    assert_eq!((receiver.flows(), receiver.lost(), receiver.len()), (0, 0, 0));
}

/// A packet of a flow, or a scan after some seconds.
#[derive(Clone, Debug)]
enum Op {
    Count { flow: u16, bytes: u64 },
    Scan { seconds: u64 },
}

/// Generates an operation on a cache of flows.
fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..40_u16, 60..1500_u64).prop_map(|(flow, bytes)| Op::Count { flow, bytes }),
        1 => (0..15_u64).prop_map(|seconds| Op::Scan { seconds }),
    ]
}

proptest! {
    /// Each packet is in exactly one report of its flow.
    ///
    /// The counts are exact for any number of flows and buckets.
    #[test]
    fn every_packet_is_reported_once(limit in 1..50_usize, ops in prop::collection::vec(op(), 1..300)) {
        let (mut cache, mut receiver) = netflow_cache(BRIDGE, limit, 1);
        receiver.set_active_timeout(Some(Duration::from_secs(30)));
        let (mut expected, mut now) = (BTreeMap::new(), 0);
        for op in ops {
            match op {
                Op::Count { flow, bytes } => {
                    let position = cache.count(&packet(flow), bytes, seconds(now)).unwrap();
                    prop_assert_eq!(cache.position(&packet(flow)), Some(position));
                    let own = expected.entry(flow).or_insert((0, 0));
                    *own = (own.0 + 1, own.1 + bytes);
                }
                Op::Scan { seconds: more } => {
                    now += more;
                    scan(&mut cache, seconds(now));
                }
            }
            prop_assert!(cache.flows.len() <= limit);
        }
        scan(&mut cache, seconds(now + 100));
        prop_assert!(cache.is_empty());
        let mut reported = BTreeMap::new();
        for flow in take_flows(&mut receiver) {
            let FlowCounts { packets, bytes, first, last, .. } = flow.counts;
            prop_assert!(packets > 0 && first <= last);
            let own = reported.entry(flow.key.source_port).or_insert((0, 0));
            *own = (own.0 + packets, own.1 + bytes);
        }
        prop_assert_eq!((reported, receiver.lost()), (expected, 0));
        prop_assert!(cache.buckets.iter().all(|bucket| *bucket == NONE));
    }
}
