//! All engines, side by side, and how often a property is tried.

use std::{collections::BTreeSet, sync::Arc};

use proptest::test_runner::{Config, RngSeed};
use shunt_kairo::{Definition, Direct};
#[cfg(feature = "dbsp")]
use shunt_kairo::{Relational, Visits};
use shunt_pipeline::{Delta, EntryId, Evictor, Installed, OwnerId, Traversal, Version};

/// Engines that go through the same, and have to say the same.
pub(crate) struct All(Vec<(&'static str, Box<dyn Evictor>)>);

impl All {
    /// Each without entries, at a version; the first is the definition.
    pub(crate) fn new(version: Version) -> Self {
        Self(vec![
            ("definition", Box::new(Definition::new(version))),
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
        ])
    }

    /// What all answer.
    fn agreed<T: PartialEq + std::fmt::Debug>(&mut self, ask: impl Fn(&mut dyn Evictor) -> T) -> T {
        let (first, others) = self.0.split_first_mut().unwrap();
        let expected = ask(&mut *first.1);
        for (name, engine) in others {
            assert_eq!(ask(&mut **engine), expected, "{name}");
        }
        expected
    }
}

impl Evictor for All {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        self.agreed(|engine| engine.installed(entry, traversal))
    }

    fn removed(&mut self, entry: EntryId) {
        self.agreed(|engine| engine.removed(entry));
    }

    /// In order.
    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        let evicted = self.agreed(|engine| {
            let all = engine.apply(deltas, version);
            let set: BTreeSet<_> = all.iter().copied().collect();
            assert_eq!(set.len(), all.len(), "an entry is evicted once");
            set
        });
        evicted.into_iter().collect()
    }

    fn forget(&mut self, owner: OwnerId) {
        self.agreed(|engine| engine.forget(owner));
    }

    fn tidy(&mut self) -> bool {
        self.0.iter_mut().fold(false, |more, (_, engine)| engine.tidy() | more)
    }

    fn len(&self) -> usize {
        let all: BTreeSet<_> = self.0.iter().map(|(_, engine)| engine.len()).collect();
        assert_eq!(all.len(), 1, "all watch the same entries");
        all.into_iter().next().unwrap()
    }
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
