//! Generators, a model of bridges, and the oracle of translation, for property tests.
//!
//! * [`generate`]: rules, flow-mods, ports and packets over few values, so that rules collide.
//! * [`NetworkModel`]: the model of bridges as plain lists, which applies requests one by one.
//! * [`NetworkModel::translate`]: the effects of one concrete packet, by linear scans and
//!   recursion. The oracle shares no code with the translation under test.
//! * [`execute`]: executes datapath actions on one concrete packet.
//! * [`merged`]: a traversal from its sub-traversals.
//! * [`CheckedPipeline`]: a pipeline and a [`NetworkModel`] that get the same changes, random or
//!   built by [`bridge_with_rules`].

mod checked_pipeline;
mod execute;
mod frame;
pub mod generate;
mod network_model;
mod oracle;
mod sub_traversals;

pub use checked_pipeline::{CheckedPipeline, bridge_with_rules};
pub use execute::execute;
pub use frame::{set_test_word, visible};
pub use network_model::{BridgeModel, NetworkModel, SeenPorts};
pub use oracle::{
    Conjunction, LearnEffect, LookupStep, Outcome, PacketEffects, Punted, Refreshed, RuleToLearn,
    Visited,
};
pub use sub_traversals::{merged, traversals};

#[cfg(test)]
pub(crate) use drawing::{cases, draw, runner};

/// Random values that a test takes while it runs.
#[cfg(test)]
mod drawing {
    use std::fmt::Debug;

    use proptest::{
        strategy::{Strategy, ValueTree},
        test_runner::{Config, TestRunner},
    };

    /// Number of cases per property, unless `SHUNT_CASES_DIVISOR` asks for fewer.
    /// Failing cases are not written into the source tree.
    pub(crate) fn cases(cases: u32) -> Config {
        let divisor = std::env::var("SHUNT_CASES_DIVISOR").ok().and_then(|text| text.parse().ok());
        let cases = (cases / divisor.unwrap_or(1).max(1)).max(1);
        Config { cases, failure_persistence: None, ..Config::default() }
    }

    /// Returns a source of random values that are the same in every run.
    pub(crate) fn runner() -> TestRunner {
        TestRunner::deterministic()
    }

    /// Returns a random value of a strategy.
    pub(crate) fn draw<T: Debug>(
        runner: &mut TestRunner,
        strategy: &impl Strategy<Value = T>,
    ) -> T {
        strategy.new_tree(runner).expect("the strategy rejects nothing").current()
    }
}
