//! Compares lookups of the NuevoMatch classifier with tuple space search, for the same rules and
//! packets.
//!
//! Rules match prefixes of addresses, exact ports or any port, and a protocol, as in access lists.
//! 1,000 rules fit into the L2 cache, and 100,000 rules do not. Each packet matches a random rule.
//!
//! The group `stage` compares the lookups of a Gigaflow stage with an index over its entries. The
//! entries of a tag have masks with bits in the same words of the key. A packet looks up the bits
//! that all masks have in common, and then one or two of the masks.

use std::{hint::black_box, ops::ControlFlow};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use shunt_classifier::{Classifier, Priority, Rank, TupleSpace, Version};
use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, SparseMask,
    hash::KeyHasher,
    masked_table::{MaskedTable, RowCandidate},
};
use shunt_nuevomatch::{
    BoxRule, CandidateIndex, FieldMatch, KeySchema, NuevoMatch, NuevoMatchSettings,
    PartitionSettings, PriorityRule,
};

const SIZES: &[(&str, usize)] = &[("1k", 1_000), ("10k", 10_000), ("100k", 100_000)];

/// Number of keys that one call looks up.
const BATCH: usize = 32;

/// Number of packets that are looked up in turn.
const PACKETS: usize = 16_384;

/// The prefix lengths of addresses, one of which is chosen at random.
const LENGTHS: [u32; 8] = [32, 32, 32, 28, 24, 24, 16, 0];

/// The fields of a rule, in the order of the lanes.
const FIELDS: [FieldId; 5] =
    [FieldId::Ipv4Src, FieldId::Ipv4Dst, FieldId::TcpSrc, FieldId::TcpDst, FieldId::IpProto];

/// One rule: the values and masks of its fields.
type Filter = [(u32, u32); 5];

/// Returns random words from a fixed seed.
fn words() -> impl FnMut() -> u32 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        u32::try_from(state >> 32).unwrap_or_default()
    }
}

/// Returns at most `count` different random filters in random order.
fn filters(count: usize) -> Vec<Filter> {
    let mut word = words();
    let filter = || {
        let mut address = || {
            let length = LENGTHS[word() as usize % LENGTHS.len()];
            let mask = !u32::MAX.checked_shr(length).unwrap_or(0);
            // The networks are few, so that prefixes contain each other.
            let value = 0x0a00_0000 + (word() % 64) * 0x1_0000 + word() % 0x1_0000;
            (value & mask, mask)
        };
        let (source, destination) = (address(), address());
        let port = [0, 53, 80, 443][word() as usize % 4];
        let port_mask = if port == 0 { 0 } else { 0xffff };
        [source, destination, (0, 0), (port, port_mask), (6, 0xff)]
    };
    let mut filters: Vec<Filter> = std::iter::repeat_with(filter).take(count * 2).collect();
    filters.sort_unstable();
    filters.dedup();
    // The rules are shuffled, so that priorities are not in the order of addresses.
    let mut word = words();
    filters.sort_by_cached_key(|_| word());
    filters.truncate(count);
    filters
}

/// Returns the rule with priority `at`, or `None` if the filter is not valid.
fn rule(schema: &KeySchema, filter: &Filter, at: u32) -> Option<PriorityRule<5>> {
    let fields =
        filter.map(|(value, mask)| FieldMatch::Mask { value: value.into(), mask: mask.into() });
    PriorityRule::new(schema, &fields, at, at).ok()
}

/// Returns the flow key of a TCP/IP header in the order of `FIELDS`.
fn key(packet: &[u32; 5]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_field(FieldId::EthType, 0x0800);
    for (field, value) in FIELDS.into_iter().zip(packet) {
        key.set_field(field, (*value).into());
    }
    key
}

