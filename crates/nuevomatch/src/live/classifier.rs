//! The writer of a live classifier: changes, rebuilds, and the replay of changes.
//!
//! A rebuild copies the rules and builds a new classifier without a lock. At the end of a rebuild,
//! the changes that were made meanwhile are replayed on the new classifier. After the replay both
//! classifiers have equal rules, so readers may use either of them during the swap.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    double_buffer::DoubleBuffer,
    reader::LiveReader,
    statistics::{LiveStatistics, TrainerState},
    trainer::{Clock, Trainer},
};
use crate::{
    Error, KeySchema, NuevoMatch, NuevoMatchSettings, PriorityRule, StartIndex, StaticTree,
};

/// The time at which an inserted rule becomes visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdatePolicy {
    /// An inserted rule is visible at once: in a bucket with room, or in the remainder.
    #[default]
    Instant,
    /// Inserted rules become visible together, after the next rebuild.
    /// Removals are visible at once.
    Delayed,
}

/// Settings of a [`LiveNuevoMatch`].
#[derive(Clone, Debug)]
pub struct LiveSettings<S = ()> {
    /// The settings of each build.
    pub nuevomatch: NuevoMatchSettings,
    /// The settings of the indexes over starts.
    pub index: S,
    /// The policy for the time at which an inserted rule becomes visible.
    pub policy: UpdatePolicy,
    /// Share of rules in the remainder from which a rebuild is due, in permille.
    pub remainder_permille_max: usize,
}

impl<S: Default> Default for LiveSettings<S> {
    fn default() -> Self {
        Self {
            nuevomatch: NuevoMatchSettings::default(),
            index: S::default(),
            policy: UpdatePolicy::default(),
            remainder_permille_max: 100,
        }
    }
}

/// One change of the rules of a live classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleUpdate<const N: usize> {
    /// Adds a rule to the classifier.
    Insert(PriorityRule<N>),
    /// Removes a rule that equals this rule.
    Remove(PriorityRule<N>),
}

/// A classifier with rules that change while other threads look up keys.
///
/// ```
/// use shunt_nuevomatch::{
///     FieldMatch, KeySchema, LiveNuevoMatch, LiveSettings, PriorityRule, RuleUpdate,
/// };
///
/// let schema = KeySchema::new(&[32])?;
/// let live = LiveNuevoMatch::<1>::new(&schema, &[], LiveSettings::default())?;
/// let reader = live.reader();
/// let rule = PriorityRule::new(&schema, &[FieldMatch::Exact(7)], 0, 42)?;
/// assert_eq!(live.apply(&[RuleUpdate::Insert(rule)]), 1);
/// assert_eq!(reader.lookup(&[7]).map(|best| best.value), Some(42));
/// live.rebuild()?;
/// assert_eq!(reader.lookup(&[7]).map(|best| best.value), Some(42));
/// # Ok::<(), shunt_nuevomatch::Error>(())
/// ```
#[derive(Debug)]
pub struct LiveNuevoMatch<const N: usize, I: StartIndex = StaticTree> {
    shared: Arc<Shared<N, I>>,
}

/// The data that the classifier shares with the trainer thread.
#[derive(Debug)]
pub(super) struct Shared<const N: usize, I: StartIndex> {
    schema: KeySchema,
    settings: LiveSettings<I::Settings>,
    copies: Arc<DoubleBuffer<NuevoMatch<N, I>>>,
    writer: Mutex<LiveWriter<N>>,
    /// Signals that a rebuild may be due, or that the trainer must stop.
    pub(super) due: Condvar,
    /// Locked during a rebuild, so that at most one rebuild runs.
    rebuilding: Mutex<()>,
}

/// The data that only the writer uses. The classifier has one writer at a time.
#[derive(Debug, Default)]
pub(super) struct LiveWriter<const N: usize> {
    /// Inserted rules that are not visible yet, with [`UpdatePolicy::Delayed`].
    pending: Vec<PriorityRule<N>>,
    /// Pending rules that the running rebuild makes visible.
    training: Vec<PriorityRule<N>>,
    /// The visible changes since the running rebuild copied the rules.
    log: Option<Vec<RuleUpdate<N>>>,
    /// Number of rules that the last build left in the remainder.
    remainder_built: usize,
    /// Number of complete rebuilds.
    rebuilds: u64,
    /// Number of rebuilds that failed.
    rebuild_errors: u64,
    /// Time of the last rebuild by a trainer with a clock.
    pub(super) rebuild_time: Option<Duration>,
    /// The state of the trainer thread.
    pub(super) trainer: TrainerState,
    /// True if the trainer thread must stop.
    pub(super) stops: bool,
}

