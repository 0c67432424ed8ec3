//! Measures the time to partition one traversal, with up to 30 steps and 4 stages.
//!
//! A hash table maps each sub-traversal to the stages that hold it, as in a cache. The table has
//! 32,000 entries, more than the L2 cache holds. Each traversal finds the entries of earlier
//! traversals.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use hashbrown::HashTable;
use shunt_gigaflow::{
    outline::{Coupling, FieldSet, OutlineStep, StateId, SubTraversalOutline, TraversalOutline},
    partition::{PartitionPolicy, PolicyName, StageId, StageSet, StageView},
};

const STAGES_COUNT: u8 = 4;
const ENTRIES_COUNT: usize = 32_000;
const OUTLINES_COUNT: u64 = 256;

/// Stages that find their entries by the identity of the sub-traversal.
struct IndexedStages {
    /// The stages that hold each sub-traversal, with its identity.
    holders: HashTable<(u64, StageSet)>,
}

impl StageView for IndexedStages {
    fn count(&self) -> u8 {
        STAGES_COUNT
    }

    fn holders(&self, sub_traversal: &SubTraversalOutline) -> StageSet {
        let found = self
            .holders
            .find(sub_traversal.identity, |(identity, _)| *identity == sub_traversal.identity);
        found.map_or(StageSet::EMPTY, |(_, stages)| *stages)
    }

    fn room(&self) -> StageSet {
        StageSet::first_of(STAGES_COUNT)
    }
}

/// Returns outlines in which the consulted fields change every three to five steps.
///
/// A third of the steps consult no coupling field.
fn outlines(steps_count: u32) -> Vec<TraversalOutline> {
    let fields = |step: u32| match (step % 3, step / 4 % 4) {
        (2, _) => FieldSet::EMPTY,
        (_, 0) => FieldSet::of(&[Coupling::EthSrc, Coupling::EthDst]),
        (_, 1) => FieldSet::of(&[Coupling::EthDst, Coupling::IpDst]),
        (_, 2) => FieldSet::of(&[Coupling::IpSrc, Coupling::IpDst]),
        _ => FieldSet::of(&[Coupling::IpProto, Coupling::TpDst]),
    };
    let outline = |number: u64| {
        let mut outline = TraversalOutline::new();
        outline.begin(StateId::new(0));
        for step in 0..steps_count {
            outline.partition_point(StateId::new(step));
            let identity = (number >> (step % 8)) << 32 | u64::from(step);
            outline.step(OutlineStep { fields: fields(step), identity });
        }
        outline
    };
    (0..OUTLINES_COUNT).map(outline).collect()
}

/// Returns full stages that hold the partition of every second outline.
fn full_stages(outlines: &[TraversalOutline], policy: &mut impl PartitionPolicy) -> IndexedStages {
    let mut indexed = IndexedStages { holders: HashTable::with_capacity(ENTRIES_COUNT) };
    for outline in outlines.iter().step_by(2) {
        let placements = policy.partition(outline, &indexed).to_vec();
        for placement in placements {
            if let Some(candidate) =
                outline.sub_traversals().find(|other| other.steps == placement.steps)
            {
                indexed.insert(candidate.identity, placement.stage);
            }
        }
    }
    let mut word = 1_u64;
    while indexed.holders.len() < ENTRIES_COUNT {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let stage = StageId::new((word >> 62) as u8);
        stage.into_iter().for_each(|stage| indexed.insert(word, stage));
    }
    indexed
}

impl IndexedStages {
    /// Records that a stage holds the sub-traversal with this identity.
    fn insert(&mut self, identity: u64, stage: StageId) {
        let same = |entry: &(u64, StageSet)| entry.0 == identity;
        let entry = self.holders.entry(identity, same, |entry| entry.0);
        let mut entry = entry.or_insert((identity, StageSet::EMPTY));
        let stages = &mut entry.get_mut().1;
        *stages = stages.with(stage);
    }
}

/// Measures every policy for traversals of 8, 22 and 30 steps.
fn partition(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("partition");
    for steps_count in [8, 22, 30] {
        let outlines = outlines(steps_count);
        for name in PolicyName::ALL {
            let mut policy = name.policy(1);
            let indexed = full_stages(&outlines, &mut policy);
            let mut next = outlines.iter().cycle();
            group.bench_function(BenchmarkId::new(name.as_str(), steps_count), |bencher| {
                bencher.iter(|| {
                    let outline = next.next().map(black_box)?;
                    Some(black_box(policy.partition(outline, &indexed).len()))
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, partition);
criterion_main!(benches);
