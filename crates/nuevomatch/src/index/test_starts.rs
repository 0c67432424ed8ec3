//! Lists of starts that are difficult for a learned index, and checks of an index.

use crate::{index::StartIndex, rqrmi::position};

/// Returns named lists of starts with many distributions.
/// The first start of each list is 0.
pub(crate) fn patterns() -> Vec<(&'static str, Vec<u32>)> {
    let mut random = random_words(42);
    let mut words = |count: usize, mask: u32| -> Vec<u32> {
        random.by_ref().take(count).map(|word| word & mask).collect()
    };
    let patterns = vec![
        ("one start", vec![0]),
        ("two adjacent starts", vec![0, 1]),
        ("both ends", vec![0, u32::MAX]),
        ("the largest keys", (u32::MAX - 300..=u32::MAX).collect()),
        ("a run after a gap", (1 << 31..(1 << 31) + 1500).collect()),
        ("equal low halves", words(1200, 0xffff_0000)),
        ("equal high halves", words(1200, 0xffff)),
        ("a line", (0..1100).map(|i| i * 3_000_000).collect()),
        ("powers of two", (0..32).map(|i| 1 << i).collect()),
        ("squares", (0..2000).map(|i| i * i).collect()),
        ("uniform", words(3000, u32::MAX)),
        ("16 bits", words(900, 0xffff)),
        (
            "clusters of many sizes",
            (0..24)
                .flat_map(|i| {
                    let start = words(1, u32::MAX)[0];
                    (0..150).map(move |j| start.wrapping_add(j << (i % 12)))
                })
                .collect(),
        ),
    ];
    patterns
        .into_iter()
        .map(|(name, mut starts)| {
            starts.push(0);
            starts.sort_unstable();
            starts.dedup();
            (name, starts)
        })
        .collect()
}

/// Returns uniformly distributed starts, the first of which is 0.
pub(crate) fn uniform_starts(count: usize) -> Vec<u32> {
    let mut starts: Vec<u32> = std::iter::once(0).chain(random_words(9)).take(count).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// Returns random words from a seed.
pub(crate) fn random_words(seed: u64) -> impl Iterator<Item = u32> {
    let mut state = seed | 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        u32::try_from(state >> 32).unwrap() ^ u32::try_from(state >> 59).unwrap()
    })
}

/// Checks the positions that an index finds for keys at and between starts.
pub(crate) fn check_index(name: &str, index: &impl StartIndex, starts: &[u32]) {
    let near = starts.iter().flat_map(|start| {
        [start.wrapping_sub(1), *start, start.wrapping_add(1), start ^ 0x8000, start ^ 0x8000_0000]
    });
    let keys: Vec<u32> = near.chain([0, u32::MAX]).chain(random_words(1).take(1000)).collect();
    check_keys(name, index, starts, &keys);
    assert_eq!(index.find(keys[3]), position(starts, keys[3]) as usize, "{name}: a single key");
}

/// Checks the positions that an index finds, with at most 77 keys per call.
pub(crate) fn check_keys(name: &str, index: &impl StartIndex, starts: &[u32], keys: &[u32]) {
    let mut found = vec![u32::MAX; keys.len()];
    for (keys, found) in keys.chunks(77).zip(found.chunks_mut(77)) {
        index.find_batch(keys, found);
    }
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found, position(starts, *key), "{name}: key {key:#x}");
    }
}

/// Stride of the keys that the gate looks up: four million keys of each index.
///
/// The stride is a prime, so the keys have all low bits.
pub(crate) const GATE_STRIDE: usize = 1021;

/// Checks the positions that an index finds for one key in `stride`.
///
/// The last key is among the checked keys. A stride of one is all 2^32 keys.
pub(crate) fn check_strided_keys(
    name: &str,
    index: &impl StartIndex,
    starts: &[u32],
    stride: usize,
) {
    let mut expected = 0;
    let (mut keys, mut found) = (Vec::with_capacity(BATCH), vec![0; BATCH]);
    let mut strided = (0..=u32::MAX).step_by(stride).chain([u32::MAX]);
    loop {
        keys.clear();
        keys.extend(strided.by_ref().take(BATCH));
        if keys.is_empty() {
            return;
        }
        index.find_batch(&keys, &mut found[..keys.len()]);
        for (key, found) in keys.iter().zip(&found) {
            // The keys are in ascending order, so the position only advances.
            while starts.get(expected + 1).is_some_and(|next| next <= key) {
                expected += 1;
            }
            assert_eq!(*found as usize, expected, "{name}: key {key:#x}");
        }
    }
}

/// Number of keys in one call of an index.
const BATCH: usize = 1 << 16;
