//! The kernels by name, and the state that each kernel works on.

use std::hint::black_box;

use shunt_classifier::{Classifier as _, Priority, Rank, TupleSpace, Version};
use shunt_datapath::{
    BURST,
    cache::{EntryRef, ExactCache, ExactConfig, KeyHasher, MegaflowCache},
};
use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, SparseKey, SparseMask,
    extract::{VlanLimit, extract},
};
use shunt_gigaflow::{
    adaptive::{Capacity, ProbeResult},
    cache::{Config, Fallback, Gigaflow, Miss},
    ltm::{Eviction, VecStore, Walk},
    outline::{Coupling, FieldSet, OutlineStep, StateId, SubTraversalOutline, TraversalOutline},
    partition::{PartitionPolicy as _, PolicyName, StageSet, StageView},
};
use shunt_pipeline::{Pipeline, Time};

use crate::{
    case::{SOURCE, chain, pipeline},
    frame::{frame, key, udp_frame},
};

/// A hot function that is measured alone.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Name of the kernel in `icount.toml`.
    pub name: &'static str,
    /// Creates the state, and returns a closure that calls the kernel once.
    pub make: fn() -> Box<dyn FnMut()>,
}

/// Number of flows in the caches of the kernels.
const FLOWS: u32 = 256;

/// All kernels.
///
/// Each kernel creates its own state, so that kernels do not share cache lines.
pub const KERNELS: &[Kernel] = &[
    Kernel { name: "extract", make: extraction },
    Kernel { name: "exact_hit", make: exact_hit },
    Kernel { name: "megaflow_hit", make: megaflow_hit },
    Kernel { name: "gigaflow_hit", make: gigaflow_hit },
    Kernel { name: "gigaflow_burst", make: gigaflow_burst },
    Kernel { name: "gigaflow_miss_met", make: || gigaflow_miss(FLOWS as usize) },
    Kernel { name: "gigaflow_miss_made", make: || gigaflow_miss(FLOWS as usize / 4) },
    Kernel { name: "lookup_masked", make: lookup },
    Kernel { name: "partition_30_steps", make: partition },
    Kernel { name: "translate_1_table", make: || translation(1) },
    Kernel { name: "translate_4_tables", make: || translation(4) },
    Kernel { name: "translate_16_tables", make: || translation(16) },
];

fn flow(number: u32) -> FlowKey {
    let [_, high, middle, low] = number.to_be_bytes();
    key(&udp_frame(SOURCE, [10, high, middle, low], [4000, 2000]))
}

fn extraction() -> Box<dyn FnMut()> {
    let frame = frame(0x0005_0207);
    let mut key = FlowKey::ZERO;
    Box::new(move || {
        extract(black_box(&frame), VlanLimit::One, &mut key);
        black_box(&key);
    })
}

/// Returns the flows and the entry of each flow.
fn flows() -> Vec<(FlowKey, EntryRef)> {
    (0..FLOWS).map(|number| (flow(number), EntryRef { slot: number, generation: 0 })).collect()
}

fn exact_hit() -> Box<dyn FnMut()> {
    let hasher = KeyHasher::new(1);
    let mut cache = ExactCache::new(ExactConfig { lines: 8192, insert_inverse: 1 }, 1, 1);
    let flows = flows();
    for (key, entry) in &flows {
        cache.insert(ExactCache::hash(&hasher, key), key, &[*entry]);
    }
    let mut turn = 0;
    Box::new(move || {
        turn = (turn + 1) % flows.len();
        let key = black_box(&flows[turn].0);
        let line = cache.candidate(ExactCache::hash(&hasher, key));
        black_box(line.and_then(|line| cache.confirm(line, key)));
    })
}

