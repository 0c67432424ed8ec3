//! Continuations: the state with which a packet continues after a recirculation or a
//! partition point, and the hidden fields that it contains.

pub(crate) mod continuation;
pub(crate) mod hidden_state;
pub(crate) mod live_fields;
pub(crate) mod liveness;
pub(crate) mod plain_continuations;
