//! Tests of single changes: the entries that each change evicts, and the remaining entries.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_kairo::Direct;
#[cfg(feature = "dbsp")]
use shunt_kairo::{Relational, Visits};
use shunt_pipeline::{
    BridgeId, BridgeSettings, BundleStep, Cause, CauseRun, Change, EntryId, Evictor,
    FlowModCommand, Installed, Modification, OwnerId, Pipeline, PortConfig, PortInfo, TableId,
    Time, Traversal, Version, text::parse_rule,
};

use crate::side_by_side::All;

pub(crate) const BRIDGE: BridgeId = BridgeId::new(1);

/// A rule that consults all bits of the destination.
/// With this rule, each destination has its own entry.
pub(crate) const SPREAD: &str =
    "priority=1,ip,actions=move:NXM_OF_IP_DST[]->NXM_NX_REG0[],output:2";

pub(crate) fn direct(version: Version) -> Direct {
    Direct::new(version, 1)
}

/// A pipeline with an eviction engine.
pub(crate) struct Switch<E> {
    pub(crate) pipeline: Pipeline,
    pub(crate) engine: E,
    entries: u32,
}

impl Switch<All> {
    pub(crate) fn new(rules: &[&str]) -> Self {
        Self::with(All::new, rules)
    }
}

impl<E: Evictor> Switch<E> {
    pub(crate) fn with(engine: impl FnOnce(Version) -> E, rules: &[&str]) -> Self {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline.set_ports(BRIDGE, (1..=4).map(PortInfo::datapath).collect()).unwrap();
        let engine = engine(pipeline.version());
        let mut switch = Self { pipeline, engine, entries: 0 };
        switch.add(rules);
        switch
    }

    fn change(&mut self, command: FlowModCommand, rules: &[&str]) -> Vec<u32> {
        let change = self.publish(command, rules);
        self.apply(&change)
    }

    /// Changes rules without a call of the engine.
    pub(crate) fn publish(&self, command: FlowModCommand, rules: &[&str]) -> Change {
        let parsed = |rule: &&str| parse_rule(command, rule, &NoPortNames).unwrap();
        let mods: Vec<_> = rules.iter().map(parsed).collect();
        self.pipeline.apply(BRIDGE, &mods, Time::ZERO).unwrap()
    }

    pub(crate) fn apply(&mut self, change: &Change) -> Vec<u32> {
        let mut ended = self.engine.apply(&change.deltas, change.version);
        ended.sort_unstable();
        ended.iter().map(|id| id.slot).collect()
    }

    pub(crate) fn add(&mut self, rules: &[&str]) -> Vec<u32> {
        self.change(FlowModCommand::Add, rules)
    }

    fn delete(&mut self, rules: &[&str]) -> Vec<u32> {
        self.change(FlowModCommand::DeleteStrict, rules)
    }

    fn translate(&self, destination: u32) -> Arc<Traversal> {
        self.translate_key(&packet(&[(FieldId::Ipv4Dst, destination.into())]))
    }

    pub(crate) fn translate_key(&self, key: &FlowKey) -> Arc<Traversal> {
        Arc::new(self.pipeline.translate(key, self.pipeline.version()))
    }

    /// Installs the entry of an IPv4 packet to a destination, and returns its slot.
    pub(crate) fn install(&mut self, destination: u32) -> u32 {
        self.install_key(&packet(&[(FieldId::Ipv4Dst, destination.into())]))
    }

    /// Installs the entry of a packet, and returns its slot.
    pub(crate) fn install_key(&mut self, key: &FlowKey) -> u32 {
        let traversal = self.translate_key(key);
        let slot = self.entries;
        self.entries += 1;
        assert_eq!(self.put(slot, &traversal), Installed::Recorded);
        slot
    }

    fn put(&mut self, slot: u32, traversal: &Arc<Traversal>) -> Installed {
        self.engine.installed(EntryId { owner: OwnerId(0), slot, generation: 0 }, traversal)
    }
}

/// Returns the key of an IPv4 packet with these fields.
pub(crate) fn packet(fields: &[(FieldId, u128)]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_bridge(u64::from(BRIDGE.number()));
    key.set_in_port(PortNo::new(1));
    key.set_field(FieldId::EthType, 0x0800);
    fields.iter().for_each(|(field, value)| key.set_field(*field, *value));
    key
}

