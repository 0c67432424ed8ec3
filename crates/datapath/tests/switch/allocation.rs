//! Tests that the packet path allocates no memory once it is warm.

use std::{num::NonZeroU32, path::Path, time::Duration};

use allocation_counter::measure;
use shunt_datapath::{
    BURST, Command, ThreadConfig,
    cache::{CacheConfig, ExactConfig},
    forecast::ForecastConfig,
    netflow::netflow_cache,
    port::{PortSpec, Repeat, open},
    rule_sample::{CollectorSetId, rule_sampler},
    sample::{SampleUse, SamplerConfig, packet_sampler},
};
use shunt_flow::{FieldId, Match, PortNo, testing::packet::PacketBuilder};
use shunt_foresight::{
    ForecastSource, Foresight, GovernorConfig, Periodic, Reply, Siblings, SuccessorTable,
};
use shunt_pipeline::{
    Action, Bucket, FlowMod, GroupCommand, GroupId, GroupKind, GroupMod, MeterBand, MeterBandKind,
    MeterCommand, MeterConfig, MeterId, MeterMod, MeterUnit, Modification, PortInfo, SampleAction,
    Selection, Subfield, TableId, TableSelector,
};

use super::{
    counts::controller,
    waiting::{flow, per_flow},
};
use crate::harness::{BRIDGE, Switch, output, rule};

fn allocations(run: impl FnOnce()) -> u64 {
    measure(run).count_total
}

/// Sends bursts of known flows; checks that the iterations allocate no memory.
fn check(exact: ExactConfig) {
    let caches = CacheConfig { exact, ..super::caches() };
    let mut switch = Switch::new(1, 4, ThreadConfig { caches, ..super::thread_config() });
    let set =
        Action::SetField { field: FieldId::EthSrc, value: 5, mask: FieldId::EthSrc.value_max() };
    let sample = Action::Sample(Box::new(SampleAction {
        probability: 30_000,
        collector_set_id: 1,
        observation_domain_id: 2,
        observation_point_id: 3,
        sampling_port: None,
        direction: None,
    }));
    let rewritten = rule(2, Match::any(), vec![output(2), set, sample, output(3), output(4)]);
    let target = Subfield { field: FieldId::Reg0, offset: 0, width: 1 };
    let check = Action::CheckPktLarger { length: 9, target };
    let push = Action::PushMpls { ethertype: 0x8847 };
    let cut = Action::Clone(Box::new([check, push, output(2)]));
    let recirculated = rule(3, Match::any(), vec![cut, output(3)]);
    switch.apply(&[per_flow(1, 2)]);
    // The test also covers samples that find their ring full.
    let rate = NonZeroU32::new(4).unwrap();
    let config = SamplerConfig { bridge: BRIDGE, rate, header_length: 128, seed: 1 };
    let (sampler, samples) = packet_sampler(config);
    switch.controls[0]
        .send(Command::Sample(BRIDGE, SampleUse::Sflow, Some(Box::new(sampler))))
        .unwrap();
    let set = CollectorSetId { bridge: BRIDGE, number: 1 };
    let (sampler, sampled_by_rule) = rule_sampler(vec![set], 1);
    switch.controls[0].send(Command::SampleByRules(Some(Box::new(sampler)))).unwrap();
    // The NetFlow cache is too small for all flows, so it ends some flows early.
    let (flows, mut expired) = netflow_cache(BRIDGE, BURST / 2, 1);
    let count = Command::CountFlows(BRIDGE, Some(Box::new(flows)), Box::new(|_| {}));
    switch.controls[0].send(count).unwrap();
    for mods in [None, Some(rewritten), Some(recirculated)] {
        mods.into_iter().for_each(|changed| switch.apply(&[changed]));
        for warm in [false, true] {
            for _ in 0..20 {
                for number in 0..BURST {
                    assert!(switch.send(0, 1, &flow(u16::try_from(number).unwrap())));
                }
                let allocated = allocations(|| while switch.run_iteration(0) {});
                assert!(!warm || allocated == 0, "{allocated} allocations in a warm burst");
                (2..=4).for_each(|port| drop(switch.receive(0, port)));
                switch.coordinator.run_iteration();
            }
        }
    }
    assert!(samples.len() > 100 && sampled_by_rule.len() > 100);
    assert!(expired.len() > 100 && expired.pop().is_some());
    assert_eq!(switch.counters(0).unaccounted(), 0);
}

#[test]
fn a_warm_burst_allocates_nothing_in_any_cache() {
    check(ExactConfig { lines: 8192, insert_inverse: 1 });
    check(ExactConfig { lines: 8192, insert_inverse: 0 });
}

