//! Liveness: the bits of hidden state that the tables of a bridge can still read.
//!
//! Where a traversal is partitioned, hidden state becomes part of a name. A register that nothing
//! reads any more would split one name into many, and sub-traversals would not be shared. So a name
//! leaves out dead bits: those that the remaining actions, the next table and all tables after it
//! cannot read.
//!
//! The reads of a rule are the bits of its match, and the bits that its actions use. The bits of a
//! match count as read for all packets, matching or not. An action that may show a controller the
//! pipeline fields, or that may freeze a translation, reads everything. The sets of live bits grow
//! with rules and never shrink while the bridge exists. When a set grows,
//! [`Object::Live`](crate::Object::Live) changes, and the entries on both sides of a partition
//! point read that object.
//!
//! Each version has its own sets of live bits. So repeated translations by one version leave out
//! the same bits. Requests that are refused or not yet published make no bit live.

use std::{collections::BTreeMap, sync::Arc};

use shunt_classifier::Version;
use shunt_flow::{
    FlowMask,
    layout::{HEADER_START, word},
};

use super::{
    hidden_state::LOCATION_WORDS,
    live_fields::{FieldReader, LiveFields, RuleInfo},
    plain_continuations::PlainContinuations,
};
use crate::{
    groups::group::Group, id::TableId, tables::rule::Rule, versions::versioned::Versioned,
};

/// The hidden fields that the tables of a bridge can read, at each version.
pub(crate) struct Liveness {
    /// The fields that can be read, by version.
    readable: Versioned<ReadableFields>,
    /// The empty sets of a bridge without rules.
    nothing: ReadableFields,
    /// True if the sets have grown, and no delta has reported it yet.
    has_unpublished_growth: bool,
}

/// The hidden fields that the tables of a bridge can read.
#[derive(Clone, Default)]
pub(crate) struct ReadableFields {
    /// The fields that can be read from each table on.
    tables: BTreeMap<TableId, LiveFields>,
    /// The fields that the buckets of all groups read.
    groups: LiveFields,
    /// The fields that a table, or any table after it, can read.
    live: BTreeMap<TableId, FlowMask>,
    /// The information on their rule that action sets and buckets use.
    action_set_info: RuleInfo,
    /// The continuations of plain states, valid while the sets do not grow.
    plain_continuations: Arc<PlainContinuations>,
}

impl Liveness {
    /// Creates the empty sets, in which no field is live.
    pub(crate) fn new() -> Self {
        Self {
            readable: Versioned::new(),
            nothing: ReadableFields::default(),
            has_unpublished_growth: false,
        }
    }

    /// Returns the fields that can be read at a retained version.
    pub(crate) fn at(&self, version: Version) -> &ReadableFields {
        self.readable.at(version).map_or(&self.nothing, AsRef::as_ref)
    }

    /// Adds a rule of a version.
    pub(crate) fn add_rule(&mut self, rule: &Rule, version: Version) {
        self.add(FieldReader::of_rule(rule), version);
    }

    /// Adds a group, or its new buckets.
    pub(crate) fn add_group(&mut self, group: &Group, version: Version) {
        self.add(FieldReader::of_group(group), version);
    }

    /// Returns whether the sets have grown since the last call.
    /// If the set has grown, the version reports [`Object::Live`](crate::Object::Live).
    pub(crate) fn take_unpublished_growth(&mut self) -> bool {
        std::mem::take(&mut self.has_unpublished_growth)
    }

    /// Undoes the growth of `version`, which is not published.
    pub(crate) fn undo(&mut self, version: Version) {
        self.readable.undo(version);
        self.has_unpublished_growth = false;
    }

    /// Drops the sets of versions before `oldest`.
    pub(crate) fn reclaim(&mut self, oldest: Version) {
        self.readable.reclaim(oldest);
    }

    /// Adds the fields that a rule or group reads.
    fn add(&mut self, reader: FieldReader, version: Version) {
        if self.at(version).has(&reader) {
            return;
        }
        if self.readable.own_mut(version).is_none() {
            self.readable.set(Arc::new(self.at(version).clone()), version);
        }
        if let Some(own) = self.readable.own_mut(version) {
            self.has_unpublished_growth |= own.add(reader);
        }
    }
}

