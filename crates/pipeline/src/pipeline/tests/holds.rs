//! Tests that long work releases the lock of the tables after a bounded number of objects.

use std::net::{IpAddr, Ipv4Addr};

use shunt_flow::{FlowKey, Match, PortNo};
use shunt_nuevomatch::StartIndexKind;

use super::*;
use crate::{
    bridges::{
        mac_table::MacObservation,
        multicast::{MulticastEvent, MulticastObservation, MulticastSnooping},
        settings::OverflowPolicy,
    },
    decisions::packet_decider::{PacketDecider, PacketDecision},
    groups::group::GroupCommand,
    id::TableId,
    learn::learning::LearnedRule,
    pipeline::scans::VISITS_PER_HOLD,
    tables::learned::learned_rules::LearnedRules,
    text::parse_group_mod,
    update::{modification::Modification, pending::RuleSelection},
    versions::delta::RemovedReason,
};

const BRIDGE: BridgeId = BridgeId::new(1);

/// Number of rules or entries of a test.
const MANY: u16 = 2000;

/// Returns a pipeline with a bridge that snoops and has the ports 1 and 2.
fn pipeline() -> Pipeline {
    let pipeline = Pipeline::new(1);
    let snooping = MulticastSnooping { groups_max: MANY.into(), ..MulticastSnooping::default() };
    let settings = BridgeSettings { multicast: Some(snooping), ..BridgeSettings::default() };
    pipeline.add_bridge(BRIDGE, settings);
    pipeline.set_ports(BRIDGE, [1, 2].map(PortInfo::datapath).into()).unwrap();
    pipeline
}

fn add_rule(text: &str) -> FlowMod {
    parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap()
}

/// Returns the time after some seconds.
fn at(second: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(second))
}

/// Returns requests for rules that differ in their TCP port.
fn many_rules() -> Vec<FlowMod> {
    (0..MANY).map(|port| add_rule(&format!("tcp,tp_dst={port},actions=drop"))).collect()
}

/// Learns many addresses and many multicast groups on port 1.
fn learn_many(pipeline: &Pipeline) {
    let port = PortNo::new(1);
    let learnings = (0..MANY).flat_map(|number| {
        let [high, low] = number.to_be_bytes();
        let group = IpAddr::V4(Ipv4Addr::new(239, 1, high, low));
        let mac = MacObservation {
            bridge: BRIDGE,
            vlan: 0,
            mac: [2, 0, 0, 0, high, low],
            port,
            is_announcement: false,
            precedes_packet: false,
        };
        let event = MulticastEvent::Join(group);
        let join = MulticastObservation { bridge: BRIDGE, vlan: 0, port, event };
        [Learning::Mac(mac), Learning::Multicast(join)]
    });
    pipeline.learn(&learnings.collect::<Vec<_>>(), Time::ZERO);
}

/// Returns the numbers of learned addresses and of multicast groups.
fn count_learned(pipeline: &Pipeline) -> (usize, usize) {
    (pipeline.macs_count(BRIDGE), pipeline.multicast(BRIDGE).len())
}

/// Does some work, and checks that it has released the exclusive lock many times.
fn check_releases(pipeline: &Pipeline, work: impl FnOnce()) {
    let before = pipeline.releases.load(Ordering::Relaxed);
    work();
    let releases = pipeline.releases.load(Ordering::Relaxed) - before;
    assert!(releases >= u64::from(MANY) / 64, "{releases}");
}

/// Does some work, and checks that it has released the shared lock several times.
fn check_shared<T>(pipeline: &Pipeline, work: impl FnOnce() -> T) -> T {
    let before = pipeline.shared_holds.load(Ordering::Relaxed);
    let result = work();
    let holds = pipeline.shared_holds.load(Ordering::Relaxed) - before;
    assert!(holds >= u64::from(MANY) / VISITS_PER_HOLD as u64, "{holds}");
    result
}

#[test]
fn removals_of_learned_entries_are_made_in_steps() {
    let (pipeline, many) = (pipeline(), usize::from(MANY));
    let learn = || {
        check_releases(&pipeline, || learn_many(&pipeline));
        assert_eq!(count_learned(&pipeline), (many, many));
    };
    let removes = |work: &dyn Fn()| {
        check_releases(&pipeline, work);
        assert_eq!(count_learned(&pipeline), (0, 0));
        check_releases(&pipeline, || pipeline.reclaim(pipeline.version()));
    };
    let set_ports = |ports: &[u32]| {
        let ports = ports.iter().map(|port| PortInfo::datapath(*port)).collect();
        pipeline.set_ports(BRIDGE, ports).unwrap();
    };
    learn();
    removes(&|| drop(pipeline.expire(at(1000))));
    learn();
    removes(&|| set_ports(&[2]));
    set_ports(&[1, 2]);
    learn();
    removes(&|| {
        pipeline.flush_macs(BRIDGE);
        pipeline.flush_multicast(BRIDGE);
    });
    learn();
    removes(&|| drop(pipeline.remove_bridge(BRIDGE)));
    assert!(pipeline.bridges.read().is_empty());
}

