//! A test fixture: a Gigaflow cache in front of the pipeline, and an oracle for each packet.

use std::sync::Arc;

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_gigaflow::{
    adaptive::{Capacity, ProbeResult},
    cache::{Config, Fallback, Gigaflow, Miss},
    ltm::{Eviction, LtmEntryRef, Store as _, VecStore, Walk},
    partition::PolicyName,
};
use shunt_pipeline::{
    BridgeId, EntryId, Evictor, FlowModCommand, Iterative, OwnerId, Time, Traversal,
    testing::{
        CheckedPipeline, Outcome, PacketEffects,
        generate::{self, Op},
        merged, set_test_word, visible,
    },
    text::parse_rule,
};

/// A Gigaflow cache before the pipeline, and an engine that evicts stale entries.
pub(crate) struct ChainFixture {
    pub(crate) checked: CheckedPipeline,
    pub(crate) cache: Gigaflow,
    pub(crate) store: VecStore,
    /// If set, the cache is not notified of ended entries, and must detect them.
    pub(crate) finds_dead: bool,
    /// If set, packets with a partial hit resume where they missed.
    pub(crate) resumes: bool,
    /// Number of packets that resumed.
    pub(crate) resumed: usize,
    /// The counts of hits, changes and other events.
    pub(crate) tally: Tally,
    pub(crate) engine: Iterative,
    pub(crate) walk: Walk,
    pub(crate) now: u64,
}

/// The counts of all events, by which a test checks that it covered enough cases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) hits: usize,
    /// Number of packets that hit several entries.
    pub(crate) chains: usize,
    /// Number of packets that left by a port, or went to a controller.
    pub(crate) left: usize,
    /// Number of changes that the pipeline accepted.
    pub(crate) changes: usize,
    /// Number of entries that the accepted changes made stale.
    pub(crate) stale: usize,
}

/// The outcome of a packet.
pub(crate) struct Sent {
    pub(crate) is_hit: bool,
    /// Number of entries that the packet matched.
    pub(crate) entries: usize,
    /// The output ports of the packet in order.
    pub(crate) ports: Vec<u32>,
}

pub(crate) fn config(policy: PolicyName, stages_count: u8, stage_entries_max: usize) -> Config {
    Config {
        capacity: Capacity { stages_count, stage_entries_max },
        policy,
        fallback: Fallback::Off,
        eviction: Eviction::LeastRecent,
        tag_bits: 16,
        seed: 5,
    }
}

impl ChainFixture {
    pub(crate) fn new(ops: &[Op], config: Config) -> Self {
        Self::of(CheckedPipeline::new(ops), config)
    }

    fn of(checked: CheckedPipeline, config: Config) -> Self {
        let engine = Iterative::new(Arc::clone(&checked.pipeline));
        let mut fixture = Self {
            checked,
            cache: Gigaflow::new(config),
            store: VecStore::default(),
            finds_dead: false,
            resumes: false,
            resumed: 0,
            tally: Tally::default(),
            engine,
            walk: Walk::default(),
            now: 0,
        };
        // The engine begins at the current version of the tables.
        let _ = fixture.engine.apply(&[], fixture.checked.pipeline.version());
        fixture
    }

    /// Creates a bridge with the ports 1 to 4 and these rules and groups.
    pub(crate) fn with_rules(rules: &[&str], config: Config) -> Self {
        Self::of(CheckedPipeline::with_rules(BRIDGE, rules), config)
    }

    /// Sends a packet, and compares its outcome with the oracle.
    pub(crate) fn send(&mut self, key: &FlowKey) -> Sent {
        let expected = self.checked.model.translate(key);
        let (is_hit, effects) = self.effects(key);
        assert_eq!(effects, expected, "hit: {is_hit}, packet {key:?}");
        let entries = self.walk.slots().len();
        self.tally.hits += usize::from(is_hit);
        self.tally.chains += usize::from(is_hit && entries > 1);
        self.tally.left += usize::from(!expected.outcomes.is_empty());
        let port = |outcome: &Outcome| match outcome {
            Outcome::Sent(port, ..) => Some(port.number()),
            Outcome::Punted(..)
            | Outcome::ToLacp(..)
            | Outcome::ToBfd(..)
            | Outcome::ToSnooping(..) => None,
        };
        Sent { is_hit, entries, ports: expected.outcomes.iter().filter_map(port).collect() }
    }

