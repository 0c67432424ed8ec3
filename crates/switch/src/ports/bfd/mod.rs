//! The BFD sessions of ports. See the crate `shunt_bfd`.

pub(crate) mod port_session;
pub(crate) mod schedule;
pub(crate) mod sessions;
