//! What many rules have in common, kept once.
//!
//! A table has many more rules than masks, and than lists of instructions. Rules are made with those
//! that are there already; what no rule has any more is forgotten now and then.

use std::{collections::HashSet, sync::Arc};

use foldhash::fast::FixedState;
use shunt_flow::{Match, SparseMask};

use super::rule::Instructions;

/// The masks and instructions of the rules of a bridge.
pub(crate) struct Shared {
    masks: HashSet<SparseMask, FixedState>,
    instructions: HashSet<Arc<Instructions>, FixedState>,
    /// How many there may be before those are looked for that nobody has.
    limit: usize,
}

/// The least [`Shared::limit`].
const LIMIT_MIN: usize = 1024;

impl Shared {
    pub(crate) fn new(seed: u64) -> Self {
        let hashing = FixedState::with_seed(seed);
        let (masks, instructions) =
            (HashSet::with_hasher(hashing.clone()), HashSet::with_hasher(hashing));
        Self { masks, instructions, limit: LIMIT_MIN }
    }

    /// The match of a rule, with the mask that others have.
    pub(crate) fn matching(&mut self, matching: &Match) -> Match {
        match self.masks.get(matching.mask()) {
            Some(mask) => matching.clone().sharing(mask),
            None => {
                self.masks.insert(matching.mask().clone());
                matching.clone()
            }
        }
    }

    /// The instructions of a rule.
    pub(crate) fn instructions(&mut self, instructions: &Instructions) -> Arc<Instructions> {
        let known = self.instructions.get(instructions).cloned();
        known.unwrap_or_else(|| {
            let new = Arc::new(instructions.clone());
            self.instructions.insert(Arc::clone(&new));
            new
        })
    }

    /// Forgets what nobody has, if much came since it was last forgotten.
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

    fn instructions(table: usize) -> Instructions {
        Instructions {
            goto: TableId::new(u8::try_from(table % 200).ok().unwrap_or(0)),
            metadata: Some((table as u64, 1)),
            ..Instructions::default()
        }
    }

    fn matching(word: usize, bits: u64) -> Match {
        let mut mask = FlowMask::EMPTY;
        mask.words_mut()[word] = bits;
        Match::new(&FlowKey::ZERO, &mask)
    }

    #[test]
    fn what_is_equal_is_one() {
        let mut shared = Shared::new(1);
        let two = [1, 1].map(|table| shared.instructions(&instructions(table)));
        assert!(Arc::ptr_eq(&two[0], &two[1]));
        assert!(!Arc::ptr_eq(&two[0], &shared.instructions(&instructions(2))));
        let first = shared.matching(&matching(70, 5));
        assert_eq!(first, matching(70, 5));
        assert!(first.mask().is_shared());
    }

    #[test]
    fn what_nobody_has_is_forgotten_and_the_rest_is_kept() {
        let mut shared = Shared::new(1);
        let (mine, my_match) =
            (shared.instructions(&instructions(7)), shared.matching(&matching(3, 3)));
        for number in 0..LIMIT_MIN {
            let _ = shared.instructions(&instructions(number));
            let _ = shared.matching(&matching(number % 81, number as u64 + 1));
        }
        shared.reclaim();
        assert_eq!((shared.masks.len(), shared.instructions.len()), (1, 1));
        assert!(Arc::ptr_eq(&mine, &shared.instructions(&instructions(7))));
        assert_eq!(my_match, matching(3, 3));
    }
}
