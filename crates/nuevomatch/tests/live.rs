//! Tests of a classifier with rules that change while other threads look up keys.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic when a test fails")]

use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use proptest::{collection::vec, prelude::*};
use shunt_nuevomatch::{
    BestMatch, BucketCapacity, Error, FieldMatch, KeySchema, LinearSegments, LiveNuevoMatch,
    LiveSettings, NuevoMatchSettings, PartitionSettings, PriorityRule, RuleUpdate, SegmentSettings,
    StartIndex, StaticTree, TrainerState, UpdatePolicy,
    rqrmi::{CertifiedModel, TrainingSettings},
};

type Rule = PriorityRule<2>;

fn schema() -> KeySchema {
    KeySchema::new(&[32, 16]).unwrap()
}

fn rule(address: u32, length: u32, port: Option<u32>, priority: u32, value: u32) -> Rule {
    let port = port.map_or(FieldMatch::Any, |port| FieldMatch::Exact(port.into()));
    let address = FieldMatch::Prefix { value: address.into(), length };
    Rule::new(&schema(), &[address, port], priority, value).unwrap()
}

fn any_rule() -> impl Strategy<Value = Rule> {
    (0_u32..64, 24_u32..33, prop::option::of(0_u32..3), 0_u32..20, 0_u32..4).prop_map(
        |(address, length, port, priority, value)| rule(address, length, port, priority, value),
    )
}

fn scan(rules: &[Rule], key: &[u32; 2]) -> Option<BestMatch> {
    let matching = rules.iter().filter(|rule| rule.matches(key));
    let (priority, value) = matching.map(|rule| (rule.priority(), rule.value())).min()?;
    Some(BestMatch { priority, value })
}

fn settings(policy: UpdatePolicy) -> LiveSettings {
    let partition = PartitionSettings {
        sets_max: 2,
        bucket_rules: 4,
        spare_percent: 0,
        coverage_permille_min: 10,
    };
    let nuevomatch = NuevoMatchSettings { partition, capacity: BucketCapacity::Fixed, seed: 5 };
    LiveSettings { nuevomatch, policy, ..Default::default() }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Vec<Rule>),
    Remove(usize),
    Rebuild,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => vec(any_rule(), 1..4).prop_map(Op::Insert),
        3 => any::<usize>().prop_map(Op::Remove),
        1 => Just(Op::Rebuild),
    ];
    vec(op, 0..60)
}

/// Returns the settings of a quick training.
///
/// A certificate makes every lookup right, so no samples are needed.
fn quick_training() -> TrainingSettings {
    TrainingSettings { samples: 0, attempts_max: 1, ..TrainingSettings::default() }
}

/// Returns a live classifier with an index.
fn live_classifier<I: StartIndex + Clone>(
    first: &[Rule],
    policy: UpdatePolicy,
    index: I::Settings,
) -> LiveNuevoMatch<2, I> {
    let LiveSettings { nuevomatch, remainder_permille_max, .. } = settings(policy);
    let settings = LiveSettings { nuevomatch, index, policy, remainder_permille_max };
    LiveNuevoMatch::new(&schema(), first, settings).unwrap()
}

fn check<I: StartIndex + Clone>(live: &LiveNuevoMatch<2, I>, rules: &[Rule]) {
    let keys: Vec<[u32; 2]> = (0..70).flat_map(|a| (0..4).map(move |b| [a, b])).collect();
    let mut best = vec![None; keys.len()];
    live.reader().lookup_batch(&keys, &mut best);
    for (key, best) in keys.iter().zip(best) {
        assert_eq!(best, scan(rules, key), "{key:?}");
    }
    assert_eq!(live.statistics().current.rules, rules.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]

    #[test]
    fn instant_changes_equal_a_scan(first in vec(any_rule(), 0..60), ops in ops()) {
        check_instant::<StaticTree>(&first, &ops, ());
        check_instant::<LinearSegments>(&first, &ops, SegmentSettings::default());
        check_instant::<CertifiedModel>(&first, &ops, quick_training());
    }

    /// Tests that insertions become visible at a rebuild, and removals at once.
    #[test]
    fn delayed_changes_become_visible_together(first in vec(any_rule(), 0..60), ops in ops()) {
        check_delayed::<StaticTree>(&first, &ops, ());
        check_delayed::<LinearSegments>(&first, &ops, SegmentSettings::default());
        check_delayed::<CertifiedModel>(&first, &ops, quick_training());
    }
}