#[test]
fn a_rule_inside_a_wildcard_entry_evicts_it() {
    let mut switch = Switch::new(&["priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2"]);
    let entry = switch.install(0x0a01_0203);
    assert_eq!(switch.add(&["priority=20,ip,nw_dst=10.1.99.0/24,actions=output:3"]), [entry]);
}

#[test]
fn disjoint_and_lower_rules_evict_nothing() {
    let mut switch = Switch::new(&["priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2"]);
    switch.install(0x0a01_0203);
    assert!(switch.add(&["priority=20,ip,nw_dst=11.0.0.0/8,actions=output:3"]).is_empty());
    assert!(switch.add(&["priority=9,ip,nw_dst=10.1.0.0/16,actions=output:3"]).is_empty());
    assert!(switch.add(&["priority=20,arp,actions=output:3"]).is_empty());
}

#[test]
fn a_table_miss_counts_as_a_visit() {
    let mut switch = Switch::new(&["ip,nw_dst=10.0.0.0/8,actions=output:2"]);
    let entry = switch.install(0x0b00_0001);
    assert_eq!(switch.add(&["priority=0,ip,nw_dst=11.0.0.0/16,actions=output:3"]), [entry]);
}

#[test]
fn an_install_older_than_a_change_is_late() {
    let mut switch = Switch::new(&["priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2"]);
    let before = switch.translate(0x0a01_6307);
    switch.add(&["priority=20,ip,nw_dst=10.1.99.0/24,actions=output:3"]);
    assert_eq!(switch.put(0, &before), Installed::Late);
    assert!(switch.engine.is_empty());
}

#[test]
fn change_of_older_version_gets_newest() {
    let mut switch = Switch::new(&["priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2"]);
    let mut ports: Vec<_> = (1..=4).map(PortInfo::datapath).collect();
    ports[1].config = PortConfig { no_fwd: true, ..PortConfig::default() };
    let older = switch.pipeline.set_ports(BRIDGE, ports).unwrap();
    let before = switch.translate(0x0a01_6307);
    let entry = switch.install(0x0a01_0203);
    assert!(switch.add(&["priority=20,ip,nw_dst=11.0.0.0/8,actions=output:3"]).is_empty());
    // The translation of the entry includes the older change, but not the last change.
    assert_eq!(switch.apply(&older), [entry]);
    assert_eq!(switch.put(7, &before), Installed::Late, "the engine is where it was");
    // An entry with a translation that includes the last change is not evicted.
    switch.install(0x0a01_0203);
    assert!(switch.apply(&older).is_empty());
}

#[test]
fn equal_priorities_are_ordered_as_in_translation() {
    let mut switch = Switch::new(&["priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2"]);
    let entry = switch.install(0x0a01_0203);
    // Of two rules of one priority, the older rule matches.
    assert!(switch.add(&["priority=10,ip,nw_dst=10.1.0.0/16,actions=output:3"]).is_empty());
    assert_eq!(switch.delete(&["priority=10,ip,nw_dst=10.0.0.0/8"]), [entry]);
}

#[test]
fn a_removed_rule_evicts_exactly_its_entries() {
    let mut switch = Switch::new(&[
        "priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2",
        "priority=10,ip,nw_dst=11.0.0.0/8,actions=output:2",
    ]);
    let (first, second) = (switch.install(0x0a00_0001), switch.install(0x0b00_0001));
    assert_eq!(switch.delete(&["priority=10,ip,nw_dst=10.0.0.0/8"]), [first]);
    assert_eq!(switch.delete(&["priority=10,ip,nw_dst=11.0.0.0/8"]), [second]);
}

#[test]
fn rule_removed_in_same_bundle_evicts_nothing() {
    let mut switch = Switch::new(&["priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2"]);
    switch.install(0x0a01_0203);
    let step = |command, rule| {
        let request = parse_rule(command, rule, &NoPortNames).unwrap();
        BundleStep::Modify(Modification::Flow(request))
    };
    let steps = [
        step(FlowModCommand::Add, "priority=20,ip,nw_dst=10.1.0.0/16,actions=output:3"),
        step(FlowModCommand::DeleteStrict, "priority=20,ip,nw_dst=10.1.0.0/16"),
    ];
    let (change, _) = switch.pipeline.commit(BRIDGE, Vec::from(steps), Time::ZERO).unwrap();
    assert!(switch.apply(&change).is_empty());
}

