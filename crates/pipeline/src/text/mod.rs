//! Rules, groups and meters as people write them: the text of `ovs-ofctl`.
//!
//! A rule is a list of items, `table=0,priority=5,tcp,nw_dst=10.0.0.1`, and `actions=` with the
//! actions on its packets. [`parse_rule`] reads a rule as `ovs-ofctl add-flow` does, and
//! [`format_rule`] prints a rule as `ovs-ofctl dump-flows` does. [`parse_saved_rule`] reads every
//! printed rule again.
//!
//! Groups and meters are lists of items too: [`parse_group_mod`] and [`format_group`],
//! [`parse_meter_mod`] and [`format_meter`].
//!
//! Parsing has four steps. `slice` splits the text into items that keep their positions. `rule`,
//! `group`, `meter` and `instructions` read one item after another. `action` and `subfield` parse
//! the values. `scope` refuses actions that cannot work on the packets that the rule matches. An
//! error names the position, the problem and how to mend it.
//!
//! Differences to the text of Open vSwitch 3.1 over OpenFlow 1.3:
//!
//! - a masked `set_field` stays one `set_field`, as over OpenFlow 1.5, and is not split into `load`s;
//! - `dec_ttl(0)` is printed as `dec_ttl`, because both notify controller 0, and `dec_ttl()`
//!   notifies no controller;
//! - `copy_ttl_in` and `copy_ttl_out` are actions, for which Open vSwitch has no syntax;
//! - `meter` may be anywhere among the actions of a list, as in OpenFlow 1.5;
//! - `apply_actions(..)` may be written out, although it is the default;
//! - every action, also `check_pkt_larger` and `learn`, may only write fields that all packets of
//!   the rule have;
//! - parentheses must be closed, numbers must be numbers, and flags take no value.
//!
//! Sources: `ovs-actions(7)`, `ovs-fields(7)`, `ovs-ofctl(8)`, OpenFlow 1.3.5, 5.9.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod action;
mod error;
mod format;
mod group;
mod instructions;
mod meter;
mod names;
mod number;
mod rule;
mod scope;
mod slice;
mod subfield;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use action::format_action;
pub use error::{RuleTextError, RuleTextProblem};
pub use format::{RuleFormat, format_actions, format_rule};
pub use group::{format_group, parse_group_mod};
pub use instructions::parse_actions;
pub use meter::{format_meter, parse_meter_mod};
pub use rule::{parse_rule, parse_saved_rule};