    /// Processes a packet; returns whether it hits, and its outcome.
    fn effects(&mut self, key: &FlowKey) -> (bool, PacketEffects) {
        self.now += 1;
        let (visible_key, now) = (visible(key), Time::from_nanoseconds(self.now));
        let is_sampled = self.cache.is_next_sampled();
        let pipeline = Arc::clone(&self.checked.pipeline);
        let version = pipeline.version();
        let miss = Miss { pipeline: &pipeline, key: &visible_key, start: None, version, now };
        let is_hit = self.cache.find(&self.store, &visible_key, &mut self.walk);
        let traversal: Arc<Traversal> = if is_hit {
            self.store.hit(&self.walk, 64, now);
            let merged = merged(self.matched());
            if is_sampled {
                self.cache.observe(miss);
            }
            Arc::new(merged)
        } else {
            self.handle_miss(
                miss,
                if is_sampled { ProbeResult::Sampled } else { ProbeResult::Missed },
            )
        };
        self.notify_engine();
        (is_hit, self.checked.effects(&traversal, key))
    }

    fn handle_miss(&mut self, miss: Miss<'_>, probe: ProbeResult) -> Arc<Traversal> {
        let matched: Vec<Traversal> = self.matched().cloned().collect();
        let rest = if self.resumes {
            self.cache.resume(&mut self.store, miss, &self.walk, probe)
        } else {
            None
        };
        match rest {
            Some(rest) => {
                self.resumed += 1;
                Arc::new(merged(matched.iter().chain([&*rest])))
            }
            None if self.resumes => self.cache.start_over(&mut self.store, miss, &self.walk, probe),
            None => self.cache.handle_miss(&mut self.store, miss, probe),
        }
    }

    /// Returns the sub-traversals of the entries that the packet matched.
    fn matched(&self) -> impl Iterator<Item = &Traversal> {
        let traversal = |slot| self.store.traversal(slot).expect("the entry matched just now");
        self.walk.slots().iter().map(move |slot| &**traversal(*slot))
    }

    /// Changes the pipeline, and evicts the entries that the change makes stale.
    pub(crate) fn change(&mut self, op: &Op) {
        let Some(change) = self.checked.apply(op) else { return };
        self.tally.changes += 1;
        for stale in self.engine.apply(&change.deltas, change.version) {
            self.tally.stale += 1;
            self.drop(LtmEntryRef { slot: stale.slot, generation: stale.generation });
        }
        // The engine has removed the ended entries already.
        self.store.clear_notes();
    }

    fn drop(&mut self, entry: LtmEntryRef) {
        assert!(self.store.end(entry));
        if !self.finds_dead {
            self.cache.ltm_mut().forget(entry);
        }
    }

    /// Ends the entries that the bits of `choice` select.
    pub(crate) fn lose(&mut self, choice: u64) {
        let all: Vec<LtmEntryRef> = self.cache.ltm().entries().map(|(name, ..)| name).collect();
        let live = all.into_iter().filter(|name| self.store.is_live(*name)).enumerate();
        let lost: Vec<_> = live.filter(|(at, _)| choice >> (at % 64) & 1 != 0).collect();
        lost.into_iter().for_each(|(_, name)| self.drop(name));
        self.notify_engine();
    }

    fn notify_engine(&mut self) {
        for (name, traversal) in &self.store.made {
            self.engine.installed(id(*name), traversal);
        }
        self.store.gone.iter().for_each(|(name, ..)| self.engine.removed(id(*name)));
        self.store.clear_notes();
    }
}

fn id(name: LtmEntryRef) -> EntryId {
    EntryId { owner: OwnerId(0), slot: name.slot, generation: name.generation }
}

/// Returns the key of a packet of the bridge that matches this text.
///
/// The default ingress port is 1.
pub(crate) fn packet(text: &str) -> FlowKey {
    let text = format!("{text},actions=drop");
    let parsed = parse_rule(FlowModCommand::Add, &text, &NoPortNames).expect("a legal match");
    let mut key = parsed.matching.key();
    key.set_bridge(BRIDGE.number().into());
    if key.in_port().number() == 0 {
        key.set_in_port(PortNo::new(1));
    }
    if key.field(FieldId::NwTtl) == 0 {
        key.set_field(FieldId::NwTtl, 64);
    }
    let ether_type = key.eth_type();
    set_test_word(&mut key, ether_type, 100);
    key
}

/// Returns a flow-mod request with this command and rule.
pub(crate) fn request(command: FlowModCommand, rule: &str) -> Op {
    let parsed = parse_rule(command, rule, &NoPortNames).expect("a legal rule");
    Op::Apply(BRIDGE, vec![parsed])
}

pub(crate) const BRIDGE: BridgeId = generate::BRIDGES[0];

/// Generates a value in the middle of a test.
pub(crate) fn draw<T: std::fmt::Debug>(
    runner: &mut TestRunner,
    strategy: &impl Strategy<Value = T>,
) -> T {
    strategy.new_tree(runner).expect("nothing is rejected").current()
}
