//! Changes of the tables that packets cause: `learn` and MAC learning.

pub(crate) mod learn_index;
pub(crate) mod learn_status;
pub(crate) mod learning;
