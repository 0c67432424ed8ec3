//! Bounds on the work of an eviction engine for one change.
//!
//! Pending changes are applied together, so an engine that falls behind receives more and more
//! rules at once. Each rule costs a search, and the packet threads wait for all searches. If a
//! change has more rules than a bound, the engine evicts every entry that visits a table of the
//! change, which is faster. So no stale entry stays. Valid entries that were evicted too are
//! installed again by their next packet.
//!
//! A second bound limits the visits and entries that a change examines, because one rule may cost
//! as much as thousands of others. Beyond this bound, the tables of the remaining rules are evicted
//! in the same way.

#[cfg(feature = "dbsp")]
use std::borrow::Cow;
use std::collections::BTreeSet;

#[cfg(feature = "dbsp")]
use shunt_pipeline::Cause;
use shunt_pipeline::{BridgeId, Delta, TableId};

/// The name of a table of a bridge.
pub(crate) type TableKey = (BridgeId, TableId);

/// Default for the number of rules of a change that are searched one by one.
pub(crate) const DELTAS_MAX: usize = 16_384;

/// Default for the number of visits and entries that a change may examine.
///
/// Beyond this number, whole tables are evicted, so that no thread waits for more than a few
/// seconds. An index examines less for thousands of ordinary rules and a million entries. The
/// engines with traces of dbsp examine a visit once for each rule that overlaps the consulted bits,
/// and may reach the bound with thousands of rules.
pub(crate) const EXAMINED_MAX: usize = 1 << 23;

/// A bound on the rules of a change, and the count of changes that exceeded it.
#[derive(Debug)]
pub(crate) struct ChangeBound {
    /// Maximum number of rules of a change that are searched one by one.
    deltas_max: usize,
    /// Number of changes that exceeded the bound so far.
    overflows: u64,
}

/// The deltas of a change for which the engine still searches one by one.
#[cfg(feature = "dbsp")]
pub(crate) struct RemainingDeltas<'d> {
    /// The deltas to search.
    pub(crate) deltas: Cow<'d, [Delta]>,
    /// Numbers of the deltas in the whole change; `None` if no delta is missing.
    delta_numbers: Option<Vec<usize>>,
}

#[cfg(feature = "dbsp")]
impl<'d> RemainingDeltas<'d> {
    /// Returns all deltas of a change.
    pub(crate) const fn all(deltas: &'d [Delta]) -> Self {
        RemainingDeltas { deltas: Cow::Borrowed(deltas), delta_numbers: None }
    }

    /// Returns the deltas of a change that are objects, without the rules.
    pub(crate) fn without_rules(deltas: &'d [Delta]) -> Self {
        let rest = deltas.iter().enumerate().filter(|(_, delta)| table(delta).is_none());
        let (numbers, rest) = rest.map(|(number, delta)| (number, delta.clone())).unzip();
        RemainingDeltas { deltas: Cow::Owned(rest), delta_numbers: Some(numbers) }
    }

    /// Returns whether one of the remaining deltas is a rule.
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
    /// Returns a bound of `deltas_max` rules, which no change has exceeded yet.
    pub(crate) const fn new(deltas_max: usize) -> Self {
        Self { deltas_max, overflows: 0 }
    }

    /// Returns the number of changes so far that exceeded the bound.
    pub(crate) const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Returns whether a change has more rules than the bound.
    pub(crate) fn is_exceeded_by(&self, deltas: &[Delta]) -> bool {
        deltas.iter().filter_map(table).count() > self.deltas_max
    }

    /// Evicts whole tables if a change exceeds the bound; returns the remaining deltas.
    ///
    /// Beyond the bound, `evict_visitors` is called for each table of the rules.
    #[cfg(feature = "dbsp")]
    pub(crate) fn flush_if_exceeded<'d>(
        &mut self,
        deltas: &'d [Delta],
        evict_visitors: impl FnMut(TableKey),
    ) -> RemainingDeltas<'d> {
        if !self.is_exceeded_by(deltas) {
            return RemainingDeltas::all(deltas);
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
            "eviction engine: too many rules changed at once to compare them, so all cache \
             entries that used their tables are evicted"
        );
        tables.into_iter().for_each(evict_visitors);
    }
}

/// Returns the table of the rule of a delta; `None` if the delta is an object.
fn table(delta: &Delta) -> Option<TableKey> {
    match delta {
        Delta::Rule(delta) => Some((delta.rule.bridge, delta.rule.table)),
        Delta::Changed(_) => None,
    }
}