/// A hit among four masks. The entry is under the first to the last mask, in turn.
fn megaflow_hit() -> Box<dyn FnMut()> {
    let mut cache = MegaflowCache::new(KeyHasher::new(1), 1);
    let flows = flows();
    let masks = [0xffu128, 0x1ff, 0x3ff, 0x7ff].map(|low| {
        let mut mask = FlowMask::EMPTY;
        mask.add_field(FieldId::EthType);
        mask.add_bits(FieldId::Ipv4Dst, low | 0xff00_0000);
        SparseMask::from(&mask)
    });
    for ((key, entry), mask) in flows.iter().zip(masks.iter().cycle()) {
        cache.insert(key, mask, *entry);
    }
    let mut turn = 0;
    Box::new(move || {
        turn = (turn + 1) % flows.len();
        black_box(cache.find(black_box(&flows[turn].0), |_| true));
    })
}

/// A chain of four stages, each with a sub-traversal entry for each of four tables.
struct Chain {
    pipeline: Pipeline,
    cache: Gigaflow,
    store: VecStore,
    keys: Vec<FlowKey>,
    now: u64,
}

impl Chain {
    /// Creates a chain with `stage_entries_max` entries per stage.
    ///
    /// The chain has as many flows as fit.
    fn new(stage_entries_max: usize) -> Self {
        let cache = Gigaflow::new(Config {
            capacity: Capacity { stages_count: 4, stage_entries_max },
            policy: PolicyName::OneToOne,
            fallback: Fallback::Off,
            eviction: Eviction::LeastRecent,
            tag_bits: 16,
            seed: 1,
        });
        let keys: Vec<FlowKey> = (0..FLOWS).map(flow).collect();
        let (pipeline, store) = (pipeline(&chain(4)), VecStore::default());
        let mut chain = Self { pipeline, cache, store, keys, now: 0 };
        (0..chain.keys.len()).for_each(|number| chain.miss(number));
        chain
    }

    fn miss(&mut self, number: usize) {
        let (pipeline, key) = (&self.pipeline, black_box(&self.keys[number]));
        self.now += 1;
        let (version, now) = (pipeline.version(), Time::from_nanoseconds(self.now));
        let miss = Miss { pipeline, key, start: None, version, now };
        black_box(self.cache.handle_miss(&mut self.store, miss, ProbeResult::Missed));
        self.store.clear_notes();
    }
}

/// One packet through four stages.
fn gigaflow_hit() -> Box<dyn FnMut()> {
    let (Chain { cache, store, keys, .. }, mut walk) =
        (Chain::new(FLOWS as usize), Walk::default());
    let mut turn = 0;
    Box::new(move || {
        turn = (turn + 1) % keys.len();
        assert!(cache.find(&store, black_box(&keys[turn]), &mut walk) && walk.slots().len() == 4);
    })
}

/// A burst of packets through four stages.
fn gigaflow_burst() -> Box<dyn FnMut()> {
    let Chain { mut cache, store, keys, .. } = Chain::new(FLOWS as usize);
    let mut walks = vec![Walk::default(); BURST];
    let mut turn = 0;
    Box::new(move || {
        turn = (turn + 1) % (keys.len() / BURST);
        let keys = black_box(&keys[turn * BURST..(turn + 1) * BURST]);
        cache.find_burst(&store, keys, &mut walks, |_| true);
        assert!(walks.iter().all(Walk::is_hit));
    })
}

/// A miss: translates a packet, and partitions its traversal into four parts.
///
/// The last sub-traversal belongs to one flow only. A stage with an entry for each flow has this
/// sub-traversal already; a smaller stage evicts another entry for the sub-traversal.
fn gigaflow_miss(stage_entries_max: usize) -> Box<dyn FnMut()> {
    let mut chain = Chain::new(stage_entries_max);
    let mut turn = 0;
    Box::new(move || {
        turn = (turn + 1) % chain.keys.len();
        chain.miss(turn);
    })
}

