//! A net of eight ReLU neurons while it is trained: gradient descent by Adam.
//!
//! Training uses only additions, multiplications, divisions and square roots. These operations have
//! one correctly rounded result, so training gives the same bits on every machine.
//!
//! The papers initialize the parameters at random. In this module a net first interpolates up to
//! nine points from [`knots`](crate::rqrmi::knots), and gradient descent then improves the net. One
//! training run is usually enough. Parameters are `f64`, because an `f32` is too coarse for borders
//! between keys that are close to each other.

use crate::rqrmi::{
    knots::TrainingPoint,
    net::{CompiledNet, KeyInterval, LinearFunction, NEURONS, PARTS},
    responsibility::Distribution,
};

/// Number of samples of one step of gradient descent.
pub(crate) const BATCH: usize = 32;

/// The parameters of a net during training.
///
/// The output of the net is `output_bias + sum(output_weights * max(0, weights * z + biases))`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Neurons {
    weights: [f64; NEURONS],
    biases: [f64; NEURONS],
    output_weights: [f64; NEURONS],
    output_bias: f64,
}

/// The scales between keys and inputs, and between outputs and targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scales {
    pub(crate) input: Distribution,
    pub(crate) output: Distribution,
}

impl Distribution {
    /// Returns the distance of `value` from the mean, in standard deviations.
    pub(crate) fn normalize(self, value: f64) -> f64 {
        (value - self.mean) / self.deviation
    }
}

impl Neurons {
    /// Returns the net that interpolates at most nine `knots` with ascending keys.
    ///
    /// The neuron of a knot is active above the key of the knot, and adds the difference of two
    /// slopes.
    pub(crate) fn interpolate(knots: &[TrainingPoint], scales: Scales) -> Self {
        let mut net = Self { weights: [1.0; NEURONS], ..Self::default() };
        let normal = |knot: &TrainingPoint| {
            (scales.input.normalize(knot.key), scales.output.normalize(knot.target))
        };
        if let Some(first) = knots.first() {
            net.output_bias = normal(first).1;
        }
        let mut slope_before = 0.0;
        for (neuron, pair) in knots.windows(2).enumerate() {
            let ((z, y), (z_next, y_next)) = (normal(&pair[0]), normal(&pair[1]));
            let slope = (y_next - y) / (z_next - z);
            net.biases[neuron] = -z;
            net.output_weights[neuron] = slope - slope_before;
            slope_before = slope;
        }
        net
    }

    /// Returns the output for a normalized key.
    fn output(&self, z: f64) -> f64 {
        let neuron = |i: usize| self.output_weights[i] * relu(self.weights[i] * z + self.biases[i]);
        (0..NEURONS).map(neuron).sum::<f64>() + self.output_bias
    }

    /// Converts the neural net to linear functions, one for each part of `span`.
    ///
    /// A neuron changes the slope at one key at most. Between two keys where the slope changes, the
    /// net is linear. Unused parts hold only the largest key.
    pub(crate) fn compile(&self, scales: Scales, span: KeyInterval) -> CompiledNet {
        let mut bases = [u32::MAX; PARTS];
        bases[0] = span.first;
        let mut count = 1;
        for neuron in 0..NEURONS {
            let border = -self.biases[neuron] / self.weights[neuron];
            let key = (border * scales.input.deviation + scales.input.mean).ceil();
            // The condition is false for a weight of zero, because the border is then infinite or
            // NaN.
            if key > f64::from(span.first) && key <= f64::from(span.last) {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "the value is between two keys"
                )]
                let key = key as u32;
                bases[count] = key;
                count += 1;
            }
        }
        bases[1..count].sort_unstable();
        let lines = std::array::from_fn(|part| {
            let first = bases[part];
            let last = bases.get(part + 1).map_or(span.last, |next| next.saturating_sub(1));
            self.line(scales, KeyInterval { first, last: last.min(span.last).max(first) })
        });
        CompiledNet::new(bases, lines)
    }

    /// Returns the linear function of the net over `keys`, between two borders.
    fn line(&self, scales: Scales, keys: KeyInterval) -> LinearFunction {
        let (first, last) = (f64::from(keys.first), f64::from(keys.last));
        let middle = scales.input.normalize((first + last) / 2.0);
        let slope = |i: usize| {
            let is_active = self.weights[i] * middle + self.biases[i] > 0.0;
            if is_active { self.output_weights[i] * self.weights[i] } else { 0.0 }
        };
        let slope = (0..NEURONS).map(slope).sum::<f64>();
        let intercept = self.output(scales.input.normalize(first));
        let slope = slope * scales.output.deviation / scales.input.deviation;
        let intercept = intercept * scales.output.deviation + scales.output.mean;
        LinearFunction { slope: finite(slope), intercept: finite(intercept) }
    }
}

