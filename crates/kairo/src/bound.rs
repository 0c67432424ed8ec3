//! When a change is too much to be looked at rule by rule.
//!
//! What waits together is applied together, so that an engine which is outrun meets more and more
//! rules at once. Each costs a search, and the entries wait for all of them. Beyond a bound it is
//! shorter to evict every entry that visits one of the tables: none that is stale stays, and those
//! that were right are made again.
//!
//! There is a bound as well on what is looked at for a change, as one rule may be as much as thousands:
//! what is left of the change when it is passed is dealt with in the same way.

#[cfg(feature = "dbsp")]
use std::borrow::Cow;
use std::collections::BTreeSet;

#[cfg(feature = "dbsp")]
use shunt_pipeline::Cause;
use shunt_pipeline::{BridgeId, Delta, TableId};

/// A table of a bridge.
pub(crate) type TableKey = (BridgeId, TableId);

/// Rules of a change that are looked at one by one, unless it is said otherwise.
pub(crate) const DELTAS_MAX: usize = 16_384;

/// Visits and entries that a change is looked for among, beyond which the rules that are left of it
/// are dealt with by table, so that nobody waits for more than a few seconds. An index needs less for
/// thousands of usual rules under a million entries; who looks up traces finds a visit once for each rule
/// that overlaps what its lookup consulted, and may pass it with as many.
pub(crate) const EXAMINED_MAX: usize = 1 << 23;

/// A bound on the rules of a change, and how often it was passed.
#[derive(Debug)]
pub(crate) struct ChangeBound {
    deltas_max: usize,
    overflows: u64,
}

/// The deltas of a change that are left to be looked at one by one.
#[cfg(feature = "dbsp")]
pub(crate) struct RemainingDeltas<'d> {
    pub(crate) deltas: Cow<'d, [Delta]>,
    /// Their numbers among all, unless these are all.
    delta_numbers: Option<Vec<usize>>,
}

#[cfg(feature = "dbsp")]
impl<'d> RemainingDeltas<'d> {
    /// All that changed besides rules.
    pub(crate) fn without_rules(deltas: &'d [Delta]) -> Self {
        let rest = deltas.iter().enumerate().filter(|(_, delta)| table(delta).is_none());
        let (numbers, rest) = rest.map(|(number, delta)| (number, delta.clone())).unzip();
        RemainingDeltas { deltas: Cow::Owned(rest), delta_numbers: Some(numbers) }
    }

    /// Whether rules are among them.
    pub(crate) fn has_rules(&self) -> bool {
        self.deltas.iter().any(|delta| table(delta).is_some())
    }

    /// That an entry went by the delta at this place among these.
    pub(crate) fn cause(&self, position: usize) -> Cause {
        let number = self.delta_numbers.as_ref().and_then(|numbers| numbers.get(position));
        Cause::Delta(number.copied().unwrap_or(position))
    }
}

impl ChangeBound {
    pub(crate) const fn new(deltas_max: usize) -> Self {
        Self { deltas_max, overflows: 0 }
    }

    /// How often a change was beyond it.
    pub(crate) const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Whether a change is beyond it.
    pub(crate) fn is_exceeded_by(&self, deltas: &[Delta]) -> bool {
        deltas.iter().filter_map(table).count() > self.deltas_max
    }

    /// Of a change beyond the bound, names the tables of its rules, whose visitors are to be ended.
    /// Answers with the deltas that are left to be looked at.
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

    /// Names the tables of the rules of a change, whose visitors are to be ended.
    pub(crate) fn flush_tables(&mut self, deltas: &[Delta], evict_visitors: impl FnMut(TableKey)) {
        self.overflows += 1;
        let tables: BTreeSet<_> = deltas.iter().filter_map(table).collect();
        tracing::warn!(
            rules = deltas.iter().filter_map(table).count(),
            tables = tables.len(),
            "too many changes at once: all entries of these tables are evicted"
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
