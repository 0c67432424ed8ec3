//! The record of a translation: consulted bits, visits and reads.

pub(super) mod foreign_bits;
pub(super) mod growing_mask;
pub(super) mod reads;
pub(super) mod recorder;
pub(super) mod scratch;
mod tail;
