//! Learn actions: rules with values from a packet.

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
    /// Priority of the learned rule.
    pub priority: Priority,
    /// Cookie of the learned rule.
    pub cookie: Cookie,
    /// Table of the learned rule.
    pub table: TableId,
    /// Idle timeout after a TCP FIN or RST; 0: unchanged.
    pub fin_idle_timeout: u16,
    /// Hard timeout after a TCP FIN or RST; 0: unchanged.
    pub fin_hard_timeout: u16,
    /// Notify controllers when the rule is removed (`NX_LEARN_F_SEND_FLOW_REM`).
    pub send_flow_removed: bool,
    /// Delete learned rules with the last rule that learns them.
    /// The flag is `NX_LEARN_F_DELETE_LEARNED`.
    pub delete_learned: bool,
    /// Largest number of rules with this table and cookie; 0: no limit.
    pub limit: u32,
    /// The bit to set if a rule was learned or refreshed (`NX_LEARN_F_WRITE_RESULT`).
    ///
    /// The action clears the bit if `limit` forbids the rule.
    pub result: Option<Subfield>,
    /// Matches and actions of the learned rule.
    pub specs: Box<[LearnSpec]>,
}

/// One match or action of a learned rule (`nx_flow_mod_spec`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LearnSpec {
    /// The source of the value.
    pub source: LearnSource,
    /// The use of the value in the learned rule.
    pub target: LearnTarget,
    /// Number of bits of the source and of the target.
    pub width: u8,
}

/// The source of a value of a learned rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LearnSource {
    /// A field of the packet.
    Field(Subfield),
    /// A constant of the action.
    Value(u128),
}

/// The target of a value of a learned rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LearnTarget {
    /// The rule matches these bits.
    Match(Subfield),
    /// The rule writes these bits.
    Load(Subfield),
    /// The rule sends packets to the port of this number.
    Output,
}
