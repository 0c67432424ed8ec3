//! Bounds on the work for one change.
//!
//! Changes that wait are applied together, so an engine that falls behind receives more and more
//! rules at once. Each rule costs a search, and the packet threads wait for all searches. Beyond a
//! bound it is faster to evict every entry that visits a table of the change. No stale entry stays,
//! and entries that were right are installed again by their next packet.
//!
//! A second bound limits the visits and entries that a change examines, because one rule may cost
//! as much as thousands. When the bound is passed, the rest of the change is handled in the same
//! way.

#[cfg(feature = "dbsp")]
use std::borrow::Cow;
use std::collections::BTreeSet;

#[cfg(feature = "dbsp")]
use shunt_pipeline::Cause;
use shunt_pipeline::{BridgeId, Delta, TableId};

/// A table of a bridge.
pub(crate) type TableKey = (BridgeId, TableId);

/// Default number of rules of a change that are searched for one by one.
pub(crate) const DELTAS_MAX: usize = 16_384;

/// Default number of visits and entries that a change may examine.
///
/// The rest of the change is then handled by table, so that no thread waits for more than a few
/// seconds. An index needs less for thousands of ordinary rules under a million entries. A search
/// in traces finds a visit once for each rule that overlaps the bits of its lookup, and may reach
/// the bound with thousands of rules.
pub(crate) const EXAMINED_MAX: usize = 1 << 23;

/// A bound on the rules of a change, and a count of the changes that exceeded it.
#[derive(Debug)]
pub(crate) struct ChangeBound {
    deltas_max: usize,
    overflows: u64,
}

/// The deltas of a change that are still to be searched for one by one.
#[cfg(feature = "dbsp")]
pub(crate) struct RemainingDeltas<'d> {
    pub(crate) deltas: Cow<'d, [Delta]>,
    /// Numbers of the deltas in the whole change; `None` if these are all of it.
    delta_numbers: Option<Vec<usize>>,
}

#[cfg(feature = "dbsp")]
impl<'d> RemainingDeltas<'d> {
    /// Returns the deltas that are not rules.
    pub(crate) fn without_rules(deltas: &'d [Delta]) -> Self {
        let rest = deltas.iter().enumerate().filter(|(_, delta)| table(delta).is_none());
        let (numbers, rest) = rest.map(|(number, delta)| (number, delta.clone())).unzip();
        RemainingDeltas { deltas: Cow::Owned(rest), delta_numbers: Some(numbers) }
    }

    /// Returns whether some of the deltas are of rules.
    pub(crate) fn has_rules(&self) -> bool {
        self.deltas.iter().any(|delta| table(delta).is_some())
    }

    /// Returns the cause of an eviction by the delta at `position`.
    pub(crate) fn cause(&self, position: usize) -> Cause {
        let number = self.delta_numbers.as_ref().and_then(|numbers| numbers.get(position));
        Cause::Delta(number.copied().unwrap_or(position))
    }
}

impl ChangeBound {
    pub(crate) const fn new(deltas_max: usize) -> Self {
        Self { deltas_max, overflows: 0 }
    }

    /// Returns the number of changes that exceeded the bound.
    pub(crate) const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Returns whether a change exceeds the bound.
    pub(crate) fn is_exceeded_by(&self, deltas: &[Delta]) -> bool {
        deltas.iter().filter_map(table).count() > self.deltas_max
    }

    /// Handles a change beyond the bound by table, and returns the deltas that remain.
    ///
    /// Calls `evict_visitors` for each table of its rules.
    #[cfg(feature = "dbsp")]
    pub(crate) fn flush_if_exceeded<'d>(
        &mut self,
        deltas: &'d [Delta],
        evict_visitors: impl FnMut(TableKey),
    ) -> RemainingDeltas<'d> {
        if !self.is_exceeded_by(deltas) {
            return RemainingDeltas { deltas: Cow::Borrowed(deltas), delta_numbers: None };
        }
        self.flush_tables(deltas, evict_visitors);
        RemainingDeltas::without_rules(deltas)
    }

    /// Calls `evict_visitors` for each table of the rules of a change.
    pub(crate) fn flush_tables(&mut self, deltas: &[Delta], evict_visitors: impl FnMut(TableKey)) {
        self.overflows += 1;
        let tables: BTreeSet<_> = deltas.iter().filter_map(table).collect();
        tracing::info!(
            rules = deltas.iter().filter_map(table).count(),
            tables = tables.len(),
            "many rules changed at once: all entries of their tables are evicted"
        );
        tables.into_iter().for_each(evict_visitors);
    }
}

/// Returns the table of a rule that changed.
fn table(delta: &Delta) -> Option<TableKey> {
    match delta {
        Delta::Rule(delta) => Some((delta.rule.bridge, delta.rule.table)),
        Delta::Changed(_) => None,
    }
}
