//! The record of a translation: consulted bits, visits and reads.

pub(super) mod growing_mask;
pub(super) mod reads;
pub(super) mod recorder;
