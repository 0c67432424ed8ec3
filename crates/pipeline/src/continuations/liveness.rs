//! Liveness: which bits of hidden state the tables of a bridge can still read.
//!
//! Where a traversal is cut into pieces, hidden state becomes part of a name. A register that nothing
//! reads any more would make many names of one, and pieces that could be shared would not be. So a name
//! leaves out what is dead: what neither the table that comes next, nor any that it can lead to, nor
//! what is left of the actions can read.
//!
//! Reads are those of rules, whichever packets meet them: the bits of their matches, and those that
//! their actions look at. What may tell a controller of the pipeline fields, or freeze a translation,
//! reads everything. The sets grow with rules and never shrink while the bridge lives; where one grows,
//! [`Object::Live`](crate::Object::Live) has changed, which the entries on both sides of a cut read.
//! Each version has its own, so what a translation leaves out is the same whenever it is made, and
//! requests that are refused, or that no version says yet, make nothing live.

use std::{collections::BTreeMap, sync::Arc};

use shunt_classifier::Version;
use shunt_flow::{
    FlowMask,
    layout::{HEADER_START, word},
};

use super::{
    live_fields::{Need, Needs, Reader},
    plain_continuations::PlainCuts,
};
use crate::{groups::group::Group, id::TableId, tables::rule::Rule, versions::versioned::History};

/// What the tables of a bridge can read, at each version.
pub(crate) struct Liveness {
    readable: History<Readable>,
    /// Before the first rule.
    nothing: Readable,
    /// It has grown, and its version does not say so yet.
    is_untold: bool,
}

/// What the tables of a bridge can read.
#[derive(Clone, Default)]
pub(crate) struct Readable {
    tables: BTreeMap<TableId, Needs>,
    /// What buckets need, of whichever group.
    groups: Needs,
    /// What can be read from a table on.
    live: BTreeMap<TableId, FlowMask>,
    /// What action sets and buckets look at of the rule that they are executed for.
    set_need: Need,
    /// What is so for as long as it does not grow.
    plain_cuts: Arc<PlainCuts>,
}

impl Liveness {
    /// Nothing is read.
    pub(crate) fn new() -> Self {
        Self { readable: History::new(), nothing: Readable::default(), is_untold: false }
    }

    /// What can be read at a version that is not forgotten.
    pub(crate) fn at(&self, version: Version) -> &Readable {
        self.readable.at(version).map_or(&self.nothing, AsRef::as_ref)
    }

    /// A rule comes.
    pub(crate) fn add_rule(&mut self, rule: &Rule, version: Version) {
        self.add(Reader::of_rule(rule), version);
    }

    /// A group comes, or has other buckets.
    pub(crate) fn add_group(&mut self, group: &Group, version: Version) {
        self.add(Reader::of_group(group), version);
    }

    /// Whether it has grown since it was last asked; then its version is to say so.
    pub(crate) fn take_untold(&mut self) -> bool {
        std::mem::take(&mut self.is_untold)
    }

    /// Undoes what `version`, which nobody has seen, made live.
    pub(crate) fn undo(&mut self, version: Version) {
        self.readable.undo(version);
        self.is_untold = false;
    }

    /// Forgets what no version from `oldest` on sees.
    pub(crate) fn reclaim(&mut self, oldest: Version) {
        self.readable.reclaim(oldest);
    }

    fn add(&mut self, reader: Reader, version: Version) {
        if self.at(version).has(&reader) {
            return;
        }
        if self.readable.own_mut(version).is_none() {
            self.readable.set(Arc::new(self.at(version).clone()), version);
        }
        if let Some(own) = self.readable.own_mut(version) {
            self.is_untold |= own.add(reader);
        }
    }
}

impl Readable {
    /// The hidden bits that whoever needs this can read, now or later.
    pub(crate) fn live(&self, needs: &Needs) -> FlowMask {
        let mut live = needs.bits.clone();
        live.add(&self.groups.bits);
        for table in needs.tables.iter().chain(&self.groups.tables) {
            if let Some(later) = self.live.get(table) {
                live.add(later);
            }
        }
        live.words_mut()[ALWAYS.0..=ALWAYS.1].fill(u64::MAX);
        live.words_mut()[HEADER_START..].fill(0);
        NAMING.iter().for_each(|word| live.words_mut()[usize::from(*word)] = 0);
        live
    }

