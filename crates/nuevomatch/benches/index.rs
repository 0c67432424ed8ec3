//! Measures the indexes over sorted starts: builds, and lookups in batches of 32.
//!
//! Starts are uniformly distributed. 1,000 starts with their index fit into the L1 cache, 100,000
//! fit into the L2 cache, and 430,000 take 1.7 MB. A key is chosen at random as in training: first
//! a range, then a key in this range. The indexes are compared with a binary search.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shunt_nuevomatch::{
    LinearSegments, StartIndex, StaticTree,
    rqrmi::{CertifiedModel, Model, TrainingSettings},
};

const SIZES: &[usize] = &[1_000, 10_000, 31_000, 100_000, 430_000];

/// Number of keys that one call looks up.
const BATCH: usize = 32;

/// Returns random words from a fixed seed.
fn random_words() -> impl Iterator<Item = u32> {
    let mut state = 1_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        u32::try_from(state >> 32).unwrap_or_default()
    })
}

/// Returns at most `count` different random starts in order, the first one 0.
fn starts(count: usize) -> Vec<u32> {
    let mut starts: Vec<u32> = std::iter::once(0).chain(random_words()).take(count).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// Returns random keys: a uniformly chosen range, then a key in this range.
fn keys(starts: &[u32]) -> Vec<u32> {
    let words: Vec<u32> = random_words().skip(starts.len()).take(2 * 65_536).collect();
    let key = |words: &[u32]| {
        let range = words[0] as usize % starts.len();
        let next = starts.get(range + 1).copied().unwrap_or(u32::MAX);
        starts[range] + words[1] % (next - starts[range]).max(1)
    };
    words.chunks_exact(2).map(key).collect()
}

/// Measures lookups in each kind of index, and by binary search.
fn lookups(criterion: &mut Criterion) {
    for count in SIZES {
        let starts = starts(*count);
        let keys = keys(&starts);
        let mut group = criterion.benchmark_group(format!("find/{count}"));
        group.throughput(Throughput::Elements(BATCH as u64));
        let mut bench = |name: &str, find: &dyn Fn(&[u32], &mut [u32])| {
            let mut batches = keys.chunks_exact(BATCH).cycle();
            let mut positions = [0; BATCH];
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    if let Some(batch) = batches.next() {
                        find(black_box(batch), &mut positions);
                    }
                    black_box(&positions);
                });
            });
        };
        let tree = StaticTree::build(&starts, &());
        let segments = LinearSegments::build(&starts, &Default::default());
        let model = CertifiedModel::build(&starts, &TrainingSettings::default());
        let (Ok(tree), Ok(segments), Ok(model)) = (tree, segments, model) else { continue };
        bench("tree", &|keys, positions| tree.find_batch(keys, positions));
        bench("segments", &|keys, positions| segments.find_batch(keys, positions));
        bench("rqrmi", &|keys, positions| model.find_batch(keys, positions));
        bench("binary_search", &|keys, positions| {
            for (key, position) in keys.iter().zip(positions) {
                let found = starts.partition_point(|start| start <= key) - 1;
                *position = u32::try_from(found).unwrap_or_default();
            }
        });
    }
}

/// Measures builds of each kind of index, and the certification of a model.
fn builds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("build");
    group.sample_size(10);
    for count in SIZES {
        let starts = starts(*count);
        group.bench_function(BenchmarkId::new("tree", count), |bencher| {
            bencher.iter(|| StaticTree::build(&starts, &()));
        });
        group.bench_function(BenchmarkId::new("segments", count), |bencher| {
            bencher.iter(|| LinearSegments::build(&starts, &Default::default()));
        });
        group.bench_function(BenchmarkId::new("rqrmi", count), |bencher| {
            bencher.iter(|| CertifiedModel::build(&starts, &TrainingSettings::default()));
        });
        if let Ok(model) = Model::train(starts, TrainingSettings::default()) {
            group.bench_function(BenchmarkId::new("certify", count), |bencher| {
                bencher.iter(|| model.clone().certify());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, lookups, builds);
criterion_main!(benches);