/// The entries of one port are removed, and those of other ports stay.
#[test]
fn a_port_is_flushed_in_steps() {
    let (pipeline, many) = (pipeline(), usize::from(MANY));
    learn_many(&pipeline);
    let [one, two] = [1, 2].map(PortNo::new);
    let join = MulticastEvent::Join(IpAddr::V4(Ipv4Addr::new(239, 1, 0, 0)));
    let message = |port, event| {
        Learning::Multicast(MulticastObservation { bridge: BRIDGE, vlan: 0, port, event })
    };
    let mac = Learning::Mac(MacObservation {
        bridge: BRIDGE,
        vlan: 0,
        mac: [2, 0, 0, 0, 0xff, 0xff],
        port: two,
        is_announcement: false,
        precedes_packet: false,
    });
    let others = [mac, message(two, join), message(one, MulticastEvent::Query)];
    pipeline.learn(&others, Time::ZERO);
    assert_eq!(count_learned(&pipeline), (many + 1, many + 2));
    let mut changed = 0;
    check_releases(&pipeline, || changed = pipeline.flush_port(BRIDGE, one).deltas.len());
    assert_eq!(changed, 2 * many + 1, "the cache entries of each object are evicted");
    let macs: Vec<_> = pipeline.macs(BRIDGE).iter().map(|entry| entry.port).collect();
    let groups: Vec<_> = pipeline.multicast(BRIDGE).iter().map(|entry| entry.port).collect();
    assert_eq!((macs, groups), (vec![two], vec![two]));
    assert!(pipeline.flush_port(BRIDGE, one).deltas.is_empty());
}

#[test]
fn lower_group_limit_applies_in_steps() {
    let pipeline = pipeline();
    learn_many(&pipeline);
    let snoop = |multicast| {
        let settings = BridgeSettings { multicast, ..BridgeSettings::default() };
        pipeline.set_settings(BRIDGE, settings).unwrap();
    };
    let few = MulticastSnooping { groups_max: 10, ..MulticastSnooping::default() };
    check_releases(&pipeline, || snoop(Some(few)));
    assert_eq!(pipeline.multicast(BRIDGE).len(), 10);
    snoop(None);
    assert_eq!(pipeline.multicast(BRIDGE).len(), 0);
}

#[test]
fn lower_address_limit_applies_in_steps() {
    let pipeline = pipeline();
    learn_many(&pipeline);
    let snooping = MulticastSnooping { groups_max: MANY.into(), ..MulticastSnooping::default() };
    let settings =
        BridgeSettings { macs_max: 10, multicast: Some(snooping), ..BridgeSettings::default() };
    check_releases(&pipeline, || drop(pipeline.set_settings(BRIDGE, settings).unwrap()));
    assert_eq!(count_learned(&pipeline), (10, usize::from(MANY)));
    assert_eq!(pipeline.mac_totals(BRIDGE).evicted, u64::from(MANY) - 10);
}

#[test]
fn groups_of_a_bridge_are_removed_in_steps() {
    let pipeline = pipeline();
    let group = |number| {
        let text = format!("group_id={number},type=all,bucket=output:1");
        let request = parse_group_mod(GroupCommand::Add, &text, &NoPortNames).unwrap();
        Modification::from(request)
    };
    let add = || {
        pipeline.modify(BRIDGE, (0..u32::from(MANY)).map(group), Time::ZERO).unwrap();
    };
    check_releases(&pipeline, add);
    let groups = check_shared(&pipeline, || pipeline.groups(BRIDGE));
    assert_eq!(groups.len(), usize::from(MANY));
    check_releases(&pipeline, || drop(pipeline.remove_bridge(BRIDGE)));
    assert!(pipeline.groups(BRIDGE).is_empty());
    check_releases(&pipeline, || pipeline.reclaim(pipeline.version()));
    assert!(pipeline.bridges.read().is_empty());
}

