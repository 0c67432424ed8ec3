//! Runs all engines side by side, and sets the number of cases of a property.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    iter, panic,
    sync::Arc,
    thread,
};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngSeed, TestRunner},
};
use shunt_kairo::{Definition, Direct};
#[cfg(feature = "dbsp")]
use shunt_kairo::{Relational, Visits};
use shunt_pipeline::{
    Cause, CauseRun, Delta, EntryId, Evictor, Installed, OwnerId, Traversal, Version,
};

/// All engines, which get the same calls and must return the same results.
pub(crate) struct All {
    definition: Definition,
    /// The engines that are compared with the definition.
    /// Each engine must report a true cause for each eviction.
    others: Vec<(&'static str, Box<dyn Evictor>)>,
    bounded: Vec<BoundedEngine>,
    watched: BTreeMap<EntryId, Arc<Traversal>>,
}

/// An engine with a bound that changes exceed, so that it may evict more entries.
struct BoundedEngine {
    name: &'static str,
    engine: Box<dyn Evictor>,
    watched: BTreeSet<EntryId>,
}

impl BoundedEngine {
    /// Creates one engine of each kind, with a bound that some changes exceed.
    fn all(version: Version) -> Vec<Self> {
        let all: Vec<(_, Box<dyn Evictor>)> = vec![
            ("direct, one delta", Box::new(Direct::new(version, 1).with_deltas_max(1))),
            ("direct, two looks", Box::new(Direct::new(version, 1).with_examined_max(2))),
            #[cfg(feature = "dbsp")]
            ("visits, one delta", Box::new(Visits::new(version, 1).with_deltas_max(1))),
            #[cfg(feature = "dbsp")]
            ("visits, two looks", Box::new(Visits::new(version, 1).with_examined_max(2))),
            #[cfg(feature = "dbsp")]
            ("relational, one delta", Box::new(Relational::new(version, 1).with_deltas_max(1))),
            #[cfg(feature = "dbsp")]
            ("relational, two looks", Box::new(Relational::new(version, 1).with_examined_max(2))),
        ];
        let own = |(name, engine)| Self { name, engine, watched: BTreeSet::new() };
        all.into_iter().map(own).collect()
    }

    /// Checks that the engine evicts all stale entries.
    /// All other evicted entries must have visited a changed table.
    fn apply(
        &mut self,
        deltas: &[Delta],
        version: Version,
        expected: &BTreeSet<EntryId>,
        traversals: &BTreeMap<EntryId, Arc<Traversal>>,
    ) {
        let name = self.name;
        let answer = self.engine.apply(deltas, version);
        let evicted: BTreeSet<_> = answer.iter().copied().collect();
        assert_eq!(evicted.len(), answer.len(), "{name}: an entry is evicted once");
        let left: Vec<_> =
            expected.intersection(&self.watched).filter(|own| !evicted.contains(own)).collect();
        assert!(left.is_empty(), "{name}: it leaves {left:?}");
        let places: BTreeSet<_> = deltas
            .iter()
            .filter_map(|delta| match delta {
                Delta::Rule(delta) => Some((delta.rule.bridge, delta.rule.table)),
                Delta::Changed(_) => None,
            })
            .collect();
        for entry in evicted.difference(expected) {
            let mut visits = traversals[entry].visits.iter();
            let is_near = visits.any(|visit| places.contains(&(visit.bridge, visit.table)));
            assert!(is_near, "{name}: {entry} has nothing to do with the change");
        }
        self.watched.retain(|entry| !evicted.contains(entry));
        assert_eq!(self.engine.len(), self.watched.len(), "{name}");
    }
}

/// The name of the engine that always searches projections.
/// The engine of this name does maintenance in small steps.
const BY_MASKS: &str = "direct, by masks";

impl All {
    /// Creates one engine of each kind without entries, at a version.
    pub(crate) fn new(version: Version) -> Self {
        let others: Vec<(_, Box<dyn Evictor>)> = vec![
            ("direct", Box::new(Direct::new(version, 1))),
            (
                BY_MASKS,
                Box::new(Direct::new(version, 1).with_scan_threshold(0).with_maintenance_budget(2)),
            ),
            #[cfg(feature = "dbsp")]
            ("visits", Box::new(Visits::new(version, 1))),
            #[cfg(feature = "dbsp")]
            ("relational", Box::new(Relational::new(version, 1))),
            // In this engine groups are scanned, and maintenance adds projections.
            #[cfg(feature = "dbsp")]
            (
                "relational, one by one",
                Box::new(Relational::new(version, 1).with_scan_threshold(1)),
            ),
            #[cfg(feature = "dbsp")]
            ("relational, by prints", Box::new(Relational::new(version, 1).with_scan_threshold(0))),
        ];
        let (definition, bounded) = (Definition::new(version), BoundedEngine::all(version));
        Self { definition, others, bounded, watched: BTreeMap::new() }
    }

