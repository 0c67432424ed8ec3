//! Tests of traversals near the depth limit: nested resubmits, clones and chains of groups. Each
//! level may also meter the packet, send it, or recirculate it.
//!
//! The rule of each level matches the number in a register that the previous level has written.

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample::select};
use shunt_classifier::Priority;
use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo};

use super::invariants;
use crate::{
    action::Action,
    bridges::port::{PortInfo, PortKind},
    groups::group::{Bucket, GroupCommand, GroupKind, GroupMod, Selection},
    id::{BridgeId, Cookie, DatapathPort, GroupId, MeterId, TableId},
    meters::meter::{MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterMod, MeterUnit},
    tables::{
        flow_mod::{FlowMod, FlowModCommand, TableSelector},
        rule::{FlowFlags, Instructions},
        rule_filter::RuleFilter,
    },
    testing::{
        CheckedPipeline, cases,
        generate::{self, BRIDGES, Op},
        merged, runner, traversals, visible,
    },
    traversals::traversal::TraversalError,
    update::modification::Modification,
};

/// The nesting by which a level leads to the next level.
#[derive(Clone, Copy, Debug)]
enum Hop {
    Resubmit,
    /// A resubmit inside this number of nested clones.
    /// Each clone passes the meter of the level.
    Clones(u8),
    /// A resubmit in the last group of a chain of this number of groups.
    Groups(u8),
}

/// The actions of the rule of a level.
#[derive(Clone, Copy, Debug)]
struct NestingLevel {
    hop: Hop,
    /// Number of the meter: 0 means no meter, 1 passes packets, 2 drops packets.
    meter: u32,
    /// True if the packet is parsed again before the next level.
    recirculates: bool,
    /// True if the packet is sent after the next level has returned.
    sends: bool,
    writes: bool,
}

const BRIDGE: BridgeId = BRIDGES[0];
/// Number of meters.
const METERS: u32 = 2;
/// The depths of generated networks, around the limit of 64.
const DEPTHS: std::ops::Range<u16> = 58..70;

impl NestingLevel {
    /// Returns the depth that the level adds.
    fn depth(self) -> u16 {
        match self.hop {
            Hop::Resubmit | Hop::Clones(_) => 1,
            Hop::Groups(count) => u16::from(count) + 1,
        }
    }

    /// Returns the actions of the rule, and adds the groups that the actions name.
    fn rule(self, number: u32, groups: &mut Vec<GroupMod>) -> Vec<Action> {
        let mut list = Vec::new();
        let meter = (self.meter > 0).then(|| Action::Meter(MeterId::new(self.meter)));
        list.extend(meter.clone());
        if self.writes {
            list.push(set_field(FieldId::EthSrc, 0x0200_0000_0000 | u128::from(number)));
            list.push(set_field(FieldId::IpDscp, u128::from(10 + 8 * (number % 3))));
        }
        if self.recirculates {
            list.push(Action::PushMpls { ethertype: 0x8847 });
            list.push(Action::PopMpls { ethertype: 0x0800 });
        }
        list.push(set_field(FieldId::Reg0, u128::from(number + 1)));
        let mut next = Action::Resubmit { port: None, table: Some(TableId::FIRST) };
        match self.hop {
            Hop::Resubmit => {}
            Hop::Clones(count) => {
                for _ in 0..count {
                    let inner = meter.iter().cloned().chain([next]).collect::<Vec<_>>();
                    next = Action::Clone(inner.into());
                }
            }
            Hop::Groups(count) => {
                for _ in 0..count {
                    let id = GroupId::new(u32::try_from(groups.len()).unwrap() + 1);
                    groups.push(group(id, next));
                    next = Action::Group(id);
                }
            }
        }
        list.push(next);
        list.extend(self.sends.then(|| output(2)));
        list
    }
}

fn set_field(field: FieldId, value: u128) -> Action {
    Action::SetField { field, value, mask: field.value_max() }
}

/// Returns an output to a port.
fn output(port: u32) -> Action {
    Action::Output { port: PortNo::new(port), max_len: 0 }
}

/// Returns the addition of a group with one action.
fn group(id: GroupId, action: Action) -> GroupMod {
    let bucket = Bucket {
        id: 0,
        weight: 0,
        watch_port: PortNo::ANY,
        watch_group: None,
        actions: vec![action].into(),
    };
    GroupMod {
        command: GroupCommand::Add,
        group: Some(id),
        kind: GroupKind::Indirect,
        selection: Selection::Default,
        buckets: vec![bucket].into(),
    }
}

/// Returns the addition of a meter.
fn meter(id: u32) -> MeterMod {
    let (rate, burst_size) = if id == 1 { (u32::MAX, 0) } else { (1, 1) };
    let bands = vec![MeterBand { kind: MeterBandKind::Drop, rate, burst_size }];
    let config =
        MeterConfig { unit: MeterUnit::Kilobits, burst: true, stats: false, bands: bands.into() };
    MeterMod { command: MeterCommand::Add, meter: Some(MeterId::new(id)), config }
}

