//! Positions by what decided them, the lowest rank first.
//!
//! Positions are those of rows that somebody else keeps. Those that one rule decided are a *run*: a
//! list, doubly linked, so that each leaves in constant time. Runs are in order, so that whoever asks
//! for what a rule outranks stops at the first run that it does not, and a rule that goes finds its
//! own. A row comes or goes in time logarithmic in the number of runs.

use std::collections::BTreeMap;

use shunt_pipeline::{Rank, RuleId};

use super::row::Row;

/// No position.
const NONE: u32 = u32::MAX;

/// Positions by the rank and the rule that decided them.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// The first position of each run.
    runs: BTreeMap<Decider, u32>,
    /// By position.
    links: Vec<Link>,
}

/// What a run has in common: the clauses of a conjunction have one rank for all of a priority.
type Decider = (Rank, Option<RuleId>);

#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    /// In a run's first position: [`NONE`].
    previous: u32,
}

impl Ranks {
    /// Adds the position of a row that is in no run. Answers whether it is the only one of its run.
    pub(super) fn insert(&mut self, position: u32, row: &Row) -> bool {
        let first = self.runs.entry(decider(row)).or_insert(NONE);
        let next = std::mem::replace(first, position);
        let index = position as usize;
        if self.links.len() <= index {
            self.links.resize(index + 1, Link { next: NONE, previous: NONE });
        }
        self.links[index] = Link { next, previous: NONE };
        if let Some(link) = self.links.get_mut(next as usize) {
            link.previous = position;
        }
        next == NONE
    }

    /// Takes the position of a row out of its run. Answers whether it was the last one.
    pub(super) fn remove(&mut self, position: u32, row: &Row) -> bool {
        let Link { next, previous } = self.links[position as usize];
        if let Some(link) = self.links.get_mut(next as usize) {
            link.previous = previous;
        }
        if let Some(link) = self.links.get_mut(previous as usize) {
            link.next = next;
        } else if next == NONE {
            self.runs.remove(&decider(row));
        } else {
            self.runs.insert(decider(row), next);
        }
        next == NONE && previous == NONE
    }

    /// The positions that a rule of this rank has decided, alone or as a clause.
    pub(super) fn of(&self, rank: Rank, rule: RuleId) -> impl Iterator<Item = u32> + '_ {
        let as_clause = Rank { age: u64::MAX, ..rank };
        let firsts = [rank, as_clause].into_iter();
        let firsts = firsts.filter_map(move |rank| self.runs.get(&(rank, Some(rule))));
        firsts.flat_map(|first| self.run(*first))
    }

    /// The positions whose rank is lower than this one, in the order of their ranks.
    pub(super) fn below(&self, rank: Rank) -> impl Iterator<Item = u32> + '_ {
        let lower = self.runs.range(..(rank, None));
        lower.flat_map(|(_, first)| self.run(*first))
    }

    /// Bytes on the heap, about.
    pub(super) fn bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
            + self.runs.len() * (size_of::<Decider>() + size_of::<u32>())
    }

    fn run(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let after = |position: u32| (position != NONE).then_some(position);
        std::iter::successors(after(first), move |position| {
            after(self.links[*position as usize].next)
        })
    }
}

fn decider(row: &Row) -> Decider {
    (row.rank(), row.rule())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shunt_pipeline::Priority;

    use super::*;

    fn row(priority: u16, rule: u64) -> Row {
        Row::decided(Priority::new(priority), RuleId::new(rule))
    }

    proptest! {
        #[test]
        fn what_a_rule_outranks_is_below_it_and_what_it_decided_is_its_own(
            ops in prop::collection::vec((0u32..40, 0u16..4, 1u64..4), 1..200),
            (priority, rule) in (0u16..5, 1u64..4),
        ) {
            let (mut ranks, mut model) = (Ranks::default(), BTreeMap::new());
            for (position, priority, rule) in ops {
                let is_alone = |model: &BTreeMap<u32, Row>, own: &Row| {
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
                sorted(&mut ranks.below(own.rank())),
                sorted(&mut expected.map(|(position, _)| *position)),
            );
            let expected = model.iter().filter(|(_, row)| row.rank() == own.rank());
            prop_assert_eq!(
                sorted(&mut ranks.of(own.rank(), RuleId::new(rule))),
                sorted(&mut expected.map(|(position, _)| *position)),
            );
        }
    }
}
