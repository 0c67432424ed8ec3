//! Liveness: which bits of hidden state the tables of a bridge can still read.
//!
//! Where a traversal is cut into pieces, hidden state becomes part of a name. A register that nothing
//! reads any more would make many names of one, and pieces that could be shared would not be. So a name
//! leaves out what is dead: what neither the table that comes next, nor any that it can lead to, nor
//! what is left of the actions can read.
//!
//! Reads are those of rules, whichever packets meet them: the bits of their matches, and those that
//! their actions look at. What may tell a controller of the pipeline fields, or freeze a translation,
//! reads everything. The sets grow with rules and never shrink while the bridge lives, so they hold for
//! every version that anybody is at; where one grows, [`Object::Live`](crate::Object::Live) has
//! changed, which the entries on both sides of a cut read.

use std::collections::{BTreeMap, BTreeSet};

use shunt_flow::{
    FlowMask, PortNo,
    layout::{HEADER_START, word},
};

use crate::{
    Action, Group, Instructions, LearnSource, Rule, Selection, Subfield, TableId,
    plain_cuts::PlainCuts,
};

/// What the tables of a bridge can read.
#[derive(Default)]
pub(crate) struct Liveness {
    tables: BTreeMap<TableId, Needs>,
    /// What buckets need, of whichever group.
    groups: Needs,
    /// What can be read from a table on.
    live: BTreeMap<TableId, FlowMask>,
    /// What action sets and buckets look at of the rule that they are executed for.
    set_need: Need,
    /// It has grown, and no version says so.
    is_untold: bool,
    /// What is so for as long as it does not grow.
    pub(crate) plain_cuts: PlainCuts,
}

/// What somebody looks at of the rule that is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Nothing.
    #[default]
    Nothing,
    /// How deep it stands.
    Depth,
    /// Its table.
    Table,
    /// All that packet-ins tell of it.
    All,
}

impl Need {
    /// What actions look at.
    pub(crate) fn of<'a>(actions: impl IntoIterator<Item = &'a Action>) -> Self {
        actions.into_iter().map(Self::of_action).max().unwrap_or_default()
    }

    fn of_action(action: &Action) -> Self {
        match action {
            Action::SetField { .. }
            | Action::Load { .. }
            | Action::Move { .. }
            | Action::Push(_)
            | Action::Pop(_)
            | Action::Note(_)
            | Action::SetQueue(_)
            | Action::PopQueue
            | Action::SetNwTtl(_)
            | Action::SetTpSrc(_)
            | Action::SetTpDst(_)
            | Action::PushVlan { .. }
            | Action::PopVlan => Self::Nothing,
            // It may lead through a patch port.
            Action::Output { port, .. } if port.is_physical() => Self::Depth,
            Action::Resubmit { .. } => Self::Table,
            _ => Self::All,
        }
    }
}

/// What some actions read, and where they lead.
#[derive(Clone, Default)]
pub(crate) struct Needs {
    bits: FlowMask,
    tables: BTreeSet<TableId>,
}

impl Liveness {
    /// A rule comes.
    pub(crate) fn add_rule(&mut self, rule: &Rule) {
        let mut needs = Needs::default();
        needs.bits.add_sparse(rule.matching.mask());
        needs.add_instructions(&rule.instructions, rule.table);
        if self.tables.entry(rule.table).or_default().add(&needs) {
            self.close();
        }
        // What a group of the set looks at, its buckets do.
        let is_own = |action: &&Action| !matches!(action, Action::Group(_));
        self.raise(Need::of(rule.instructions.write.iter().filter(is_own)));
    }

    /// A group comes, or has other buckets.
    pub(crate) fn add_group(&mut self, group: &Group) {
        let mut needs = Needs::default();
        if let Selection::Fields { fields, .. } = &group.selection {
            fields.iter().for_each(|(field, bits)| needs.bits.add_bits(*field, *bits));
        }
        group.buckets.iter().for_each(|bucket| needs.add_actions(&bucket.actions, None));
        if self.groups.add(&needs) {
            self.close();
            self.grow();
        }
        self.raise(Need::of(group.buckets.iter().flat_map(|bucket| &bucket.actions)));
    }

    /// Whether it has grown since it was last asked; then a version is to say so.
    pub(crate) fn take_untold(&mut self) -> bool {
        std::mem::take(&mut self.is_untold)
    }

    /// The version that would have said that it has grown does not come to be.
    pub(crate) const fn untell(&mut self) {
        self.is_untold = true;
    }

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

    fn raise(&mut self, need: Need) {
        if need > self.set_need {
            self.set_need = need;
            self.grow();
        }
    }

    /// More can be read than before.
    fn grow(&mut self) {
        self.is_untold = true;
        self.plain_cuts = PlainCuts::default();
    }

    /// Lets what later tables read be read by those that lead there.
    fn close(&mut self) {
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
        if has_grown {
            self.grow();
        }
    }
}

