//! Errors of requests to a pipeline.

use crate::{id::BridgeId, update::modification::ModificationError};

/// A request names a bridge that the daemon does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no bridge {0}: add it first")]
pub struct NoSuchBridge(pub BridgeId);

/// One request of a batch was refused, so none of the batch was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {index} of the batch: {error}")]
pub struct RejectedMod {
    /// Index of the request, from 0.
    pub index: usize,
    /// The reason why this request was refused.
    #[source]
    pub error: ModificationError,
}