impl<const N: usize, I: StartIndex + Clone> LiveNuevoMatch<N, I> {
    /// Builds the first classifier.
    ///
    /// # Errors
    ///
    /// The errors of [`NuevoMatch::build`].
    pub fn new(
        schema: &KeySchema,
        rules: &[PriorityRule<N>],
        settings: LiveSettings<I::Settings>,
    ) -> Result<Self, Error> {
        let first = NuevoMatch::build_with(schema, rules, &settings.nuevomatch, &settings.index)?;
        let remainder_built = first.remainder_len();
        let shared = Shared {
            schema: schema.clone(),
            settings,
            copies: Arc::new(DoubleBuffer::new(first)),
            writer: Mutex::new(LiveWriter { remainder_built, ..LiveWriter::default() }),
            due: Condvar::new(),
            rebuilding: Mutex::new(()),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns a reader for another thread.
    #[must_use]
    pub fn reader(&self) -> LiveReader<N, I> {
        LiveReader::new(Arc::clone(&self.shared.copies))
    }

    /// Applies changes in order, and returns the number of changes with an effect.
    ///
    /// The removal of a rule that does not exist and a rule of another schema have no effect. A
    /// batch of a reader sees all of the changes or none, except delayed insertions.
    pub fn apply(&self, changes: &[RuleUpdate<N>]) -> usize {
        self.shared.apply(changes)
    }

    /// Rebuilds the classifier on this thread. Pending rules become visible together.
    ///
    /// # Errors
    ///
    /// The errors of [`NuevoMatch::build`]. The visible rules are unchanged then, and pending rules
    /// stay pending.
    pub fn rebuild(&self) -> Result<(), Error> {
        self.shared.rebuild()
    }

    /// Starts a thread that rebuilds the classifier whenever a rebuild is due.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot start a thread.
    pub fn spawn_trainer(&self) -> std::io::Result<Trainer<N, I>>
    where
        I: 'static,
        I::Settings: Send + Sync,
    {
        Trainer::spawn(Arc::clone(&self.shared), None)
    }

    /// Starts a thread like [`Self::spawn_trainer`], and measures rebuilds.
    ///
    /// The clock returns the time since any fixed moment. [`LiveStatistics::rebuild_time`] has the
    /// time of the last rebuild.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot start a thread.
    pub fn spawn_timed_trainer(
        &self,
        clock: impl Fn() -> Duration + Send + 'static,
    ) -> std::io::Result<Trainer<N, I>>
    where
        I: 'static,
        I::Settings: Send + Sync,
    {
        let clock: Clock = Box::new(clock);
        Trainer::spawn(Arc::clone(&self.shared), Some(clock))
    }

    /// Returns the sizes and counters of the classifier.
    #[must_use]
    pub fn statistics(&self) -> LiveStatistics {
        let writer = self.shared.lock();
        LiveStatistics {
            current: self.shared.copies.read(NuevoMatch::statistics),
            pending: writer.pending.len() + writer.training.len(),
            rebuilds: writer.rebuilds,
            rebuild_errors: writer.rebuild_errors,
            rebuild_time: writer.rebuild_time,
            trainer: writer.trainer.clone(),
        }
    }
}

impl<const N: usize, I: StartIndex + Clone> Shared<N, I> {
    /// Locks the data of the writer.
    /// The data is consistent even after a panic of another writer.
    pub(super) fn lock(&self) -> MutexGuard<'_, LiveWriter<N>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies changes to all copies; returns how many had an effect.
    fn apply(&self, changes: &[RuleUpdate<N>]) -> usize {
        let mut writer = self.lock();
        let (mut effects, visible) = match self.settings.policy {
            UpdatePolicy::Instant => (0, None),
            UpdatePolicy::Delayed => {
                let (effects, visible) = writer.take_delayed(changes);
                (effects, Some(visible))
            }
        };
        let visible = visible.as_deref().unwrap_or(changes);
        if !visible.is_empty() {
            effects += self.copies.update(|classifier| {
                visible.iter().filter(|change| change.apply(classifier)).count()
            });
            if let Some(log) = &mut writer.log {
                log.extend_from_slice(visible);
            }
        }
        drop(writer);
        self.due.notify_one();
        effects
    }

    /// Returns whether a rebuild is due.
    pub(super) fn is_due(&self, writer: &LiveWriter<N>) -> bool {
        let (remainder, rules) =
            self.copies.read(|classifier| (classifier.remainder_len(), classifier.len()));
        // Rules that no iSet can hold remain after a rebuild, and do not make another rebuild due.
        let is_new = remainder > writer.remainder_built + writer.remainder_built / 2;
        let is_large = remainder * 1000 > rules * self.settings.remainder_permille_max;
        !writer.pending.is_empty() || is_large && is_new && remainder >= REMAINDER_RULES_MIN
    }

    /// Builds a new classifier from the rules, and puts it into use.
    pub(super) fn rebuild(&self) -> Result<(), Error> {
        let _only = self.rebuilding.lock().unwrap_or_else(PoisonError::into_inner);
        let mut attempt = Attempt { shared: self, is_complete: false };
        let rules = {
            let mut writer = self.lock();
            let pending = writer.pending.len();
            let mut rules = self.copies.read(|classifier| classifier.rules_and_room(pending))?;
            writer.training = std::mem::take(&mut writer.pending);
            writer.log = Some(Vec::new());
            rules.extend_from_slice(&writer.training);
            rules
        };
        let LiveSettings { nuevomatch, index, .. } = &self.settings;
        let built = NuevoMatch::build_with(&self.schema, &rules, nuevomatch, index);
        drop(rules);
        let mut copies = built.map(|built| [built.clone(), built])?;
        let mut writer = self.lock();
        let log = writer.log.take().unwrap_or_default();
        for copy in &mut copies {
            log.iter().for_each(|change| {
                change.apply(copy);
            });
        }
        writer.remainder_built = copies[0].remainder_len();
        let mut copies = copies.into_iter();
        self.copies.update(|classifier| {
            // `copies` has one copy for each of the two classifiers.
            if let Some(copy) = copies.next() {
                *classifier = copy;
            }
        });
        writer.training.clear();
        writer.rebuilds += 1;
        attempt.is_complete = true;
        Ok(())
    }
}

/// A rebuild that is in progress.
///
/// If the rebuild ends early, by an error or a panic, its rules become pending again.
struct Attempt<'a, const N: usize, I: StartIndex + Clone> {
    shared: &'a Shared<N, I>,
    /// True if the rebuild has ended without an error.
    is_complete: bool,
}

impl<const N: usize, I: StartIndex + Clone> Drop for Attempt<'_, N, I> {
    fn drop(&mut self) {
        if !self.is_complete {
            let mut writer = self.shared.lock();
            writer.restore_training();
            writer.rebuild_errors += 1;
        }
    }
}