/// Returns a tuple space with all filters, the first one preferred.
fn tuple_space(filters: &[Filter]) -> TupleSpace<u32> {
    let mut table = TupleSpace::new(1);
    for (at, filter) in (0_u32..).zip(filters) {
        let mut mask = FlowMask::EMPTY;
        mask.add_field(FieldId::EthType);
        for (field, (_, bits)) in FIELDS.into_iter().zip(filter) {
            mask.add_bits(field, (*bits).into());
        }
        let matching = Match::new(&key(&filter.map(|(value, _)| value)), &mask);
        // All rules have one priority, so that the older rule wins in both classifiers.
        let rank = Rank { priority: Priority::new(1), age: at.into() };
        table.insert(matching, rank, Version::ZERO, at);
    }
    table
}

/// Returns random packets that each match at least one filter.
fn packets(filters: &[Filter]) -> Vec<[u32; 5]> {
    let mut word = words();
    let packet = || {
        let filter = filters[word() as usize % filters.len()];
        filter.map(|(value, mask)| value | word() & !mask)
    };
    let packet = std::iter::repeat_with(packet).take(PACKETS);
    packet.map(|[a, b, c, d, e]| [a, b, c & 0xffff, d & 0xffff, e & 0xff]).collect()
}

/// Measures lookups by NuevoMatch and by tuple space search for each size.
fn lookups(criterion: &mut Criterion) {
    let schema = KeySchema::five_tuple();
    for (name, count) in SIZES {
        let filters = filters(*count);
        let rules: Vec<PriorityRule<5>> =
            (0..).zip(&filters).filter_map(|(at, filter)| rule(&schema, filter, at)).collect();
        let settings = NuevoMatchSettings::default();
        let Ok(classifier) = NuevoMatch::<5>::build(&schema, &rules, &settings) else { return };
        let table = tuple_space(&filters);
        let packets = packets(&filters);
        let keys: Vec<FlowKey> = packets.iter().map(key).collect();
        for (packet, key) in packets.iter().zip(&keys) {
            let expected = table.lookup(key, Version::ZERO).copied();
            assert_eq!(classifier.lookup(packet).map(|best| best.value), expected, "{packet:?}");
        }
        let mut group = criterion.benchmark_group(format!("classify/{name}"));
        group.throughput(Throughput::Elements(BATCH as u64));
        let mut best = [None; BATCH];
        let mut batches = packets.chunks_exact(BATCH).cycle();
        group.bench_function("nuevomatch, batch of 32", |bencher| {
            bencher.iter(|| {
                let batch = batches.next().unwrap_or_default();
                classifier.lookup_batch(black_box(batch), &mut best);
                black_box(&best);
            });
        });
        group.bench_function("nuevomatch, one by one", |bencher| {
            bencher.iter(|| {
                for packet in batches.next().unwrap_or_default() {
                    black_box(classifier.lookup(black_box(packet)));
                }
            });
        });
        let mut batches = keys.chunks_exact(BATCH).cycle();
        group.bench_function("tuple space", |bencher| {
            bencher.iter(|| {
                for key in batches.next().unwrap_or_default() {
                    black_box(table.lookup(black_box(key), Version::ZERO));
                }
            });
        });
        group.finish();
    }
}

/// The numbers of entries of one tag in a stage.
///
/// A stage has 8,192 entries by default.
const STAGE_SIZES: [u32; 3] = [100, 1_000, 8_000];

/// Number of entries that agree in the bits which all masks of a stage have.
const ENTRIES_PER_LIST: u32 = 4;

/// The entries of one tag in a stage.
///
/// The entries match networks of one length, with a port and a protocol.
struct BenchedStage {
    hasher: KeyHasher,
    /// The lists of masks, by the bits in common.
    lists: MaskedTable<2>,
    /// The entries of a mask.
    entries: MaskedTable<2>,
    index: CandidateIndex<5>,
    packets: Vec<[u32; 5]>,
    keys: Vec<FlowKey>,
}

