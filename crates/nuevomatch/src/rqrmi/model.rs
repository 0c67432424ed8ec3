//! A trained model that is not certified yet.

use crate::rqrmi::net::CompiledNet;

/// Largest number of starts: all positions below it are exact in `f32`.
pub const STARTS_MAX: usize = 1 << 24;

/// A trained model with unknown errors.
///
/// It has no lookup. [`Model::certify`] computes the errors, and its result has one.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Inner stages first; the last one predicts positions. There is at least one.
    pub(crate) stages: Vec<RmiStage>,
    /// The sorted starts that the model was trained for.
    pub(crate) starts: Vec<u32>,
}

/// Nets of which a key passes one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RmiStage {
    pub(crate) nets: Vec<CompiledNet>,
    /// Largest output: the last net of the next stage, or the last position.
    pub(crate) limit: f32,
}
