//! Worlds of bridges for property tests: generators, a model, and the oracle of translation.
//!
//! * [`generate`]: rules, flow-mods, ports and packets over few values, so that rules collide.
//! * [`World`]: bridges as plain lists; applies requests one by one.
//! * [`World::translate`]: the effects of one concrete packet, by linear scans and recursion. It
//!   shares no code with the translation that it tests.
//! * [`execute`]: executes datapath actions on one concrete packet.
//! * [`merged`]: a traversal from its sub-traversals.
//! * [`Twin`]: a pipeline and a world that go through the same changes, of any kind or built by
//!   [`bridge_with_rules`].

mod execute;
mod frame;
pub mod generate;
mod oracle;
mod sub_traversals;
mod twin;
mod world;

pub use execute::execute;
pub use frame::{set_secret, visible};
pub use oracle::{
    Conjunction, LearnEffect, LookupStep, Outcome, PacketEffects, Punted, Refreshed, RuleToLearn,
    Visited,
};
pub use sub_traversals::{merged, traversals};
pub use twin::{Twin, bridge_with_rules};
pub use world::{SeenPorts, World, WorldBridge};

#[cfg(test)]
pub(crate) use drawing::{cases, draw, runner};

/// Values that a test draws while it runs.
#[cfg(test)]
mod drawing {
    use std::fmt::Debug;

    use proptest::{
        strategy::{Strategy, ValueTree},
        test_runner::{Config, TestRunner},
    };

    /// Number of cases per property, unless `SHUNT_CASES_DIVISOR` asks for fewer.
    /// Nothing is written into the source tree.
    pub(crate) fn cases(cases: u32) -> Config {
        let divisor = std::env::var("SHUNT_CASES_DIVISOR").ok().and_then(|text| text.parse().ok());
        let cases = (cases / divisor.unwrap_or(1).max(1)).max(1);
        Config { cases, failure_persistence: None, ..Config::default() }
    }

    /// A source of values that are the same in every run.
    pub(crate) fn runner() -> TestRunner {
        TestRunner::deterministic()
    }

    /// A value of a strategy.
    pub(crate) fn draw<T: Debug>(
        runner: &mut TestRunner,
        strategy: &impl Strategy<Value = T>,
    ) -> T {
        strategy.new_tree(runner).expect("the strategy rejects nothing").current()
    }
}