/// The activation function of the neurons.
fn relu(value: f64) -> f64 {
    if value > 0.0 { value } else { 0.0 }
}

/// Returns the nearest `f32`, or 0 if it is not finite.
///
/// The certificate is valid for any value.
#[expect(clippy::cast_possible_truncation, reason = "the cast rounds on purpose")]
fn finite(value: f64) -> f32 {
    let value = value as f32;
    if value.is_finite() { value } else { 0.0 }
}

/// Gradient descent by Adam: mean and variance of the gradient of each parameter.
pub(crate) struct Adam {
    /// The running mean of each gradient.
    mean: Neurons,
    /// The running mean of each squared gradient.
    square: Neurons,
    /// The decay rates to the power of the number of steps.
    decays: [f64; 2],
}

impl Adam {
    /// The decay rates of the mean and of the mean square of the gradients.
    const DECAYS: [f64; 2] = [0.9, 0.999];

    /// Creates an optimizer without past gradients.
    pub(crate) fn new() -> Self {
        Self { mean: Neurons::default(), square: Neurons::default(), decays: [1.0; 2] }
    }

    /// Changes `net` by one step against the gradient of the error over `batch`.
    pub(crate) fn step(&mut self, net: &mut Neurons, batch: &[(f64, f64); BATCH], rate: f64) {
        let gradient = gradient(net, batch);
        let [decay, decay_square] = Self::DECAYS;
        self.decays[0] *= decay;
        self.decays[1] *= decay_square;
        let correction = rate / (1.0 - self.decays[0]);
        let correction_square = 1.0 / (1.0 - self.decays[1]);
        let update = |parameter: &mut f64, mean: &mut f64, square: &mut f64, gradient: f64| {
            *mean = decay * *mean + (1.0 - decay) * gradient;
            *square = decay_square * *square + (1.0 - decay_square) * gradient * gradient;
            *parameter -= correction * *mean / ((*square * correction_square).sqrt() + 1e-8);
        };
        let (mean, square) = (&mut self.mean, &mut self.square);
        for i in 0..NEURONS {
            update(
                &mut net.weights[i],
                &mut mean.weights[i],
                &mut square.weights[i],
                gradient.weights[i],
            );
            update(
                &mut net.biases[i],
                &mut mean.biases[i],
                &mut square.biases[i],
                gradient.biases[i],
            );
            update(
                &mut net.output_weights[i],
                &mut mean.output_weights[i],
                &mut square.output_weights[i],
                gradient.output_weights[i],
            );
        }
        update(
            &mut net.output_bias,
            &mut mean.output_bias,
            &mut square.output_bias,
            gradient.output_bias,
        );
    }
}

/// Returns the gradient of the mean squared error over `batch`.
fn gradient(net: &Neurons, batch: &[(f64, f64); BATCH]) -> Neurons {
    let mut sum = Neurons::default();
    for &(z, target) in batch {
        let hidden: [f64; NEURONS] =
            std::array::from_fn(|i| relu(net.weights[i] * z + net.biases[i]));
        let products: [f64; NEURONS] = std::array::from_fn(|i| net.output_weights[i] * hidden[i]);
        // The additions have a fixed order, in which four vector lanes add at once.
        let [a, b, c, d, e, f, g, h] = products;
        let output = ((a + e) + (c + g)) + ((b + f) + (d + h)) + net.output_bias;
        let error = (output - target) * (2.0 / BATCH as f64);
        sum.output_bias += error;
        for (i, hidden) in hidden.into_iter().enumerate() {
            let gate = if hidden > 0.0 { net.output_weights[i] * error } else { 0.0 };
            sum.output_weights[i] += error * hidden;
            sum.biases[i] += gate;
            sum.weights[i] += gate * z;
        }
    }
    sum
}
