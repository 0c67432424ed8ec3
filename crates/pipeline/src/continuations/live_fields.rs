//! The hidden fields that rules and buckets read, and the tables that packets reach from there.

use std::collections::BTreeSet;

use shunt_flow::{FlowMask, PortNo, layout::HEADER_START};

use crate::{
    action::{Action, LearnSource, Subfield},
    groups::group::{Group, Selection},
    id::TableId,
    tables::rule::{Instructions, Rule},
};

/// The part of the running rule's information that actions use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RuleInfo {
    /// Actions use nothing of the running rule.
    #[default]
    Nothing,
    /// The nesting depth of the translation.
    Depth,
    /// The nesting depth, and the table of the rule.
    Table,
    /// Everything that a packet-in reports about the rule.
    All,
}

impl RuleInfo {
    /// Returns the most information that one of these actions uses.
    pub(crate) fn of<'a>(actions: impl IntoIterator<Item = &'a Action>) -> Self {
        actions.into_iter().map(Self::of_action).max().unwrap_or_default()
    }

    /// Returns the information about its rule that an action needs.
    fn of_action(action: &Action) -> Self {
        match action {
            action if is_plain_write(action) => Self::Nothing,
            Action::Move { .. } | Action::Push(_) => Self::Nothing,
            // The port may be a patch port, behind which the depth is limited.
            Action::Output { port, .. } if port.is_physical() => Self::Depth,
            Action::Resubmit { .. } => Self::Table,
            _ => Self::All,
        }
    }
}

/// The hidden bits that some actions read, and the tables in which they continue.
#[derive(Clone, Default)]
pub(crate) struct LiveFields {
    /// The hidden bits that the actions read.
    pub(crate) bits: FlowMask,
    /// The tables in which the actions continue.
    pub(crate) tables: BTreeSet<TableId>,
}

/// A reader of hidden fields: a rule, or the buckets of a group.
pub(crate) struct FieldReader {
    /// The table of the rule; `None` for a group.
    pub(crate) table: Option<TableId>,
    /// The bits that it reads, and its next tables.
    pub(crate) needs: LiveFields,
    /// The information on a rule that actions use when its action set is executed.
    pub(crate) action_set_info: RuleInfo,
}

impl FieldReader {
    /// Returns the fields that a rule reads.
    pub(crate) fn of_rule(rule: &Rule) -> Self {
        let mut needs = LiveFields::default();
        needs.bits.add_sparse(rule.matching.mask());
        needs.add_instructions(&rule.instructions, rule.table);
        // Groups are skipped: the fields that they read are counted with their buckets.
        let is_own = |action: &&Action| !matches!(action, Action::Group(_));
        let action_set_info = RuleInfo::of(rule.instructions.write.iter().filter(is_own));
        Self { table: Some(rule.table), needs, action_set_info }
    }

    /// Returns the fields that the buckets of a group read.
    pub(crate) fn of_group(group: &Group) -> Self {
        let mut needs = LiveFields::default();
        if let Selection::Fields { fields, .. } = &group.selection {
            fields.iter().for_each(|(field, bits)| needs.bits.add_bits(*field, *bits));
        }
        group.buckets.iter().for_each(|bucket| needs.add_actions(&bucket.actions, None));
        let action_set_info = RuleInfo::of(group.buckets.iter().flat_map(|bucket| &bucket.actions));
        Self { table: None, needs, action_set_info }
    }
}

impl LiveFields {
    /// The fields that a lookup in a table reads.
    pub(crate) fn of_table(table: TableId) -> Self {
        Self { bits: FlowMask::EMPTY, tables: BTreeSet::from([table]) }
    }

    /// Adds the fields that the instructions of a rule of `table` read.
    pub(crate) fn add_instructions(&mut self, instructions: &Instructions, table: TableId) {
        self.add_table(instructions.goto);
        self.add_actions(&instructions.apply, Some(table));
        // The set may be executed for a later table, so the table of a resubmit without one is
        // unknown.
        self.add_actions(&instructions.write, None);
    }

    /// Adds the fields that actions read, and the tables in which they continue.
    /// `here` is the table of a resubmit that names none.
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

    /// Adds a table in which packets continue, if there is one.
    pub(crate) fn add_table(&mut self, table: Option<TableId>) {
        self.tables.extend(table);
    }

    /// Adds all hidden state to the set.
    pub(crate) fn add_everything(&mut self) {
        self.bits.words_mut()[..HEADER_START].fill(u64::MAX);
    }

    /// Adds the bits of a subfield.
    fn add_bits(&mut self, source: Subfield) {
        self.bits.add_bits(source.field, source.bits());
    }

