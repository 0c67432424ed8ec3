//! Cuts anywhere: what any better policy must beat.

use super::{
    contract::{Piece, Policy, Stages},
    place::place_first_fit,
    whole::put_whole,
};
use crate::outline::TraversalOutline;

/// A random number of pieces, cut at random open boundaries, placed first fit; the whole way where
/// they do not fit.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
    ends: Vec<usize>,
    pieces: Vec<Piece>,
}

impl Random {
    /// The policy with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed, ends: Vec::new(), pieces: Vec::new() }
    }

    /// A number below `bound`, which is small, by splitmix64 (Steele, Lea, Flood, 2014).
    #[expect(clippy::cast_possible_truncation, reason = "below `bound`")]
    fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        ((u128::from(word) * bound as u128) >> 64) as usize
    }

    /// Draws cuts so that every set of as many boundaries is equally likely (Knuth, volume 2,
    /// algorithm S).
    fn cut(&mut self, legs_count: usize, pieces_count: usize) {
        self.ends.clear();
        let mut wanted = pieces_count - 1;
        for boundary in 1..legs_count {
            if self.below(legs_count - boundary) < wanted {
                self.ends.push(boundary);
                wanted -= 1;
            }
        }
        self.ends.push(legs_count);
    }
}

impl Policy for Random {
    fn partition(&mut self, way: &TraversalOutline, stages: &impl Stages) -> &[Piece] {
        let most = way.legs_count().min(stages.count().into());
        if most > 0 {
            let pieces_count = 1 + self.below(most);
            self.cut(way.legs_count(), pieces_count);
            if place_first_fit(way, &self.ends, stages, &mut self.pieces) {
                return &self.pieces;
            }
        }
        put_whole(way, stages, &mut self.pieces);
        &self.pieces
    }
}
