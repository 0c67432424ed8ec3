//! Rules that are added and deleted while packets are forwarded.
//!
//! The kinds P1 to P5 come from A. Zulfiqar, *Rearchitecting the End Host Network for the
//! Terabit Per Second Era*, Table 4.3. As in that thesis, the rules of an update come from a table
//! with more rules than the update, and are absent at the start. During the traffic, they are added
//! as one batch, deleted as one batch, and so on. There are two more kinds: *flapping*, one rule
//! that is added and deleted; and *bursts*, many rules that are added one by one without a pause.

use std::{fmt, sync::Arc, time::Duration};

use crate::{RandomStream, traffic::published::published};

/// The kind of a rule change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpdateKind {
    /// P1: access lists change.
    Security,
    /// P2: redundant rules are cleaned up.
    Pruning,
    /// P3: a link fails and routes change.
    Recovery,
    /// P4: the members of a service change.
    Elasticity,
    /// P5: temporary rules that monitor traffic.
    Telemetry,
    /// One rule is added and deleted.
    Flapping,
    /// Many rules are added one by one, then deleted one by one.
    Burst,
}

/// Number of rules of a burst, if the rule set has enough rules.
const BURST_RULES: u32 = 1000;
/// Time between two rules of a burst.
const BURST_GAP: Duration = Duration::from_micros(10);
/// Maximum number of batches in a workload.
///
/// A longer plan is truncated, so the last periods have no batch.
pub const BATCHES_MAX: usize = 100_000;

impl UpdateKind {
    /// All kinds of updates.
    pub const ALL: [Self; 7] = [
        Self::Security,
        Self::Pruning,
        Self::Recovery,
        Self::Elasticity,
        Self::Telemetry,
        Self::Flapping,
        Self::Burst,
    ];

    /// Returns the kind of update that a word names; `None` for another word.
    #[must_use]
    pub fn find(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Returns the word for the kind in the name of a workload.
    const fn word(self) -> &'static str {
        match self {
            Self::Security => "p1",
            Self::Pruning => "p2",
            Self::Recovery => "p3",
            Self::Elasticity => "p4",
            Self::Telemetry => "p5",
            Self::Flapping => "flap",
            Self::Burst => "burst",
        }
    }

    /// Returns whether the kind of update is one of the thesis.
    #[must_use]
    pub const fn is_published(self) -> bool {
        !matches!(self, Self::Flapping | Self::Burst)
    }

    /// Returns the number of rules of an update, for a rule set of `total` rules.
    #[must_use]
    pub fn rules(self, total: usize) -> usize {
        let total = u64::try_from(total).unwrap_or(u64::MAX);
        let published = published().updates.kinds.iter().find(|size| size.kind == self.word());
        let rules = match published {
            Some(size) => match size.percent {
                Some(percent) => (total * u64::from(percent)).div_ceil(100),
                None => size.rules.unwrap_or(1).into(),
            },
            None if self == Self::Burst => BURST_RULES.into(),
            None => 1,
        };
        // A rule set is in memory, so its size fits `usize`.
        usize::try_from(rules).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for UpdateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The changes of a rule set; the numbers are indices of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdatePlan {
    /// Indices of the rules that change, ascending; they are absent at the start.
    pub changing: Vec<usize>,
    /// The changes, ordered by time.
    pub batches: Vec<ScheduledBatch>,
    /// True if the plan was truncated at [`BATCHES_MAX`].
    pub is_truncated: bool,
}

/// Changes that are applied as one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledBatch {
    /// Time since the start of the traffic.
    pub at: Duration,
    /// The operation on the rules.
    pub change: UpdateOperation,
    /// The indices of the rules. Batches with the same rules share the list.
    pub rules: Arc<[usize]>,
}

/// The operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOperation {
    /// The rules of the batch are added.
    Add,
    /// The rules of the batch are deleted.
    Delete,
}

impl UpdatePlan {
    /// Plans changes for the duration of the traffic.
    ///
    /// `tables` gives the table of each rule.
    #[must_use]
    pub fn new(
        kind: UpdateKind,
        period: Duration,
        tables: &[u8],
        lasts: Duration,
        stream: &mut RandomStream,
    ) -> Self {
        let changing = choose_rules(kind.rules(tables.len()), tables, stream);
        let all: Arc<[usize]> = changing.as_slice().into();
        let mut batches = Vec::new();
        let mut at = period;
        let mut change = UpdateOperation::Add;
        while at <= lasts && !period.is_zero() && batches.len() < BATCHES_MAX {
            if kind == UpdateKind::Burst {
                let room = BATCHES_MAX.saturating_sub(batches.len());
                let times = (0..).map(|step| at.saturating_add(BURST_GAP.saturating_mul(step)));
                let one =
                    |(rule, at): (&usize, _)| ScheduledBatch { at, change, rules: [*rule].into() };
                batches.extend(changing.iter().zip(times).map(one).take(room));
            } else {
                batches.push(ScheduledBatch { at, change, rules: Arc::clone(&all) });
            }
            at = at.saturating_add(period);
            change = change.opposite();
        }
        let is_truncated = at <= lasts && batches.len() >= BATCHES_MAX;
        // The last burst may end after the traffic, so its late batches are removed.
        batches.retain(|batch| batch.at <= lasts);
        batches.sort_by_key(|batch| batch.at);
        Self { changing, batches, is_truncated }
    }
}