/// A table of 128 rules by source network.
///
/// The table has sixteen masks with mixed priorities, so a lookup must check several masks before
/// the result is certain.
fn lookup() -> Box<dyn FnMut()> {
    let from = |number: u32| {
        let [.., low] = number.to_be_bytes();
        key(&udp_frame([10, low, 1, 1], [10, 0, 0, 1], [4000, 2000]))
    };
    let mut table = TupleSpace::new(1);
    for number in 0..128_u16 {
        let (length, mut mask) = (17 + number % 16, FlowMask::EMPTY);
        mask.add_bits(FieldId::Ipv4Src, (u32::MAX << (32 - length)).into());
        let matching = Match::of(&SparseKey::from(&from(number.into())), &SparseMask::from(&mask));
        let rank = Rank { priority: Priority::new(number * 37 % 128), age: number.into() };
        table.insert(matching, rank, Version::ZERO, number);
    }
    let keys: Vec<FlowKey> = (0..FLOWS).map(from).collect();
    let mut turn = 0;
    Box::new(move || {
        turn = (turn + 1) % keys.len();
        let mut mask = FlowMask::EMPTY;
        black_box(table.lookup_masked(black_box(&keys[turn]), Version::ZERO, &mut mask));
        black_box(&mask);
    })
}

/// Four stages with free space, which hold every third sub-traversal.
struct Thirds;

impl StageView for Thirds {
    fn count(&self) -> u8 {
        4
    }

    fn holders(&self, sub_traversal: &SubTraversalOutline) -> StageSet {
        if sub_traversal.identity.is_multiple_of(3) {
            StageSet::first_of(2)
        } else {
            StageSet::EMPTY
        }
    }

    fn room(&self) -> StageSet {
        StageSet::first_of(4)
    }
}

/// Partitions a traversal of thirty tables by the default policy.
///
/// The fields of the traversal change every five tables.
fn partition() -> Box<dyn FnMut()> {
    let fields = [
        FieldSet::of(&[Coupling::EthSrc, Coupling::EthDst]),
        FieldSet::of(&[Coupling::EthDst, Coupling::IpDst]),
        FieldSet::of(&[Coupling::IpSrc, Coupling::IpDst]),
        FieldSet::of(&[Coupling::IpProto, Coupling::TpDst]),
    ];
    let mut outline = TraversalOutline::new();
    outline.begin(StateId::new(0));
    for step in 0..30_u32 {
        outline.partition_point(StateId::new(step));
        let fields = fields[(step / 5) as usize % fields.len()];
        outline.step(OutlineStep {
            fields,
            identity: u64::from(step).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        });
    }
    let mut policy = PolicyName::Joint.policy(1);
    Box::new(move || {
        assert!(!policy.partition(black_box(&outline), &Thirds).is_empty());
    })
}

fn translation(tables: u8) -> Box<dyn FnMut()> {
    let (pipeline, key) = (pipeline(&chain(tables)), flow(1));
    let version = pipeline.version();
    Box::new(move || {
        black_box(pipeline.translate(black_box(&key), version));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_runs() {
        for kernel in KERNELS {
            let mut call = (kernel.make)();
            (0..2 * FLOWS).for_each(|_| call());
        }
    }

    #[test]
    fn a_miss_reuses_and_recreates_entries() {
        for (stage_entries_max, made_per_miss) in [(FLOWS as usize, 0), (FLOWS as usize / 4, 1)] {
            let mut chain = Chain::new(stage_entries_max);
            let before = chain.cache.counts();
            (0..chain.keys.len()).for_each(|number| chain.miss(number));
            let counts = chain.cache.counts();
            assert_eq!(counts.made - before.made, made_per_miss * u64::from(FLOWS));
            assert_eq!(
                counts.made + counts.shared - before.made - before.shared,
                4 * u64::from(FLOWS)
            );
        }
    }

    #[test]
    fn a_chain_visits_each_of_its_tables() {
        let pipeline = pipeline(&chain(4));
        let traversal = pipeline.translate(&flow(1), pipeline.version());
        assert_eq!(traversal.visits.len(), 4);
        assert_eq!(traversal.actions.len(), 1);
        assert_eq!(traversal.mask.field(FieldId::Ipv4Dst), 0xffff_ffff, "each flow has an entry");
    }
}