    /// What action sets, and buckets in them, can look at of the rule that they are executed for.
    pub(crate) const fn set_need(&self) -> Need {
        self.set_need
    }

    /// What is so for as long as no more can be read.
    pub(crate) fn plain_cuts(&self) -> &PlainCuts {
        &self.plain_cuts
    }

    /// Whether all that somebody reads is known.
    fn has(&self, reader: &Reader) -> bool {
        let held = match reader.table {
            Some(table) => self.tables.get(&table),
            None => Some(&self.groups),
        };
        reader.set_need <= self.set_need && held.is_some_and(|held| held.have(&reader.needs))
    }

    /// Adds what somebody reads, and says whether more can be read than before.
    fn add(&mut self, reader: Reader) -> bool {
        let Reader { table, needs, set_need } = reader;
        let mut has_grown = set_need > self.set_need;
        self.set_need = self.set_need.max(set_need);
        let held = match table {
            Some(table) => self.tables.entry(table).or_default(),
            None => &mut self.groups,
        };
        if !held.have(&needs) {
            held.add(&needs);
            // Tables without rules have not been told of what buckets read.
            has_grown |= self.close() || table.is_none();
        }
        if has_grown {
            self.plain_cuts = Arc::default();
        }
        has_grown
    }

    /// Lets what later tables read be read by those that lead there, and says whether that was new.
    fn close(&mut self) -> bool {
        let (mut grows, mut has_grown) = (true, false);
        while std::mem::take(&mut grows) {
            for (table, needs) in &self.tables {
                let live = self.live(needs);
                let held = self.live.entry(*table).or_default();
                if !live.is_subset_of(held) {
                    held.add(&live);
                    (grows, has_grown) = (true, true);
                }
            }
        }
        has_grown
    }
}

/// Words that a patch port does not clear, the first and the last.
const ALWAYS: (usize, usize) = (word::PKT_MARK as usize, word::IN_PHY_PORT as usize);

