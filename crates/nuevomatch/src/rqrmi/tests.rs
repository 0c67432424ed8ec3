//! Compares trained and random models with a search.

use proptest::prelude::*;

use crate::{
    index::test_starts::{
        GATE_STRIDE, check_index, check_keys, check_strided_keys, patterns, random_words,
        uniform_starts,
    },
    rqrmi::{
        CertifiedError, CertifiedModel, KeyInterval, LinearFunction, Model, TrainingSettings,
        model::RmiStage,
        net::{CompiledNet, PARTS},
        position,
    },
    simd::{InstructionSet, ScalarVector, Vector, VectorWork},
};

/// Returns settings with few samples, for tests that need no good training.
fn quick_settings(seed: u64) -> TrainingSettings {
    TrainingSettings { seed, samples: 320, attempts_max: 2, ..TrainingSettings::default() }
}

/// Trains a model on some starts.
fn train(starts: &[u32], settings: TrainingSettings) -> Model {
    Model::train(starts.to_vec(), settings).unwrap()
}

impl Model {
    /// Returns the net of the last stage that a key passes, and the predicted position.
    fn predict(&self, key: u32) -> (u32, u32) {
        let (mut net, mut output) = (0, 0);
        for stage in &self.stages {
            net = output;
            output = stage.nets[net as usize].output(ScalarVector, key, stage.limit);
        }
        (net, output)
    }
}

/// Returns a model with random lines: falling, steep, constant, with empty parts.
fn random_model(starts: Vec<u32>, widths: &[usize], seed: u64) -> Model {
    let mut random = random_words(seed);
    let mut next = || random.next().unwrap();
    let mut stages = Vec::new();
    for (stage, width) in widths.iter().enumerate() {
        let outputs = widths.get(stage + 1).copied().unwrap_or(starts.len());
        let limit = (outputs - 1) as f32;
        let nets = (0..*width).map(|_| {
            // Half of the nets have all borders in the lowest 16 bits.
            let mask = if next() % 2 == 0 { u32::MAX } else { 0xffff };
            let mut bases: [u32; PARTS] = std::array::from_fn(|_| next() & mask);
            if next() % 4 == 0 {
                bases[1] = bases[2];
                bases[8] = u32::MAX;
            }
            bases.sort_unstable();
            bases[0] = if next() % 4 == 0 { bases[0] } else { 0 };
            let lines = std::array::from_fn(|_| {
                // The line rises or falls over most outputs within 2^reach keys.
                let reach = next() % 34;
                let part = |word: u32| word as f32 / u32::MAX as f32;
                let slope = (part(next()) - 0.5) * 4.0 * limit / (1_u64 << reach) as f32;
                LinearFunction { slope, intercept: (part(next()) * 1.2 - 0.1) * limit }
            });
            CompiledNet::new(bases, lines)
        });
        stages.push(RmiStage { nets: nets.collect(), limit });
    }
    Model { stages, starts }
}

/// Checks the positions that a model finds, with all instruction sets.
fn check_model(name: &str, index: &CertifiedModel, starts: &[u32]) {
    for instructions in InstructionSet::all() {
        let index = index.clone().with_instructions(instructions);
        check_index(&format!("{name}, {instructions:?}"), &index, starts);
    }
}

#[test]
fn every_pattern_is_found_with_each_instruction_set() {
    for (name, starts) in patterns() {
        check_model(name, &train(&starts, quick_settings(3)).certify(), &starts);
    }
}

/// Tests starts without 0: the keys below all starts have position 0.
#[test]
fn keys_below_all_starts_have_position_zero() {
    let starts: Vec<u32> = (1 << 20..(1 << 20) + 5).collect();
    let index = train(&starts, quick_settings(3)).certify();
    check_keys("late start", &index, &starts, &[0, 1, (1 << 20) - 1, 1 << 20, u32::MAX]);
}

