//! Lookup, lookup with a mask, and insertion over random rules of prefixes and ports.
//!
//! Rules are IPv4 with prefixes of the lengths that access lists have and, in part, ports: up to
//! 384 masks. 100 and 1,000 rules fit the L2 cache, 100,000 do not. Half of the keys are made to
//! match a rule. The oracle stands beside on the small sets.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use shunt_classifier::{Classifier, Linear, Priority, Rank, TupleSpace, Version};
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};

/// SplitMix64 (Steele, Lea, Flood, *Fast Splittable Pseudorandom Number Generators*, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn below(&mut self, limit: usize) -> usize {
        let wide = u128::from(self.next()) * limit as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

type Rules = Vec<(Match, Rank)>;

fn random_key(random: &mut Random) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_field(FieldId::InPort, 1);
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::IpProto, u128::from(random.pick(&[6u8, 17])));
    // Real sets crowd: one address in two comes from one of 64 networks.
    for field in [FieldId::Ipv4Src, FieldId::Ipv4Dst] {
        let network = Random(random.next() % 64).next() << 16;
        let anywhere = random.next();
        let address = random.pick(&[network | anywhere & 0xffff, anywhere]);
        key.set_field(field, address.into());
    }
    key.set_field(FieldId::TcpSrc, random.next().into());
    let any = random.next();
    key.set_field(FieldId::TcpDst, random.pick(&[22, 25, 53, 80, 443, any]).into());
    key
}

fn random_mask(random: &mut Random) -> FlowMask {
    let mut mask = FlowMask::EMPTY;
    mask.add_field(FieldId::EthType);
    mask.add_field(FieldId::IpProto);
    for field in [FieldId::Ipv4Src, FieldId::Ipv4Dst] {
        let length = random.pick(&[0, 8, 16, 20, 23, 24, 24, 28, 32, 32]);
        mask.add_bits(field, u128::from(!u32::MAX.checked_shr(length).unwrap_or(0)));
    }
    mask.add_bits(FieldId::TcpSrc, random.pick(&[0, 0, 0, 0xffff]));
    mask.add_bits(FieldId::TcpDst, random.pick(&[0, 0xfc00, 0xffff, 0xffff]));
    mask
}

fn random_rules(count: u64) -> Rules {
    let mut random = Random(count);
    (0..count)
        .map(|age| {
            let matching = Match::new(&random_key(&mut random), &random_mask(&mut random));
            let bits_count = FlowMask::from(matching.mask()).bits_count();
            let priority = Priority::new(u16::try_from(bits_count).unwrap_or(u16::MAX));
            (matching, Rank { priority, age })
        })
        .collect()
}

fn random_keys(rules: &Rules) -> Vec<FlowKey> {
    let mut random = Random(0);
    let key = |_| {
        let mut key = random_key(&mut random);
        if random.pick(&[true, false]) {
            let (matching, _) = &rules[random.below(rules.len())];
            let (value, mask) = (matching.key(), FlowMask::from(matching.mask()));
            let words = key.words_mut().iter_mut().zip(value.words()).zip(mask.words());
            words.for_each(|((key, value), mask)| *key = *key & !mask | value);
        }
        key
    };
    (0..4096).map(key).collect()
}

fn filled<C: Classifier<u64>>(mut table: C, rules: &Rules) -> C {
    for (matching, rank) in rules {
        table.insert(matching.clone(), *rank, Version::ZERO, rank.age);
    }
    table
}

fn bench_lookup(
    criterion: &mut Criterion,
    name: &str,
    table: &impl Classifier<u64>,
    rules: &Rules,
) {
    let keys = random_keys(rules);
    let mut next = keys.iter().cycle();
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(1));
    group.bench_function("lookup", |bencher| {
        bencher.iter(|| next.next().and_then(|key| table.lookup(black_box(key), Version::ZERO)));
    });
    group.bench_function("lookup_masked", |bencher| {
        bencher.iter(|| {
            let mut mask = FlowMask::EMPTY;
            let key = next.next().map(black_box);
            let found = key.and_then(|key| table.lookup_masked(key, Version::ZERO, &mut mask));
            black_box(mask);
            found
        });
    });
    group.finish();
}

fn lookups(criterion: &mut Criterion) {
    for (size, count) in [("100", 100), ("1k", 1000), ("100k", 100_000)] {
        let rules = random_rules(count);
        let table = filled(TupleSpace::new(1), &rules);
        bench_lookup(criterion, &format!("tuple_space/{size}"), &table, &rules);
        if count <= 1000 {
            let table = filled(Linear::new(), &rules);
            bench_lookup(criterion, &format!("linear/{size}"), &table, &rules);
        }
    }
}

fn inserts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tuple_space/insert");
    for (size, count) in [("1k", 1000), ("100k", 100_000)] {
        let rules = random_rules(count);
        group.throughput(Throughput::Elements(count));
        group.sample_size(10);
        group.bench_function(size, |bencher| {
            let empty = || TupleSpace::new(1);
            bencher.iter_batched(empty, |table| filled(table, &rules), BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, lookups, inserts);
criterion_main!(benches);
