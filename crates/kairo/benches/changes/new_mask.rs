//! Measures how long the direct engine takes for the first rule of a mask, compared with a plain
//! scan of memory.
//!
//! A million entries visit one table, each with another destination. The index has as many
//! projections as possible, and none of them fits the mask of the rule. So the search for the rule
//! scans all visits. The rule makes no entry stale, so the engine is the same for the next rule.
//!
//! The most expensive rule matches bits that no visit of its table consulted, but that every entry
//! consulted in the table before. So the engine compares the rule with every visit.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput};
use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_kairo::Direct;
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, EntryId, Evictor, FlowModCommand, OwnerId, Pipeline,
    PortInfo, Time, text::parse_rule,
};

use crate::is_trial;

const BRIDGE: BridgeId = BridgeId::new(1);

/// Rules that consult all bits of the source, and then all bits of the destination.
const RULES: [&str; 2] = [
    "priority=1,ip,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG1[],goto_table:1",
    "table=1,priority=1,ip,actions=move:NXM_OF_IP_DST[]->NXM_NX_REG0[],output:2",
];

/// Number of masks before the measured mask: more than the projections of a group.
const MASKS_BEFORE: usize = 20;

/// Number of entries in a benchmark, and in a trial run.
const ENTRIES: [u32; 2] = [1 << 20, 1 << 12];

struct NewMaskFixture {
    pipeline: Pipeline,
    engine: Direct,
    /// The masks of the measured rules that are not used yet.
    masks: Box<dyn Iterator<Item = u32>>,
}

impl NewMaskFixture {
    /// Creates entries that differ in the lower bits of both addresses.
    /// All projections of the index are filled.
    fn new(entries: u32) -> Self {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline.set_ports(BRIDGE, [1, 2].map(PortInfo::datapath).into()).expect("a bridge");
        let engine = Direct::new(pipeline.version(), 1);
        // All masks have the same number of bits, so that no mask contains another one.
        let masks = (0..1 << 24).filter(|bits: &u32| bits.count_ones() == 12);
        let mut fixture = Self { pipeline, engine, masks: Box::new(masks) };
        RULES.iter().for_each(|rule| drop(fixture.change(rule)));
        let version = fixture.pipeline.version();
        for slot in 0..entries {
            let traversal = Arc::new(fixture.pipeline.translate(&packet(slot), version));
            fixture
                .engine
                .installed(EntryId { owner: OwnerId(0), slot, generation: 0 }, &traversal);
        }
        for _ in 0..MASKS_BEFORE {
            fixture.apply_rule("nw_dst");
            while fixture.engine.run_maintenance() {}
        }
        fixture
    }

    /// Adds a rule and reclaims older versions. Panics if the rule is not legal.
    fn change(&self, rule: &str) -> Change {
        let rule = parse_rule(FlowModCommand::Add, rule, &NoPortNames).expect("a rule");
        let change = self.pipeline.apply(BRIDGE, &[rule], Time::ZERO).expect("a legal change");
        self.pipeline.reclaim(change.version);
        change
    }

    /// Applies a rule with a new mask of a field, which overlaps no entry.
    fn apply_rule(&mut self, field: &str) -> Duration {
        let [a, b, c, d] = (0xff00_0000 | self.masks.next().expect("a mask")).to_be_bytes();
        let value = format!("11.{b}.{c}.{d}/{a}.{b}.{c}.{d}");
        let rule = format!("table=1,priority=9,ip,{field}={value},actions=drop");
        let change = self.change(&rule);
        let start = Instant::now();
        let evicted = black_box(self.engine.apply(&change.deltas, change.version));
        let spent = start.elapsed();
        assert!(evicted.is_empty(), "no entry is of 11.0.0.0/8");
        spent
    }
}

/// Returns an IPv4 packet with `slot` in the low bits of both addresses.
fn packet(slot: u32) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_bridge(BRIDGE.number().into());
    key.set_in_port(PortNo::new(1));
    key.set_field(FieldId::EthType, 0x0800);
    [FieldId::Ipv4Src, FieldId::Ipv4Dst]
        .into_iter()
        .for_each(|field| key.set_field(field, u128::from(0x0a00_0000 | slot)));
    key
}

/// Measures the search for a rule of a new mask, and a plain scan of memory.
pub(crate) fn new_mask(criterion: &mut Criterion) {
    let entries = ENTRIES[usize::from(is_trial())];
    let mut group = criterion.benchmark_group(format!("{entries} entries"));
    group.throughput(Throughput::Elements(entries.into()));
    let mut fixture = NewMaskFixture::new(entries);
    group.bench_function("a rule of a new mask", |bencher| {
        bencher.iter_custom(|rounds| (0..rounds).map(|_| fixture.apply_rule("nw_dst")).sum());
    });
    let column: Vec<u32> = (0..entries).collect();
    group.bench_function("a sweep over four bytes of each", |bencher| {
        bencher.iter(|| black_box(&column).iter().fold(0, |all, value| all | value));
    });
    group.sample_size(10);
    group.bench_function("a rule for what another table has fixed", |bencher| {
        bencher.iter_custom(|rounds| (0..rounds).map(|_| fixture.apply_rule("nw_src")).sum());
    });
    group.finish();
}
