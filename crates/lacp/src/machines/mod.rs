//! The state machines of a member.
//!
//! Each machine is a value with a step function, which gets the time and the states that it depends on.
//! A machine has no reference to another one.

pub(crate) mod mux;
pub(crate) mod periodic;
pub(crate) mod receive;
pub(crate) mod transmit;
