//! Questions, and the half join that answers them.
//!
//! A question is not worth keeping, so that it is joined from one side only: with what the last step
//! left in a trace, of which a snapshot is a list of its batches. So it costs no step of the circuit.
//!
//! Each batch is looked into by itself. What one of them has and another one takes back is told by
//! the entry: a row says which entry of all that had its slot it is of, and rows are taken back after
//! their entry has ended. So nothing is added up, and a row that was taken back costs no more than
//! one that was not.

use dbsp::{
    DBData, OrdIndexedZSet,
    dynamic::{DowncastTrait, DynData, Erase},
    trace::{BatchReader as _, Cursor},
    typed_batch::{BatchReader, SpineSnapshot},
};

use super::relation::LinkRow;

/// What a trace has, keyed by groups, or by prints and names.
pub(super) type TraceSnapshot<K> = SpineSnapshot<OrdIndexedZSet<K, LinkRow>>;

/// The traces, as the last step left them.
#[derive(Default)]
pub(super) struct LinkTraces {
    /// Visits by group.
    pub(super) visits: Option<TraceSnapshot<u32>>,
    /// Visits and entries by print or name.
    pub(super) links: Option<TraceSnapshot<u64>>,
}

impl LinkTraces {
    /// Whether there are none: no step was made, or they were given up since.
    pub(super) const fn are_absent(&self) -> bool {
        self.visits.is_none() || self.links.is_none()
    }

    /// Bytes of all batches, as dbsp counts them.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let visits = self.visits.as_ref().map_or(0, |own| own.inner().approximate_byte_size());
        visits + self.links.as_ref().map_or(0, |own| own.inner().approximate_byte_size())
    }
}

/// A rank such that what is lower comes first: the priority, and the age backwards.
pub(super) type OrderedRank = (u16, u64);

/// Ranks below every rule and above every rule.
pub(super) const LOWEST: OrderedRank = (0, 0);
pub(super) const HIGHEST: OrderedRank = (u16::MAX, u64::MAX);

/// What a delta asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeltaQuestion {
    /// What is found is below this.
    pub(super) rank: OrderedRank,
    /// The place of the delta among the others.
    pub(super) position: u32,
    pub(super) test: RemainingTest,
}

/// What has yet to be asked of what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RemainingTest {
    /// Nothing: it is ended.
    Nothing,
    /// Whether it is older than the change of what it reads.
    Read,
    /// Whether the rule that decided the visit is an older one.
    Decided,
    /// Whether the rule takes the visit over.
    Overlapped,
}

/// What a question has found.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundLink {
    pub(super) position: u32,
    pub(super) test: RemainingTest,
    /// The slot of an entry, which of all that had it, and the number of a visit.
    pub(super) slot: u32,
    pub(super) slot_generation: u32,
    pub(super) visit: u32,
}

impl FoundLink {
    pub(super) const fn new(question: &DeltaQuestion, row: &LinkRow) -> Self {
        let DeltaQuestion { position, test, .. } = *question;
        Self { position, test, slot: row.2, slot_generation: row.3, visit: row.4 }
    }

    /// An entry that is known to be ended.
    pub(super) const fn certain(position: u32, slot: u32, slot_generation: u32) -> Self {
        Self { position, test: RemainingTest::Nothing, slot, slot_generation, visit: 0 }
    }
}

/// What must be outranked to find a row.
pub(super) const fn rank(row: &LinkRow) -> OrderedRank {
    (row.0, row.1)
}

/// Finds what each question's key leads to, as far as the question outranks it. Questions are in
/// order. Answers whether all is found: not once it is more than `max`.
pub(super) fn answer<K: DBData + Erase<DynData>>(
    trace: &TraceSnapshot<K>,
    questions: &[(K, DeltaQuestion)],
    max: usize,
    found: &mut Vec<FoundLink>,
) -> bool {
    for batch in trace.inner().batches() {
        let mut rows = batch.cursor();
        for query in questions.chunk_by(|(key, _), (next, _)| key == next) {
            if !rows.seek_key_exact(query[0].0.erase(), None) {
                continue;
            }
            while rows.val_valid() {
                let row: &LinkRow = rows.val().downcast_checked();
                // Both are in the order of their ranks.
                let asking = query.iter().rev().map(|(_, question)| question);
                let asking = asking.take_while(|question| question.rank > rank(row));
                let before = found.len();
                found.extend(asking.map(|question| FoundLink::new(question, row)));
                if found.len() == before {
                    break;
                }
                if found.len() > max {
                    return false;
                }
                rows.step_val();
            }
        }
    }
    true
}

/// The rows of a group that have the lowest ranks, in order: all that are below a rank, if they are
/// not more than `scan_threshold`; else more than that of those below `least`, or as many of each batch.
pub(super) fn lowest(
    trace: &TraceSnapshot<u32>,
    group: u32,
    least: OrderedRank,
    most: OrderedRank,
    scan_threshold: usize,
) -> Vec<LinkRow> {
    let mut lowest = Vec::new();
    for batch in trace.inner().batches() {
        let mut rows = batch.cursor();
        if !rows.seek_key_exact(group.erase(), None) {
            continue;
        }
        for _ in 0..=scan_threshold {
            if !rows.val_valid() {
                break;
            }
            let row: &LinkRow = rows.val().downcast_checked();
            if rank(row) >= most {
                break;
            }
            lowest.push(*row);
            rows.step_val();
        }
        if lowest.iter().filter(|row| rank(row) < least).count() > scan_threshold {
            break;
        }
    }
    lowest.sort_unstable();
    lowest
}
