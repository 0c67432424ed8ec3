//! Rules, groups and meters as people write them: the text of `ovs-ofctl`.
//!
//! A rule is a list of items, `table=0,priority=5,tcp,nw_dst=10.0.0.1`, and `actions=` with
//! what happens to its packets. [`parse_rule`] reads one as `ovs-ofctl add-flow` does, and
//! [`format_rule`] prints one as `ovs-ofctl dump-flows` does; what is printed can be read back.
//!
//! Groups and meters are lists of items too: [`parse_group_mod`] and [`format_group`],
//! [`parse_meter_mod`] and [`format_meter`].
//!
//! The way of a text: `piece` cuts it into items without losing the place of any of them, `rule`,
//! `group`, `meter` and `instructions` take the items in turn, `action` and `subfield` read what
//! they say, and `scope` refuses what cannot work on the packets that the rule matches. An error
//! names the place, what is wrong there and how to mend it.
//!
//! Where this text departs from that of Open vSwitch 3.1 over OpenFlow 1.3:
//!
//! - a masked `set_field` stays one `set_field`, as over OpenFlow 1.5, and is not cut into `load`s;
//! - `dec_ttl(0)` is `dec_ttl`: they are the same; `dec_ttl()`, which dumps print where no controller
//!   hears of it, is read as that;
//! - `copy_ttl_in` and `copy_ttl_out`, for which Open vSwitch has no words;
//! - `meter` may stand anywhere among the actions of a list, as OpenFlow 1.5 has it;
//! - `apply_actions(..)` may be written out, although it is what stands there anyway;
//! - a field that an action writes must be one that every packet has, for `check_pkt_larger` and
//!   `learn` too;
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
mod piece;
mod rule;
mod scope;
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
pub use rule::parse_rule;
