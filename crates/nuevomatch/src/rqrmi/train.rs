//! The training of models: stage by stage, from samples of the keys that reach each net.

use crate::{
    error::TrainingError,
    rqrmi::{
        certificate::CertifiedError,
        knots::{TrainingPoint, knots},
        model::{Model, RmiStage, STARTS_MAX},
        net::{CompiledNet, KeyInterval},
        neurons::{Adam, BATCH, Neurons, Scales},
        responsibility::{Distribution, Responsibility},
    },
    simd::ScalarVector,
};

/// The parameters of training. The defaults come from NuevoMatchUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingSettings {
    /// The seed of all samples.
    /// Equal seeds and starts give equal models on every machine.
    pub seed: u64,
    /// Number of samples for one attempt to train a net.
    pub samples: usize,
    /// Error of a net of the last stage at which no further attempt is made.
    ///
    /// After the last attempt the net is used, even with a greater error.
    pub error_wanted: u32,
    /// Largest number of attempts per net.
    /// The training always makes at least one attempt.
    pub attempts_max: u32,
}

impl Default for TrainingSettings {
    fn default() -> Self {
        Self { seed: 0, samples: 4000, error_wanted: 128, attempts_max: 6 }
    }
}

impl Model {
    /// Trains a model for `starts`.
    ///
    /// # Errors
    ///
    /// Fails if there are no starts or too many, or if they are not strictly ascending.
    pub fn train(starts: Vec<u32>, settings: TrainingSettings) -> Result<Self, TrainingError> {
        check(&starts)?;
        let widths = widths(starts.len());
        let mut random = TrainingRandom(settings.seed);
        let mut keys = vec![vec![KeyInterval::ALL]];
        let mut stages = Vec::new();
        for (stage, width) in widths.iter().enumerate() {
            let next_width = widths.get(stage + 1).copied();
            let outputs = next_width.unwrap_or(starts.len());
            let is_last = next_width.is_none();
            let trainer = StageTrainer { starts: &starts, outputs, is_last, settings };
            let nets = keys.iter().take(*width).map(|keys| trainer.train(keys, &mut random));
            let stage = RmiStage { nets: nets.collect(), limit: trainer.limit() };
            if let Some(next_width) = next_width {
                keys = stage.route(&keys, next_width);
            }
            stages.push(stage);
        }
        Ok(Self { stages, starts })
    }
}

/// Checks that the starts are ascending, and not too many.
fn check(starts: &[u32]) -> Result<(), TrainingError> {
    if starts.is_empty() {
        return Err(TrainingError::Empty);
    }
    if starts.len() > STARTS_MAX {
        return Err(TrainingError::TooMany { count: starts.len() });
    }
    match starts.windows(2).position(|pair| pair[0] >= pair[1]) {
        Some(before) => {
            Err(TrainingError::NotAscending { position: before + 1, start: starts[before + 1] })
        }
        None => Ok(()),
    }
}

/// Returns the number of neural networks (nets) in each stage.
///
/// The source is "Scaling Open vSwitch with a Computational Cache", table 1: 5, 21, 133, and 265 or
/// 521 nets in total.
fn widths(starts_count: usize) -> &'static [usize] {
    match starts_count {
        0..1_000 => &[1, 4],
        1_000..10_000 => &[1, 4, 16],
        10_000..100_000 => &[1, 4, 128],
        100_000..300_000 => &[1, 8, 256],
        _ => &[1, 8, 512],
    }
}

/// Largest number of ranges that a net is fitted to before gradient descent.
const RANGES_MAX: u64 = 1024;

/// Learning rate of the first step; the rate falls to zero at the last step.
const RATE: f64 = 0.003;

/// The training of the nets of one stage.
struct StageTrainer<'a> {
    /// The first key of each range, in ascending order.
    starts: &'a [u32],
    /// Number of possible outputs: nets of the next stage, or positions.
    outputs: usize,
    /// True for the last stage, which predicts positions.
    is_last: bool,
    settings: TrainingSettings,
}

