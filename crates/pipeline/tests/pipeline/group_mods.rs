//! Tests of group-mods and meter-mods.

use shunt_flow::PortNo;
use shunt_pipeline::{
    Action, BridgeSettings, Bucket, BucketPlace, BucketSelector, Delta, FlowMod, FlowModCommand,
    FlowModError, GroupCommand, GroupId, GroupKind, GroupModError, Instructions, Meter,
    MeterCommand, MeterId, MeterModError, Modification, ModificationError, Object, RemovedReason,
    RuleChange, RuleFilter, TableSelector, Time,
};

use crate::{
    build::{
        add_group, bucket, delete_group, drop_band, group, group_mod, meter_mod, output, rule,
        watching, weighted,
    },
    switch::{BRIDGE, Switch, request},
};

fn add_all_group(number: u32) -> Modification {
    add_group(number, GroupKind::All, vec![bucket(vec![output(2)])])
}

fn add_meter(number: u32) -> Modification {
    meter_mod(MeterCommand::Add, number, vec![drop_band(1, 0)])
}

fn refused_group(switch: &Switch, request: Modification) -> GroupModError {
    match switch.modify([request]) {
        Err(ModificationError::Group(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn reasons(deltas: &[Delta]) -> Vec<RemovedReason> {
    let reason = |delta: &Delta| match delta {
        Delta::Rule(delta) => match delta.change {
            RuleChange::Removed(reason) => Some(reason),
            _ => None,
        },
        Delta::Changed(_) => None,
    };
    deltas.iter().filter_map(reason).collect()
}

#[test]
fn groups_are_added_once_and_then_modified() {
    let switch = Switch::new(&[]);
    let modify = |number, command| group_mod(command, number, GroupKind::All, Vec::new()).into();
    let missing = GroupModError::Unknown(GroupId::new(1));
    assert_eq!(refused_group(&switch, modify(1, GroupCommand::Modify)), missing);
    switch.make([add_all_group(1)]);
    assert_eq!(refused_group(&switch, add_all_group(1)), GroupModError::Exists(GroupId::new(1)));
    switch.make([modify(1, GroupCommand::Modify), modify(2, GroupCommand::AddOrModify)]);
    switch.make([modify(2, GroupCommand::AddOrModify)]);
    assert_eq!(switch.group_numbers(), [1, 2]);
    let buckets = switch.pipeline.groups(BRIDGE)[0].buckets.len();
    assert_eq!(buckets, 0, "the modification replaced the configuration");
}

#[test]
fn modified_group_keeps_only_its_age() {
    let switch = Switch::new(&[]);
    switch.make([add_all_group(1)]);
    let old = switch.pipeline.groups(BRIDGE).remove(0);
    old.stats.credit(1, 60);
    let later = Time::from_nanoseconds(7);
    let modify = group_mod(GroupCommand::Modify, 1, GroupKind::All, Vec::new());
    switch.pipeline.modify(BRIDGE, [modify.into()], later).expect("legal");
    let new = switch.pipeline.groups(BRIDGE).remove(0);
    assert_eq!((new.created, new.stats.totals().packets), (old.created, 0));
}

/// Returns a request for the buckets `ids` of group 1.
fn change_buckets(command: GroupCommand, ids: impl IntoIterator<Item = u32>) -> Modification {
    let mut request = group_mod(command, 1, GroupKind::All, Vec::new());
    let numbered = |id| Bucket { id, ..bucket(vec![output(id)]) };
    request.buckets = ids.into_iter().map(numbered).collect();
    request.into()
}

/// Open vSwitch 3.1 gives the same results.
#[test]
fn buckets_are_inserted_and_removed_at_their_place() {
    let switch = Switch::new(&[]);
    let insert = |place, ids: &[u32]| {
        change_buckets(GroupCommand::InsertBuckets(place), ids.iter().copied())
    };
    let remove = |selector| change_buckets(GroupCommand::RemoveBuckets(selector), []);
    let one = GroupId::new(1);
    for request in [insert(BucketPlace::First, &[4]), remove(BucketSelector::All)] {
        assert_eq!(refused_group(&switch, request), GroupModError::Unknown(one));
    }
    let select = group_mod(GroupCommand::Add, 1, GroupKind::Select, vec![weighted(3, vec![])]);
    switch.make([select.into()]);
    let check = |request, expected: &[u32]| {
        switch.make([request]);
        let group = switch.pipeline.groups(BRIDGE).remove(0);
        let ids: Vec<_> = group.buckets.iter().map(|bucket| bucket.id).collect();
        assert_eq!((&ids[..], group.kind), (expected, GroupKind::Select));
    };
    check(insert(BucketPlace::First, &[9, 8]), &[9, 8, 0]);
    check(insert(BucketPlace::Last, &[10]), &[9, 8, 0, 10]);
    check(insert(BucketPlace::After(8), &[11, 12]), &[9, 8, 11, 12, 0, 10]);
    check(insert(BucketPlace::Last, &[]), &[9, 8, 11, 12, 0, 10]);
    let (unknown, exists) = (GroupModError::UnknownBucket, GroupModError::BucketExists);
    let refused = |request| refused_group(&switch, request);
    assert_eq!(refused(insert(BucketPlace::After(77), &[10])), unknown(one, 77));
    assert_eq!(refused(insert(BucketPlace::Last, &[13, 10])), exists(one, 10));
    assert_eq!(refused(remove(BucketSelector::Id(77))), unknown(one, 77));
    let many: Vec<u32> = (100..4100).collect();
    let too_many = GroupModError::TooManyBuckets(one, 4006);
    assert_eq!(refused(insert(BucketPlace::Last, &many)), too_many);
    check(remove(BucketSelector::Id(11)), &[9, 8, 12, 0, 10]);
    check(remove(BucketSelector::First), &[8, 12, 0, 10]);
    check(remove(BucketSelector::Last), &[8, 12, 0]);
    check(remove(BucketSelector::All), &[]);
    check(remove(BucketSelector::First), &[]);
    check(remove(BucketSelector::Last), &[]);
}

#[test]
fn a_group_needs_buckets_that_fit_its_kind() {
    let switch = Switch::new(&[]);
    let bad = |kind, buckets| refused_group(&switch, add_group(1, kind, buckets));
    let one = || bucket(vec![output(1)]);
    let invalid = |error| matches!(error, GroupModError::Invalid(..));
    assert!(invalid(bad(GroupKind::Indirect, vec![])));
    assert!(invalid(bad(GroupKind::Indirect, vec![one(), one()])));
    assert!(invalid(bad(GroupKind::FastFailover, vec![watching(1, vec![]), one()])));
    for kind in [GroupKind::All, GroupKind::Indirect, GroupKind::FastFailover] {
        for heavy in [weighted(1, vec![]), Bucket { weight: 1, ..watching(1, vec![]) }] {
            assert!(invalid(bad(kind, vec![heavy])), "{kind:?}");
        }
    }
    let watching = bad(GroupKind::All, vec![watching(1, vec![])]);
    assert_eq!(watching, GroupModError::Unwatchable(GroupId::new(1)));
    let reserved = add_group(GroupId::MAX.number() + 1, GroupKind::All, vec![]);
    assert!(invalid(refused_group(&switch, reserved)));
    switch
        .make([add_group(1, GroupKind::All, vec![]), add_group(2, GroupKind::Select, vec![one()])]);
}

#[test]
fn bucket_names_existing_group_without_loop() {
    let switch = Switch::new(&[]);
    let to = |number, target| add_group(number, GroupKind::All, vec![bucket(vec![group(target)])]);
    let missing = GroupModError::NoSuchGroup(GroupId::new(2));
    assert_eq!(refused_group(&switch, to(1, 2)), missing);
    assert_eq!(refused_group(&switch, to(1, 1)), GroupModError::Loop(GroupId::new(1)));
    switch.make([add_all_group(3), to(2, 3), to(1, 2)]);
    let back = |buckets| {
        let request = group_mod(GroupCommand::Modify, 3, GroupKind::Select, buckets);
        refused_group(&switch, request.into())
    };
    let looped = GroupModError::Loop(GroupId::new(3));
    assert_eq!(back(vec![bucket(vec![]), bucket(vec![group(1)])]), looped);
    let watch = Bucket { watch_group: Some(GroupId::new(1)), ..bucket(vec![]) };
    assert_eq!(back(vec![watch]), looped);
}

#[test]
fn a_bucket_may_watch_missing_objects() {
    let switch = Switch::new(&[]);
    let watch = Bucket { watch_group: Some(GroupId::new(9)), ..watching(77, vec![]) };
    switch.make([add_group(1, GroupKind::FastFailover, vec![watch])]);
    assert_eq!(switch.group_numbers(), [1]);
}

#[test]
fn removing_a_group_removes_its_rules() {
    let switch = Switch::new(&["cookie=9,arp,actions=drop"]);
    switch.make([add_all_group(1), add_all_group(2)]);
    let mut in_set = rule("cookie=1,table=1,tcp", vec![]);
    in_set.instructions.write = [group(1)].into();
    switch.make([
        rule("cookie=2,tcp", vec![group(1)]).into(),
        rule("cookie=3,udp", vec![Action::Clone([Action::Clone([group(1)].into())].into())]).into(),
        rule("cookie=4,ip", vec![group(2)]).into(),
        in_set.into(),
    ]);
    assert_eq!(switch.pipeline.group_users(BRIDGE)[&GroupId::new(1)], 3);
    let only = RuleFilter { out_group: 1, ..RuleFilter::all() };
    assert_eq!(switch.pipeline.rules(BRIDGE, &only).len(), 3);
    let change = switch.make([delete_group(1)]);
    assert_eq!(reasons(&change.deltas), [RemovedReason::GroupDelete; 3]);
    let changed = |delta: &Delta| matches!(delta, Delta::Changed(Object::Group(BRIDGE, id)) if id.number() == 1);
    assert!(change.deltas.iter().any(changed));
    assert_eq!((switch.cookies(), switch.group_numbers()), (vec![9, 4], vec![2]));
}

#[test]
fn deleting_missing_objects_changes_nothing() {
    let switch = Switch::new(&[]);
    let meter = meter_mod(MeterCommand::Delete, 1, vec![]);
    assert!(switch.make([delete_group(1), meter]).deltas.is_empty());
}

#[test]
fn all_groups_and_meters_are_deleted_at_once() {
    let switch = Switch::new(&[]);
    switch.make([add_all_group(1), add_all_group(2), add_meter(1), add_meter(2)]);
    let rules = [rule("cookie=1,tcp", vec![group(2)]), rule("cookie=2,ip", vec![])];
    switch.make(rules.map(Modification::Flow));
    let Modification::Group(mut groups) = delete_group(0) else { unreachable!() };
    groups.group = None;
    let Modification::Meter(mut meters) = meter_mod(MeterCommand::Delete, 1, vec![]) else {
        unreachable!()
    };
    meters.meter = None;
    switch.make([groups.into(), meters.into()]);
    assert!(switch.group_numbers().is_empty() && switch.meter_numbers().is_empty());
    assert_eq!(switch.cookies(), [2]);
}

#[test]
fn rules_name_only_existing_groups_and_meters() {
    let switch = Switch::new(&[]);
    let refused = |request: FlowMod| match switch.modify([request.into()]) {
        Err(ModificationError::Flow(error)) => error,
        other => panic!("{other:?}"),
    };
    let no_group = FlowModError::NoSuchGroup(GroupId::new(7));
    assert_eq!(refused(rule("tcp", vec![group(7)])), no_group);
    assert_eq!(refused(rule("tcp", vec![Action::Clone([group(7)].into())])), no_group);
    let no_meter = FlowModError::NoSuchMeter(MeterId::new(7));
    assert_eq!(refused(rule("tcp", vec![Action::Meter(MeterId::new(7))])), no_meter);
    let mut passing = rule("tcp", vec![]);
    passing.instructions.meter = Some(MeterId::new(7));
    assert_eq!(refused(passing.clone()), no_meter);
    switch.make([rule("tcp", vec![]).into()]);
    let modify = FlowMod { command: FlowModCommand::Modify, ..passing.clone() };
    assert_eq!(refused(modify), no_meter);
    assert_eq!(switch.pipeline.check_actions(BRIDGE, &[group(7)]), Err(no_group));
    switch.make([add_meter(7), passing.into()]);
    assert_eq!(switch.pipeline.meter_users(BRIDGE)[&MeterId::new(7)], 1);
}

#[test]
fn meter_is_removed_with_its_rules() {
    let switch = Switch::new(&["cookie=9,arp,actions=drop"]);
    let refused = |request| match switch.modify([request]) {
        Err(ModificationError::Meter(error)) => error,
        other => panic!("{other:?}"),
    };
    let (one, bands) = (MeterId::new(1), || vec![drop_band(5, 0)]);
    let modify = || meter_mod(MeterCommand::Modify, 1, bands());
    assert_eq!(refused(modify()), MeterModError::Unknown(one));
    switch.make([add_meter(1), add_meter(2)]);
    assert_eq!(refused(add_meter(1)), MeterModError::Exists(one));
    let crowded = meter_mod(MeterCommand::Add, 3, vec![drop_band(1, 0); Meter::BANDS_MAX + 1]);
    assert_eq!(refused(crowded), MeterModError::TooManyBands(Meter::BANDS_MAX + 1));
    assert_eq!(refused(add_meter(0)), MeterModError::Invalid(MeterId::new(0)));
    let old = switch.pipeline.meters(BRIDGE).remove(0);
    old.admit(Time::ZERO, 60);
    switch.make([modify()]);
    let new = switch.pipeline.meters(BRIDGE).remove(0);
    assert_eq!((new.config.bands[0].rate, new.totals().packets), (5, 0));
    let mut passing = rule("cookie=1,tcp", vec![]);
    passing.instructions.meter = Some(one);
    let acting = rule("cookie=2,udp", vec![Action::Meter(one)]);
    let other = rule("cookie=3,ip", vec![Action::Meter(MeterId::new(2))]);
    switch.make([passing, acting, other].map(Modification::Flow));
    let change = switch.make([meter_mod(MeterCommand::Delete, 1, vec![])]);
    assert_eq!(reasons(&change.deltas), [RemovedReason::MeterDelete; 2]);
    assert_eq!((switch.cookies(), switch.meter_numbers()), (vec![9, 3], vec![2]));
}

#[test]
fn a_refused_batch_changes_nothing() {
    let switch = Switch::new(&[]);
    switch.make([add_all_group(1), add_meter(1), rule("cookie=1,tcp", vec![group(1)]).into()]);
    let (version, before) = (switch.pipeline.version(), switch.pipeline.groups(BRIDGE));
    let modified = group_mod(GroupCommand::Modify, 1, GroupKind::All, Vec::new()).into();
    let refused = switch.modify([
        add_all_group(2),
        modified,
        delete_group(1),
        add_all_group(1),
        meter_mod(MeterCommand::Delete, 1, vec![]),
        add_meter(2),
        rule("cookie=2,udp", vec![group(2)]).into(),
        rule("cookie=3,udp", vec![group(3)]).into(),
    ]);
    assert!(refused.is_err());
    assert_eq!((switch.pipeline.version(), switch.pipeline.groups(BRIDGE)), (version, before));
    assert_eq!((switch.meter_numbers(), switch.cookies()), (vec![1], vec![1]));
}

#[test]
fn later_requests_of_a_batch_see_earlier_ones() {
    let switch = Switch::new(&[]);
    let before = switch.pipeline.version();
    let change = switch.make([
        add_all_group(1),
        rule("tcp", vec![group(1)]).into(),
        delete_group(1),
        add_all_group(1),
    ]);
    assert_eq!((change.version, switch.pipeline.version()), (before.next(), before.next()));
    assert!(switch.cookies().is_empty() && switch.group_numbers() == [1]);
}

#[test]
fn removing_a_bridge_removes_groups_and_meters() {
    let switch = Switch::new(&[]);
    switch.make([add_all_group(1), add_meter(1)]);
    let change = switch.pipeline.remove_bridge(BRIDGE);
    switch.pipeline.add_bridge(BRIDGE, BridgeSettings::default());
    assert!(switch.group_numbers().is_empty() && switch.meter_numbers().is_empty());
    switch.pipeline.reclaim(change.version);
    switch.make([add_all_group(1), add_meter(1)]);
}

#[test]
fn unsupported_actions_of_groups_are_refused() {
    /// The message of the refusal.
    const CT_CLEAR: &str = "ct_clear: connection tracking is not supported";
    let switch = Switch::new(&[]);
    let refused =
        switch.modify([rule("tcp", vec![Action::Clone([Action::CtClear].into())]).into()]);
    assert_eq!(refused.unwrap_err(), FlowModError::NotYet(CT_CLEAR).into());
    let bucket = bucket(vec![Action::CtClear]);
    let refused = refused_group(&switch, add_group(1, GroupKind::All, vec![bucket]));
    assert_eq!(refused, GroupModError::NotYet(CT_CLEAR));
}

#[test]
fn a_conjunction_excludes_other_actions() {
    let switch = Switch::new(&[]);
    let clause = || Action::Conjunction { id: 1, clause: 0, clauses_count: 2 };
    let send = |actions| switch.modify([rule("tcp", actions).into()]);
    let mixed: ModificationError = FlowModError::MixedConjunction.into();
    assert_eq!(send(vec![clause(), output(1)]).unwrap_err(), mixed);
    let mut led_on = rule("tcp", vec![clause()]);
    led_on.instructions = Instructions { clear: true, ..led_on.instructions };
    assert_eq!(switch.modify([led_on.into()]).unwrap_err(), mixed);
    assert!(send(vec![clause(), clause(), Action::Note([1].into())]).is_ok());
}

#[test]
fn out_group_selects_the_rules_to_delete() {
    let switch = Switch::new(&[]);
    switch.make([add_all_group(1), rule("cookie=1,tcp", vec![group(1)]).into()]);
    switch.make([rule("cookie=2,udp", vec![]).into()]);
    let mut delete = request(FlowModCommand::Delete, "");
    (delete.table, delete.out_group) = (TableSelector::All, 1);
    assert_eq!(delete.out_port, PortNo::ANY);
    switch.make([delete.into()]);
    assert_eq!(switch.cookies(), [2]);
}
