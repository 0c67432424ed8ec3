//! Every step an entry of its own: the most sharing, at the most stages.

use super::{
    contract::{Piece, Policy, Stages},
    place::place_first_fit,
    whole::put_whole,
};
use crate::outline::TraversalOutline;

/// Cuts at every open boundary, placed first fit, which is one step a stage while none is full.
///
/// A way with more legs than there are stages has all that is left in the last one. Where the pieces
/// do not fit, the way stays whole.
#[derive(Clone, Debug, Default)]
pub struct OneToOne {
    ends: Vec<usize>,
    pieces: Vec<Piece>,
}

impl Policy for OneToOne {
    fn partition(&mut self, way: &TraversalOutline, stages: &impl Stages) -> &[Piece] {
        let legs_count = way.legs_count();
        let most = legs_count.min(stages.count().into());
        self.ends.clear();
        self.ends.extend(1..most);
        self.ends.push(legs_count);
        if most == 0 || !place_first_fit(way, &self.ends, stages, &mut self.pieces) {
            put_whole(way, stages, &mut self.pieces);
        }
        &self.pieces
    }
}
