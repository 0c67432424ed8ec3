//! Meters and the requests that change them.

pub(crate) mod meter;
pub(crate) mod meter_mods;
pub(crate) mod token_bucket;
