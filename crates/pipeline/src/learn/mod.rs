//! Changes of the tables that packets cause: `learn` and MAC learning.

pub(crate) mod learn_index;
pub(crate) mod learning;
