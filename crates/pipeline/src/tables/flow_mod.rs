//! Flow-mods, and the reasons for which they are refused.

use std::time::Duration;

use shunt_classifier::Priority;
use shunt_flow::{Match, PortNo};

use super::rule::{FlowFlags, Instructions};
use crate::id::{Cookie, GroupId, MeterId, TableId};

/// A request to add, modify or delete rules (`OFPT_FLOW_MOD`).
///
/// The struct is independent of the OpenFlow version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// The kind of change: to add, modify or delete rules.
    pub command: FlowModCommand,
    /// The table of the rules, or all tables.
    pub table: TableSelector,
    /// The match of the new rule, or the match that selects rules.
    pub matching: Match,
    /// The priority of the rule; only strict commands and additions use it.
    pub priority: Priority,
    /// The cookie of a new rule, or the cookie of selected rules under `cookie_mask`.
    pub cookie: Cookie,
    /// The bits of the cookie that select rules to modify or delete.
    pub cookie_mask: u64,
    /// Time without a hit until a new rule expires; zero: never. Whole seconds.
    pub idle_timeout: Duration,
    /// Time until a new rule expires; zero: never. Whole seconds.
    pub hard_timeout: Duration,
    /// The importance of a new rule: a full table evicts the least important rules
    /// first.
    pub importance: u16,
    /// Flags of a new rule.
    pub flags: FlowFlags,
    /// Only rules that output to this port are deleted; [`PortNo::ANY`]: all.
    pub out_port: PortNo,
    /// Only rules that output to this group are deleted; `OFPG_ANY` (0xffff_ffff): all.
    pub out_group: u32,
    /// The instructions of a new rule, or the new instructions of modified rules.
    pub instructions: Instructions,
}

/// The kind of change that a flow-mod makes (`ofp_flow_mod_command`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowModCommand {
    /// Add a rule; it replaces a rule with the same match and priority.
    Add,
    /// Change the instructions of all rules with this match or a narrower one.
    Modify,
    /// Change the instructions of the rule with this match and priority.
    ModifyStrict,
    /// Delete all rules with this match or a narrower one.
    Delete,
    /// Delete the rule with this match and priority.
    DeleteStrict,
}

/// One table or all tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableSelector {
    /// One table of the bridge.
    One(TableId),
    /// All tables (`OFPTT_ALL`); not for additions.
    All,
}

/// The reason why a flow-mod was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowModError {
    /// The rule overlaps another rule (`OFPFMFC_OVERLAP`).
    #[error(
        "the rule overlaps another rule of priority {0}, and check_overlap is set: change the match or \
             the priority"
    )]
    Overlap(Priority),
    /// The request names all tables (`OFPFMFC_BAD_TABLE_ID`).
    #[error(
        "a rule is added to one table, not to all: name a table from 0 to {max}",
        max = TableId::MAX
    )]
    TableAll,
    /// `OFPBIC_BAD_TABLE_ID`: goto must lead to a higher table.
    #[error("goto_table:{target} in table {table}: goto must lead to a higher table")]
    GotoNotUp {
        /// The table of the rule.
        table: TableId,
        /// The table that goto names.
        target: TableId,
    },
    /// The table is full (`OFPFMFC_TABLE_FULL`).
    #[error("the table has {0} rules, which is its limit: delete some or raise the limit")]
    TableFull(usize),
    /// The rule names a group that does not exist (`OFPBAC_BAD_OUT_GROUP`).
    #[error("there is no group {0}: add it before the rules that name it")]
    NoSuchGroup(GroupId),
    /// The rule names a meter that does not exist (`OFPMMFC_INVALID_METER`).
    #[error("there is no meter {0}: add it before the rules that name it")]
    NoSuchMeter(MeterId),
    /// `NXBAC_BAD_CONJUNCTION`: only `note` is allowed next to `conjunction`.
    #[error(
        "a rule with conjunction may have no other action than note: move the others to the conj_id rule"
    )]
    MixedConjunction,
    /// `OFPBAC_BAD_EXP_TYPE`: the switch does not support this known action
    /// ([`Action::unsupported`](crate::Action::unsupported)).
    #[error("action {0}: remove the action")]
    NotYet(&'static str),
}
