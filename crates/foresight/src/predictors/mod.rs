//! The predictors, in the order of their cost.

mod due;
pub(crate) mod oracle;
pub(crate) mod periodic;
pub(crate) mod reply;
pub(crate) mod siblings;
pub(crate) mod successor;
