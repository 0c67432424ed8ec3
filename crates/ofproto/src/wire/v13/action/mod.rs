//! Action lists (OpenFlow 1.3.5, 7.2.5; Nicira extensions as in Open vSwitch).
//!
//! Every [`Action`] is written in exactly one wire form; equivalent forms are read, too. An action
//! that the switch cannot execute is refused here with a specific error code, never accepted and
//! ignored. [`crate::consistency`] later checks that an action fits the match of its rule.

mod action_type;
mod conntrack;
mod controller;
mod format;
mod hash;
mod learn;
mod list;
mod listing;
mod mistake;
pub(in crate::wire) mod nicira;
mod register;
mod sample;
mod set_field;
mod subfield;

pub(crate) use action_type::STANDARD;
pub(crate) use format::ActionFormat;
pub(crate) use list::{
    find_bad_action, put_action, put_actions, read_actions, read_applied, standard,
};
pub(super) use listing::{CommonHeaders, in_openflow_13};
