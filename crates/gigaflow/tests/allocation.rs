//! Policies and walks through the stages allocate nothing once they are warm.

use allocation_counter::measure;
use shunt_flow::{FieldId, FlowKey, text::NoPortNames};
use shunt_gigaflow::{
    adaptive::{Adaptive, Capacity, ProbeResult},
    cache::{Config, Fallback, Gigaflow, Miss},
    ltm::{Eviction, VecStore, Walk},
    outline::{Coupling, FieldSet, OutlineStep, StateId, TraversalOutline},
    partition::{EmptyStages, JointPolicy, PartitionPolicy, PolicyName},
};
use shunt_pipeline::{BridgeId, BridgeSettings, FlowModCommand, Pipeline, Time, text::parse_rule};

fn allocations(run: impl FnOnce()) -> u64 {
    measure(run).count_total
}

/// Builds the outline with this number and `steps_count` steps in reused memory.
fn build(outline: &mut TraversalOutline, number: u32, steps_count: u32) {
    outline.begin(StateId::new(0));
    for step in 0..steps_count {
        outline.partition_point(StateId::new(step));
        let fields = FieldSet::of(&[Coupling::ALL[step as usize / 4 % Coupling::ALL.len()]]);
        outline
            .step(OutlineStep { fields, identity: u64::from(number % 17) << 32 | u64::from(step) });
    }
}

#[test]
fn the_allocator_counts_allocations() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn warm_partition_policies_allocate_no_memory() {
    for name in PolicyName::ALL {
        let (mut policy, mut outline) = (name.policy(1), TraversalOutline::new());
        let mut partition = |number: u32| {
            build(&mut outline, number, 22 + number % 9);
            assert!(!policy.partition(&outline, &EmptyStages(4)).is_empty());
        };
        (0..20).for_each(&mut partition);
        assert_eq!(allocations(|| (0..300).for_each(&mut partition)), 0, "{name}");
    }
}

#[test]
fn a_warm_lookup_allocates_no_memory() {
    let (pipeline, bridge) = (Pipeline::new(1), BridgeId::new(1));
    pipeline.add_bridge(bridge, BridgeSettings::default());
    let rules = ["table=0,ip,actions=dec_ttl,goto_table:1", "table=1,ip,actions=drop"]
        .map(|rule| parse_rule(FlowModCommand::Add, rule, &NoPortNames).unwrap());
    pipeline.apply(bridge, &rules, Time::ZERO).unwrap();
    let mut key = FlowKey::ZERO;
    key.set_bridge(bridge.number().into());
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::NwTtl, 9);
    let mut cache = Gigaflow::new(Config {
        capacity: Capacity { stages_count: 4, stage_entries_max: 10 },
        policy: PolicyName::OneToOne,
        fallback: Fallback::Off,
        eviction: Eviction::LeastRecent,
        tag_bits: 16,
        seed: 1,
    });
    let (version, now) = (pipeline.version(), Time::ZERO);
    let miss = Miss { pipeline: &pipeline, key: &key, start: None, version, now };
    let (mut store, mut walk) = (VecStore::default(), Walk::default());
    cache.handle_miss(&mut store, miss, ProbeResult::Missed);
    assert!(cache.find(&store, &key, &mut walk) && walk.slots().len() == 2);
    let run = || {
        for _ in 0..100 {
            assert!(cache.find(&store, &key, &mut walk));
            store.hit(&walk, 64, Time::ZERO);
        }
    };
    assert_eq!(allocations(run), 0);
}

#[test]
fn warm_set_duelling_allocates_no_memory() {
    let capacity = Capacity { stages_count: 4, stage_entries_max: 1000 };
    let (mut adaptive, mut outline) =
        (Adaptive::new(JointPolicy::default(), capacity), TraversalOutline::new());
    let mut observe = |number| {
        build(&mut outline, number, 30);
        adaptive.observe(&outline, ProbeResult::Sampled);
        assert!(!adaptive.partition(&outline, &EmptyStages(4)).is_empty());
    };
    (0..100).for_each(&mut observe);
    assert_eq!(allocations(|| (0..2000).for_each(&mut observe)), 0);
}
