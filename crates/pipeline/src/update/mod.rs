//! Updates: batches of requests that become one version.

pub(crate) mod batch;
pub(crate) mod bundle;
pub(crate) mod check;
pub(crate) mod modification;
pub(crate) mod pending;