    /// Adds the fields and tables of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.bits.add(&other.bits);
        self.tables.extend(&other.tables);
    }

    /// Returns whether these fields and tables include those of `other`.
    pub(crate) fn have(&self, other: &Self) -> bool {
        other.bits.is_subset_of(&self.bits) && other.tables.is_subset(&self.tables)
    }
}

/// Returns whether an action reads no hidden field and continues in no table.
///
/// An output may lead through a patch port; the hidden fields that the peer bridge sees are always
/// live.
fn reads_nothing(action: &Action) -> bool {
    match action {
        Action::Output { port, .. } => *port != PortNo::CONTROLLER && *port != PortNo::TABLE,
        Action::DecTtl { controllers } => controllers.is_empty(),
        Action::OutputTruncated { .. }
        | Action::Exit
        | Action::Conjunction { .. }
        // `ReadableFields` adds the fields of all buckets to every table.
        | Action::Group(_)
        | Action::Meter(_)
        | Action::FinTimeout { .. }
        // The hash of these two actions covers headers alone.
        | Action::Multipath(_)
        | Action::Bundle(_) => true,
        action => is_plain_write(action),
    }
}

/// Returns whether an action only writes fields, without information on its rule.
const fn is_plain_write(action: &Action) -> bool {
    matches!(
        action,
        Action::SetField { .. }
            | Action::Load { .. }
            | Action::Pop(_)
            | Action::PushVlan { .. }
            | Action::PopVlan
            | Action::SetQueue(_)
            | Action::PopQueue { .. }
            | Action::SetNwTtl(_)
            | Action::SetTpSrc(_)
            | Action::SetTpDst(_)
            | Action::Note(_)
    )
}

#[cfg(test)]
mod tests {
    use shunt_flow::{FieldId, text::NoPortNames};

    use super::*;
    use crate::{
        tables::flow_mod::FlowModCommand,
        text::{parse_actions, parse_rule},
    };

    /// For example, a packet-in shows table and cookie, and an output shows neither.
    #[test]
    fn actions_use_the_rule_info_that_they_show() {
        for (text, expected) in [
            ("load:1->NXM_NX_REG0[],push:NXM_NX_REG0[],pop_vlan,set_queue:1", RuleInfo::Nothing),
            ("load:1->NXM_NX_REG0[],output:2", RuleInfo::Depth),
            ("resubmit(,1),output:2", RuleInfo::Table),
            ("resubmit(,1),controller,output:2", RuleInfo::All),
            ("normal", RuleInfo::All),
        ] {
            let actions = parse_actions(text, &NoPortNames).unwrap().apply;
            assert_eq!(RuleInfo::of(&actions), expected, "{text}");
        }
    }

    /// Returns the numbers of the registers among the fields.
    fn registers(needs: &LiveFields) -> Vec<usize> {
        let is_among = |register: &usize| {
            let field = FieldId::find(&format!("reg{register}")).unwrap();
            needs.bits.field(field) != 0
        };
        (0..16).filter(is_among).collect()
    }

    fn needs_of(actions: &[Action]) -> LiveFields {
        let mut needs = LiveFields::default();
        needs.add_actions(actions, None);
        needs
    }

    #[test]
    fn packet_ins_read_all_hidden_fields() {
        let all = &(0..16).collect::<Vec<_>>()[..];
        for (text, expected) in [
            ("move:NXM_NX_REG1[]->NXM_NX_REG2[],load:1->NXM_NX_REG3[]", &[1][..]),
            ("clone(push:NXM_NX_REG1[],pop:NXM_NX_REG2[],clone(push:NXM_NX_REG3[]))", &[1, 3]),
            ("learn(table=3,NXM_OF_ETH_DST[],load:NXM_NX_REG5[]->NXM_NX_REG6[])", &[5]),
            ("mod_nw_ttl:3,push_vlan:0x8100,pop_vlan,set_queue:1,output:2,normal", &[]),
            ("dec_ttl", all),
            ("controller", all),
            ("output:NXM_NX_REG1[]", all),
            // `resubmit:2` continues in the table of the rule, which is unknown here.
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
    fn fields_read_by_an_action_set_are_live() {
        for (text, expected) in [
            ("output:2", &[][..]),
            ("move:NXM_NX_REG1[]->NXM_NX_REG2[],output:2", &[1]),
            // The set may be executed for any table, so `resubmit:2` may continue in any table.
            ("resubmit:2", &(0..16).collect::<Vec<_>>()),
        ] {
            let mut needs = LiveFields::default();
            let rule = format!("table=3,ip,actions=write_actions({text})");
            let rule = parse_rule(FlowModCommand::Add, &rule, &NoPortNames).unwrap();
            needs.add_instructions(&rule.instructions, TableId::FIRST);
            assert_eq!(registers(&needs), expected, "{text}");
        }
    }
}