#[test]
fn a_rule_added_and_removed_together_evicts_nothing() {
    let mut switch = Switch::new(&["priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2"]);
    switch.install(0x0a01_0203);
    let rule = "priority=20,ip,nw_dst=10.1.0.0/16";
    let changes = [
        switch.publish(FlowModCommand::Add, &[&format!("{rule},actions=output:3")]),
        switch.publish(FlowModCommand::ModifyStrict, &[&format!("{rule},actions=output:4")]),
        switch.publish(FlowModCommand::DeleteStrict, &[rule]),
    ];
    let version = changes[2].version;
    let deltas = changes.into_iter().flat_map(|change| change.deltas).collect();
    assert!(switch.apply(&Change { version, deltas }).is_empty());
}

#[test]
fn rewritten_field_is_constant_of_entry() {
    let mut switch = Switch::new(&[
        "ip,actions=set_field:192.168.0.1->nw_dst,goto_table:1",
        "table=1,priority=10,ip,actions=output:2",
    ]);
    let entry = switch.install(0x0a01_0203);
    assert!(switch.add(&["table=1,priority=20,ip,nw_dst=10.1.2.3,actions=output:3"]).is_empty());
    let met = "table=1,priority=20,ip,nw_dst=192.168.0.1,actions=output:3";
    assert_eq!(switch.add(&[met]), [entry]);
}

#[test]
fn earlier_tables_narrow_later_regions() {
    let mut switch = Switch::new(&[
        "priority=10,ip,nw_dst=10.0.0.0/8,actions=goto_table:1",
        "table=1,priority=10,ip,actions=output:2",
    ]);
    let entry = switch.install(0x0a01_0203);
    let beside = "table=1,priority=20,ip,nw_dst=11.0.0.0/8,actions=output:3";
    assert!(switch.add(&[beside]).is_empty());
    let within = "table=1,priority=20,ip,nw_dst=10.2.0.0/16,actions=output:3";
    assert_eq!(switch.add(&[within]), [entry]);
}

#[test]
fn a_changed_object_evicts_its_readers() {
    let mut switch = Switch::new(&["priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2"]);
    let entry = switch.install(0x0a01_0203);
    let config = PortConfig { no_fwd: true, ..PortConfig::default() };
    let mut ports: Vec<_> = (1..=4).map(PortInfo::datapath).collect();
    ports[1].config = config;
    let change = switch.pipeline.set_ports(BRIDGE, ports).unwrap();
    assert_eq!(switch.apply(&change), [entry]);
}

