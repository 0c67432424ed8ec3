//! The certified model: an RQ-RMI model with exact errors, and its lookup.

use crate::{
    Error,
    index::{FindBatch, FindLanes, SortedStarts, StartIndex, Windows, check_count, check_starts},
    rqrmi::{
        certificate::CertifiedError,
        model::{Model, RmiStage, STARTS_MAX},
        train::TrainingSettings,
    },
    simd::{InstructionSet, Vector},
};

/// A model with exact errors, and its lookup.
/// Only [`Model::certify`] creates a certified model.
#[derive(Clone, Debug)]
pub struct CertifiedModel {
    stages: Vec<RmiStage>,
    starts: SortedStarts,
    /// The greatest errors of each net of the last stage.
    errors: Vec<CertifiedError>,
    /// The window of each net of the last stage.
    windows: Vec<NetWindow>,
    /// The vector instructions that lookups use.
    instructions: InstructionSet,
}

/// The window of positions around a prediction that a lookup searches.
#[derive(Clone, Copy, Debug)]
struct NetWindow {
    /// Number of positions in the window before the predicted position.
    below: u32,
    /// Number of positions in the window, at most the number of all starts.
    length: u32,
    /// The last position at which a window of this length can begin.
    first_max: u32,
}

impl CertifiedModel {
    /// Creates the certified model of a model and its exact errors.
    pub(crate) fn new(model: Model, errors: Vec<CertifiedError>) -> Self {
        let Model { stages, starts } = model;
        #[expect(clippy::cast_possible_truncation, reason = "a model has at most 2^24 starts")]
        let count = starts.len() as u32;
        let window = |error: &CertifiedError| {
            let length = (error.below + error.above + 1).min(count);
            NetWindow { below: error.below, length, first_max: count - length }
        };
        Self {
            stages,
            starts: SortedStarts::new(starts),
            windows: errors.iter().map(window).collect(),
            errors,
            instructions: InstructionSet::best(),
        }
    }

    /// Returns the errors of each net of the last stage.
    ///
    /// The errors are 0 for a net that no key reaches.
    pub fn errors(&self) -> &[CertifiedError] {
        &self.errors
    }

    /// Returns the greatest error of any prediction.
    pub fn error_max(&self) -> u32 {
        self.errors.iter().map(|error| error.max()).max().unwrap_or(0)
    }

    /// Returns the number of nets in each stage.
    pub fn widths(&self) -> impl Iterator<Item = usize> {
        self.stages.iter().map(|stage| stage.nets.len())
    }

    /// Returns the number of bytes of the nets and their windows, without the starts.
    pub fn model_bytes(&self) -> usize {
        let nets: usize = self.stages.iter().map(|stage| size_of_val(&*stage.nets)).sum();
        nets + size_of_val(&*self.windows) + size_of_val(&*self.errors)
    }

    /// Returns the model with another instruction set, which gives the same results.
    #[cfg(test)]
    pub(crate) fn with_instructions(mut self, instructions: InstructionSet) -> Self {
        self.instructions = instructions;
        self
    }

    /// Writes the net of the last stage and the predicted position of each key.
    ///
    /// All keys pass a stage before any key passes the next stage.
    #[inline(always)]
    pub(crate) fn predict<V: Vector, const N: usize>(
        &self,
        vector: V,
        keys: &[u32; N],
        nets: &mut [u32; N],
        predicted: &mut [u32; N],
    ) {
        predicted.fill(0);
        for stage in &self.stages {
            let (stage_nets, limit) = (&*stage.nets, stage.limit);
            for (lane, key) in keys.iter().enumerate() {
                nets[lane] = predicted[lane];
                let net = &stage_nets[nets[lane] as usize];
                predicted[lane] = net.output(vector, *key, limit);
            }
        }
    }
}

impl FindLanes for CertifiedModel {
    #[inline(always)]
    fn find_lanes<V: Vector, const N: usize>(
        &self,
        vector: V,
        keys: &[u32; N],
        positions: &mut [u32; N],
    ) {
        let mut nets = [0; N];
        self.predict(vector, keys, &mut nets, positions);
        let (predicted, net_windows) = (&*positions, &*self.windows);
        let mut windows = Windows::of(|lane| {
            let window = net_windows[nets[lane] as usize];
            // If a window would reach beyond the last start, it begins earlier.
            (predicted[lane].saturating_sub(window.below).min(window.first_max), window.length)
        });
        self.starts.search(vector, keys, &mut windows, positions);
    }
}

impl StartIndex for CertifiedModel {
    type Settings = TrainingSettings;

    /// Trains and certifies a model. The model has at most [`STARTS_MAX`] starts.
    fn build(starts: &[u32], settings: &TrainingSettings) -> Result<Self, Error> {
        check_count(starts, STARTS_MAX)?;
        check_starts(starts);
        #[expect(clippy::expect_used, reason = "the number and the order are checked")]
        let model = Model::train(starts.to_vec(), *settings)
            .expect("the starts ascend, and are at most STARTS_MAX");
        Ok(model.certify())
    }

    fn find_batch(&self, keys: &[u32], positions: &mut [u32]) {
        let positions = &mut positions[..keys.len()];
        self.instructions.run(FindBatch { index: self, keys, positions });
    }

    fn bytes(&self) -> usize {
        self.model_bytes() + self.starts.bytes()
    }

    fn certified_error(&self) -> Option<u32> {
        Some(self.error_max())
    }
}
