//! Queries for stale entries, and the join of queries with a trace.
//!
//! A query is not stored in the circuit. The engine joins a query with a snapshot of the trace
//! after the last step. A snapshot is only a list of the batches of the trace, so a query costs no
//! step of the circuit.
//!
//! Each batch is searched alone. A row may be added in one batch and retracted in another. A row
//! has the slot generation of its entry, and rows are retracted only after their entry is retired.
//! So a found row is valid if its entry is watched, and the weights of several batches need not be
//! added.

use dbsp::{
    DBData, OrdIndexedZSet,
    dynamic::{DowncastTrait, DynData, Erase},
    trace::{BatchReader as _, Cursor},
    typed_batch::{BatchReader, SpineSnapshot},
};

use super::relation::LinkRow;

/// A snapshot of a trace, keyed by groups, or by fingerprints and other keys.
pub(super) type TraceSnapshot<K> = SpineSnapshot<OrdIndexedZSet<K, LinkRow>>;

/// Snapshots of the traces after the last step.
#[derive(Default)]
pub(super) struct LinkTraces {
    /// The visits, by group.
    pub(super) visits: Option<TraceSnapshot<u32>>,
    /// Visits and entries by fingerprint, rule or object.
    pub(super) links: Option<TraceSnapshot<u64>>,
}

impl LinkTraces {
    /// Returns whether there are no snapshots of traces.
    /// Either no step ran yet, or the snapshots were dropped for a merge.
    pub(super) const fn are_absent(&self) -> bool {
        self.visits.is_none() || self.links.is_none()
    }

    /// Returns the number of bytes of all batches, as dbsp counts them.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let visits = self.visits.as_ref().map_or(0, |own| own.inner().approximate_byte_size());
        visits + self.links.as_ref().map_or(0, |own| own.inner().approximate_byte_size())
    }
}

/// A rank in ascending order: the priority, and the inverted age.
pub(super) type OrderedRank = (u16, u64);

/// The rank below every rule.
pub(super) const LOWEST: OrderedRank = (0, 0);
/// The rank above every rule.
pub(super) const HIGHEST: OrderedRank = (u16::MAX, u64::MAX);

/// A query for the rows that a delta affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeltaQuery {
    /// Only rows with a rank below this one are found.
    pub(super) rank: OrderedRank,
    /// The position of the delta in the change.
    pub(super) position: u32,
    pub(super) test: RemainingTest,
}

/// The remaining condition under which a found row makes its entry stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RemainingTest {
    /// The query has no condition left: the entry is stale.
    Nothing,
    /// The entry is older than the change of the object.
    Read,
    /// The rule that decided the visit has an older revision.
    Decided,
    /// The rule overlaps the visit.
    Overlapped,
}

/// A row that a query found.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundLink {
    /// The position of the delta in the change.
    pub(super) position: u32,
    pub(super) test: RemainingTest,
    /// The slot of the entry, its slot generation, and the number of the visit.
    pub(super) slot: u32,
    /// A number that distinguishes the entries that used one slot.
    pub(super) slot_generation: u32,
    /// The number of the visit in the traversal of the entry.
    pub(super) visit: u32,
}

impl FoundLink {
    /// Returns the found row of a query, with its slot and visit number.
    pub(super) const fn new(delta_query: &DeltaQuery, row: &LinkRow) -> Self {
        let DeltaQuery { position, test, .. } = *delta_query;
        Self { position, test, slot: row.2, slot_generation: row.3, visit: row.4 }
    }

    /// Creates the result for an entry that needs no further test.
    pub(super) const fn certain(position: u32, slot: u32, slot_generation: u32) -> Self {
        Self { position, test: RemainingTest::Nothing, slot, slot_generation, visit: 0 }
    }
}

/// Returns the rank of a row, which a rule must exceed to find it.
pub(super) const fn rank(row: &LinkRow) -> OrderedRank {
    (row.0, row.1)
}

/// Finds the rows that have the key of a query and a rank below it.
///
/// `delta_queries` must be in ascending order. Returns false if there are more than `max` rows, and
/// then only some of them are found.
pub(super) fn answer<K: DBData + Erase<DynData>>(
    trace: &TraceSnapshot<K>,
    delta_queries: &[(K, DeltaQuery)],
    max: usize,
    found: &mut Vec<FoundLink>,
) -> bool {
    for batch in trace.inner().batches() {
        let mut rows = batch.cursor();
        for query in delta_queries.chunk_by(|(key, _), (next, _)| key == next) {
            if !rows.seek_key_exact(query[0].0.erase(), None) {
                continue;
            }
            while rows.val_valid() {
                let row: &LinkRow = rows.val().downcast_checked();
                // Both the queries and the rows of a key are in the order of their ranks.
                let asking = query.iter().rev().map(|(_, delta_query)| delta_query);
                let asking = asking.take_while(|delta_query| delta_query.rank > rank(row));
                let before = found.len();
                found.extend(asking.map(|delta_query| FoundLink::new(delta_query, row)));
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

/// Returns the rows of a group with the lowest ranks, in order.
///
/// If at most `scan_threshold` rows are below `most`, all of them are returned. If more rows are
/// below `most`, more than `scan_threshold` rows below `least` are returned, or this number of rows
/// of each batch.
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
