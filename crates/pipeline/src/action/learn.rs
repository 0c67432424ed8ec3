//! Rules that a packet makes.

use shunt_classifier::Priority;

use super::Subfield;
use crate::id::{Cookie, TableId};

/// The arguments of a `learn` action (`nx_action_learn`, `nx_action_learn2`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LearnAction {
    /// Idle timeout of the rule, in seconds; 0: none.
    pub idle_timeout: u16,
    /// Hard timeout of the rule, in seconds; 0: none.
    pub hard_timeout: u16,
    /// Its priority.
    pub priority: Priority,
    /// Its cookie.
    pub cookie: Cookie,
    /// Its table.
    pub table: TableId,
    /// Idle timeout once a TCP FIN or RST has passed; 0: as it was.
    pub fin_idle_timeout: u16,
    /// Hard timeout once a TCP FIN or RST has passed; 0: as it was.
    pub fin_hard_timeout: u16,
    /// Tell controllers when the rule goes (`NX_LEARN_F_SEND_FLOW_REM`).
    pub send_flow_removed: bool,
    /// Delete what was learned when the last rule that learns it goes
    /// (`NX_LEARN_F_DELETE_LEARNED`).
    pub delete_learned: bool,
    /// The most rules of this table and cookie; 0: no limit.
    pub limit: u32,
    /// The bit that says whether a rule was learned or refreshed (`NX_LEARN_F_WRITE_RESULT`).
    pub result: Option<Subfield>,
    /// Matches and actions of the learned rule.
    pub specs: Box<[LearnSpec]>,
}

/// One part of what a learned rule matches or does (`nx_flow_mod_spec`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LearnSpec {
    /// Where the value comes from.
    pub source: LearnSource,
    /// Where it goes.
    pub target: LearnTarget,
    /// Number of bits, the same for both.
    pub width: u8,
}

/// Where a value of a learned rule comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LearnSource {
    /// The packet.
    Field(Subfield),
    /// The action itself.
    Value(u128),
}

/// Where a value of a learned rule goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LearnTarget {
    /// The rule matches these bits.
    Match(Subfield),
    /// The rule writes these bits.
    Load(Subfield),
    /// The rule sends packets to the port of this number.
    Output,
}