impl ReadableFields {
    /// Returns the hidden bits that `needs`, its tables, or later tables can read.
    pub(crate) fn live(&self, needs: &LiveFields) -> FlowMask {
        let mut live = needs.bits.clone();
        live.add(&self.groups.bits);
        for table in needs.tables.iter().chain(&self.groups.tables) {
            if let Some(later) = self.live.get(table) {
                live.add(later);
            }
        }
        live.words_mut()[ALWAYS.0..=ALWAYS.1].fill(u64::MAX);
        live.words_mut()[HEADER_START..].fill(0);
        LOCATION_WORDS.iter().for_each(|index| live.words_mut()[*index] = 0);
        live
    }

    /// Returns the information on their rule that action sets and buckets can use.
    pub(crate) const fn action_set_info(&self) -> RuleInfo {
        self.action_set_info
    }

    /// Returns the continuations of plain states, valid until the sets grow.
    pub(crate) fn plain_continuations(&self) -> &PlainContinuations {
        &self.plain_continuations
    }

    /// Returns whether the sets include all fields of a reader.
    fn has(&self, reader: &FieldReader) -> bool {
        let existing = match reader.table {
            Some(table) => self.tables.get(&table),
            None => Some(&self.groups),
        };
        reader.action_set_info <= self.action_set_info
            && existing.is_some_and(|existing| existing.have(&reader.needs))
    }

    /// Adds the fields of a reader, and returns whether the live bits have grown.
    fn add(&mut self, reader: FieldReader) -> bool {
        let FieldReader { table, needs, action_set_info } = reader;
        let mut has_grown = action_set_info > self.action_set_info;
        self.action_set_info = self.action_set_info.max(action_set_info);
        let existing = match table {
            Some(table) => self.tables.entry(table).or_default(),
            None => &mut self.groups,
        };
        if !existing.have(&needs) {
            existing.add(&needs);
            // A table without rules has no entry in `live`, so new fields of buckets count as
            // growth.
            has_grown |= self.close() || table.is_none();
        }
        if has_grown {
            self.plain_continuations = Arc::default();
        }
        has_grown
    }

    /// Adds the fields of each table to the tables from which packets reach it.
    ///
    /// Returns whether the set of fields of any table has changed.
    fn close(&mut self) -> bool {
        let (mut grows, mut has_grown) = (true, false);
        while std::mem::take(&mut grows) {
            for (table, needs) in &self.tables {
                let live = self.live(needs);
                let existing = self.live.entry(*table).or_default();
                if !live.is_subset_of(existing) {
                    existing.add(&live);
                    (grows, has_grown) = (true, true);
                }
            }
        }
        has_grown
    }
}

/// The first and the last of the words that a patch port does not clear.
const ALWAYS: (usize, usize) = (word::PKT_MARK as usize, word::IN_PHY_PORT as usize);

#[cfg(test)]
mod tests {
    use shunt_flow::{FieldId, text::NoPortNames};

    use super::*;
    use crate::{
        bridges::settings::BridgeSettings,
        groups::group::{GroupCommand, Selection},
        id::BridgeId,
        pipeline::{Change, Pipeline},
        tables::flow_mod::FlowModCommand,
        text::{parse_group_mod, parse_rule},
        time::Time,
        update::modification::Modification,
        versions::delta::{Delta, Object},
    };

    const BRIDGE: BridgeId = BridgeId::new(1);

    /// Returns a pipeline with a bridge.
    fn pipeline() -> Pipeline {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline
    }

    fn add_rule(text: &str) -> Modification {
        parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap().into()
    }

    fn add_group(text: &str) -> Modification {
        parse_group_mod(GroupCommand::Add, text, &NoPortNames).unwrap().into()
    }

    fn publishes_live(change: &Change) -> bool {
        let is_live = |delta: &Delta| matches!(delta, Delta::Changed(Object::Live(BRIDGE)));
        change.deltas.iter().any(is_live)
    }

