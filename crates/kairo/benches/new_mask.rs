//! What the first rule of a mask costs the direct engine, beside a plain sweep over as many bytes.
//!
//! A table has entries that fill memory, each of another destination, and no common mask that helps:
//! as many as a table is held by are there, and none is within the rule's. So the rule passes over
//! all visits; that it ends none leaves the engine as it was.
//!
//! The dearest rule asks for what no visit of its table looked at, and every entry has fixed in the
//! table before: each visit is met, and its entry asked.

#![expect(clippy::expect_used, reason = "a bench that cannot begin says why and ends")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_kairo::Direct;
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, EntryId, Evictor, FlowModCommand, OwnerId, Pipeline,
    PortInfo, Time, text::parse_rule,
};

const BRIDGE: BridgeId = BridgeId::new(1);

/// Consult all of the source, and then all of the destination.
const RULES: [&str; 2] = [
    "priority=1,ip,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG1[],goto_table:1",
    "table=1,priority=1,ip,actions=move:NXM_OF_IP_DST[]->NXM_NX_REG0[],output:2",
];

/// Common masks that tables have at most, and some.
const MASKS_BEFORE: usize = 20;

/// Entries: of a bench, and where it is only tried whether it runs.
const ENTRIES: [u32; 2] = [1 << 20, 1 << 12];

struct Scene {
    pipeline: Pipeline,
    engine: Direct,
    masks: Box<dyn Iterator<Item = u32>>,
}

impl Scene {
    /// Entries that differ in the lower bits of both addresses, and no projection that lacks any.
    fn new(entries: u32) -> Self {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline.set_ports(BRIDGE, [1, 2].map(PortInfo::datapath).into()).expect("a bridge");
        let engine = Direct::new(pipeline.version(), 1);
        // Of as many bits each, so that none is within another.
        let masks = (0..1 << 24).filter(|bits: &u32| bits.count_ones() == 12);
        let mut scene = Self { pipeline, engine, masks: Box::new(masks) };
        RULES.iter().for_each(|rule| drop(scene.change(rule)));
        let version = scene.pipeline.version();
        for slot in 0..entries {
            let traversal = Arc::new(scene.pipeline.translate(&packet(slot), version));
            scene.engine.installed(EntryId { owner: OwnerId(0), slot, generation: 0 }, &traversal);
        }
        for _ in 0..MASKS_BEFORE {
            scene.apply_rule("nw_dst");
            while scene.engine.run_maintenance() {}
        }
        scene
    }

    fn change(&self, rule: &str) -> Change {
        let rule = parse_rule(FlowModCommand::Add, rule, &NoPortNames).expect("a rule");
        let change = self.pipeline.apply(BRIDGE, &[rule], Time::ZERO).expect("a legal change");
        self.pipeline.reclaim(change.version);
        change
    }

    /// A rule of a new mask over a field, which no entry is in the way of.
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

fn new_mask(criterion: &mut Criterion) {
    // As criterion tells: `cargo bench` says so, and `cargo test` does not.
    let is_trial = !std::env::args().any(|argument| argument == "--bench");
    let entries = ENTRIES[usize::from(is_trial)];
    let mut group = criterion.benchmark_group(format!("{entries} entries"));
    group.throughput(Throughput::Elements(entries.into()));
    let mut scene = Scene::new(entries);
    group.bench_function("a rule of a new mask", |bencher| {
        bencher.iter_custom(|rounds| (0..rounds).map(|_| scene.apply_rule("nw_dst")).sum());
    });
    let column: Vec<u32> = (0..entries).collect();
    group.bench_function("a sweep over four bytes of each", |bencher| {
        bencher.iter(|| black_box(&column).iter().fold(0, |all, value| all | value));
    });
    group.sample_size(10);
    group.bench_function("a rule for what another table has fixed", |bencher| {
        bencher.iter_custom(|rounds| (0..rounds).map(|_| scene.apply_rule("nw_src")).sum());
    });
    group.finish();
}

criterion_group!(benches, new_mask);
criterion_main!(benches);
