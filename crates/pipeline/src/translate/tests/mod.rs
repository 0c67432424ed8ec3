//! The invariants of translation, and property tests of them on generated networks.

pub(super) mod call_sites;
mod decisions;
mod depth;
mod invariants;
mod learned;
mod properties;
mod sub_traversals;
