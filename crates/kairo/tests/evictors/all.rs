//! All engines, side by side, and how often a property is tried.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    sync::Arc,
};

use proptest::test_runner::{Config, RngSeed};
use shunt_kairo::{Definition, Direct};
#[cfg(feature = "dbsp")]
use shunt_kairo::{Relational, Visits};
use shunt_pipeline::{
    Cause, CauseRun, Delta, EntryId, Evictor, Installed, OwnerId, Traversal, Version,
};

/// Engines that go through the same, and have to say the same.
pub(crate) struct All {
    definition: Definition,
    /// Those that are held against it. Each says of all that it evicts why it goes.
    others: Vec<(&'static str, Box<dyn Evictor>)>,
    watched: BTreeMap<EntryId, Arc<Traversal>>,
}

impl All {
    /// Each without entries, at a version.
    pub(crate) fn new(version: Version) -> Self {
        let others: Vec<(_, Box<dyn Evictor>)> = vec![
            ("direct", Box::new(Direct::new(version, 1))),
            #[cfg(feature = "dbsp")]
            ("visits", Box::new(Visits::new(version, 1))),
            #[cfg(feature = "dbsp")]
            ("relational", Box::new(Relational::new(version, 1))),
            // Groups are looked through, and projected when nobody waits.
            #[cfg(feature = "dbsp")]
            ("relational, one by one", Box::new(Relational::new(version, 1).with_few(1))),
            #[cfg(feature = "dbsp")]
            ("relational, by prints", Box::new(Relational::new(version, 1).with_few(0))),
        ];
        Self { definition: Definition::new(version), others, watched: BTreeMap::new() }
    }

    /// What all answer.
    fn agreed<T: PartialEq + std::fmt::Debug>(&mut self, ask: impl Fn(&mut dyn Evictor) -> T) -> T {
        let expected = ask(&mut self.definition);
        for (name, engine) in &mut self.others {
            assert_eq!(ask(&mut **engine), expected, "{name}");
        }
        expected
    }
}

impl Evictor for All {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        let answer = self.agreed(|engine| engine.installed(entry, traversal));
        if answer == Installed::Recorded {
            self.watched.insert(entry, Arc::clone(traversal));
        }
        answer
    }

    fn removed(&mut self, entry: EntryId) {
        self.agreed(|engine| engine.removed(entry));
        self.watched.remove(&entry);
    }

    /// In order.
    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        let expected: BTreeSet<_> = self.definition.apply(deltas, version).into_iter().collect();
        for (name, engine) in &mut self.others {
            let evicted = engine.apply(deltas, version);
            let set: BTreeSet<_> = evicted.iter().copied().collect();
            assert_eq!(set.len(), evicted.len(), "{name}: an entry is evicted once");
            assert_eq!(set, expected, "{name}");
            let causes = causes_of_each(engine.causes());
            assert_eq!(causes.len(), evicted.len(), "{name}: each has a cause");
            for (entry, cause) in evicted.iter().zip(causes) {
                let traversal = &self.watched[entry];
                let is_true = match cause {
                    Cause::Delta(number) => self.definition.is_cause(number, deltas, traversal),
                    // No change here is too much, and no engine fails.
                    Cause::Bound(..) | Cause::Fault => false,
                };
                assert!(is_true, "{name}: {entry} by {cause:?}");
            }
        }
        self.watched.retain(|entry, _| !expected.contains(entry));
        expected.into_iter().collect()
    }

    fn forget(&mut self, owner: OwnerId) {
        self.agreed(|engine| engine.forget(owner));
        self.watched.retain(|entry, _| entry.owner != owner);
    }

    fn tidy(&mut self) -> bool {
        let all = self.others.iter_mut();
        all.fold(self.definition.tidy(), |more, (_, engine)| engine.tidy() | more)
    }

    fn len(&self) -> usize {
        for (name, engine) in &self.others {
            assert_eq!(engine.len(), self.definition.len(), "{name}");
        }
        self.definition.len()
    }
}

/// The cause of each entry, in the order of an engine's answer.
fn causes_of_each(runs: &[CauseRun]) -> Vec<Cause> {
    runs.iter().flat_map(|run| iter::repeat_n(run.cause, run.count)).collect()
}

/// A number of the environment: a soak sets some.
pub(crate) fn said(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// So many cases, the same in every run; or as many as `SHUNT_CASES` says with the seed of
/// `SHUNT_SEED`: for a soak.
pub(crate) fn cases(usual: u32) -> Config {
    let cases = said("SHUNT_CASES").and_then(|cases| cases.try_into().ok()).unwrap_or(usual);
    let rng_seed = RngSeed::Fixed(said("SHUNT_SEED").unwrap_or_default());
    Config { cases, rng_seed, failure_persistence: None, ..Config::default() }
}