    /// Applies requests in order, and returns for each whether it makes a bit live.
    fn grow(mods: impl IntoIterator<Item = Modification>) -> Vec<bool> {
        let pipeline = pipeline();
        let make = |request| pipeline.modify(BRIDGE, [request], Time::ZERO).unwrap();
        mods.into_iter().map(|request| publishes_live(&make(request))).collect()
    }

    /// A rule is reported if its action set reads something that no other one reads.
    #[test]
    fn growth_of_action_set_info_is_reported() {
        let rules = [
            "table=0,ip,actions=drop",
            "table=0,ip,priority=5,actions=write_actions(output:2)",
            "table=0,ip,priority=6,actions=write_actions(output:3)",
            // Unlike an output, a packet-in reads registers, and uses the cookie of its rule.
            "table=0,reg2=7,actions=write_actions(controller)",
        ];
        assert_eq!(grow(rules.map(add_rule)), [true, true, false, true]);
        let mods = [
            add_rule("table=0,ip,actions=drop"),
            add_group("group_id=1,type=all,bucket=load:1->NXM_NX_REG0[]"),
            // The fields of a group in the action set are counted with its buckets.
            add_rule("table=0,ip,priority=5,actions=write_actions(group:1)"),
            add_group("group_id=2,type=all,bucket=output:2"),
            add_group("group_id=3,type=all,bucket=output:3"),
        ];
        assert_eq!(grow(mods), [true, false, false, true, false]);
    }

    #[test]
    fn fields_of_buckets_are_live_in_every_table() {
        let reads = |id, register| {
            let action = format!("move:NXM_NX_REG{register}[]->NXM_OF_ETH_SRC[0..31]");
            add_group(&format!("group_id={id},type=all,bucket={action}"))
        };
        let rule = add_rule("table=0,ip,actions=drop");
        assert_eq!(grow([rule.clone(), reads(1, 5), reads(2, 5)]), [true, true, false]);
        // The second rule with a `goto_table` adds no bit to those that a bucket has made live.
        let leads = add_rule("table=0,ip,priority=5,actions=goto_table:1");
        assert_eq!(grow([rule.clone(), reads(1, 5), leads]), [true, true, false]);
        // A table without rules does not include the fields of buckets yet.
        assert_eq!(grow([add_rule("table=0,reg5=1,actions=drop"), reads(1, 5)]), [true, true]);
        let pipeline = pipeline();
        let Modification::Group(mut by_field) = reads(2, 6) else { panic!("a group") };
        let fields = [(FieldId::Reg7, 0xff)].into();
        by_field.selection = Selection::Fields { basis: 0, fields };
        let mods = [rule, reads(1, 5), by_field.into()];
        pipeline.modify(BRIDGE, mods, Time::ZERO).unwrap();
        let mut readable = ReadableFields::default();
        for group in &pipeline.groups(BRIDGE) {
            readable.add(FieldReader::of_group(group));
        }
        let live = readable.live(&LiveFields::of_table(TableId::FIRST));
        let fields = [FieldId::Reg4, FieldId::Reg5, FieldId::Reg6, FieldId::Reg7];
        let live = fields.map(|field| live.field(field));
        assert_eq!(live, [0, 0xffff_ffff, 0xffff_ffff, 0xff]);
    }

    #[test]
    fn only_hidden_state_is_live() {
        let mut needs = LiveFields::default();
        needs.add_everything();
        let live = ReadableFields::default().live(&needs);
        assert_eq!(live.field(FieldId::Reg0), 0xffff_ffff);
        assert_eq!(live.field(FieldId::PktMark), 0xffff_ffff);
        assert!(LOCATION_WORDS.iter().all(|index| live.words()[*index] == 0));
        assert!(live.words()[HEADER_START..].iter().all(|word| *word == 0));
        let idle = ReadableFields::default().live(&LiveFields::default());
        assert_eq!(idle.field(FieldId::PktMark), 0xffff_ffff, "a peer bridge sees it");
    }

