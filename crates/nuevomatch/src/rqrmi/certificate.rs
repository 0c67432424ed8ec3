//! The certificate: the greatest errors of predictions, below and above, over all keys.

use crate::{
    rqrmi::{
        certified_model::CertifiedModel,
        model::Model,
        net::{CompiledNet, KeyInterval},
        responsibility::Responsibility,
    },
    simd::ScalarVector,
};

/// The greatest errors of a net of the last stage, over all keys that reach it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertifiedError {
    /// The greatest distance of a position below its prediction.
    pub below: u32,
    /// The greatest distance of a position above its prediction.
    pub above: u32,
}

impl CertifiedError {
    /// Returns the greatest distance in either direction.
    pub fn max(self) -> u32 {
        self.below.max(self.above)
    }

    /// Returns the exact errors of `net` for the keys of `responsibility`.
    pub(crate) fn of(net: &CompiledNet, limit: f32, responsibility: &Responsibility<'_>) -> Self {
        let mut error = Self::default();
        let monotone_intervals = |interval| net.monotone_intervals(interval);
        responsibility.for_each_end(monotone_intervals, |key, position| {
            error.include(net.output(ScalarVector, key, limit), position);
        });
        error
    }

    /// Extends the errors to one more prediction.
    pub(crate) fn include(&mut self, predicted: u32, position: u32) {
        self.below = self.below.max(predicted.saturating_sub(position));
        self.above = self.above.max(position.saturating_sub(predicted));
    }
}

impl Model {
    /// Computes the exact errors of the model, and returns the model with a lookup.
    ///
    /// Each net of the last stage has its own errors. The errors are exact, so that searched
    /// windows are as short as possible. The computation evaluates the nets twice per start, and
    /// about 32 times per border between the keys of two nets.
    pub fn certify(self) -> CertifiedModel {
        let errors = self.errors(KeyInterval::ALL);
        CertifiedModel::new(self, errors)
    }

    /// Returns the errors of each net of the last stage, over the keys of an interval.
    pub(crate) fn errors(&self, interval: KeyInterval) -> Vec<CertifiedError> {
        let mut keys = vec![vec![interval]];
        for stages in self.stages.windows(2) {
            keys = stages[0].route(&keys, stages[1].nets.len());
        }
        let Some(last) = self.stages.last() else {
            return Vec::new();
        };
        let error = |(net, keys): (&CompiledNet, &Vec<KeyInterval>)| {
            CertifiedError::of(net, last.limit, &Responsibility::new(&self.starts, keys))
        };
        last.nets.iter().zip(&keys).map(error).collect()
    }
}
