//! Masks and instructions that many rules share.
//!
//! A table has many more rules than distinct masks or lists of instructions. A new rule shares an
//! equal mask, and equal instructions, of existing rules. Masks and instructions that no rule uses
//! any more are dropped regularly.

use std::{collections::HashSet, sync::Arc};

use foldhash::fast::FixedState;
use shunt_flow::{Match, SparseMask};

use super::rule::Instructions;

/// The masks and instructions of the rules of a bridge.
pub(crate) struct Interner {
    /// The shared masks; equal masks are stored once.
    masks: HashSet<SparseMask, FixedState>,
    /// The shared instructions; equal ones are stored once.
    instructions: HashSet<Arc<Instructions>, FixedState>,
    /// Number of masks and instructions at which unused ones are dropped.
    limit: usize,
}

/// The lowest [`Interner::limit`].
const LIMIT_MIN: usize = 1024;

impl Interner {
    /// Returns an interner without masks and instructions.
    pub(crate) fn new(seed: u64) -> Self {
        let hashing = FixedState::with_seed(seed);
        let (masks, instructions) =
            (HashSet::with_hasher(hashing.clone()), HashSet::with_hasher(hashing));
        Self { masks, instructions, limit: LIMIT_MIN }
    }

    /// Returns the match of a rule, with a shared mask.
    pub(crate) fn matching(&mut self, matching: &Match) -> Match {
        match self.masks.get(matching.mask()) {
            Some(mask) => matching.clone().sharing(mask),
            None => {
                self.masks.insert(matching.mask().clone());
                matching.clone()
            }
        }
    }

    /// Returns the shared instructions of a rule.
    pub(crate) fn instructions(&mut self, instructions: &Instructions) -> Arc<Instructions> {
        let known = self.instructions.get(instructions).cloned();
        known.unwrap_or_else(|| {
            let new = Arc::new(instructions.clone());
            self.instructions.insert(Arc::clone(&new));
            new
        })
    }

    /// Drops unused masks and instructions, if there are more than the limit.
    pub(crate) fn reclaim(&mut self) {
        if self.masks.len() + self.instructions.len() < self.limit {
            return;
        }
        self.masks.retain(SparseMask::is_shared);
        self.instructions.retain(|own| Arc::strong_count(own) > 1);
        self.limit = LIMIT_MIN.max(2 * (self.masks.len() + self.instructions.len()));
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::{FlowKey, FlowMask};

    use super::*;
    use crate::id::TableId;

    /// Returns instructions that continue in a table.
    fn instructions(table: usize) -> Instructions {
        Instructions {
            goto: TableId::new(u8::try_from(table % 200).ok().unwrap_or(0)),
            metadata: Some((table as u64, 1)),
            ..Instructions::default()
        }
    }

    /// Returns a match of bits of a word.
    fn matching(word: usize, bits: u64) -> Match {
        let mut mask = FlowMask::EMPTY;
        mask.words_mut()[word] = bits;
        Match::new(&FlowKey::ZERO, &mask)
    }

    #[test]
    fn equal_values_are_stored_once() {
        let mut interner = Interner::new(1);
        let two = [1, 1].map(|table| interner.instructions(&instructions(table)));
        assert!(Arc::ptr_eq(&two[0], &two[1]));
        assert!(!Arc::ptr_eq(&two[0], &interner.instructions(&instructions(2))));
        let first = interner.matching(&matching(70, 5));
        assert_eq!(first, matching(70, 5));
        assert!(first.mask().is_shared());
    }

    #[test]
    fn unused_values_are_freed_and_used_ones_kept() {
        let mut interner = Interner::new(1);
        let (mine, my_match) =
            (interner.instructions(&instructions(7)), interner.matching(&matching(3, 3)));
        for number in 0..LIMIT_MIN {
            let _ = interner.instructions(&instructions(number));
            let _ = interner.matching(&matching(number % 81, number as u64 + 1));
        }
        interner.reclaim();
        assert_eq!((interner.masks.len(), interner.instructions.len()), (1, 1));
        assert!(Arc::ptr_eq(&mine, &interner.instructions(&instructions(7))));
        assert_eq!(my_match, matching(3, 3));
    }
}
