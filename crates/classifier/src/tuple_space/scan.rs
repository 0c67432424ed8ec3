//! Scans of the rules of a table, in steps of bounded length.
//!
//! A scan visits one subtable after another, and the rules of a subtable by rank. A rule keeps its
//! subtable and its rank until it is reclaimed. So a scan may go on after the table has changed: it
//! visits each rule exactly once that was there when it began and that is not reclaimed meanwhile.
//! Rules that are added during the scan may be visited or not.

use shunt_flow::Match;

use super::{
    region::{Region, RegionCandidates},
    subtable::{RulePosition, RuleSubtable, SubtableRule},
    table::TupleSpace,
};
use crate::Lifetime;

/// The position of a scan of the rules of a table.
///
/// See [`TupleSpace::scan_some`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanPosition {
    /// Index of the current subtable.
    subtable: usize,
    /// The last visited position of the subtable.
    after: Option<RulePosition>,
}

impl<R> TupleSpace<R> {
    /// Continues a scan of the rules with the match `matching` or a narrower one.
    ///
    /// Visits rules of all versions that are not reclaimed, with their lifetimes, in arbitrary
    /// order. Makes at most `left` steps, and reduces `left` by their number. A subtable, and a rule
    /// with its revisions, is a step each. Returns whether the scan is complete.
    pub fn scan_some<'a>(
        &'a self,
        position: &mut ScanPosition,
        matching: &Match,
        left: &mut usize,
        mut visit: impl FnMut(Lifetime, &'a R),
    ) -> bool {
        let region = self.region(matching);
        while let Some(subtable) = self.subtables.get(position.subtable) {
            if *left == 0 {
                return false;
            }
            let visit = |stored: &'a SubtableRule<R>| visit(stored.lifetime, &stored.rule);
            if !scan_subtable(&region, subtable, &mut position.after, left, visit) {
                return false;
            }
            // The step of a subtable is counted at its end, so each call visits something.
            *left = left.saturating_sub(1);
            *position = ScanPosition { subtable: position.subtable + 1, after: None };
        }
        true
    }
}

/// Continues a scan in a subtable; returns whether no rule of it is left.
fn scan_subtable<'a, R>(
    region: &Region<'_>,
    subtable: &'a RuleSubtable<R>,
    after: &mut Option<RulePosition>,
    left: &mut usize,
    mut visit: impl FnMut(&'a SubtableRule<R>),
) -> bool {
    if !region.is_looked_at(subtable) {
        return true;
    }
    match region.candidates(subtable) {
        RegionCandidates::None => {}
        RegionCandidates::One(chain) => {
            for (position, rules) in chain.after(*after) {
                if *left == 0 {
                    return false;
                }
                *left -= 1;
                *after = Some(position);
                rules.iter().for_each(&mut visit);
            }
        }
        RegionCandidates::Many => {
            for position in subtable.positions_after(*after) {
                if *left == 0 {
                    return false;
                }
                *left -= 1;
                *after = Some(position);
                for chain in subtable.chains_at(position).filter(|own| region.agrees(subtable, own))
                {
                    chain.rules_at(position).iter().for_each(&mut visit);
                }
            }
        }
    }
    true
}
