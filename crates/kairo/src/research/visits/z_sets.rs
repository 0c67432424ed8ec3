//! Z-sets of a step, which later steps use again.
//!
//! dbsp needs several allocations and a sort for a Z-set. Most changes have one rule, so most
//! Z-sets of a step are empty, or have one of a few rows.

use std::{collections::BTreeMap, mem, rc::Rc};

use dbsp::{DBData, OrdZSet, ZWeight, utils::Tup2};

/// The Z-set of a step in a stream of rows `R`.
pub(super) type SharedZSet<R> = Rc<OrdZSet<R>>;

/// Z-sets without rows or with one row, for one stream of a circuit.
pub(super) struct ZSets<R> {
    empty: SharedZSet<R>,
    /// Z-sets with one row of weight 1, by the row.
    singles: BTreeMap<R, SharedZSet<R>>,
    singles_max: usize,
}

/// Number of Z-sets with one row that are kept for a stream of changes.
pub(super) const SINGLES_MAX: usize = 64;

impl<R: DBData> ZSets<R> {
    /// Keeps up to `singles_max` Z-sets with one row.
    pub(super) fn new(singles_max: usize) -> Self {
        let (empty, singles) = (Rc::new(OrdZSet::empty()), BTreeMap::new());
        Self { empty, singles, singles_max }
    }

    /// Returns the Z-set of these rows, and removes the rows from the list.
    pub(super) fn of(&mut self, rows: &mut Vec<Tup2<R, ZWeight>>) -> SharedZSet<R> {
        match rows.as_slice() {
            [] => Rc::clone(&self.empty),
            [Tup2(row, 1)] if self.singles_max > 0 => {
                let z_set = self.of_one(row.clone());
                rows.clear();
                z_set
            }
            _ => Rc::new(OrdZSet::from_keys((), mem::take(rows))),
        }
    }

    /// Returns the Z-set of one row with weight 1, or of none.
    pub(super) fn of_row(&mut self, row: Option<R>) -> SharedZSet<R> {
        match row {
            Some(row) => self.of_one(row),
            None => Rc::clone(&self.empty),
        }
    }

    fn of_one(&mut self, row: R) -> SharedZSet<R> {
        if let Some(known) = self.singles.get(&row) {
            return Rc::clone(known);
        }
        let z_set = Rc::new(OrdZSet::from_keys((), vec![Tup2(row.clone(), 1)]));
        if self.singles.len() < self.singles_max {
            self.singles.insert(row, Rc::clone(&z_set));
        }
        z_set
    }
}

#[cfg(test)]
mod tests {
    use dbsp::IndexedZSetReader;

    use super::*;

    fn rows(z_set: &OrdZSet<u32>) -> Vec<(u32, ZWeight)> {
        z_set.iter().map(|(row, (), weight)| (row, weight)).collect()
    }

    #[test]
    fn a_z_set_has_the_rows_of_its_step() {
        let mut z_sets = ZSets::new(2);
        for step in [vec![], vec![(7, 1)], vec![(7, -1)], vec![(8, 1), (7, 1)], vec![(7, 2)]] {
            let mut list = step.iter().map(|(row, weight)| Tup2(*row, *weight)).collect();
            let mut expected = step;
            expected.sort_unstable();
            assert_eq!(rows(&z_sets.of(&mut list)), expected);
            assert!(list.is_empty());
        }
    }

    #[test]
    fn a_bounded_number_of_single_rows_is_kept() {
        let mut z_sets = ZSets::new(2);
        for row in [1, 2, 3, 1, 2, 3] {
            assert_eq!(rows(&z_sets.of_row(Some(row))), [(row, 1)]);
        }
        assert!(z_sets.of_row(None).iter().next().is_none());
        assert_eq!(z_sets.singles.len(), 2);
        assert!(Rc::ptr_eq(&z_sets.of_row(Some(1)), &z_sets.of_row(Some(1))));
    }
}