    #[test]
    fn a_refused_batch_changes_no_live_bits() {
        let pipeline = pipeline();
        let make = |mods: Vec<Modification>| pipeline.modify(BRIDGE, mods, Time::ZERO);
        make(vec![add_rule("table=1,ip,actions=drop")]).unwrap();
        let reads = add_rule("table=1,reg0=1,actions=drop");
        let bad = add_rule("table=1,ip,actions=group:77");
        make(vec![reads.clone(), bad]).unwrap_err();
        assert!(!publishes_live(
            &make(vec![add_rule("table=1,ip,priority=7,actions=drop")]).unwrap()
        ));
        assert!(publishes_live(&make(vec![reads]).unwrap()));
    }

    #[test]
    fn each_version_has_its_own_live_bits() {
        let rule = |text: &str| {
            let change = pipeline().modify(BRIDGE, [add_rule(text)], Time::ZERO).unwrap();
            let rule = |delta: &Delta| match delta {
                Delta::Rule(delta) => Some(Arc::clone(&delta.rule)),
                Delta::Changed(_) => None,
            };
            change.deltas.iter().find_map(rule).unwrap()
        };
        let live_at = |liveness: &Liveness, version| {
            let live =
                liveness.at(Version::new(version)).live(&LiveFields::of_table(TableId::FIRST));
            [FieldId::Reg0, FieldId::Reg1, FieldId::Reg2].map(|field| live.field(field))
        };
        let mut liveness = Liveness::new();
        liveness.add_rule(&rule("table=0,reg0=1/1,actions=drop"), Version::new(3));
        liveness.add_rule(&rule("table=0,reg1=3/3,actions=drop"), Version::new(5));
        liveness.add_rule(&rule("table=0,reg2=7/7,actions=drop"), Version::new(5));
        let seen = [2, 3, 4, 5, 6].map(|version| live_at(&liveness, version));
        assert_eq!(seen, [[0, 0, 0], [1, 0, 0], [1, 0, 0], [1, 3, 7], [1, 3, 7]]);
        liveness.reclaim(Version::new(5));
        assert_eq!((liveness.readable.values().count(), live_at(&liveness, 5)), (1, [1, 3, 7]));
        liveness.add_rule(&rule("table=0,reg0=9/9,actions=drop"), Version::new(8));
        liveness.undo(Version::new(8));
        assert_eq!((live_at(&liveness, 8), liveness.take_unpublished_growth()), ([1, 3, 7], false));
    }

    #[test]
    fn each_live_bit_is_reported_once() {
        let rules = [
            "table=0,ip,actions=goto_table:1",
            "table=1,reg0=1,actions=output:1",
            "table=1,reg0=2,priority=7,actions=output:2",
            "table=1,reg0=0/0xff,actions=move:NXM_NX_REG1[0..3]->NXM_NX_REG2[0..3]",
            "table=1,ip,actions=load:7->NXM_NX_REG9[],output:3",
            "table=1,tcp,actions=controller",
        ];
        assert_eq!(grow(rules.map(add_rule)), [true, true, false, true, false, true]);
    }

    #[test]
    fn fields_of_later_tables_are_live() {
        let rules = |texts: &[&str]| {
            let pipeline = pipeline();
            let mut readable = ReadableFields::default();
            for text in texts {
                let rule = parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap();
                let change = pipeline.apply(BRIDGE, &[rule], Time::ZERO).unwrap();
                for delta in change.deltas {
                    if let Delta::Rule(delta) = delta {
                        readable.add(FieldReader::of_rule(&delta.rule));
                    }
                }
            }
            move |table| {
                let needs = LiveFields::of_table(TableId::new(table).unwrap());
                let live = readable.live(&needs);
                [FieldId::Reg0, FieldId::Reg1, FieldId::Reg5].map(|field| live.field(field) != 0)
            }
        };
        let live = rules(&[
            "table=0,actions=resubmit(,1),resubmit(,3)",
            "table=1,reg0=1,actions=goto_table:2",
            "table=2,actions=push:NXM_NX_REG1[]",
            "table=3,actions=load:1->NXM_NX_REG5[],resubmit(,2)",
        ]);
        assert_eq!(live(0), [true, true, false]);
        assert_eq!(live(1), [true, true, false]);
        assert_eq!(live(2), [false, true, false]);
        assert_eq!(live(3), [false, true, false]);
        assert_eq!(live(9), [false, false, false], "an empty table reads nothing");
    }
}
