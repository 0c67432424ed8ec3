//! Compares the engine in a circuit with the direct engine, for one rule with a known mask.
//!
//! Both engines watch the same entries, and each change is applied to both engines in turn. A rule
//! for one destination is added and removed, and each of these changes evicts one entry. The
//! evicted entry is translated and installed again, and the engines do their deferred work before
//! the next change. The time of the second engine after the first is shorter, because the entries
//! are in the caches of the processor. So the engines take turns in being first.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::Criterion;
use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_kairo::{Direct, Visits};
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, EntryId, Evictor, FlowModCommand, Installed, OwnerId,
    Pipeline, PortInfo, Time, text::parse_rule,
};

use crate::is_trial;

const BRIDGE: BridgeId = BridgeId::new(1);

/// Numbers of cache entries that the engine watches.
const ENTRIES: [u32; 2] = [100_000, 1_000_000];

/// Number of entries in a trial run.
const TRIAL_ENTRIES: u32 = 4096;

/// Number of tables that every entry visits.
const TABLES: u32 = 5;

/// Number of networks with a rule in each table.
const NETWORKS: u32 = 64;

/// The compared engines, by their index in [`OneRuleFixture::engines`].
const ENGINES: [&str; 2] = ["direct", "visits"];

struct OneRuleFixture {
    pipeline: Pipeline,
    engines: [Box<dyn Evictor>; 2],
    /// The generation of the entry in each slot.
    generations: Vec<u32>,
    /// Number of changes so far.
    changes: u32,
}

impl OneRuleFixture {
    /// Returns engines with `entries` installed entries, which know the rule mask.
    fn new(entries: u32) -> Self {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline.set_ports(BRIDGE, [1, 2].map(PortInfo::datapath).into()).expect("a bridge");
        for table in 0..TABLES {
            // The last table consults all bits of the destination.
            let is_last = table + 1 == TABLES;
            let last = "move:NXM_OF_IP_DST[]->NXM_NX_REG0[],output:2".to_owned();
            let actions = if is_last { last } else { format!("goto_table:{}", table + 1) };
            let add = |rule: &str| {
                let rule = format!("table={table},{rule}");
                publish(&pipeline, FlowModCommand::Add, &rule);
            };
            for network in 0..NETWORKS {
                add(&format!("priority=10,ip,nw_dst=10.0.{network}.0/24,actions={actions}"));
            }
            add("priority=20,ip,nw_src=192.168.0.0/24,actions=drop");
            add(&format!("priority=1,ip,actions={actions}"));
        }
        let version = pipeline.version();
        let engines: [Box<dyn Evictor>; 2] =
            [Box::new(Direct::new(version, 1)), Box::new(Visits::new(version, 1))];
        let generations = vec![0; entries as usize];
        let mut fixture = Self { pipeline, engines, generations, changes: 0 };
        (0..entries).for_each(|slot| fixture.install(slot));
        // Afterwards the mask of the rules is known.
        (0..4).for_each(|_| {
            fixture.turn();
        });
        fixture
    }

    /// Translates the packet of a slot, and installs it in both engines.
    fn install(&mut self, slot: u32) {
        let traversal = self.pipeline.translate(&packet(slot), self.pipeline.version());
        let traversal = Arc::new(traversal);
        let generation = self.generations[slot as usize];
        let entry = EntryId { owner: OwnerId(0), slot, generation };
        for engine in &mut self.engines {
            assert_eq!(engine.installed(entry, &traversal), Installed::Recorded);
        }
    }

    /// Adds or removes a rule for one destination.
    /// Returns the times of both engines.
    fn turn(&mut self) -> [Duration; 2] {
        let turn = self.changes;
        self.changes += 1;
        let slot = (turn / 2).wrapping_mul(37) % TRIAL_ENTRIES;
        let [_, b, c, d] = slot.to_be_bytes();
        let rule = format!("table=2,priority=30,ip,nw_dst=10.{b}.{c}.{d}");
        let change = if turn.is_multiple_of(2) {
            publish(&self.pipeline, FlowModCommand::Add, &format!("{rule},actions=drop"))
        } else {
            publish(&self.pipeline, FlowModCommand::DeleteStrict, &rule)
        };
        let (mut spent, mut evicted) = ([Duration::ZERO; 2], [Vec::new(), Vec::new()]);
        for number in [turn / 2 % 2, (turn / 2 + 1) % 2].map(|number| number as usize) {
            let start = Instant::now();
            let list = black_box(self.engines[number].apply(&change.deltas, change.version));
            (spent[number], evicted[number]) = (start.elapsed(), list);
        }
        assert_eq!(evicted[0], evicted[1], "both engines evict the same entries");
        assert_eq!(evicted[0].len(), 1, "a rule is for one destination");
        self.generations[slot as usize] += 1;
        self.install(slot);
        self.engines.iter_mut().for_each(|engine| while engine.run_maintenance() {});
        spent
    }
}

/// Applies a flow-mod and reclaims older versions. Panics if it is not legal.
fn publish(pipeline: &Pipeline, command: FlowModCommand, rule: &str) -> Change {
    let rule = parse_rule(command, rule, &NoPortNames).expect("a rule");
    let change = pipeline.apply(BRIDGE, &[rule], Time::ZERO).expect("a legal change");
    pipeline.reclaim(change.version);
    change
}

/// Returns an IPv4 packet with `slot` in the low bits of its destination.
fn packet(slot: u32) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_bridge(BRIDGE.number().into());
    key.set_in_port(PortNo::new(1));
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::Ipv4Src, 0x0b00_0001);
    key.set_field(FieldId::Ipv4Dst, u128::from(0x0a00_0000 | slot));
    key
}

/// Measures adding and removing one rule with each engine.
pub(crate) fn one_rule(criterion: &mut Criterion) {
    let sizes = if is_trial() { vec![TRIAL_ENTRIES] } else { ENTRIES.to_vec() };
    for entries in sizes {
        let mut group = criterion.benchmark_group(format!("one rule, {entries} entries"));
        let mut fixture = OneRuleFixture::new(entries);
        for (number, engine) in ENGINES.iter().enumerate() {
            group.bench_function(*engine, |bencher| {
                bencher.iter_custom(|rounds| (0..rounds).map(|_| fixture.turn()[number]).sum());
            });
        }
        group.finish();
    }
}
