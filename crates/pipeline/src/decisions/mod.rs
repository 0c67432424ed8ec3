//! Decisions about packets that no cache stores (computational flows).

pub(crate) mod hit_counts;
pub(crate) mod packet_decider;
