//! Groups and the requests that change them.

pub(crate) mod group;
pub(crate) mod group_mods;