/// New rules evict the right entries before, during and after deferred work.
#[test]
fn many_masks_and_entries_are_found_around_maintenance() {
    let mut switch = Switch::new(&[SPREAD]);
    let rule =
        |bits: u32| format!("priority=5,ip,nw_dst={}.0.0.0/{bits},actions=output:3", 128 + bits);
    let rules: Vec<_> = (9..=24).map(rule).collect();
    switch.add(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    let entries: Vec<_> = (0..6000).map(|n| switch.install(0x0a00_0000 | n << 8)).collect();
    // The new rules have more masks than a group may have projections. The group has more rows than
    // one call adds to projections.
    for (bits, entry) in entries.iter().enumerate().take(33).skip(25) {
        let met = format!("priority=9,ip,nw_dst=10.0.{bits}.0/{bits},actions=output:4");
        assert_eq!(switch.add(&[&met]), [*entry]);
        if bits % 3 == 0 {
            while switch.engine.run_maintenance() {}
        }
    }
    assert_eq!(switch.engine.len(), 6000 - 8);
    assert_eq!(switch.add(&["priority=99,actions=drop"]).len(), 6000 - 8);
    assert!(switch.engine.is_empty());
}

/// The visits consult more bits than the columns of an index hold.
#[test]
fn rule_evicts_exactly_wide_visits_it_overlaps() {
    let wide = "priority=1,tcp6,actions=move:NXM_NX_IPV6_SRC[]->NXM_NX_XXREG0[],\
                move:NXM_NX_IPV6_DST[]->NXM_NX_XXREG1[],move:NXM_OF_ETH_SRC[]->NXM_NX_XXREG2[0..47],\
                move:NXM_OF_ETH_DST[]->NXM_NX_XXREG2[48..95],\
                move:NXM_OF_TCP_SRC[]->NXM_NX_XXREG2[96..111],\
                move:NXM_OF_TCP_DST[]->NXM_NX_XXREG2[112..127],output:2";
    let mut switch = Switch::new(&[wide]);
    for n in 0..100_u128 {
        let own = [
            (FieldId::EthType, 0x86dd),
            (FieldId::IpProto, 6),
            (FieldId::EthSrc, 0x02_0000_0000 + n % 5),
            (FieldId::EthDst, (0x02 + n % 6) << 40),
            (FieldId::Ipv6Src, (n % 7) << 64),
            (FieldId::Ipv6Dst, n % 8),
            (FieldId::TcpSrc, n % 9),
            (FieldId::TcpDst, n % 10),
        ];
        switch.install_key(&packet(&own));
    }
    let rules = [
        ("dl_src=00:02:00:00:00:03", 5, 3),
        ("dl_dst=05:00:00:00:00:00", 6, 3),
        ("ipv6_src=0:0:0:4::", 7, 4),
        ("ipv6_dst=::5", 8, 5),
        ("tp_src=6", 9, 6),
        ("tp_dst=7", 10, 7),
    ];
    let mut left: Vec<u32> = (0..100).collect();
    for (number, (rule, of, place)) in rules.into_iter().enumerate() {
        let met = left.extract_if(.., |n| *n % of == place).collect::<Vec<_>>();
        assert_eq!(switch.add(&[&format!("priority=9,tcp6,{rule},actions=drop")]), met, "{rule}");
        if number % 2 == 0 {
            while switch.engine.run_maintenance() {}
        }
    }
}

#[test]
fn a_too_large_change_evicts_only_its_tables() {
    let rules = [
        "priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2",
        "priority=10,ip,nw_dst=11.0.0.0/8,actions=goto_table:1",
        "table=1,ip,actions=output:2",
    ];
    let mut switch = Switch::with(|version| direct(version).with_deltas_max(3), &rules);
    let (first, second) = (switch.install(0x0a00_0001), switch.install(0x0b00_0001));
    let rule = |priority| format!("table=1,priority={priority},arp,actions=drop");
    let beside: Vec<_> = (1..=4).map(rule).collect();
    let beside: Vec<_> = beside.iter().map(String::as_str).collect();
    assert!(switch.add(&beside[..3]).is_empty());
    assert!(switch.change(FlowModCommand::Delete, &["table=1,arp"]).is_empty());
    assert_eq!(switch.engine.overflows(), 0);
    assert_eq!(switch.add(&beside), [second]);
    assert_eq!(switch.engine.overflows(), 1);
    assert_eq!(switch.delete(&["priority=10,ip,nw_dst=10.0.0.0/8"]), [first]);
}

#[test]
fn an_emptied_table_takes_no_memory() {
    let mut switch = Switch::with(direct, &[SPREAD]);
    let size = |switch: &mut Switch<Direct>| {
        while switch.engine.run_maintenance() {}
        switch.engine.size()
    };
    let all: Vec<_> = (0..5000).map(|n| switch.install(0x0a00_0000 | n)).collect();
    let full = size(&mut switch);
    assert_eq!(full.groups, 1);
    assert_eq!(switch.add(&["priority=9,ip,nw_dst=10.0.0.0/8,actions=drop"]), all);
    let empty = size(&mut switch);
    assert_eq!((empty.entries, empty.groups), (0, 0));
    assert!(empty.bytes < full.bytes / 2, "{empty:?} after {full:?}");
    let again = switch.install(0x0a00_0007);
    assert_eq!(switch.add(&["priority=10,ip,nw_dst=10.0.0.0/29,actions=output:3"]), [again]);
}

#[test]
fn an_engine_names_the_delta_of_each_eviction() {
    let rules = ["ip,nw_dst=10.1.0.0/16,actions=2", "ip,nw_dst=10.2.0.0/16,actions=2"];
    let mut switch = Switch::with(direct, &rules);
    let entries = [0x0a01_0001, 0x0a02_0001, 0x0a03_0001].map(|to| switch.install(to));
    let deleted = ["priority=32768,ip,nw_dst=10.2.0.0/16", "priority=32768,ip,nw_dst=10.1.0.0/16"];
    assert_eq!(switch.delete(&deleted), entries[..2]);
    let causes = switch.engine.causes();
    assert_eq!(causes.iter().map(|own| own.count).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(causes.iter().map(|own| own.cause).collect::<Vec<_>>(), [0, 1].map(Cause::Delta));
    assert!(switch.add(&["ipv6,actions=2"]).is_empty());
    assert!(switch.engine.causes().is_empty());
}

#[test]
fn beyond_the_bound_the_table_is_the_cause() {
    let engine = |version| direct(version).with_deltas_max(1);
    let mut switch = Switch::with(engine, &["ip,actions=2"]);
    let all = [switch.install(0x0a01_0001), switch.install(0x0a02_0001)];
    assert_eq!(switch.add(&["ipv6,actions=2", "arp,actions=2"]), all);
    let cause = Cause::Bound(BRIDGE, TableId::FIRST);
    assert_eq!(switch.engine.causes(), [CauseRun { cause, count: 2 }]);
    assert_eq!(switch.engine.state().overflows, 1);
}

/// Returns the number of rows of a relation of an engine.
fn rows<E: Evictor>(switch: &Switch<E>, name: &str) -> usize {
    let all = switch.engine.state().relations;
    all.into_iter().find(|(own, _)| *own == name).unwrap().1
}

#[track_caller]
fn assert_state_grows_and_shrinks<E: Evictor>(engine: impl Fn(Version) -> E) {
    let mut switch = Switch::with(engine, &[SPREAD]);
    let bytes = |switch: &Switch<E>| switch.engine.state().bytes.unwrap();
    let before = bytes(&switch);
    for n in 0..1000 {
        switch.install(0x0a00_0000 | n);
    }
    while switch.engine.run_maintenance() {}
    let full = bytes(&switch);
    assert_eq!((rows(&switch, "visits"), rows(&switch, "entries")), (1000, 1000));
    assert!(full > before + 1000 * size_of::<EntryId>(), "{full} after {before}");
    switch.add(&["priority=9,ip,nw_dst=10.0.0.0/24,actions=drop"]);
    assert_eq!((rows(&switch, "entries"), rows(&switch, "tombstones")), (744, 256));
    while switch.engine.run_maintenance() {}
    assert_eq!((rows(&switch, "visits"), rows(&switch, "tombstones")), (744, 0));
    switch.add(&["priority=9,ip,actions=drop"]);
    while switch.engine.run_maintenance() {}
    assert_eq!((rows(&switch, "visits"), rows(&switch, "tombstones")), (0, 0));
    let empty = bytes(&switch);
    assert!(empty < full / 2, "{empty} after {full}");
}

#[test]
fn statistics_of_an_engine_follow_its_entries() {
    assert_state_grows_and_shrinks(direct);
    #[cfg(feature = "dbsp")]
    assert_state_grows_and_shrinks(|version| Visits::new(version, 1));
    #[cfg(feature = "dbsp")]
    assert_state_grows_and_shrinks(|version| Relational::new(version, 1));
}

#[cfg(feature = "dbsp")]
#[test]
fn a_relation_emits_insertions_and_removals() {
    let by_prints = |version| Relational::new(version, 1).with_scan_threshold(0);
    let mut switch = Switch::with(by_prints, &[SPREAD]);
    let all = |switch: &Switch<Relational>| {
        ["visits", "names", "groups", "projections", "prints"].map(|name| rows(switch, name))
    };
    assert_eq!(all(&switch), [0; 5]);
    let reads = switch.translate(0x0a00_0000).reads.len();
    for n in 0..100 {
        switch.install(0x0a00_0000 | n);
    }
    // Each entry has one row for the key of its rule, and one for each object that it reads.
    assert_eq!(all(&switch), [100, 100 * (1 + reads), 1, 0, 0]);
    switch.add(&["priority=9,ip,nw_dst=11.0.0.0/24,actions=drop"]);
    assert_eq!(all(&switch), [100, 100 * (1 + reads), 1, 1, 100]);
    switch.engine.forget(OwnerId(0));
    while switch.engine.run_maintenance() {}
    assert_eq!(all(&switch), [0, 0, 0, 1, 0]);
}
