//! The state machines of a member.
//!
//! Each machine is a value with a step function. The function gets the time, and the states of
//! other machines on which its machine depends. No machine has a reference to another machine.

pub(crate) mod mux;
pub(crate) mod periodic;
pub(crate) mod receive;
pub(crate) mod transmit;
