//! The BFD sessions of ports. The crate `shunt_bfd` has the state machine.

pub(crate) mod port_session;
pub(crate) mod schedule;
pub(crate) mod sessions;