    /// Returns the number of positions in projections, and whether a row is missing.
    ///
    /// The results equal those of the engine that always searches projections.
    pub(crate) fn by_masks(&self) -> (usize, bool) {
        let own = self.others.iter().find(|(name, _)| *name == BY_MASKS);
        let (_, engine) = own.unwrap();
        let state: BTreeMap<_, _> = engine.state().relations.into_iter().collect();
        (state["chained"] - state["visits"], engine.has_backlog())
    }

    /// Returns the result that all engines agree on.
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
        for own in &mut self.bounded {
            assert_eq!(own.engine.installed(entry, traversal), answer, "{}", own.name);
            if answer == Installed::Recorded {
                own.watched.insert(entry);
            }
        }
        answer
    }

    fn removed(&mut self, entry: EntryId) {
        self.agreed(|engine| engine.removed(entry));
        for own in &mut self.bounded {
            own.engine.removed(entry);
            own.watched.remove(&entry);
        }
        self.watched.remove(&entry);
    }

    /// Returns the evicted entries, sorted.
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
                    // The changes of these tests exceed no bound, and no engine fails.
                    Cause::Bound(..) | Cause::Fault => false,
                };
                assert!(is_true, "{name}: {entry} by {cause:?}");
            }
        }
        for own in &mut self.bounded {
            own.apply(deltas, version, &expected, &self.watched);
        }
        self.watched.retain(|entry, _| !expected.contains(entry));
        expected.into_iter().collect()
    }

    fn forget(&mut self, owner: OwnerId) {
        self.agreed(|engine| engine.forget(owner));
        for own in &mut self.bounded {
            own.engine.forget(owner);
            own.watched.retain(|entry| entry.owner != owner);
        }
        self.watched.retain(|entry, _| entry.owner != owner);
    }

    fn run_maintenance(&mut self) -> bool {
        let bounded = self.bounded.iter_mut().map(|own| &mut own.engine);
        let all = self.others.iter_mut().map(|(_, engine)| engine).chain(bounded);
        all.fold(self.definition.run_maintenance(), |more, engine| engine.run_maintenance() | more)
    }

    fn len(&self) -> usize {
        for (name, engine) in &self.others {
            assert_eq!(engine.len(), self.definition.len(), "{name}");
        }
        self.definition.len()
    }
}

/// Returns the cause of each entry, in the order of the evictions.
fn causes_of_each(runs: &[CauseRun]) -> Vec<Cause> {
    runs.iter().flat_map(|run| iter::repeat_n(run.cause, run.count)).collect()
}

