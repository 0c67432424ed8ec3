//! The bodies of single messages, one file for each kind of object.
//!
//! Bodies of multipart messages are in [`multipart`](super::multipart).

pub(super) mod bundle;
pub(super) mod experimenter;
pub(super) mod flow_mod;
pub(super) mod flow_removed;
pub(super) mod group;
pub(super) mod meter;
pub(super) mod packet;
pub(super) mod port;
pub(super) mod queue;
pub(super) mod role;
pub(super) mod switch;
