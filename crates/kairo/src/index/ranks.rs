//! The positions of rows by the rule that decided their visit, lowest rank first.
//!
//! A position is the index of a row in a list of the caller. The rows that one rule decided form a
//! *run*, which is contiguous in memory. Removing a rule may evict thousands of entries, and a
//! contiguous run is read faster than linked rows. A row is removed from a run in constant time:
//! the last row of the run takes its offset. Runs are ordered by rank. A search for the visits that
//! a rule outranks stops at the first run that the rule does not outrank. Inserting a row takes
//! time logarithmic in the number of runs.

use std::collections::BTreeMap;

use shunt_pipeline::{Rank, RuleId};

use super::row::{GroupRow, VisitRef};
use crate::positions::last_position;

/// The positions of rows by the rank and the rule that decided them.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// The number of each run, by rank and rule.
    numbers: BTreeMap<Decider, u32>,
    /// The rows of each run, by the number of the run.
    runs: Vec<Vec<Member>>,
    /// The numbers of unused runs.
    free: Vec<u32>,
    /// The run of each position, and the offset in it.
    run_positions: Vec<RunPosition>,
}

/// The key of a run.
/// The clauses of conjunctions share one rank per priority.
type Decider = (Rank, Option<RuleId>);

/// A row of a run, with its position and its visit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// The position of the row in its group.
    pub(super) position: u32,
    /// The reference to the visit, copied from the row.
    /// With this copy, a search by rank does not read the row, which is elsewhere in memory.
    pub(super) visit_ref: VisitRef,
}

/// The run of a position, and its offset in the run.
#[derive(Clone, Copy, Debug)]
struct RunPosition {
    /// The number of the run.
    run: u32,
    /// The offset of the row in the run.
    offset: u32,
}

impl Ranks {
    /// Adds the position of a row, which must be in no run.
    /// Returns whether the run has no other row.
    pub(super) fn insert(&mut self, position: u32, row: &GroupRow) -> bool {
        let (runs, free) = (&mut self.runs, &mut self.free);
        let number = *self.numbers.entry(decider(row)).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                runs.push(Vec::new());
                last_position(runs)
            })
        });
        let run = &mut runs[number as usize];
        run.push(Member { position, visit_ref: row.visit_ref() });
        let (run_position, index) =
            (RunPosition { run: number, offset: last_position(run) }, position as usize);
        if self.run_positions.len() <= index {
            self.run_positions.resize(index + 1, run_position);
        }
        self.run_positions[index] = run_position;
        run_position.offset == 0
    }

    /// Removes the position of a row from its run.
    /// Returns whether the run is empty now.
    pub(super) fn remove(&mut self, position: u32, row: &GroupRow) -> bool {
        let RunPosition { run: number, offset } = self.run_positions[position as usize];
        let run = &mut self.runs[number as usize];
        run.swap_remove(offset as usize);
        if let Some(moved) = run.get(offset as usize) {
            self.run_positions[moved.position as usize].offset = offset;
        }
        if run.len() < run.capacity() / 4 {
            run.shrink_to(2 * run.len());
        }
        if run.is_empty() {
            self.numbers.remove(&decider(row));
            self.free.push(number);
            return true;
        }
        false
    }

    /// Returns the rows that a rule of this rank decided, alone or as a clause.
    pub(super) fn of(&self, rank: Rank, rule: RuleId) -> impl Iterator<Item = Member> + '_ {
        let as_clause = Rank { age: u64::MAX, ..rank };
        let numbers = [rank, as_clause].into_iter();
        let numbers = numbers.filter_map(move |rank| self.numbers.get(&(rank, Some(rule))));
        numbers.flat_map(|number| self.run(*number))
    }

    /// Returns the rows with a rank below `rank`, in the order of their ranks.
    pub(super) fn below(&self, rank: Rank) -> impl Iterator<Item = Member> + '_ {
        let lower = self.numbers.range(..(rank, None));
        lower.flat_map(|(_, number)| self.run(*number))
    }

    /// Returns the number of rows with a rank below `rank`.
    /// If there are more than `max` rows, any number above `max` is returned.
    pub(super) fn count_below(&self, rank: Rank, max: usize) -> usize {
        let mut count = 0;
        for number in self.numbers.range(..(rank, None)).map(|(_, number)| *number as usize) {
            count += self.runs[number].len();
            if count > max {
                break;
            }
        }
        count
    }

    /// Returns the approximate number of bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let members = self.runs.iter().map(Vec::capacity).sum::<usize>() * size_of::<Member>();
        self.run_positions.capacity() * size_of::<RunPosition>()
            + members
            + self.runs.capacity() * size_of::<Vec<Member>>()
            + self.numbers.len() * (size_of::<Decider>() + size_of::<u32>())
    }

    /// Returns the visits of a run.
    fn run(&self, number: u32) -> impl Iterator<Item = Member> + '_ {
        self.runs[number as usize].iter().copied()
    }
}

/// Returns the rank and the rule that decided a visit.
fn decider(row: &GroupRow) -> Decider {
    (row.rank(), row.rule())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shunt_pipeline::Priority;

    use super::*;

    /// Returns a row of a group.
    fn row(priority: u16, rule: u64) -> GroupRow {
        GroupRow::decided(Priority::new(priority), RuleId::new(rule))
    }

    proptest! {
        #[test]
        fn outranked_and_decided_rows_equal_the_model(
            ops in prop::collection::vec((0u32..40, 0u16..4, 1u64..4), 1..200),
            (priority, rule) in (0u16..5, 1u64..4),
        ) {
            let (mut ranks, mut model) = (Ranks::default(), BTreeMap::new());
            for (position, priority, rule) in ops {
                let is_alone = |model: &BTreeMap<u32, GroupRow>, own: &GroupRow| {
                    !model.values().any(|row| decider(row) == decider(own))
                };
                match model.remove(&position) {
                    Some(own) => {
                        prop_assert_eq!(ranks.remove(position, &own), is_alone(&model, &own));
                    }
                    None => {
                        let own = row(priority, rule);
                        prop_assert_eq!(ranks.insert(position, &own), is_alone(&model, &own));
                        model.insert(position, own);
                    }
                }
            }
            let sorted = |found: &mut dyn Iterator<Item = u32>| {
                let mut found: Vec<_> = found.collect();
                found.sort_unstable();
                found
            };
            let own = row(priority, rule);
            let expected = model.iter().filter(|(_, row)| row.rank() < own.rank());
            prop_assert_eq!(
                sorted(&mut ranks.below(own.rank()).map(|member| member.position)),
                sorted(&mut expected.map(|(position, _)| *position)),
            );
            let expected = model.iter().filter(|(_, row)| row.rank() == own.rank());
            prop_assert_eq!(
                sorted(&mut ranks.of(own.rank(), RuleId::new(rule)).map(|member| member.position)),
                sorted(&mut expected.map(|(position, _)| *position)),
            );
        }
    }
}