impl StageTrainer<'_> {
    /// Returns the largest output of a net of the stage.
    fn limit(&self) -> f32 {
        (self.outputs - 1) as f32
    }

    /// Returns the wanted output for the keys of a range.
    ///
    /// Outputs are truncated. So the wanted output is the middle between the output of the range
    /// and the next output.
    fn target(&self, range: u32) -> f64 {
        (f64::from(range) + 0.5) * self.outputs as f64 / self.starts.len() as f64
    }

    /// Trains the net that the keys of `keys` reach.
    ///
    /// The net before gradient descent is a candidate too, because gradient descent may make it
    /// worse.
    fn train(&self, keys: &[KeyInterval], random: &mut TrainingRandom) -> CompiledNet {
        let responsibility = Responsibility::new(self.starts, keys);
        let Some(span) = responsibility.span() else {
            return CompiledNet::constant(0, 0.0);
        };
        let scales = self.scales(&responsibility);
        let mut best = CompiledNet::constant(span.first, 0.0);
        let mut best_error = u32::MAX;
        for attempt in 0..self.settings.attempts_max.max(1) {
            let points = self.points(&responsibility, attempt, random);
            let mut net = Neurons::interpolate(&knots(&points), scales);
            let interpolated = net.compile(scales, span);
            self.descend(&mut net, &responsibility, scales, random);
            for candidate in [interpolated, net.compile(scales, span)] {
                let error = self.error(&candidate, &responsibility);
                if error < best_error {
                    (best, best_error) = (candidate, error);
                }
            }
            if best_error <= self.error_wanted() {
                break;
            }
        }
        best
    }

    /// Returns scales: inputs have mean 0 and deviation 1, targets are from -1 to 1.
    fn scales(&self, responsibility: &Responsibility<'_>) -> Scales {
        let (_, first) = responsibility.overlap(0);
        let (_, last) = responsibility.overlap(responsibility.ranges_count() - 1);
        let (low, high) = (self.target(first), self.target(last));
        let deviation = if high > low { (high - low) / 2.0 } else { 1.0 };
        let output = Distribution { mean: (low + high) / 2.0, deviation };
        Scales { input: responsibility.distribution(), output }
    }

    /// Returns the first and the last key of ranges, with targets, in ascending order.
    ///
    /// The first attempt uses all ranges, up to [`RANGES_MAX`] of them. Later attempts use fewer
    /// and fewer ranges.
    fn points(
        &self,
        responsibility: &Responsibility<'_>,
        attempt: u32,
        random: &mut TrainingRandom,
    ) -> Vec<TrainingPoint> {
        let last = responsibility.ranges_count() - 1;
        let stride = responsibility.ranges_count().div_ceil(RANGES_MAX) + u64::from(attempt);
        let mut points: Vec<TrainingPoint> = Vec::new();
        let mut index = if attempt == 0 { 0 } else { random.below(stride).min(last) };
        loop {
            let (keys, range) = responsibility.overlap(index);
            for key in [keys.first, keys.last].map(f64::from) {
                if points.last().is_none_or(|before| before.key < key) {
                    points.push(TrainingPoint { key, target: self.target(range) });
                }
            }
            if index == last {
                return points;
            }
            index = (index + stride).min(last);
        }
    }

    /// Improves a net by gradient descent over samples.
    ///
    /// Samples are chosen as in NuevoMatchUP: first a random range, then a random key in this
    /// range. The cost is the same for any number of ranges.
    fn descend(
        &self,
        net: &mut Neurons,
        responsibility: &Responsibility<'_>,
        scales: Scales,
        random: &mut TrainingRandom,
    ) {
        let mut adam = Adam::new();
        let steps = self.settings.samples / BATCH;
        for step in 0..steps {
            let batch = std::array::from_fn(|_| {
                let (keys, range) =
                    responsibility.overlap(random.below(responsibility.ranges_count()));
                let keys_count = u64::from(keys.last - keys.first) + 1;
                let key = (u64::from(keys.first) + random.below(keys_count)) as f64;
                (scales.input.normalize(key), scales.output.normalize(self.target(range)))
            });
            adam.step(net, &batch, RATE * (1.0 - step as f64 / steps as f64));
        }
    }

    /// Returns the error of a net.
    ///
    /// In the last stage the error is the certified error. In other stages it is the number of
    /// missed targets per thousand.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "targets are the number of a net, and the result is at most 1000"
    )]
    fn error(&self, net: &CompiledNet, responsibility: &Responsibility<'_>) -> u32 {
        if self.is_last {
            return CertifiedError::of(net, self.limit(), responsibility).max();
        }
        let stride = responsibility.ranges_count().div_ceil(RANGES_MAX) as usize;
        let (mut count, mut missed) = (0, 0);
        for index in (0..responsibility.ranges_count()).step_by(stride) {
            let (keys, range) = responsibility.overlap(index);
            count += 1;
            let output = net.output(ScalarVector, keys.first, self.limit());
            missed += u64::from(output != self.target(range) as u32);
        }
        (missed * 1000 / count) as u32
    }

    /// Returns the error at which no further attempt is made.
    ///
    /// In inner stages, half of the targets may be missed.
    fn error_wanted(&self) -> u32 {
        if self.is_last { self.settings.error_wanted } else { 500 }
    }
}

/// The generator of random numbers for samples: SplitMix64.
struct TrainingRandom(u64);

impl TrainingRandom {
    /// Returns the next random number.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number below `bound`, which must be at most 2^32.
    fn below(&mut self, bound: u64) -> u64 {
        ((self.next() >> 32) * bound) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_sizes_are_those_of_the_paper() {
        let nets = |starts| widths(starts).iter().sum::<usize>();
        assert_eq!(
            [999, 1_000, 10_000, 100_000, 300_000].map(nets),
            [5, 21, 133, 265, 521],
            "table 1"
        );
    }

    #[test]
    fn unsorted_empty_or_too_many_starts_are_refused() {
        let train = |starts| Model::train(starts, TrainingSettings::default()).map(drop);
        assert_eq!(train(vec![]), Err(TrainingError::Empty));
        for starts in [vec![0, 7, 7, 9], vec![0, 8, 7, 9]] {
            let start = starts[2];
            let expected = TrainingError::NotAscending { position: 2, start };
            assert_eq!(train(starts), Err(expected));
        }
        let too_many: Vec<u32> = (0..).take(STARTS_MAX + 1).collect();
        assert_eq!(train(too_many), Err(TrainingError::TooMany { count: STARTS_MAX + 1 }));
    }
}