impl Needs {
    /// What a lookup in a table needs.
    pub(crate) fn of_table(table: TableId) -> Self {
        Self { bits: FlowMask::EMPTY, tables: BTreeSet::from([table]) }
    }

    /// Adds what instructions of a rule of `table` need.
    pub(crate) fn add_instructions(&mut self, instructions: &Instructions, table: TableId) {
        self.add_table(instructions.goto);
        self.add_actions(&instructions.apply, Some(table));
        // Of which table the action set is executed, clones decide too.
        self.add_actions(&instructions.write, None);
    }

    /// Adds what actions need; `here` is what a resubmit without a table looks up in.
    pub(crate) fn add_actions<'a>(
        &mut self,
        actions: impl IntoIterator<Item = &'a Action>,
        here: Option<TableId>,
    ) {
        let mut ahead: Vec<&Action> = actions.into_iter().collect();
        while let Some(action) = ahead.pop() {
            match action {
                Action::Clone(actions) => ahead.extend(actions.iter()),
                Action::Move { source, .. } | Action::Push(source) => self.add_bits(*source),
                Action::Learn(learn) => {
                    for spec in &learn.specs {
                        if let LearnSource::Field(source) = spec.source {
                            self.add_bits(source);
                        }
                    }
                }
                Action::Resubmit { table, .. } => match table.or(here) {
                    Some(table) => drop(self.tables.insert(table)),
                    None => self.add_everything(),
                },
                action if reads_nothing(action) => {}
                _ => self.add_everything(),
            }
        }
    }

    /// Adds what a lookup in a table needs, if there is one.
    pub(crate) fn add_table(&mut self, table: Option<TableId>) {
        self.tables.extend(table);
    }

    /// Adds all hidden state.
    pub(crate) fn add_everything(&mut self) {
        self.bits.words_mut()[..HEADER_START].fill(u64::MAX);
    }

    fn add_bits(&mut self, source: Subfield) {
        self.bits.add_bits(source.field, source.bits());
    }

    /// Adds other needs, and says whether they were new.
    fn add(&mut self, other: &Self) -> bool {
        let is_known = other.bits.is_subset_of(&self.bits) && other.tables.is_subset(&self.tables);
        if !is_known {
            self.bits.add(&other.bits);
            self.tables.extend(&other.tables);
        }
        !is_known
    }
}

