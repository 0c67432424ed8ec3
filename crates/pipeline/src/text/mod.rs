//! Rules as people write them: the text of `ovs-ofctl`.
//!
//! A rule is a list of items, `table=0,priority=5,tcp,nw_dst=10.0.0.1`, and `actions=` with
//! what happens to its packets. [`parse_rule`] reads one as `ovs-ofctl add-flow` does, and
//! [`format_rule`] prints one as `ovs-ofctl dump-flows` does; what is printed can be read back.
//!
//! The way of a text: `piece` cuts it into items without losing the place of any of them, `rule`
//! and `instructions` take the items in turn, `action`, `argument`, `header` and `subfield` read
//! what they say, and `scope` refuses what cannot work on the packets that the rule matches. An
//! error names the place, what is wrong there and how to mend it.
//!
//! Where this text departs from that of Open vSwitch 3.1 over OpenFlow 1.3:
//!
//! - a masked `set_field` stays one `set_field`, as over OpenFlow 1.5, and is not cut into `load`s;
//! - `set_field:5->nw_ttl` is `mod_nw_ttl:5`, and `dec_ttl(0)` is `dec_ttl`: they are the same;
//! - `apply_actions(..)` may be written out, although it is what stands there anyway;
//! - parentheses must be closed, numbers must be numbers, and flags take no value.
//!
//! Sources: `ovs-actions(7)`, `ovs-fields(7)`, `ovs-ofctl(8)`, OpenFlow 1.3.5, 5.9.

mod action;
mod argument;
mod error;
mod format;
mod header;
mod instructions;
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

pub use error::{RuleTextError, RuleTextProblem};
pub use format::{RuleFormat, format_actions, format_rule};
pub use instructions::parse_actions;
pub use rule::parse_rule;