impl BenchedStage {
    /// Returns a stage of `count` entries, or `None` if its index cannot be built.
    fn new(count: u32) -> Option<Self> {
        let hasher = KeyHasher::new(1);
        let mask = |network: u32, port: u32| {
            let mut mask = FlowMask::EMPTY;
            mask.add_field(FieldId::EthType);
            mask.add_field(FieldId::IpProto);
            mask.add_bits(FieldId::Ipv4Dst, network.into());
            mask.add_bits(FieldId::TcpDst, port.into());
            SparseMask::from(&mask)
        };
        let mut lists = MaskedTable::new(&mask(0xffff_fc00, 0));
        let mut entries = MaskedTable::new(&mask(0xffff_ff00, 0xffff));
        let (mut boxes, mut packets, mut word) = (Vec::new(), Vec::new(), words());
        for at in 0..count {
            let network =
                0x0a00_0000 + at / ENTRIES_PER_LIST * 0x400 + at % ENTRIES_PER_LIST * 0x100;
            let packet = [word(), network + word() % 256, word() & 0xffff, 80, 6];
            let key = key(&packet);
            lists.put(&hasher, &lists.masked(key.words()).collect::<Vec<_>>(), [0; 2]);
            let values: Vec<_> = entries.masked(key.words()).collect();
            let value = entries.put(&hasher, &values, [at.into(), 0]);
            let (low, high) = ([0, network, 0, 80, 6], [u32::MAX, network + 255, 0xffff, 80, 6]);
            boxes.push(BoxRule { low, high, value });
            packets.push(packet);
        }
        let (schema, settings) = (KeySchema::five_tuple(), PartitionSettings::default());
        let (index, left_out) = CandidateIndex::build(&schema, &boxes, &settings).ok()?;
        assert!(left_out.is_empty(), "all entries are in an iSet");
        let packets: Vec<_> =
            (0..PACKETS).map(|_| packets[word() as usize % packets.len()]).collect();
        let keys = packets.iter().map(key).collect();
        Some(Self { hasher, lists, entries, index, packets, keys })
    }

    /// Looks up a burst in a hash table, in the steps of a stage.
    fn probe(&self, table: &MaskedTable<2>, keys: &[FlowKey], rows: &mut [Option<u32>; BATCH]) {
        let (mut tags, mut candidates) = ([0; BATCH], [RowCandidate::NONE; BATCH]);
        for (tag, key) in tags.iter_mut().zip(keys) {
            *tag = table.tag(&self.hasher, key.words());
        }
        for (candidate, tag) in candidates.iter_mut().zip(tags) {
            *candidate = table.candidate(tag);
        }
        for (((row, key), candidate), tag) in rows.iter_mut().zip(keys).zip(candidates).zip(tags) {
            *row = table.confirm(candidate, tag, key.words());
        }
    }

    /// Writes to `rows` the entry that covers each packet, by the learned index.
    fn by_index(&self, packets: &[[u32; 5]], keys: &[FlowKey], rows: &mut [Option<u32>; BATCH]) {
        self.index.find_batch(packets, |position, row| {
            if self.entries.covers(row, keys[position].words()) {
                rows[position] = Some(row);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
    }
}

/// Measures the lookups of a stage by hash tables and by the learned index.
fn stages(criterion: &mut Criterion) {
    for count in STAGE_SIZES {
        let Some(stage) = BenchedStage::new(count) else { return };
        let mut group = criterion.benchmark_group(format!("stage/{count}"));
        group.throughput(Throughput::Elements(BATCH as u64));
        let mut rows = [None; BATCH];
        for probes in [2, 3] {
            let mut batches = stage.keys.chunks_exact(BATCH).cycle();
            group.bench_function(format!("{probes} hash tables"), |bencher| {
                bencher.iter(|| {
                    let keys = batches.next().unwrap_or_default();
                    stage.probe(&stage.lists, keys, &mut rows);
                    (1..probes).for_each(|_| stage.probe(&stage.entries, keys, &mut rows));
                    black_box(&rows);
                });
            });
        }
        let batches = stage.packets.chunks_exact(BATCH).zip(stage.keys.chunks_exact(BATCH));
        let mut batches = batches.cycle();
        group.bench_function("learned index", |bencher| {
            bencher.iter(|| {
                let (packets, keys) = batches.next().unwrap_or_default();
                stage.by_index(black_box(packets), keys, &mut rows);
                black_box(&rows);
            });
        });
        group.finish();
    }
}

criterion_group!(benches, lookups, stages);
criterion_main!(benches);
