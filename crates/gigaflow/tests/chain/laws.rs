//! Any chain of entries is a real traversal, in random worlds with every feature.

use proptest::prelude::*;
use shunt_gigaflow::{
    cache::{Config, Fallback},
    ltm::Eviction,
    partition::PolicyName,
};
use shunt_pipeline::testing::generate::{self, Op};

use super::harness::{Bench, config, draw};

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

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Packet(Box<shunt_flow::FlowKey>),
    /// A packet that agrees with one before where an entry says that it must.
    Sibling(prop::sample::Index),
    Change(Op),
    Lose(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => generate::packet().prop_map(|key| Event::Packet(Box::new(key))),
        10 => any::<prop::sample::Index>().prop_map(Event::Sibling),
        2 => generate::op().prop_map(Event::Change),
        1 => any::<u64>().prop_map(Event::Lose),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn a_chain_of_entries_does_what_the_tables_do(
        world in generate::world(),
        config in any_config(),
        (resumes, is_quiet) in any::<(bool, bool)>(),
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut bench = Bench { resumes, is_quiet, ..Bench::new(&world, config) };
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let mut seen = Vec::new();
        for event in events {
            match event {
                Event::Packet(key) => {
                    bench.send(&key);
                    seen.push(*key);
                }
                Event::Sibling(which) => {
                    if seen.is_empty() {
                        continue;
                    }
                    let key: &shunt_flow::FlowKey = which.get(&seen);
                    let mask = (&bench.twin.translate(key).mask).into();
                    let sibling = draw(&mut runner, &generate::sibling(key, &mask));
                    bench.send(&sibling);
                }
                Event::Change(op) => bench.change(&op),
                Event::Lose(choice) => bench.lose(choice),
            }
        }
    }
}