impl UpdateOperation {
    /// Returns the operation that takes this one back.
    const fn opposite(self) -> Self {
        match self {
            Self::Add => Self::Delete,
            Self::Delete => Self::Add,
        }
    }
}

/// Chooses `count` rules of a table that has more than `count` rules.
///
/// Without such a table, chooses all but one of the rules of the largest table.
fn choose_rules(count: usize, tables: &[u8], stream: &mut RandomStream) -> Vec<usize> {
    let mut sizes = [0_usize; 256];
    for table in tables {
        sizes[usize::from(*table)] += 1;
    }
    let large: Vec<u8> = (0..=u8::MAX).filter(|table| sizes[usize::from(*table)] > count).collect();
    let largest = || (0..=u8::MAX).max_by_key(|table| sizes[usize::from(*table)]);
    let Some(table) = stream.pick(&large).copied().or_else(largest) else { return Vec::new() };
    let mut rules: Vec<usize> =
        tables.iter().enumerate().filter(|(_, of)| **of == table).map(|(rule, _)| rule).collect();
    stream.shuffle(&mut rules);
    rules.truncate(count.min(rules.len().saturating_sub(1)));
    rules.sort_unstable();
    rules
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Seed;

    /// Returns a plan of rule changes.
    fn plan(kind: UpdateKind, period_ms: u64, tables: &[u8], lasts_ms: u64) -> UpdatePlan {
        let mut stream = Seed::new(1).stream("updates");
        let times = [period_ms, lasts_ms].map(Duration::from_millis);
        UpdatePlan::new(kind, times[0], tables, times[1], &mut stream)
    }

    #[test]
    fn updates_have_the_published_sizes() {
        let sizes = |total| [0, 1, 2, 3, 4].map(|kind: usize| UpdateKind::ALL[kind].rules(total));
        // Table 4.3 implies these sizes of rule sets, and has these numbers of rules except for
        // rounding.
        assert_eq!(sizes(14_000), [840, 1400, 300, 110, 500]);
        assert_eq!(sizes(29_000), [1740, 2900, 300, 110, 500]);
    }

    #[test]
    fn a_burst_adds_one_rule_after_the_other() {
        let plan = plan(UpdateKind::Burst, 100, &[3; 2000], 250);
        assert_eq!((plan.changing.len(), plan.batches.len()), (1000, 2000));
        assert!(plan.batches.iter().all(|batch| batch.rules.len() == 1));
        assert_eq!(plan.batches[1].at - plan.batches[0].at, BURST_GAP);
        assert_eq!(plan.batches[1000].change, UpdateOperation::Delete);
    }

    #[test]
    fn an_update_plan_without_rules_is_empty() {
        assert_eq!(plan(UpdateKind::Flapping, 0, &[1, 1], 1000).batches, []);
        assert!(plan(UpdateKind::Pruning, 1, &[], 5).changing.is_empty());
    }

    #[test]
    fn a_plan_with_too_many_batches_is_truncated() {
        let plan_of = |lasts_ms| plan(UpdateKind::Pruning, 1, &[1; 1000], lasts_ms);
        let (whole, cut) = (plan_of(100_000), plan_of(10_000_000));
        assert_eq!((whole.batches.len(), whole.is_truncated), (BATCHES_MAX, false));
        assert_eq!((cut.batches.len(), cut.is_truncated), (BATCHES_MAX, true));
        let [first, second] = [&cut.batches[0], &cut.batches[1]].map(|batch| &batch.rules);
        assert!(Arc::ptr_eq(first, second), "batches share a list of rules");
    }

    proptest! {
        #[test]
        fn rules_of_one_table_change_in_turn(
            tables in prop::collection::vec(0_u8..4, 1..3000), kind in 0_usize..7, batches in 1_u64..9,
        ) {
            let plan = plan(UpdateKind::ALL[kind], 50, &tables, 50 * batches);
            let chosen: std::collections::BTreeSet<u8> =
                plan.changing.iter().map(|rule| tables[*rule]).collect();
            prop_assert!(chosen.len() <= 1);
            prop_assert!(plan.batches.is_sorted_by_key(|batch| batch.at));
            let mut there = vec![false; tables.len()];
            for batch in &plan.batches {
                for rule in batch.rules.iter() {
                    prop_assert_eq!(there[*rule], batch.change == UpdateOperation::Delete);
                    there[*rule] = batch.change == UpdateOperation::Add;
                }
            }
        }
    }
}
