//! Any chain of entries is a real traversal. The pipelines are random, and have every feature.

use std::cell::Cell;

use proptest::{
    prelude::*,
    test_runner::{RngSeed, TestRunner},
};
use shunt_flow::layout::HEADER_START;
use shunt_gigaflow::{
    cache::{Config, Fallback},
    ltm::Eviction,
    partition::PolicyName,
};
use shunt_pipeline::testing::generate::{self, Op};

use super::harness::{ChainFixture, Tally, config, draw};

fn any_config() -> impl Strategy<Value = Config> {
    let capacity = (1u8..=5, prop_oneof![1usize..=4, Just(1000)]);
    let rest = (
        0..Eviction::ALL.len(),
        prop_oneof![Just(Fallback::Off), Just(Fallback::OneIn(3))],
        1u8..=8,
    );
    (prop::sample::select(&PolicyName::ALL[..]), capacity, rest).prop_map(
        |(policy, (stages, entries), (eviction, fallback, tag_bits))| Config {
            eviction: Eviction::ALL[eviction],
            fallback,
            tag_bits,
            ..config(policy, stages, entries)
        },
    )
}

/// An event of a random test case.
#[derive(Clone, Debug)]
enum Event {
    Packet(Box<shunt_flow::FlowKey>),
    /// A packet that equals an earlier packet under the mask of its traversal.
    Sibling(prop::sample::Index),
    Change(Op),
    Lose(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => generate::packet().prop_map(|key| Event::Packet(Box::new(key))),
        10 => any::<prop::sample::Index>().prop_map(Event::Sibling),
        2 => generate::change().prop_map(Event::Change),
        1 => any::<u64>().prop_map(Event::Lose),
    ]
}

/// A test case: pipeline, cache, the flags `resumes` and `finds_dead`, and events.
type Case = (Vec<Op>, Config, (bool, bool), Vec<Event>);

/// The counts of events, summed over all test cases.
#[derive(Clone, Copy, Debug, Default)]
struct LawTally {
    tally: Tally,
    resumed: usize,
    evicted: u64,
}

impl LawTally {
    fn add(&mut self, fixture: &ChainFixture) {
        let Tally { hits, chains, left, changes, stale } = fixture.tally;
        for (sum, count) in [
            (&mut self.tally.hits, hits),
            (&mut self.tally.chains, chains),
            (&mut self.tally.left, left),
            (&mut self.tally.changes, changes),
            (&mut self.tally.stale, stale),
            (&mut self.resumed, fixture.resumed),
        ] {
            *sum += count;
        }
        self.evicted += fixture.cache.counts().evicted;
    }

    /// Checks that the cases had enough hits, changes, evictions and resumed packets.
    fn check(&self) {
        let Tally { hits, chains, left, changes, stale } = self.tally;
        assert!(hits > 1000 && chains > 80 && left > 300, "{self:?}");
        assert!(changes > 150 && stale > 20, "{self:?}");
        assert!(self.resumed > 4 && self.evicted > 80, "{self:?}");
    }
}

#[test]
fn chain_of_entries_does_what_tables_do() {
    // A traversal of one table is one sub-traversal, so half of the pipelines have several tables.
    let network = prop_oneof![generate::network().boxed(), generate::goto_network().boxed()];
    let any_case =
        (network, any_config(), any::<(bool, bool)>(), prop::collection::vec(event(), 1..40));
    let sum = Cell::new(LawTally::default());
    // The default seed is fixed, so that the counts of all runs are equal.
    let seed = std::env::var("SHUNT_SEED").ok().and_then(|seed| seed.parse().ok());
    let rng_seed = RngSeed::Fixed(seed.unwrap_or_default());
    let config =
        ProptestConfig { cases: 320, rng_seed, failure_persistence: None, ..Default::default() };
    let invariant = |case| {
        let mut total = sum.get();
        total.add(&run_events(case));
        sum.set(total);
        Ok(())
    };
    TestRunner::new(config).run(&any_case, invariant).unwrap();
    sum.get().check();
}

/// Runs the events of a test case.
///
/// The fixture compares every packet with the oracle.
fn run_events((network, config, (resumes, finds_dead), events): Case) -> ChainFixture {
    let mut fixture = ChainFixture { resumes, finds_dead, ..ChainFixture::new(&network, config) };
    let mut runner = TestRunner::deterministic();
    let mut sent = Vec::new();
    for event in events {
        match event {
            Event::Packet(key) => {
                fixture.send(&key);
                sent.push(*key);
            }
            Event::Sibling(which) => {
                if sent.is_empty() {
                    continue;
                }
                let key: &shunt_flow::FlowKey = which.get(&sent);
                let mask = (&fixture.checked.translate(key).mask).into();
                let mut sibling = draw(&mut runner, &generate::sibling(key, &mask));
                // The traversal of a packet that arrives with hidden state is never cached.
                let hidden = ..HEADER_START;
                sibling.words_mut()[hidden].copy_from_slice(&key.words()[hidden]);
                fixture.send(&sibling);
            }
            Event::Change(op) => fixture.change(&op),
            Event::Lose(choice) => fixture.lose(choice),
        }
    }
    fixture
}