/// Applies changes that are visible at once, and compares the results with a scan.
fn check_instant<I: StartIndex + Clone>(first: &[Rule], ops: &[Op], index: I::Settings) {
    let live = live_classifier::<I>(first, UpdatePolicy::Instant, index);
    let mut rules = first.to_vec();
    for op in ops {
        match op {
            Op::Insert(new) => {
                let changes: Vec<_> = new.iter().copied().map(RuleUpdate::Insert).collect();
                assert_eq!(live.apply(&changes), new.len());
                rules.extend(new);
            }
            Op::Remove(at) if !rules.is_empty() => {
                let rule = rules.swap_remove(at % rules.len());
                assert_eq!(live.apply(&[RuleUpdate::Remove(rule)]), 1);
            }
            Op::Remove(_) => {
                assert_eq!(live.apply(&[RuleUpdate::Remove(rule(1, 32, None, 0, 0))]), 0);
            }
            Op::Rebuild => live.rebuild().unwrap(),
        }
        check(&live, &rules);
    }
}

/// Compares changes that become visible at a rebuild with a scan.
fn check_delayed<I: StartIndex + Clone>(first: &[Rule], ops: &[Op], index: I::Settings) {
    let live = live_classifier::<I>(first, UpdatePolicy::Delayed, index);
    let (mut rules, mut pending) = (first.to_vec(), Vec::new());
    for op in ops {
        match op {
            Op::Insert(new) => {
                let changes: Vec<_> = new.iter().copied().map(RuleUpdate::Insert).collect();
                assert_eq!(live.apply(&changes), new.len());
                pending.extend(new);
            }
            Op::Remove(at) if at % 2 == 0 && !pending.is_empty() => {
                let rule = pending.swap_remove(at % pending.len());
                assert_eq!(live.apply(&[RuleUpdate::Remove(rule)]), 1);
            }
            Op::Remove(at) if !rules.is_empty() => {
                let rule = rules[at % rules.len()];
                assert_eq!(live.apply(&[RuleUpdate::Remove(rule)]), 1);
                // If several equal rules exist, a pending one is removed.
                match pending.iter().position(|other| *other == rule) {
                    Some(at) => pending.swap_remove(at),
                    None => rules.swap_remove(at % rules.len()),
                };
            }
            Op::Remove(_) => {}
            Op::Rebuild => {
                live.rebuild().unwrap();
                rules.append(&mut pending);
            }
        }
        check(&live, &rules);
        assert_eq!(live.statistics().pending, pending.len());
    }
}

/// Tests that readers never see an older rule than the last one before a lookup.
#[test]
fn lookups_during_changes_and_rebuilds_are_never_stale() {
    let background: Vec<Rule> = (0..500).map(|i| rule(1000 + i, 32, None, 9, i)).collect();
    let live = Arc::new(
        LiveNuevoMatch::<2>::new(&schema(), &background, settings(UpdatePolicy::Instant)).unwrap(),
    );
    let trainer = live.spawn_trainer().unwrap();
    let (begun, returned) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let is_over = Arc::new(AtomicBool::new(false));
    let start = Arc::new(Barrier::new(3));
    live.apply(&[RuleUpdate::Insert(rule(7, 32, None, 1_000_000, 0))]);
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (reader, is_over) = (live.reader(), Arc::clone(&is_over));
            let (begun, returned) = (Arc::clone(&begun), Arc::clone(&returned));
            let start = Arc::clone(&start);
            thread::spawn(move || {
                let mut last = 0;
                start.wait();
                while !is_over.load(Ordering::Acquire) {
                    let least = returned.load(Ordering::Acquire);
                    let mut best = [None; 3];
                    reader.lookup_batch(&[[7, 1], [1003, 2], [7, 2]], &mut best);
                    let most = begun.load(Ordering::Acquire);
                    let value = best[0].unwrap().value;
                    assert_eq!(best[0], best[2], "a batch sees one state");
                    assert!((least..=most).contains(&value), "{least} {value} {most}");
                    assert_eq!(best[1], Some(BestMatch { priority: 9, value: 3 }));
                    assert!(last <= value, "{last} {value}: lookups go forward");
                    last = value;
                }
            })
        })
        .collect();
    start.wait();
    // A newer rule has a better priority. The same change removes the older rule.
    for version in 1..2000 {
        begun.store(version, Ordering::Release);
        let spread = rule(5000 + version, 31, Some(version % 7), 5, version);
        let changes = [
            RuleUpdate::Insert(rule(7, 32, None, 1_000_000 - version, version)),
            RuleUpdate::Remove(rule(7, 32, None, 1_000_001 - version, version - 1)),
            RuleUpdate::Insert(spread),
        ];
        assert_eq!(live.apply(&changes), 3);
        returned.store(version, Ordering::Release);
    }
    live.rebuild().unwrap();
    is_over.store(true, Ordering::Release);
    for reader in readers {
        reader.join().unwrap();
    }
    assert!(live.statistics().rebuilds > 0);
    drop(trainer);
    assert_eq!(live.statistics().trainer, TrainerState::Absent);
}

