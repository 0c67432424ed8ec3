//! Time of a lookup in a chain of four stages, compared with a lookup in the megaflow cache.
//!
//! Each stage has as many entries as the megaflow cache, so a lookup in the chain may cost as much
//! as four in that cache. The compared caches hold entries of the same tables, and check that the
//! found entry is live. Packets of the chain have any source and any target: the traversals of two
//! packets share LTM entries. The chain was filled by packets of other traversals. The entries of
//! `all` fit into the L2 cache of the processor, those of `many` do not.

use std::{hint::black_box, sync::Arc};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rtrb::RingBuffer;
use shunt_datapath::{
    BURST, Owner,
    cache::{KeyHasher, MegaflowCache, MissedPackets},
};
use shunt_flow::{FieldId, FlowKey, text::NoPortNames};
use shunt_gigaflow::{
    adaptive::{Capacity, ProbeResult},
    cache::{Config, Fallback, Gigaflow, Miss},
    ltm::{Eviction, Store as _, Walk},
    partition::PolicyName,
};
use shunt_pipeline::{
    BridgeId, BridgeSettings, FlowModCommand, OwnerId, Pipeline, PortInfo, Time, text::parse_rule,
};

const BRIDGE: BridgeId = BridgeId::new(1);

/// Fields that the tables match, in order.
const FIELDS: [FieldId; 4] = [FieldId::EthSrc, FieldId::Ipv4Src, FieldId::Ipv4Dst, FieldId::UdpDst];

/// Entries of a stage, and of the megaflow cache.
const SIZES: [(&str, u32); 2] = [("all", 256), ("many", 8192)];

/// Actions of the first table: `routed` rewrites a header that later stages match.
const KINDS: [(&str, &str); 2] = [("plain", ""), ("routed", "dec_ttl,")];

/// Packets to look up, in order.
const PACKETS: usize = 4096;

/// Returns a packet with the `numbers`th value of each field.
fn packet(numbers: [u32; 4]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_bridge(BRIDGE.number().into());
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::IpProto, 17);
    key.set_field(FieldId::NwTtl, 64);
    for (field, number) in FIELDS.into_iter().zip(numbers) {
        key.set_field(field, u128::from(number));
    }
    key
}

fn mix(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) as u32
}

/// Creates four tables, each with `size` rules on one field.
/// The first table also applies `also`.
fn pipeline(size: u32, also: &str) -> Arc<Pipeline> {
    let pipeline = Arc::new(Pipeline::new(1));
    pipeline.add_bridge(BRIDGE, BridgeSettings::default());
    let _ = pipeline.set_ports(BRIDGE, vec![PortInfo::datapath(2)]);
    let mut rules = Vec::new();
    for (table, name) in ["dl_src", "nw_src", "nw_dst", "tp_dst"].into_iter().enumerate() {
        let then = match table {
            0 => format!("{also}goto_table:1"),
            3 => "output:2".to_owned(),
            _ => format!("goto_table:{}", table + 1),
        };
        for number in 0..size {
            let value = match name {
                "dl_src" => format!("00:00:00:00:{:02x}:{:02x}", number >> 8, number & 0xff),
                "tp_dst" => number.to_string(),
                _ => format!("0.0.{}.{}", number >> 8, number & 0xff),
            };
            let text = format!("table={table},udp,{name}={value},actions={then}");
            rules.extend(parse_rule(FlowModCommand::Add, &text, &NoPortNames));
        }
    }
    let _ = pipeline.apply(BRIDGE, &rules, Time::ZERO);
    pipeline
}

/// Creates the owner of the entries of a cache.
fn owner(pipeline: &Pipeline, entries_max: usize) -> Owner {
    let ring = |size| RingBuffer::new(size).0;
    let (version, learn_requests) = (pipeline.version(), RingBuffer::new(1).0);
    Owner::new(OwnerId(0), version, entries_max, ring(entries_max), learn_requests)
}

/// Creates a chain with full stages, its owner, and packets that hit.
fn chain(size: u32, also: &str) -> (Gigaflow, Owner, Vec<FlowKey>) {
    let pipeline = pipeline(size, also);
    let mut owner = owner(&pipeline, 4 * size as usize);
    let mut chain = Gigaflow::new(Config {
        capacity: Capacity { stages_count: 4, stage_entries_max: size as usize },
        policy: PolicyName::OneToOne,
        fallback: Fallback::Off,
        eviction: Eviction::LeastRecent,
        tag_bits: 16,
        seed: 1,
    });
    let version = pipeline.version();
    for number in 0..size {
        let key = packet([number; 4]);
        let miss = Miss { pipeline: &pipeline, key: &key, start: None, version, now: Time::ZERO };
        chain.handle_miss(&mut owner, miss, ProbeResult::Missed);
    }
    let mut state = 1;
    let mut any = || packet([0; 4].map(|_: u32| mix(&mut state) % size));
    let packets = (0..PACKETS).map(|_| any()).collect();
    (chain, owner, packets)
}

/// Creates a megaflow cache of the same tables, its owner, and packets that hit.
///
/// The cache has as many entries as a stage of the chain.
fn megaflow(size: u32, also: &str) -> (MegaflowCache, Owner, Vec<FlowKey>) {
    let pipeline = pipeline(size, also);
    let mut owner = owner(&pipeline, size as usize);
    let mut cache = MegaflowCache::new(KeyHasher::new(1), 1);
    for number in 0..size {
        let traversal = Arc::new(pipeline.translate(&packet([number; 4]), pipeline.version()));
        if let Some(entry) = owner.make(&traversal, Time::ZERO) {
            cache.insert(&packet([number; 4]), &traversal.mask, entry.into());
        }
    }
    let mut state = 1;
    let packets = (0..PACKETS).map(|_| packet([mix(&mut state) % size; 4])).collect();
    (cache, owner, packets)
}

fn lookup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lookup");
    group.throughput(Throughput::Elements(BURST as u64));
    for ((size_name, size), (kind, also)) in
        SIZES.into_iter().flat_map(|size| KINDS.map(|kind| (size, kind)))
    {
        let name = format!("{kind} {size_name}");
        let (mut cache, owner, packets) = megaflow(size, also);
        let mut bursts = packets.chunks_exact(BURST).cycle();
        group.bench_function(BenchmarkId::new("megaflow", &name), |bencher| {
            bencher.iter(|| {
                let mut missing = MissedPackets::default();
                (0..BURST).for_each(|place| missing.push(place));
                let mut found = [0; BURST];
                let keys = bursts.next().unwrap_or_default();
                cache.find_burst(keys, &mut missing, |place, entry, _| {
                    found[place] = entry.slot;
                    owner.entries().is_live(entry)
                });
                assert!(missing.is_empty());
                black_box(found);
            });
        });
        let (mut chain, owner, packets) = chain(size, also);
        let mut walks = vec![Walk::default(); BURST];
        let mut bursts = packets.chunks_exact(BURST).cycle();
        group.bench_function(BenchmarkId::new("chain, a burst in step", &name), |bencher| {
            bencher.iter(|| {
                let keys = bursts.next().unwrap_or_default();
                chain.find_burst(&owner, keys, &mut walks, |_| true);
                assert!(walks.iter().all(Walk::is_hit));
            });
        });
        let mut bursts = packets.chunks_exact(BURST).cycle();
        group.bench_function(BenchmarkId::new("chain, one by one", &name), |bencher| {
            bencher.iter(|| {
                let keys = bursts.next().unwrap_or_default();
                for (key, walk) in keys.iter().zip(&mut walks) {
                    assert!(chain.find(&owner, key, walk));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, lookup);
criterion_main!(benches);
