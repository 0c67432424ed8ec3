//! NuevoMatch experiments: classification by learned indexes.

pub(crate) mod forwarding;