/// Number of rules in the remainder below which no rebuild is due.
const REMAINDER_RULES_MIN: usize = 64;

impl<const N: usize> LiveWriter<N> {
    /// Stores the insertions of some changes for the next rebuild.
    ///
    /// Returns the number of changes that had an effect already, and the changes that become
    /// visible at once.
    fn take_delayed(&mut self, changes: &[RuleUpdate<N>]) -> (usize, Vec<RuleUpdate<N>>) {
        let (mut effects, mut visible) = (0, Vec::new());
        for change in changes {
            match change {
                RuleUpdate::Insert(rule) => {
                    self.pending.push(*rule);
                    effects += 1;
                }
                RuleUpdate::Remove(rule) => {
                    let is_same = |other: &PriorityRule<N>| other == rule;
                    if let Some(at) = self.pending.iter().position(is_same) {
                        self.pending.swap_remove(at);
                        effects += 1;
                    } else if let Some(at) = self.training.iter().position(is_same) {
                        // The running rebuild includes the rule, so the rule is removed from the
                        // new classifier before the swap.
                        self.training.swap_remove(at);
                        self.log.get_or_insert_default().push(*change);
                        effects += 1;
                    } else {
                        visible.push(*change);
                    }
                }
            }
        }
        (effects, visible)
    }

    /// Makes the rules of an incomplete rebuild pending again.
    fn restore_training(&mut self) {
        let training = std::mem::take(&mut self.training);
        self.pending.splice(0..0, training);
        self.log = None;
    }
}

impl<const N: usize> RuleUpdate<N> {
    /// Applies the change, and returns whether it had an effect.
    fn apply<I: StartIndex>(&self, classifier: &mut NuevoMatch<N, I>) -> bool {
        match self {
            Self::Insert(rule) => classifier.insert(rule),
            Self::Remove(rule) => classifier.remove(rule),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketCapacity, FieldMatch, PartitionSettings};

    /// A rule with a mask of its own, which no iSet of these settings holds.
    fn outside(schema: &KeySchema, value: u32) -> PriorityRule<1> {
        let word = u128::from(value.wrapping_mul(0x9e37_79b9));
        let field = FieldMatch::Mask { value: word, mask: word | 1 };
        PriorityRule::new(schema, &[field], value, value).unwrap()
    }

    /// Rules that no iSet can hold make one rebuild due, and not one after the other.
    #[test]
    fn rules_outside_of_isets_do_not_rebuild_for_ever() {
        let schema = KeySchema::new(&[32]).unwrap();
        let partition = PartitionSettings { sets_max: 0, ..PartitionSettings::default() };
        let capacity = BucketCapacity::Fixed;
        let nuevomatch = NuevoMatchSettings { partition, capacity, seed: 1 };
        let settings = LiveSettings { nuevomatch, ..LiveSettings::default() };
        let live = LiveNuevoMatch::<1>::new(&schema, &[], settings).unwrap();
        let is_due = || live.shared.is_due(&live.shared.lock());
        let (mut rebuilds, mut rules) = (0, 0);
        for step in 0..40_u32 {
            let new: Vec<_> =
                (0..50).map(|i| RuleUpdate::Insert(outside(&schema, step * 50 + i))).collect();
            assert_eq!(live.apply(&new), 50);
            rules += new.len();
            if is_due() {
                live.rebuild().unwrap();
                rebuilds += 1;
                assert!(!is_due(), "a rebuild after a rebuild of {rules} rules");
            }
        }
        // The remainder grows by half between two rebuilds: 64 * 1.5^9 is about 2,000.
        assert!((4..=10).contains(&rebuilds), "{rebuilds} rebuilds for {rules} rules");
        assert_eq!(live.statistics().current.remainder_rules, rules);
    }
}