#[test]
fn every_key_of_16_bits_is_found() {
    let keys: Vec<u32> = (0..=0xffff).collect();
    for (name, starts) in patterns() {
        let starts: Vec<u32> = starts.into_iter().filter(|start| *start <= 0xffff).collect();
        for (kind, model) in [
            ("trained", train(&starts, quick_settings(5))),
            ("random", random_model(starts.clone(), &[1, 3, 7], 5)),
        ] {
            check_keys(&format!("{name}, {kind}"), &model.certify(), &starts, &keys);
        }
    }
}

/// Compares the certificate with the errors of all keys of 16 bits, for each net.
#[test]
fn certificate_equals_the_errors_of_all_keys() {
    let domain = KeyInterval { first: 0, last: 0xffff };
    for (number, (name, starts)) in patterns().into_iter().enumerate() {
        let starts: Vec<u32> = starts.into_iter().filter(|start| *start <= 0xffff).collect();
        for (kind, model) in [
            ("trained", train(&starts, quick_settings(7))),
            ("random", random_model(starts.clone(), &[1, 4, 9], number as u64)),
        ] {
            let certified = model.errors(domain);
            let mut expected = vec![CertifiedError::default(); certified.len()];
            for key in domain.first..=domain.last {
                let (net, predicted) = model.predict(key);
                expected[net as usize].include(predicted, position(&starts, key));
            }
            assert_eq!(certified, expected, "{name}, {kind}");
        }
    }
}

/// Work that predicts the positions of keys with one instruction set.
struct Predict<'a> {
    model: &'a CertifiedModel,
    keys: &'a [u32],
    found: &'a mut Vec<(u32, u32)>,
}

impl VectorWork for Predict<'_> {
    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        for keys in self.keys.as_chunks::<8>().0 {
            let (mut nets, mut predicted) = ([0; 8], [0; 8]);
            self.model.predict(vector, keys, &mut nets, &mut predicted);
            self.found.extend(nets.into_iter().zip(predicted));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Compares predictions at all borders, because a search would hide small errors.
    #[test]
    fn predictions_are_equal_bits_on_all_instruction_sets(
        starts in prop::collection::btree_set(any::<u32>(), 1..300),
        widths in prop::collection::vec(1..9_usize, 0..3),
        seed in any::<u64>(),
        keys in prop::collection::vec(any::<u32>(), 64),
    ) {
        let widths: Vec<usize> = std::iter::once(1).chain(widths).collect();
        let starts: Vec<u32> = starts.into_iter().collect();
        let model = random_model(starts.clone(), &widths, seed);
        let borders: Vec<u32> = keys_at_borders(&model);
        let keys: Vec<u32> = keys.into_iter().chain(borders).chain([0, u32::MAX]).collect();
        let keys = &keys[..keys.len() / 8 * 8];
        let expected: Vec<(u32, u32)> = keys.iter().map(|key| model.predict(*key)).collect();
        let index = model.certify();
        for instructions in InstructionSet::all() {
            let mut found = Vec::new();
            instructions.run(Predict { model: &index, keys, found: &mut found });
            prop_assert_eq!(&found, &expected, "{:?}", instructions);
            let index = index.clone().with_instructions(instructions);
            check_keys("random model", &index, &starts, keys);
        }
    }
}

/// Returns the keys on both sides of each border between nets and between parts.
fn keys_at_borders(model: &Model) -> Vec<u32> {
    let mut borders = Vec::new();
    let mut keys = vec![vec![KeyInterval::ALL]];
    for (number, stage) in model.stages.iter().enumerate() {
        for (net, intervals) in stage.nets.iter().zip(&keys) {
            borders.extend(intervals.iter().flat_map(|interval| net.monotone_intervals(*interval)));
        }
        if let Some(next) = model.stages.get(number + 1) {
            keys = stage.route(&keys, next.nets.len());
            borders.extend(keys.iter().flatten());
        }
    }
    borders.into_iter().flat_map(|interval| [interval.first, interval.last]).collect()
}