/// Waits until the condition holds, for a bounded number of yields.
fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..50_000_000_u64 {
        if condition() {
            return;
        }
        thread::yield_now();
    }
    assert!(condition(), "the other thread does not get there");
}

#[test]
fn a_trainer_makes_delayed_rules_visible() {
    let live = LiveNuevoMatch::<2>::new(&schema(), &[], settings(UpdatePolicy::Delayed)).unwrap();
    let reader = live.reader();
    let _trainer = live.spawn_trainer().unwrap();
    let changes: Vec<_> = (0..100).map(|i| RuleUpdate::Insert(rule(i, 32, None, 1, i))).collect();
    live.apply(&changes);
    wait_until(|| reader.lookup(&[99, 0]).is_some());
    let mut best = vec![None; 100];
    let keys: Vec<[u32; 2]> = (0..100).map(|i| [i, 0]).collect();
    reader.lookup_batch(&keys, &mut best);
    assert!((0..).zip(best).all(|(i, best)| best == Some(BestMatch { priority: 1, value: i })));
    wait_until(|| live.statistics().pending == 0);
}

/// A trainer measures its rebuilds only if it gets a clock.
#[test]
fn rebuilds_are_timed_by_the_given_clock() {
    let live = LiveNuevoMatch::<2>::new(&schema(), &[], settings(UpdatePolicy::Delayed)).unwrap();
    let ticks = AtomicU32::new(0);
    let clock =
        move || Duration::from_millis(u64::from(ticks.fetch_add(1, Ordering::Relaxed)) * 250);
    let trainer = live.spawn_timed_trainer(clock).unwrap();
    live.apply(&[RuleUpdate::Insert(rule(1, 32, None, 1, 1))]);
    wait_until(|| live.statistics().rebuild_time.is_some());
    assert_eq!(live.statistics().rebuild_time, Some(Duration::from_millis(250)));
    drop(trainer);
    let _trainer = live.spawn_trainer().unwrap();
    live.apply(&[RuleUpdate::Insert(rule(2, 32, None, 1, 2))]);
    wait_until(|| live.statistics().rebuild_time.is_none());
    assert_eq!(live.statistics().rebuilds, 2);
}

/// An index with builds that panic or wait when a test requests it.
#[derive(Clone, Debug)]
struct ControlledIndex(StaticTree);

/// The requests of a test for the builds of its index.
#[derive(Clone, Debug, Default)]
struct BuildControl {
    /// True if the next builds panic.
    panics: Arc<AtomicBool>,
    /// True if the next builds fail, as if there were too many starts.
    refuses: Arc<AtomicBool>,
    /// A build waits while the test holds this lock.
    gate: Arc<Mutex<()>>,
    /// True from the first build on, until the test resets it.
    is_waiting: Arc<AtomicBool>,
}

impl StartIndex for ControlledIndex {
    type Settings = BuildControl;

    fn build(starts: &[u32], control: &BuildControl) -> Result<Self, Error> {
        assert!(!control.panics.load(Ordering::Acquire), "the trainer is killed");
        if control.refuses.load(Ordering::Acquire) {
            return Err(Error::TooManyStarts { starts: starts.len(), max: 0 });
        }
        control.is_waiting.store(true, Ordering::Release);
        drop(control.gate.lock());
        Ok(Self(StaticTree::build(starts, &())?))
    }