/// Returns the addition of a rule.
fn rule(number: u32, actions: Vec<Action>) -> FlowMod {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    key.set_field(FieldId::Reg0, number.into());
    mask.add_field(FieldId::Reg0);
    FlowMod {
        command: FlowModCommand::Add,
        table: TableSelector::One(TableId::FIRST),
        matching: Match::new(&key, &mask),
        priority: Priority::new(1),
        cookie: Cookie::new(0),
        cookie_mask: 0,
        idle_timeout: Duration::ZERO,
        hard_timeout: Duration::ZERO,
        importance: 0,
        flags: FlowFlags::default(),
        out_port: PortNo::ANY,
        out_group: RuleFilter::GROUP_ANY,
        instructions: Instructions { apply: actions.into(), ..Instructions::default() },
    }
}

/// Generates a level of nested actions.
fn level() -> impl Strategy<Value = NestingLevel> {
    let hop = prop_oneof![
        2 => Just(Hop::Resubmit),
        2 => (1..4u8).prop_map(Hop::Clones),
        2 => (1..9u8).prop_map(Hop::Groups),
    ];
    let often = |chance| prop::bool::weighted(chance);
    let meter = select(vec![0, 0, 1, 1, 1, 1, 1]);
    let drops = often(0.01);
    (hop, meter, drops, often(0.04), often(0.3), often(0.3)).prop_map(
        |(hop, meter, drops, recirculates, sends, writes)| {
            let meter = if drops { 2 } else { meter };
            NestingLevel { hop, meter, recirculates, sends, writes }
        },
    )
}

/// Generates a network in which packets reach a depth around the limit.
fn network() -> impl Strategy<Value = Vec<Op>> {
    let ports = generate::ports(BRIDGE);
    (vec(level(), 70), DEPTHS, ports)
        .prop_map(|(levels, depth, ports)| build_network(&levels, depth, ports))
}

fn build_network(levels: &[NestingLevel], depth: u16, ports: Vec<PortInfo>) -> Vec<Op> {
    let (mut groups, mut rules, mut reached) = (Vec::new(), Vec::new(), 0);
    for (number, level) in (0..).zip(levels) {
        if reached + level.depth() > depth {
            break;
        }
        reached += level.depth();
        rules.push(rule(number, level.rule(number, &mut groups)));
    }
    rules.push(rule(u32::try_from(rules.len()).unwrap(), vec![output(1), output(3)]));
    let meters = (1..=METERS).map(meter).map(Modification::Meter);
    let groups = groups.into_iter().map(Modification::Group);
    let rules = rules.into_iter().map(Modification::Flow);
    let mods = meters.chain(groups).chain(rules).collect();
    vec![Op::SetPorts(BRIDGE, ports), Op::Modify(BRIDGE, mods)]
}

/// Generates a packet.
fn packet() -> impl Strategy<Value = FlowKey> {
    generate::packet().prop_map(|mut key| {
        key.set_bridge(BRIDGE.number().into());
        key
    })
}

/// Returns a network in which levels nest by clones alone.
fn clones(counts: [u8; 2]) -> CheckedPipeline {
    let level = |count| NestingLevel {
        hop: Hop::Clones(count),
        meter: 1,
        recirculates: false,
        sends: false,
        writes: false,
    };
    let port =
        |number| PortInfo::new(PortNo::new(number), PortKind::Datapath(DatapathPort::new(number)));
    let levels = counts.map(level);
    let mut checked = CheckedPipeline::new(&[]);
    for op in build_network(&levels, 64, (1..4).map(port).collect()) {
        assert!(checked.apply(&op).is_some());
    }
    checked
}

#[test]
fn metered_copies_nest_up_to_the_bound() {
    let mut key = FlowKey::ZERO;
    key.set_bridge(BRIDGE.number().into());
    key.set_in_port(PortNo::new(2));
    for (counts, error) in [([32, 32], None), ([32, 33], Some(TraversalError::TooDeep(64)))] {
        let checked = clones(counts);
        let effects = checked.effects(&checked.translate(&key), &key);
        assert_eq!((effects.error, effects.outcomes.is_empty()), (error, error.is_some()));
        assert_eq!(effects, checked.model.translate(&key));
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn traversal_near_depth_limit_equals_tables(
        network in network(),
        packets in vec(packet(), 2),
        choice in any::<u64>(),
    ) {
        let (mut checked, mut runner) = (CheckedPipeline::new(&[]), runner());
        for op in &network {
            prop_assert!(checked.apply(op).is_some(), "a request is refused: {:?}", op);
        }
        for key in packets {
            let (whole, expected) = (checked.translate(&key), checked.model.translate(&key));
            prop_assert_eq!(&checked.effects(&whole, &key), &expected);
            invariants::agreeing_packets_get_one_result(&checked, &key, &mut runner)?;
            if expected.error.is_none() {
                let sub_traversals = invariants::sub_traversals(&checked, &visible(&key), choice);
                prop_assert_eq!(checked.effects(&merged(traversals(&sub_traversals)), &key), expected);
            }
        }
    }
}