/// Time passes between the bursts, so the governors of the predictors get outcomes.
///
/// Another table changes before each burst, so warm bursts also request trainings of the trainer
/// thread.
#[test]
fn a_warm_burst_with_predictors_allocates_nothing() {
    let mut switch = Switch::new(1, 4, super::thread_config());
    let config = ForecastConfig::default();
    let senders = switch.attach_predictors(config, || {
        let mut predictors = Foresight::new(GovernorConfig::default());
        predictors.add(Box::new(Reply::default()));
        predictors.add(Box::new(Siblings::default()));
        predictors.add(Box::new(SuccessorTable::new(64)));
        predictors.add(Box::new(Periodic::new(64, 1, config.idle)));
        predictors
    });
    switch.apply(&[per_flow(1, 2)]);
    for priority in 0..40 {
        for number in 0..BURST {
            assert!(switch.send(0, 1, &flow(u16::try_from(number).unwrap())));
        }
        let table = TableSelector::One(TableId::new(9).unwrap());
        let unused = FlowMod { table, ..rule(priority, Match::any(), vec![output(3)]) };
        let change = switch.pipeline.apply(BRIDGE, &[unused], switch.now).unwrap();
        switch.change(&change);
        let allocated = allocations(|| while switch.run_iteration(0) {});
        let is_warm = priority >= 20;
        assert!(!is_warm || allocated == 0, "{allocated} allocations in a warm burst");
        drop(switch.receive(0, 2));
        switch.coordinator.run_iteration();
        switch.wait(Duration::from_millis(10));
    }
    let counters = senders[0].counters();
    assert!(counters.observed.get() >= BURST as u64);
    assert!(counters.of(ForecastSource::Reply).counts().installed > 0);
}

#[test]
fn warm_burst_between_pcap_and_null_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.pcap");
    let spec = |rx: Option<&Path>, tx: Option<&Path>| PortSpec::Pcap {
        rx: rx.map(Into::into),
        tx: tx.map(Into::into),
        repeat: Repeat::Endless,
    };
    // Port 1 writes the file that port 2 replays to port 3.
    let mut switch = Switch::new(1, 1, super::thread_config());
    switch.pipeline.set_ports(BRIDGE, (1..=3).map(PortInfo::datapath).collect()).unwrap();
    let mut writer = open(&spec(None, Some(&path)), 0).unwrap();
    switch.attach(2, BRIDGE, PortNo::new(2), writer.as_mut());
    switch.apply(&[per_flow(1, 2)]);
    (0..100).for_each(|number| assert!(switch.send(0, 1, &flow(number))));
    switch.settle();
    assert_eq!(switch.counters(0).sent.get(), 100);

    let set =
        Action::SetField { field: FieldId::EthSrc, value: 5, mask: FieldId::EthSrc.value_max() };
    for actions in [vec![output(3)], vec![output(3), set, output(3)]] {
        let mut switch = Switch::new(1, 0, super::thread_config());
        switch.pipeline.set_ports(BRIDGE, (2..=3).map(PortInfo::datapath).collect()).unwrap();
        switch.apply(&[rule(1, Match::any(), actions)]);
        let mut reader = open(&spec(Some(&path), None), 0).unwrap();
        switch.attach(2, BRIDGE, PortNo::new(2), reader.as_mut());
        switch.attach(3, BRIDGE, PortNo::new(3), open(&PortSpec::Null, 0).unwrap().as_mut());
        let mut turn = |count| (0..count).for_each(|_| assert!(switch.run_iteration(0)));
        turn(20);
        let allocated = allocations(|| turn(200));
        assert_eq!(allocated, 0);
        assert_eq!(switch.counters(0).received.get(), 220 * BURST as u64);
        assert!(switch.counters(0).sent.get() >= 220 * BURST as u64 - 100);
        assert_eq!(switch.counters(0).unaccounted(), 0);
    }
}

fn add_group(number: u32, kind: GroupKind, buckets: [Vec<Action>; 2]) -> Modification {
    let watch_port = PortNo::ANY;
    let bucket = |(id, actions): (u32, Vec<Action>)| {
        let weight = u16::from(kind == GroupKind::Select);
        Bucket { id, weight, watch_port, watch_group: None, actions: actions.into() }
    };
    let request = GroupMod {
        command: GroupCommand::Add,
        group: Some(GroupId::new(number)),
        kind,
        selection: Selection::Default,
        buckets: (0..).zip(buckets).map(bucket).collect(),
    };
    request.into()
}

fn add_meter(number: u32, kind: MeterBandKind) -> Modification {
    let bands = [MeterBand { kind, rate: 1, burst_size: 0 }].into();
    let config = MeterConfig { unit: MeterUnit::Packets, burst: false, stats: true, bands };
    MeterMod { command: MeterCommand::Add, meter: Some(MeterId::new(number)), config }.into()
}