/// Packets have refreshed all addresses, so each search for the oldest visits 64.
#[test]
fn a_full_table_learns_few_addresses_at_once() {
    let (pipeline, macs_max) = (pipeline(), usize::from(MANY));
    pipeline
        .set_settings(BRIDGE, BridgeSettings { macs_max, ..BridgeSettings::default() })
        .unwrap();
    let learn = |first: u8, count: u16, second| {
        let observation = |number: u16| {
            let [high, low] = number.to_be_bytes();
            Learning::Mac(MacObservation {
                bridge: BRIDGE,
                vlan: 0,
                mac: [2, 0, 0, first, high, low],
                port: PortNo::new(1),
                is_announcement: false,
                precedes_packet: false,
            })
        };
        pipeline.learn(&(0..count).map(observation).collect::<Vec<_>>(), at(second));
    };
    learn(0, MANY, 1);
    learn(0, MANY, 2);
    let before = pipeline.releases.load(Ordering::Relaxed);
    learn(1, 64, 3);
    let releases = pipeline.releases.load(Ordering::Relaxed) - before;
    assert!(releases > 16, "{releases}");
    assert_eq!(pipeline.macs_count(BRIDGE), macs_max);
}

/// All other ports have many groups, which are not visited.
#[test]
fn a_cleared_port_costs_what_it_has_learned() {
    let pipeline = pipeline();
    learn_many(&pipeline);
    let event = MulticastEvent::Join(IpAddr::V4(Ipv4Addr::new(239, 1, 0, 0)));
    let join = MulticastObservation { bridge: BRIDGE, vlan: 0, port: PortNo::new(2), event };
    pipeline.learn(&[Learning::Multicast(join)], Time::ZERO);
    assert_eq!(pipeline.multicast(BRIDGE).len(), usize::from(MANY) + 1);
    let before = pipeline.releases.load(Ordering::Relaxed);
    pipeline.set_ports(BRIDGE, vec![PortInfo::datapath(1)]).unwrap();
    let releases = pipeline.releases.load(Ordering::Relaxed) - before;
    assert!(releases < 8, "{releases}");
    assert_eq!(count_learned(&pipeline), (MANY.into(), MANY.into()));
}

/// No rule learns, so the rules of the table are not counted before the packet-out.
#[test]
fn packet_out_that_learns_scans_table_once() {
    let pipeline = pipeline();
    let rules = ["tcp,tp_dst=1", "tcp,tp_dst=2", "tcp,tp_dst=3"];
    let [one, two, three] = rules.map(|own| add_rule(&format!("cookie=5,{own},actions=drop")));
    let other = add_rule("cookie=6,udp,actions=drop");
    pipeline.apply(BRIDGE, &[one, other], Time::ZERO).unwrap();
    let before = pipeline.version();
    let (table, cookie) = (TableId::FIRST, two.cookie);
    let counted = |version| {
        let bridges = pipeline.bridges.read();
        bridges.get(&BRIDGE).unwrap().learn_index().count(table, cookie, version)
    };
    assert_eq!(counted(before), None);
    for request in [two, three] {
        let learned = LearnedRule { bridge: BRIDGE, learner: None, request, limit: 2 };
        pipeline.learn(&[Learning::Rule(Box::new(learned))], Time::ZERO);
        assert_eq!(counted(pipeline.version()), Some(2), "the third rule exceeds the limit");
    }
    assert_eq!(counted(before), None, "earlier versions are not counted");
    let remove = parse_rule(FlowModCommand::Delete, "tcp,tp_dst=1", &NoPortNames).unwrap();
    pipeline.apply(BRIDGE, &[remove], Time::ZERO).unwrap();
    assert_eq!(counted(pipeline.version()), Some(1));
}

#[test]
fn reading_many_rules_releases_the_lock() {
    let (pipeline, many) = (pipeline(), usize::from(MANY));
    pipeline.apply(BRIDGE, &many_rules(), Time::ZERO).unwrap();
    let rules = check_shared(&pipeline, || pipeline.rules(BRIDGE, &RuleFilter::all()));
    assert!(rules.iter().map(|rule| rule.id).is_sorted());
    assert_eq!(rules.len(), many);
    let contents = check_shared(&pipeline, || pipeline.contents(BRIDGE));
    assert_eq!(contents.rules.len(), many);
    assert!(check_shared(&pipeline, || pipeline.group_users(BRIDGE)).is_empty());
    let matching = add_rule("tcp,actions=drop").matching;
    let filter = RuleFilter { matching, ..RuleFilter::all() };
    assert_eq!(check_shared(&pipeline, || pipeline.rules(BRIDGE, &filter)).len(), many);
    let modify = parse_rule(FlowModCommand::Modify, "tcp,actions=output:1", &NoPortNames).unwrap();
    check_shared(&pipeline, || pipeline.apply(BRIDGE, &[modify], Time::ZERO).unwrap());
    let filter = RuleFilter { out_port: PortNo::new(1), ..RuleFilter::all() };
    assert_eq!(pipeline.rules(BRIDGE, &filter).len(), many);
    learn_many(&pipeline);
    assert_eq!(check_shared(&pipeline, || pipeline.macs(BRIDGE)).len(), many);
    assert_eq!(check_shared(&pipeline, || pipeline.multicast(BRIDGE)).len(), many);
}