/// Tests that each key reaches only the net that the intervals give.
#[test]
fn intervals_of_nets_divide_all_keys() {
    let starts: Vec<u32> = (0..500).map(|i| i * i * 17_000).collect();
    for seed in 0..20 {
        let model = random_model(starts.clone(), &[1, 5, 40], seed);
        let mut keys = vec![vec![KeyInterval::ALL]];
        for stages in model.stages.windows(2) {
            keys = stages[0].route(&keys, stages[1].nets.len());
        }
        let mut all: Vec<(KeyInterval, u32)> = Vec::new();
        for (net, intervals) in (0..).zip(&keys) {
            all.extend(intervals.iter().map(|interval| (*interval, net)));
        }
        all.sort_unstable_by_key(|(interval, _)| interval.first);
        let mut next = Some(0);
        for (interval, net) in all {
            assert_eq!(Some(interval.first), next, "seed {seed}");
            next = interval.last.checked_add(1);
            let middle = interval.first + (interval.last - interval.first) / 2;
            for key in [interval.first, middle, interval.last] {
                assert_eq!(model.predict(key).0, net, "seed {seed}: key {key}");
            }
        }
        assert_eq!(next, None, "seed {seed}");
    }
}

/// Training uses arithmetic with one exact result, so all machines get these bits.
#[test]
fn training_depends_on_seed_and_starts_alone() {
    let starts: Vec<u32> = (0..1500).map(|i| i * i * 1900).collect();
    let model = train(&starts, quick_settings(1));
    assert_eq!(model, train(&starts, quick_settings(1)));
    assert_ne!(model, train(&starts, quick_settings(2)));
    let text = format!("{:?}", model.stages);
    let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    assert_eq!(text.bytes().fold(0xcbf2_9ce4_8422_2325, hash), 17_752_195_097_016_256_357);
}

/// Tests that errors are far below the wanted error of the papers, for all sizes.
#[test]
fn errors_are_small_up_to_100_000_starts() {
    for count in [100, 1_000, 10_000, 100_000] {
        let starts = uniform_starts(count);
        let index = train(&starts, quick_settings(1)).certify();
        assert!(index.error_max() <= 32, "{count} starts: error {}", index.error_max());
        check_index(&format!("{count} starts"), &index, &starts);
    }
}

/// Tests that gradient descent improves nets: lookups then search fewer starts.
#[test]
fn descent_lowers_the_errors() {
    let starts = uniform_starts(1500);
    let sum = |samples| -> u32 {
        let settings = TrainingSettings { samples, ..TrainingSettings::default() };
        let index = train(&starts, settings).certify();
        index.errors().iter().map(|error| error.below + error.above).sum()
    };
    let (with, without) = (sum(4000), sum(0));
    assert!(with < without, "{with} with descent, {without} without");
}

/// Tests that later attempts lower the errors if the first one is not good enough.
#[test]
fn more_attempts_lower_the_errors() {
    let starts = uniform_starts(1500);
    let sum = |attempts_max| -> u32 {
        let settings = TrainingSettings { error_wanted: 0, attempts_max, ..quick_settings(1) };
        let index = train(&starts, settings).certify();
        index.errors().iter().map(|error| error.below + error.above).sum()
    };
    let (six, one) = (sum(6), sum(1));
    assert!(six < one, "{six} with six attempts, {one} with one");
}

/// Checks lookups of one key in `stride` in models of several starts.
fn check_models(stride: usize) {
    let uniform = uniform_starts(31_000);
    let clusters = patterns().pop().unwrap().1;
    for (name, model) in [
        ("uniform", train(&uniform, TrainingSettings::default())),
        ("clusters", train(&clusters, TrainingSettings::default())),
        ("random lines", random_model(uniform, &[1, 4, 128], 17)),
    ] {
        let starts = model.starts.clone();
        check_strided_keys(name, &model.certify(), &starts, stride);
    }
}

#[test]
fn keys_over_the_whole_domain_are_found() {
    check_models(GATE_STRIDE);
}

/// Looks up all keys of 32 bits.
#[test]
#[ignore = "takes minutes: cargo test --release -p shunt-nuevomatch every_key_of_32_bits -- --ignored"]
fn every_key_of_32_bits_is_found() {
    check_models(1);
}
