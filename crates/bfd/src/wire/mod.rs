//! Control packets, and the Ethernet frames that carry them.

pub(crate) mod flags;
pub(crate) mod frame;
pub(crate) mod octets;
pub(crate) mod packet;
