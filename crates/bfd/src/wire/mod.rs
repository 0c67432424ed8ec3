//! Control packets, and the Ethernet frames around them.

pub(crate) mod flags;
pub(crate) mod frame;
pub(crate) mod octets;
pub(crate) mod packet;