/// Whether an action reads nothing hidden, and leads to no table.
///
/// An output may lead through a patch port; what the peer bridge sees of hidden state is in
/// [`ALWAYS`].
fn reads_nothing(action: &Action) -> bool {
    match action {
        Action::Output { port, .. } => *port != PortNo::CONTROLLER && *port != PortNo::TABLE,
        Action::DecTtl { controllers } => controllers.is_empty(),
        Action::OutputTruncated { .. }
        | Action::SetField { .. }
        | Action::Load { .. }
        | Action::Pop(_)
        | Action::PushVlan { .. }
        | Action::PopVlan
        | Action::SetQueue(_)
        | Action::PopQueue
        | Action::SetNwTtl(_)
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::Note(_)
        | Action::Exit
        | Action::Conjunction { .. }
        // Buckets of all groups are in the needs of every table.
        | Action::Group(_)
        | Action::Meter(_)
        | Action::FinTimeout { .. }
        // They hash headers.
        | Action::Multipath(_)
        | Action::Bundle(_) => true,
        _ => false,
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
        BridgeId, BridgeSettings, Change, Delta, FlowModCommand, GroupCommand, Modification,
        Object, Pipeline, Time,
        text::{parse_actions, parse_group_mod, parse_rule},
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
    fn of_a_rule_actions_look_at_what_they_tell_or_follow() {
        for (text, expected) in [
            ("load:1->NXM_NX_REG0[],push:NXM_NX_REG0[],pop_vlan,set_queue:1", Need::Nothing),
            ("load:1->NXM_NX_REG0[],output:2", Need::Depth),
            ("resubmit(,1),output:2", Need::Table),
            ("resubmit(,1),controller,output:2", Need::All),
            ("normal", Need::All),
        ] {
            let actions = parse_actions(text, &NoPortNames).unwrap().apply;
            assert_eq!(Need::of(&actions), expected, "{text}");
        }
    }

    #[test]
    fn what_action_sets_and_buckets_look_at_is_told_when_it_grows() {
        let rules = [
            "table=0,ip,actions=drop",
            "table=0,ip,priority=5,actions=write_actions(output:2)",
            "table=0,ip,priority=6,actions=write_actions(output:3)",
        ];
        assert_eq!(grow(rules.map(add_rule)), [true, true, false]);
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
        let mut liveness = Liveness::default();
        pipeline.groups(BRIDGE).iter().for_each(|group| liveness.add_group(group));
        let live = liveness.live(&Needs::of_table(TableId::FIRST));
        let fields = [FieldId::Reg4, FieldId::Reg5, FieldId::Reg6, FieldId::Reg7];
        let live = fields.map(|field| live.field(field));
        assert_eq!(live, [0, 0xffff_ffff, 0xffff_ffff, 0xff]);
    }

    /// The registers that are needed.
    fn registers(needs: &Needs) -> Vec<usize> {
        let live = Liveness::default().live(needs);
        (0..16).filter(|register| live.field(REGISTERS[*register]) != 0).collect()
    }

    fn needs_of(actions: &[Action]) -> Needs {
        let mut needs = Needs::default();
        needs.add_actions(actions, None);
        needs
    }

    const REGISTERS: [FieldId; 16] = [
        FieldId::Reg0,
        FieldId::Reg1,
        FieldId::Reg2,
        FieldId::Reg3,
        FieldId::Reg4,
        FieldId::Reg5,
        FieldId::Reg6,
        FieldId::Reg7,
        FieldId::Reg8,
        FieldId::Reg9,
        FieldId::Reg10,
        FieldId::Reg11,
        FieldId::Reg12,
        FieldId::Reg13,
        FieldId::Reg14,
        FieldId::Reg15,
    ];

    #[test]
    fn actions_read_their_sources_and_what_may_tell_of_anything_reads_all() {
        let all = &(0..16).collect::<Vec<_>>()[..];
        for (text, expected) in [
            ("move:NXM_NX_REG1[]->NXM_NX_REG2[],load:1->NXM_NX_REG3[]", &[1][..]),
            ("clone(push:NXM_NX_REG1[],pop:NXM_NX_REG2[],clone(push:NXM_NX_REG3[]))", &[1, 3]),
            ("learn(table=3,NXM_OF_ETH_DST[],load:NXM_NX_REG5[]->NXM_NX_REG6[])", &[5]),
            ("mod_nw_ttl:3,push_vlan:0x8100,pop_vlan,set_queue:1,output:2,normal", &[]),
            ("dec_ttl", all),
            ("controller", all),
            ("output:NXM_NX_REG1[]", all),
            // In a table that what is left does not name.
            ("resubmit:2", all),
            ("resubmit(,2)", &[]),
        ] {
            let actions = parse_actions(text, &NoPortNames).unwrap().apply;
            assert_eq!(registers(&needs_of(&actions)), expected, "{text}");
        }
        let silent = [Action::DecTtl { controllers: Box::new([]) }];
        assert!(registers(&needs_of(&silent)).is_empty());
    }

    #[test]
    fn what_an_action_set_reads_is_live_where_it_is_written() {
        for (text, expected) in [
            ("output:2", &[][..]),
            ("move:NXM_NX_REG1[]->NXM_NX_REG2[],output:2", &[1]),
            // In whichever table it is executed.
            ("resubmit:2", &(0..16).collect::<Vec<_>>()),
        ] {
            let mut needs = Needs::default();
            let rule = format!("table=3,ip,actions=write_actions({text})");
            let rule = parse_rule(FlowModCommand::Add, &rule, &NoPortNames).unwrap();
            needs.add_instructions(&rule.instructions, TableId::FIRST);
            assert_eq!(registers(&needs), expected, "{text}");
        }
    }

    #[test]
    fn what_is_live_is_hidden_state_and_never_a_name_or_a_header() {
        let mut needs = Needs::default();
        needs.add_everything();
        let live = Liveness::default().live(&needs);
        assert_eq!(live.field(FieldId::Reg0), 0xffff_ffff);
        assert_eq!(live.field(FieldId::PktMark), 0xffff_ffff);
        assert!(NAMING.iter().all(|word| live.words()[usize::from(*word)] == 0));
        assert!(live.words()[HEADER_START..].iter().all(|word| *word == 0));
        let idle = Liveness::default().live(&Needs::default());
        assert_eq!(idle.field(FieldId::PktMark), 0xffff_ffff, "a peer bridge sees it");
    }

    #[test]
    fn what_a_refused_batch_made_live_is_told_by_the_next_version() {
        let pipeline = pipeline();
        let make = |mods: Vec<Modification>| pipeline.modify(BRIDGE, mods, Time::ZERO);
        make(vec![add_rule("table=1,ip,actions=drop")]).unwrap();
        let bad = add_rule("table=1,ip,actions=group:77");
        make(vec![add_rule("table=1,reg0=1,actions=drop"), bad]).unwrap_err();
        let next = make(vec![add_rule("table=1,ip,priority=7,actions=drop")]).unwrap();
        assert!(tells(&next));
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
            let mut liveness = Liveness::default();
            for text in texts {
                let rule = parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap();
                let change = pipeline.apply(BRIDGE, &[rule], Time::ZERO).unwrap();
                for delta in change.deltas {
                    if let Delta::Rule(delta) = delta {
                        liveness.add_rule(&delta.rule);
                    }
                }
            }
            move |table| {
                let needs = Needs::of_table(TableId::new(table).unwrap());
                let live = liveness.live(&needs);
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
