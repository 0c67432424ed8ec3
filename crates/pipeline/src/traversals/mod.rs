//! Results of a translation: traversals, sub-traversals, datapath actions.

pub(crate) mod datapath_action;
pub(crate) mod drop_cause;
pub(crate) mod explanation;
pub(crate) mod sub_traversal;
pub(crate) mod traversal;