/// Returns action lists that do more than change headers and output.
/// Each list has a name, and the MPLS label of its packet, if any.
fn action_lists() -> Vec<(&'static str, Option<u32>, Vec<Action>)> {
    let set = |field: FieldId| Action::SetField { field, value: 5, mask: field.value_max() };
    let group = |number| Action::Group(GroupId::new(number));
    let pass = |number| Action::Meter(MeterId::new(number));
    let (push, pop) =
        (Action::PushMpls { ethertype: 0x8847 }, Action::PopMpls { ethertype: 0x0800 });
    let uncovered = [pop.clone(), set(FieldId::NwTtl), output(2)];
    let target = Subfield::new(FieldId::Reg0, 0, 1).unwrap();
    vec![
        ("a group of all", None, vec![group(1), output(4)]),
        ("a group of one", None, vec![group(2)]),
        ("a meter that drops", None, vec![pass(1), output(2)]),
        ("a meter that remarks", None, vec![pass(2), output(2), output(3)]),
        ("a meter in a clone", None, vec![Action::Clone([pass(2), output(2)].into()), output(3)]),
        ("a label more", None, vec![push.clone(), set(FieldId::MplsLabel), output(2)]),
        ("a label less", Some(7), vec![pop, output(2)]),
        ("another label", Some(7), vec![push, set(FieldId::MplsTc), output(2), output(3)]),
        ("what a pop uncovers", Some(7), uncovered.to_vec()),
        ("two that recirculate", Some(7), {
            let both = [Action::Clone(uncovered.into()), group(3), output(4)];
            both.to_vec()
        }),
        ("a packet-in", None, vec![controller(None), output(2)]),
        ("a packet-in alone", None, vec![controller(None)]),
        ("a metered packet-in", None, vec![controller(Some(MeterId::new(1))), output(2)]),
        ("a packet-in behind a meter", None, vec![pass(2), controller(None), output(2)]),
        ("a length", None, vec![Action::CheckPktLarger { length: 70, target }, output(2)]),
    ]
}

#[test]
fn a_warm_burst_allocates_nothing_for_any_action() {
    let set = |field: FieldId| Action::SetField { field, value: 9, mask: field.value_max() };
    let uncovered = || vec![Action::PopMpls { ethertype: 0x0800 }, set(FieldId::NwTtl), output(3)];
    for (name, label, actions) in action_lists() {
        let mut switch = Switch::new(1, 4, super::thread_config());
        switch.modify([
            add_group(1, GroupKind::All, [vec![set(FieldId::EthSrc), output(2)], vec![output(3)]]),
            add_group(2, GroupKind::Select, [vec![output(2)], vec![output(3)]]),
            add_group(3, GroupKind::All, [uncovered(), uncovered()]),
            add_meter(1, MeterBandKind::Drop),
            add_meter(2, MeterBandKind::DscpRemark { precedence: 1 }),
            rule(1, Match::any(), actions).into(),
        ]);
        for warm in [false, true] {
            for _ in 0..5 {
                for number in 0..BURST {
                    let source = 1000 + u16::try_from(number).unwrap();
                    let packet = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tos(10 << 2);
                    let packet = packet.udp(source, 53);
                    let packet = match label {
                        Some(label) => packet.mpls(label, 0, 64),
                        None => packet,
                    };
                    assert!(switch.send(0, 1, &packet.build()));
                }
                let allocated = allocations(|| while switch.run_iteration(0) {});
                assert!(!warm || allocated == 0, "{allocated} allocations in {name}");
                (2..=4).for_each(|port| drop(switch.receive(0, port)));
                while switch.controls[0].packet_ins.pop().is_some() {}
                switch.coordinator.run_iteration();
            }
        }
        let counters = switch.counters(0);
        assert!(
            counters.sent.get() + counters.punted.get() > 0 || name.contains("drops"),
            "{name}"
        );
        assert_eq!(counters.unaccounted(), 0, "{name}");
    }
}

/// A thread allocates the queues of a port with its first packets.
///
/// The allocations are the upcall queue and the transmit batch. The bound includes the growth of
/// all lists of ports. With queues from the start, a port takes more than 20 KiB.
#[test]
fn an_idle_port_takes_two_kilobytes_at_most() {
    const PORTS: u32 = 64;
    let mut switch = Switch::new(1, 0, super::thread_config());
    let mut bytes = 0;
    for port in 1..=PORTS {
        switch.add_port(port, BRIDGE, PortNo::new(port));
        bytes += measure(|| while switch.run_iteration(0) {}).bytes_total;
    }
    assert!(bytes < u64::from(PORTS) * 2048, "{bytes} bytes for {PORTS} idle ports");
}

#[test]
fn the_allocator_counts_allocations() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(5)))), 1);
}
