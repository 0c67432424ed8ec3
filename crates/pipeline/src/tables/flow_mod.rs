//! Requests to change rules, and why they fail.

use std::time::Duration;

use shunt_classifier::Priority;
use shunt_flow::{Match, PortNo};

use super::rule::{FlowFlags, Instructions};
use crate::id::{Cookie, GroupId, MeterId, TableId};

/// A request to add, modify or delete rules (`OFPT_FLOW_MOD`), whatever the version on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// What to do.
    pub command: FlowModCommand,
    /// Where.
    pub table: TableSelector,
    /// The rule's match, or the match that chooses rules.
    pub matching: Match,
    /// The rule's priority; only strict commands and additions look at it.
    pub priority: Priority,
    /// The cookie of a new rule, or the one that chosen rules must have under `cookie_mask`.
    pub cookie: Cookie,
    /// The bits of the cookie that choose rules to modify or delete.
    pub cookie_mask: u64,
    /// Time without a hit after which a new rule goes; zero: never. Whole seconds.
    pub idle_timeout: Duration,
    /// Time after which a new rule goes; zero: never. Whole seconds.
    pub hard_timeout: Duration,
    /// How much a new rule is worth keeping.
    pub importance: u16,
    /// Flags of a new rule.
    pub flags: FlowFlags,
    /// Only rules that output to this port are deleted; [`PortNo::ANY`]: all.
    pub out_port: PortNo,
    /// Only rules that output to this group are deleted; `OFPG_ANY` (0xffff_ffff): all.
    pub out_group: u32,
    /// The instructions of a new rule, or those that modified rules get.
    pub instructions: Instructions,
}

/// What a flow-mod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowModCommand {
    /// Add a rule; it replaces one of the same match and priority.
    Add,
    /// Change the instructions of rules within the match.
    Modify,
    /// Change the instructions of the rule with this match and priority.
    ModifyStrict,
    /// Delete rules within the match.
    Delete,
    /// Delete the rule with this match and priority.
    DeleteStrict,
}

/// The table, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableSelector {
    /// One table.
    One(TableId),
    /// All tables (`OFPTT_ALL`); not to add.
    All,
}

/// Why a flow-mod was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowModError {
    /// `OFPFMFC_OVERLAP`.
    #[error("the rule overlaps another of priority {0} and check_overlap is set")]
    Overlap(Priority),
    /// `OFPFMFC_BAD_TABLE_ID`.
    #[error("a rule is added to one table, not to all: name a table from 0 to {max}", max = TableId::MAX)]
    TableAll,
    /// `OFPBIC_BAD_TABLE_ID`: goto must go up.
    #[error("goto_table:{target} in table {table}: goto must lead to a higher table")]
    GotoNotUp {
        /// Where the rule stands.
        table: TableId,
        /// Where it wants to go.
        target: TableId,
    },
    /// `OFPFMFC_TABLE_FULL`.
    #[error("the table holds {0} rules, its limit")]
    TableFull(usize),
    /// `OFPBAC_BAD_OUT_GROUP`.
    #[error("there is no group {0}: add it before the rules that name it")]
    NoSuchGroup(GroupId),
    /// `OFPMMFC_INVALID_METER`.
    #[error("there is no meter {0}: add it before the rules that name it")]
    NoSuchMeter(MeterId),
    /// `NXBAC_BAD_CONJUNCTION`: beside `conjunction` only `note` may stand.
    #[error("a rule with a conjunction has no other actions than note")]
    MixedConjunction,
    /// `OFPBAC_BAD_TYPE`, `OFPBAC_BAD_EXP_TYPE`: the action is known, but this switch cannot do it.
    #[error("this switch has no action {0} yet")]
    NotYet(&'static str),
}