/// Words that name where the packet is, and are no state of it.
const NAMING: [u8; 2] = [word::RECIRC, word::BRIDGE];

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

    fn tells(change: &Change) -> bool {
        let is_live = |delta: &Delta| matches!(delta, Delta::Changed(Object::Live(BRIDGE)));
        change.deltas.iter().any(is_live)
    }

    /// Whether each of these requests, made one after the other, makes something live.
    fn grow(mods: impl IntoIterator<Item = Modification>) -> Vec<bool> {
        let pipeline = pipeline();
        let make = |request| pipeline.modify(BRIDGE, [request], Time::ZERO).unwrap();
        mods.into_iter().map(|request| tells(&make(request))).collect()
    }

    #[test]
    fn what_action_sets_and_buckets_look_at_is_told_when_it_grows() {
        let rules = [
            "table=0,ip,actions=drop",
            "table=0,ip,priority=5,actions=write_actions(output:2)",
            "table=0,ip,priority=6,actions=write_actions(output:3)",
            // It reads more, and looks at more.
            "table=0,reg2=7,actions=write_actions(controller)",
        ];
        assert_eq!(grow(rules.map(add_rule)), [true, true, false, true]);
        let mods = [
            add_rule("table=0,ip,actions=drop"),
            add_group("group_id=1,type=all,bucket=load:1->NXM_NX_REG0[]"),
            // What a group of the set looks at, its buckets do.
            add_rule("table=0,ip,priority=5,actions=write_actions(group:1)"),
            add_group("group_id=2,type=all,bucket=output:2"),
            add_group("group_id=3,type=all,bucket=output:3"),
        ];
        assert_eq!(grow(mods), [true, false, false, true, false]);
    }

    #[test]
    fn what_buckets_read_is_live_in_every_table_and_told_when_it_grows() {
        let reads = |id, register| {
            let action = format!("move:NXM_NX_REG{register}[]->NXM_OF_ETH_SRC[0..31]");
            add_group(&format!("group_id={id},type=all,bucket={action}"))
        };
        let rule = add_rule("table=0,ip,actions=drop");
        assert_eq!(grow([rule.clone(), reads(1, 5), reads(2, 5)]), [true, true, false]);
        // A rule that leads elsewhere adds nothing to what a bucket has made live.
        let leads = add_rule("table=0,ip,priority=5,actions=goto_table:1");
        assert_eq!(grow([rule.clone(), reads(1, 5), leads]), [true, true, false]);
        // Tables without rules have not been told of what others read.
        assert_eq!(grow([add_rule("table=0,reg5=1,actions=drop"), reads(1, 5)]), [true, true]);
        let pipeline = pipeline();
        let Modification::Group(mut by_field) = reads(2, 6) else { panic!("a group") };
        let fields = [(FieldId::Reg7, 0xff)].into();
        by_field.selection = Selection::Fields { basis: 0, fields };
        let mods = [rule, reads(1, 5), by_field.into()];
        pipeline.modify(BRIDGE, mods, Time::ZERO).unwrap();
        let mut readable = Readable::default();
        for group in &pipeline.groups(BRIDGE) {
            readable.add(Reader::of_group(group));
        }
        let live = readable.live(&Needs::of_table(TableId::FIRST));
        let fields = [FieldId::Reg4, FieldId::Reg5, FieldId::Reg6, FieldId::Reg7];
        let live = fields.map(|field| live.field(field));
        assert_eq!(live, [0, 0xffff_ffff, 0xffff_ffff, 0xff]);
    }

    #[test]
    fn what_is_live_is_hidden_state_and_never_a_name_or_a_header() {
        let mut needs = Needs::default();
        needs.add_everything();
        let live = Readable::default().live(&needs);
        assert_eq!(live.field(FieldId::Reg0), 0xffff_ffff);
        assert_eq!(live.field(FieldId::PktMark), 0xffff_ffff);
        assert!(NAMING.iter().all(|word| live.words()[usize::from(*word)] == 0));
        assert!(live.words()[HEADER_START..].iter().all(|word| *word == 0));
        let idle = Readable::default().live(&Needs::default());
        assert_eq!(idle.field(FieldId::PktMark), 0xffff_ffff, "a peer bridge sees it");
    }

    #[test]
    fn what_a_refused_batch_reads_is_not_live_and_told_when_it_is() {
        let pipeline = pipeline();
        let make = |mods: Vec<Modification>| pipeline.modify(BRIDGE, mods, Time::ZERO);
        make(vec![add_rule("table=1,ip,actions=drop")]).unwrap();
        let reads = add_rule("table=1,reg0=1,actions=drop");
        let bad = add_rule("table=1,ip,actions=group:77");
        make(vec![reads.clone(), bad]).unwrap_err();
        assert!(!tells(&make(vec![add_rule("table=1,ip,priority=7,actions=drop")]).unwrap()));
        assert!(tells(&make(vec![reads]).unwrap()));
    }

    #[test]
    fn each_version_has_what_was_live_then() {
        let rule = |text: &str| {
            let change = pipeline().modify(BRIDGE, [add_rule(text)], Time::ZERO).unwrap();
            let rule = |delta: &Delta| match delta {
                Delta::Rule(delta) => Some(Arc::clone(&delta.rule)),
                Delta::Changed(_) => None,
            };
            change.deltas.iter().find_map(rule).unwrap()
        };
        let live_at = |liveness: &Liveness, version| {
            let live = liveness.at(Version::new(version)).live(&Needs::of_table(TableId::FIRST));
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
        assert_eq!((live_at(&liveness, 8), liveness.take_untold()), ([1, 3, 7], false));
    }

    #[test]
    fn what_makes_a_bit_live_is_told_once() {
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
    fn what_a_table_reads_is_live_in_those_that_lead_there() {
        let rules = |texts: &[&str]| {
            let pipeline = pipeline();
            let mut readable = Readable::default();
            for text in texts {
                let rule = parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap();
                let change = pipeline.apply(BRIDGE, &[rule], Time::ZERO).unwrap();
                for delta in change.deltas {
                    if let Delta::Rule(delta) = delta {
                        readable.add(Reader::of_rule(&delta.rule));
                    }
                }
            }
            move |table| {
                let needs = Needs::of_table(TableId::new(table).unwrap());
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