    fn find_batch(&self, keys: &[u32], positions: &mut [u32]) {
        self.0.find_batch(keys, positions);
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

fn controlled_classifier(
    policy: UpdatePolicy,
) -> (BuildControl, LiveNuevoMatch<2, ControlledIndex>) {
    let control = BuildControl::default();
    let rules: Vec<Rule> = (0..50).map(|i| rule(i, 32, None, 1, i)).collect();
    let live = live_classifier(&rules, policy, control.clone());
    (control, live)
}

#[test]
fn a_dead_trainer_is_reported_and_changes_nothing() {
    let (control, live) = controlled_classifier(UpdatePolicy::Delayed);
    let trainer = live.spawn_trainer().unwrap();
    control.panics.store(true, Ordering::Release);
    live.apply(&[RuleUpdate::Insert(rule(100, 32, None, 1, 100))]);
    wait_until(|| live.statistics().trainer == TrainerState::Died);
    let reader = live.reader();
    assert_eq!(reader.lookup(&[9, 0]), Some(BestMatch { priority: 1, value: 9 }));
    assert_eq!(reader.lookup(&[100, 0]), None);
    assert_eq!(live.apply(&[RuleUpdate::Remove(rule(9, 32, None, 1, 9))]), 1);
    assert_eq!(reader.lookup(&[9, 0]), None);
    let statistics = live.statistics();
    assert_eq!((statistics.pending, statistics.rebuilds, statistics.rebuild_errors), (1, 0, 1));
    drop(trainer);
    // After the panic, another trainer is started.
    control.panics.store(false, Ordering::Release);
    let _trainer = live.spawn_trainer().unwrap();
    live.apply(&[]);
    wait_until(|| reader.lookup(&[100, 0]).is_some());
}

/// An index that cannot number its starts is an error of the build, and no panic.
#[test]
fn too_many_starts_keep_the_old_classifier() {
    for policy in [UpdatePolicy::Instant, UpdatePolicy::Delayed] {
        let (control, live) = controlled_classifier(policy);
        live.apply(&[RuleUpdate::Insert(rule(100, 32, None, 1, 100))]);
        control.refuses.store(true, Ordering::Release);
        let error = live.rebuild().unwrap_err();
        assert!(matches!(error, Error::TooManyStarts { starts: 1.., max: 0 }), "{error}");
        let reader = live.reader();
        let is_found = |address| reader.lookup(&[address, 0]).is_some();
        assert!((0..50).all(is_found));
        assert_eq!(is_found(100), policy == UpdatePolicy::Instant);
        control.refuses.store(false, Ordering::Release);
        live.rebuild().unwrap();
        assert!((0..50).chain([100]).all(is_found));
        assert_eq!(live.statistics().rebuild_errors, 1);
    }
}

/// Tests that changes during a rebuild are replayed before the swap.
#[test]
fn changes_during_a_rebuild_are_replayed() {
    for policy in [UpdatePolicy::Instant, UpdatePolicy::Delayed] {
        let (control, live) = controlled_classifier(policy);
        live.apply(&[100, 101].map(|i| RuleUpdate::Insert(rule(i, 32, None, 1, i))));
        control.is_waiting.store(false, Ordering::Release);
        let reader = live.reader();
        thread::scope(|scope| {
            let gate = control.gate.lock().unwrap();
            let rebuild = scope.spawn(|| live.rebuild());
            wait_until(|| control.is_waiting.load(Ordering::Acquire));
            let changes = [
                RuleUpdate::Remove(rule(7, 32, None, 1, 7)),
                RuleUpdate::Remove(rule(100, 32, None, 1, 100)),
                RuleUpdate::Insert(rule(102, 32, None, 1, 102)),
            ];
            assert_eq!(live.apply(&changes), 3);
            assert_eq!(reader.lookup(&[7, 0]), None, "a removal is visible at once");
            drop(gate);
            rebuild.join().unwrap().unwrap();
        });
        let is_found = |address| reader.lookup(&[address, 0]).is_some();
        assert_eq!([7, 8, 100, 101].map(is_found), [false, true, false, true], "{policy:?}");
        assert_eq!(is_found(102), policy == UpdatePolicy::Instant);
        live.rebuild().unwrap();
        assert!(is_found(102));
    }
}
