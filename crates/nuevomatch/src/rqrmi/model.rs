//! The trained model of an RQ-RMI, before it is certified.

use crate::rqrmi::net::CompiledNet;

/// Largest number of starts: `f32` represents all smaller positions exactly.
pub const STARTS_MAX: usize = 1 << 24;

/// A trained model with unknown errors.
///
/// A `Model` has no functions that look up keys. [`Model::certify`] computes the errors, and
/// returns a model that has such functions.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The stages of nets; the last stage predicts positions.
    /// A model has at least one stage.
    pub(crate) stages: Vec<RmiStage>,
    /// The sorted starts that the model was trained for.
    pub(crate) starts: Vec<u32>,
}

/// A stage: a key passes one of its nets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RmiStage {
    pub(crate) nets: Vec<CompiledNet>,
    /// The largest output: the index of the last net of the next stage.
    ///
    /// For the last stage, the largest output is the last position.
    pub(crate) limit: f32,
}