/// A check compares many rules, so the lock is released after each check.
#[test]
fn each_check_of_overlap_has_its_own_hold() {
    let pipeline = pipeline();
    let add = |port: u16| add_rule(&format!("check_overlap,tcp,tp_dst={port},actions=drop"));
    let some: Vec<_> = (0..60).map(add).collect();
    check_releases(&pipeline, || drop(pipeline.apply(BRIDGE, &some, Time::ZERO).unwrap()));
    let wider = add_rule("check_overlap,tcp,actions=drop");
    let refused = pipeline.apply(BRIDGE, &[add(60), wider], Time::ZERO).unwrap_err();
    assert_eq!((refused.index, pipeline.rules(BRIDGE, &RuleFilter::all()).len()), (1, 60));
}

#[test]
fn rules_are_ordered_and_evicted_in_steps() {
    let (pipeline, many) = (pipeline(), usize::from(MANY));
    let limit = |rules_max: usize| {
        let settings = BridgeSettings {
            overflow: OverflowPolicy::Evict,
            rules_max: BTreeMap::from([(TableId::FIRST, rules_max)]),
            ..BridgeSettings::default()
        };
        pipeline.set_settings(BRIDGE, settings).unwrap();
    };
    let add = |port: u16| add_rule(&format!("hard_timeout=9,udp,tp_dst={port},actions=drop"));
    limit(many);
    let all: Vec<_> = (0..MANY).map(add).collect();
    pipeline.apply(BRIDGE, &all, Time::ZERO).unwrap();
    check_shared(&pipeline, || pipeline.apply(BRIDGE, &[add(MANY)], Time::ZERO).unwrap());
    limit(10);
    let evict = || drop(pipeline.apply(BRIDGE, &[add(MANY + 1)], Time::ZERO).unwrap());
    check_releases(&pipeline, evict);
    let rules = pipeline.rules(BRIDGE, &RuleFilter::all());
    assert_eq!(
        (rules.len(), rules.last().map(|rule| &rule.matching)),
        (10, Some(&add(MANY + 1).matching))
    );
}

/// Removes and reclaims rules between two steps of a read.
#[test]
fn a_read_of_many_rules_sees_one_version() {
    let (pipeline, many) = (pipeline(), usize::from(MANY));
    pipeline.apply(BRIDGE, &many_rules(), Time::ZERO).unwrap();
    let retained = pipeline.retain_newest();
    let delete = parse_rule(FlowModCommand::Delete, "tcp", &NoPortNames).unwrap();
    pipeline.apply(BRIDGE, &[delete, add_rule("udp,actions=drop")], Time::ZERO).unwrap();
    pipeline.reclaim(pipeline.version());
    let all = RuleFilter::all();
    assert_eq!(pipeline.rules_at(BRIDGE, &all, retained.version()).len(), many);
    assert!(pipeline.is_retained(retained.version()));
    assert_eq!(pipeline.rules(BRIDGE, &all).len(), 1);
    let version = retained.version();
    drop(retained);
    check_releases(&pipeline, || pipeline.reclaim(pipeline.version()));
    assert!(!pipeline.is_retained(version));
    assert!(pipeline.rules_at(BRIDGE, &all, version).is_empty());
}

#[test]
fn training_reads_rules_in_steps() {
    let (pipeline, table) = (pipeline(), TableId::FIRST);
    pipeline.apply(BRIDGE, &many_rules(), Time::ZERO).unwrap();
    let mut open = check_shared(&pipeline, || pipeline.begin_training(BRIDGE, table)).unwrap();
    let rules = open.take_rules();
    assert_eq!(rules.len(), usize::from(MANY));
    assert!(pipeline.begin_training(BRIDGE, table).is_none(), "one training at a time");
    let strictly = |text| parse_rule(FlowModCommand::DeleteStrict, text, &NoPortNames).unwrap();
    let changes = [strictly("tcp,tp_dst=7"), add_rule("tcp,tp_dst=5000,actions=drop")];
    pipeline.apply(BRIDGE, &changes, Time::ZERO).unwrap();
    let trained = Box::new(LearnedRules::train(rules, StartIndexKind::Tree).unwrap());
    let former = open.end(trained).unwrap();
    assert!(former.is_none(), "there was no index");
    let finds = |port: u16| {
        let matching: Match = add_rule(&format!("tcp,tp_dst={port},actions=drop")).matching;
        let bridges = pipeline.bridges.read();
        let index = bridges[&BRIDGE].table(table).unwrap().learned().unwrap();
        index.find(&matching.key(), pipeline.version()).is_some()
    };
    assert_eq!([6, 7, 5000, 5001].map(finds), [true, false, true, false]);
}