/// The numbers of events, by name.
#[derive(Default)]
pub(crate) struct EventCounts(BTreeMap<&'static str, u64>);

impl EventCounts {
    pub(crate) fn add(&mut self, what: &'static str, count: usize) {
        *self.0.entry(what).or_default() += count as u64;
    }

    fn count(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Asserts the least number of each event per thousand changes.
    pub(crate) fn assert_often(&self, all: &[(&str, u64)]) {
        let changes = self.count(CHANGES);
        for (what, least) in all {
            let least = (changes * least / 1000).max(1);
            assert!(self.count(what) >= least, "{what}: not {least} times in {:?}", self.0);
        }
    }

    /// Asserts that `what` happened at most `most` times per hundred events `of`.
    pub(crate) fn assert_at_most(&self, what: &str, most: u64, of: &str) {
        let is_little = self.count(what) * 100 <= self.count(of) * most;
        assert!(is_little, "{what}: more than {most} % of {of} in {:?}", self.0);
    }
}

/// The name of the event that [`run_sequences`] counts.
pub(crate) const CHANGES: &str = "changes";

/// Number of sequences that run before the number of changes is checked again.
const SEQUENCES_PER_ROUND: u32 = 16;

/// Number of threads that run sequences in parallel.
/// Each thread has its own rounds, so that a run can be repeated.
const THREADS: u8 = 2;

/// Runs sequences until they have made a part of the requested changes.
/// `SHUNT_CHANGES` sets the total number of changes.
///
/// The default of `SHUNT_CHANGES` is thirty thousand. Returns the numbers of events.
pub(crate) fn run_sequences<S: Strategy>(
    part: u64,
    sequences: impl Fn() -> S + Sync,
    run_one: impl Fn(S::Value, &mut EventCounts) + Sync,
) -> EventCounts {
    let wanted = number_from_environment("SHUNT_CHANGES")
        .unwrap_or(30_000)
        .div_ceil(part * u64::from(THREADS));
    thread::scope(|scope| {
        let own = |first| {
            let (sequences, run_one) = (&sequences, &run_one);
            scope.spawn(move || run_rounds(first, wanted, &sequences(), run_one))
        };
        let all: Vec<_> = (0..u64::from(THREADS)).map(own).collect();
        let mut met = EventCounts::default();
        for own in all {
            let own = own.join().unwrap_or_else(|failure| panic::resume_unwind(failure));
            own.0.into_iter().for_each(|(what, count)| *met.0.entry(what).or_default() += count);
        }
        met
    })
}

/// Runs the rounds of one thread, from number `first` on.
fn run_rounds<S: Strategy>(
    first: u64,
    wanted: u64,
    sequences: &S,
    run_one: &impl Fn(S::Value, &mut EventCounts),
) -> EventCounts {
    let met = RefCell::new(EventCounts::default());
    for round in (first..).step_by(usize::from(THREADS)) {
        if met.borrow().count(CHANGES) >= wanted {
            break;
        }
        let rng_seed =
            RngSeed::Fixed(number_from_environment("SHUNT_SEED").unwrap_or_default() ^ round << 32);
        let config = Config { cases: SEQUENCES_PER_ROUND, rng_seed, ..cases(1) };
        let ran = TestRunner::new(config).run(sequences, |events| {
            // proptest runs a failing sequence again, so the counts are not locked during a
            // sequence.
            let mut own = EventCounts::default();
            run_one(events, &mut own);
            let counts = own.0.into_iter();
            counts.for_each(|(what, count)| *met.borrow_mut().0.entry(what).or_default() += count);
            Ok(())
        });
        ran.unwrap();
    }
    met.into_inner()
}

/// Reads a number from an environment variable that a soak sets.
fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns a configuration of `usual` cases, which are the same in every run.
///
/// A soak sets other cases by `SHUNT_CASES` and `SHUNT_SEED`.
pub(crate) fn cases(usual: u32) -> Config {
    let cases = number_from_environment("SHUNT_CASES")
        .and_then(|cases| cases.try_into().ok())
        .unwrap_or(usual);
    let rng_seed = RngSeed::Fixed(number_from_environment("SHUNT_SEED").unwrap_or_default());
    Config { cases, rng_seed, failure_persistence: None, ..Config::default() }
}
