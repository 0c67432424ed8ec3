//! The bodies of single messages, one file for each kind of object.
//!
//! Bodies of multipart messages are in [`multipart`](super::multipart).

pub(in crate::wire) mod bundle;
pub(in crate::wire) mod experimenter;
pub(in crate::wire) mod flow_mod;
pub(in crate::wire) mod flow_removed;
pub(in crate::wire) mod group;
pub(in crate::wire) mod meter;
pub(in crate::wire) mod packet;
pub(in crate::wire) mod port;
pub(in crate::wire) mod queue;
pub(in crate::wire) mod role;
pub(in crate::wire) mod session;
