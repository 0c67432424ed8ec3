//! Frames of slow protocols: LACPDUs and marker PDUs.

pub(crate) mod frame;
pub(crate) mod info;
pub(crate) mod lacpdu;
pub(crate) mod marker;
pub(crate) mod octets;