/// The next bridge has the number of the removed one, and a training of its own.
#[test]
fn an_index_of_a_removed_table_is_dropped() {
    let (pipeline, table) = (pipeline(), TableId::FIRST);
    let add = |text| pipeline.apply(BRIDGE, &[add_rule(text)], Time::ZERO).unwrap();
    add("tcp,actions=drop");
    let mut old = pipeline.begin_training(BRIDGE, table).unwrap();
    pipeline.remove_bridge(BRIDGE);
    pipeline.reclaim(pipeline.version());
    pipeline.add_bridge(BRIDGE, BridgeSettings::default());
    add("udp,actions=drop");
    let mut new = pipeline.begin_training(BRIDGE, table).unwrap();
    add("arp,actions=drop");
    let trained = Box::new(LearnedRules::train(old.take_rules(), StartIndexKind::Tree).unwrap());
    assert!(old.end(trained).unwrap().is_some());
    assert!(pipeline.bridges.read()[&BRIDGE].table(table).unwrap().learned().is_none());
    assert!(pipeline.begin_training(BRIDGE, table).is_none(), "the new training goes on");
    let trained = Box::new(LearnedRules::train(new.take_rules(), StartIndexKind::Tree).unwrap());
    assert!(new.end(trained).unwrap().is_none());
    let bridges = pipeline.bridges.read();
    let index = bridges[&BRIDGE].table(table).unwrap().learned().unwrap();
    for (text, is_found) in [("tcp", false), ("udp", true), ("arp", true)] {
        let key = add_rule(&format!("{text},actions=drop")).matching.key();
        assert_eq!(index.find(&key, pipeline.version()).is_some(), is_found, "{text}");
    }
}

#[test]
fn a_credit_waits_for_no_long_change() {
    let pipeline = pipeline();
    pipeline.apply(BRIDGE, &[add_rule("in_port=1,actions=output:2")], Time::ZERO).unwrap();
    let mut packet = FlowKey::ZERO;
    packet.set_bridge(BRIDGE.number().into());
    packet.set_in_port(PortNo::new(1));
    let (mut decider, mut decisions) = (PacketDecider::new(), [PacketDecision::default()]);
    decider.decide_burst(&pipeline, &[packet], pipeline.version(), &mut decisions);
    decider.count(&decisions[0], 64, Time::ZERO);
    let dirty = decider.dirty();
    assert!(dirty > 0);
    let change = pipeline.bridges.write();
    assert_eq!(decider.credit(&pipeline, 10, Duration::ZERO), 0);
    assert_eq!(decider.dirty(), dirty, "the counts are left");
    drop(change);
    assert_eq!(decider.credit(&pipeline, 10, Duration::ZERO), dirty);
    let rules = pipeline.rules(BRIDGE, &RuleFilter::all());
    assert_eq!((decider.dirty(), rules[0].stats.totals().packets), (0, 1));
}

/// The changes of a bridge that does not exist are not made on the next bridge.
#[test]
fn pending_changes_end_with_their_bridge() {
    let pipeline = pipeline();
    pipeline.apply(BRIDGE, &[add_rule("tcp,actions=drop")], Time::ZERO).unwrap();
    let rule = Arc::clone(&pipeline.rules(BRIDGE, &RuleFilter::all())[0]);
    let next_rule = pipeline.control.lock().next_rule;
    let mut batch = UpdateBatch::new(pipeline.version().next(), Time::ZERO, next_rule);
    batch.queue_removals(vec![(rule, RemovedReason::Delete)]);
    batch.note(RuleSelection::Delete(RuleFilter::all()));
    pipeline.change_rest(&mut batch, BridgeId::new(99));
    pipeline.change_rest(&mut batch, BRIDGE);
    assert!(batch.finish().0.is_empty());
    assert_eq!(pipeline.rules(BRIDGE, &RuleFilter::all()).len(), 1);
}
