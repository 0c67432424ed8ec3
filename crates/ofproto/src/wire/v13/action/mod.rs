//! Lists of actions (OpenFlow 1.3.5, 7.2.5; Nicira extensions as in Open vSwitch).
//!
//! Every action that [`Action`] can hold has one form on the wire, the one that is written; forms
//! that mean the same are read too. What this switch cannot do is refused here, each with the code
//! that says so, and never accepted and ignored. Whether an action fits the match of its rule is
//! asked later, by [`crate::consistency`].

mod conntrack;
mod controller;
mod hash;
mod learn;
mod list;
mod nicira;
mod number;
mod register;
mod sample;
mod set_field;
mod subfield;

pub(crate) use list::{put_actions, read_actions};
pub(crate) use number::STANDARD;
