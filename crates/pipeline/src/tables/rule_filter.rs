//! Filters that select rules.

use std::collections::BTreeSet;

use shunt_flow::{Match, PortNo};

use super::{
    flow_mod::{FlowMod, TableSelector},
    rule::{Instructions, Rule},
};
use crate::{
    action::Action,
    id::{Cookie, GroupId, MeterId},
};

/// Selects rules, for flow statistics and for flow-mods that are not strict.
///
/// See OpenFlow 1.3.5, 6.4 and 7.3.5.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFilter {
    /// Select rules of this table.
    pub table: TableSelector,
    /// Select rules with this match or a narrower one.
    pub matching: Match,
    /// The cookie that rules must have under `cookie_mask`.
    pub cookie: Cookie,
    /// The bits of the cookie to compare; 0 selects all rules.
    pub cookie_mask: u64,
    /// Select rules with an output to this port; [`PortNo::ANY`]: all rules.
    pub out_port: PortNo,
    /// Select rules with an output to this group; [`RuleFilter::GROUP_ANY`]: all rules.
    pub out_group: u32,
}

impl RuleFilter {
    /// `OFPG_ANY`: the filter ignores groups.
    pub const GROUP_ANY: u32 = 0xffff_ffff;

    /// The filter that selects every rule.
    #[must_use]
    pub fn all() -> Self {
        Self {
            table: TableSelector::All,
            matching: Match::any(),
            cookie: Cookie::default(),
            cookie_mask: 0,
            out_port: PortNo::ANY,
            out_group: Self::GROUP_ANY,
        }
    }

    /// Returns whether the filter selects a rule.
    #[must_use]
    pub fn selects(&self, rule: &Rule) -> bool {
        self.admits(rule) && rule.matching.is_within(&self.matching)
    }

    /// Returns whether the filter selects a rule that the caller has found by its
    /// match.
    pub(crate) fn admits(&self, rule: &Rule) -> bool {
        let in_table = match self.table {
            TableSelector::One(table) => rule.table == table,
            TableSelector::All => true,
        };
        let differing = (rule.cookie.number() ^ self.cookie.number()) & self.cookie_mask;
        let (port, group) = (self.out_port, self.out_group);
        in_table
            && differing == 0
            && (port == PortNo::ANY || rule.instructions.outputs_to(port))
            && (group == Self::GROUP_ANY || rule.instructions.names_group(group))
    }

    /// Returns the filter of a MODIFY, which ignores `out_port` and `out_group`.
    pub(crate) fn to_modify(request: &FlowMod) -> Self {
        Self { out_port: PortNo::ANY, out_group: Self::GROUP_ANY, ..Self::to_delete(request) }
    }

    /// Returns the filter of a DELETE.
    pub(crate) fn to_delete(request: &FlowMod) -> Self {
        Self {
            table: request.table,
            matching: request.matching.clone(),
            cookie: request.cookie,
            cookie_mask: request.cookie_mask,
            out_port: request.out_port,
            out_group: request.out_group,
        }
    }
}

impl Instructions {
    /// Returns whether `is` is true for any action, including actions inside `clone`.
    pub(crate) fn any(&self, is: impl FnMut(&Action) -> bool) -> bool {
        any_action(&[&self.apply, &self.write], is)
    }

    /// Returns whether any action, also inside clones, is an output to `port`.
    pub(crate) fn outputs_to(&self, port: PortNo) -> bool {
        self.any(|action| match action {
            Action::Output { port: own, .. } | Action::OutputTruncated { port: own, .. } => {
                *own == port
            }
            Action::Controller(_) => port == PortNo::CONTROLLER,
            _ => false,
        })
    }

    /// Returns the groups that actions name, also inside clones.
    pub(crate) fn groups(&self) -> BTreeSet<GroupId> {
        let mut groups = BTreeSet::new();
        self.any(|action| {
            groups.extend(if let Action::Group(group) = action { Some(*group) } else { None });
            false
        });
        groups
    }

    /// Returns the meters that packets pass, by instruction or action.
    pub(crate) fn meters(&self) -> BTreeSet<MeterId> {
        let mut meters = BTreeSet::from_iter(self.meter);
        self.any(|action| {
            meters.extend(if let Action::Meter(meter) = action { Some(*meter) } else { None });
            false
        });
        meters
    }

    /// Returns whether any action, also inside clones, names a group.
    fn names_group(&self, group: u32) -> bool {
        self.any(|action| matches!(action, Action::Group(own) if own.number() == group))
    }
}

/// Returns whether `is` is true for some action of these lists, also inside clones.
///
/// The last list is visited first.
pub(crate) fn any_action(lists: &[&[Action]], mut is: impl FnMut(&Action) -> bool) -> bool {
    let mut lists = lists.to_vec();
    while let Some(list) = lists.pop() {
        for action in list {
            if is(action) {
                return true;
            }
            if let Action::Clone(inner) = action {
                lists.push(inner);
            }
        }
    }
    false
}
