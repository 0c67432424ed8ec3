//! All partitions in all stages, one after the other: what the policies are judged by.
//!
//! Nothing here is shared with the policies but the types of question and answer. Whoever asks lists the
//! [`partitions`] once; they are the same for all ways with the same boundaries.

use std::cmp::Reverse;

use super::ways::{PlainOutline, PlainStage, PlainStages, Room};
use crate::{
    outline::FieldSet,
    partition::{Piece, Score, StageId, Ties},
};

/// Whether the fields of these steps are one connected graph: starting at the first step that has
/// any, repeat adding steps that share a field with what was reached.
#[must_use]
pub fn coupled(steps: &[FieldSet]) -> bool {
    let mut left: Vec<FieldSet> = steps.iter().copied().filter(|set| !set.is_empty()).collect();
    let Some(mut reached) = left.pop() else { return true };
    while let Some(at) = left.iter().position(|set| set.meets(reached)) {
        reached = reached.union(left.remove(at));
    }
    left.is_empty()
}

/// What a partition is worth in all.
#[must_use]
pub fn worth(way: &PlainOutline, pieces: &[Piece], score: Score) -> u32 {
    let fields = way.fields();
    let worth = |piece: &Piece| {
        let steps = &fields[usize::from(piece.steps.start)..usize::from(piece.steps.end)];
        let length = u32::try_from(steps.len()).unwrap_or(u32::MAX);
        match (coupled(steps), score) {
            (false, _) => 0,
            (true, Score::Length) => length,
            (true, Score::Joins) => length - 1,
        }
    };
    pieces.iter().map(worth).sum()
}

/// How many pieces are not yet in their stage.
#[must_use]
pub fn fresh(stages: &PlainStages, pieces: &[Piece]) -> usize {
    pieces.iter().filter(|piece| is_fresh(stages, piece)).count()
}

/// How many of them take the place of a piece that was of use not long ago.
#[must_use]
pub fn pressing(stages: &PlainStages, pieces: &[Piece]) -> usize {
    let is_pressed = |piece: &&Piece| stages.0[piece.stage.index()].room == Room::Pressed;
    pieces.iter().filter(is_pressed).filter(|piece| is_fresh(stages, piece)).count()
}

fn is_fresh(stages: &PlainStages, piece: &Piece) -> bool {
    !stages.0[piece.stage.index()].held.contains(&piece.steps)
}

/// What [`Joint`](crate::partition::Joint) maximises, the greater the better: few pieces that press,
/// then worth, then few new pieces, then few pieces.
pub type JointValue = (Reverse<usize>, u32, Reverse<usize>, Reverse<usize>);

/// Every complete partition whose pieces find increasing stages that hold them or have room.
#[must_use]
pub fn partitions(way: &PlainOutline, stages: &PlainStages) -> Vec<Vec<Piece>> {
    let mut bounds = way.starts();
    bounds.push(u16::try_from(way.0.len()).unwrap_or(u16::MAX));
    let (mut partial, mut complete) = (vec![(0, Vec::<Piece>::new())], Vec::new());
    while let Some((first, pieces)) = partial.pop() {
        if first + 1 == bounds.len() {
            complete.push(pieces);
            continue;
        }
        let next = pieces.last().map_or(0, |piece| piece.stage.index() + 1);
        for (number, PlainStage { room, held }) in stages.0.iter().enumerate().skip(next) {
            for end in first + 1..bounds.len() {
                let steps = bounds[first]..bounds[end];
                let stage = u8::try_from(number).ok().and_then(StageId::new);
                if let Some(stage) = stage.filter(|_| *room != Room::Full || held.contains(&steps))
                {
                    let with = pieces.iter().cloned().chain([Piece { steps, stage }]).collect();
                    partial.push((end, with));
                }
            }
        }
    }
    complete
}

/// The value that [`Joint`](crate::partition::Joint) maximises, greater is better.
#[must_use]
pub fn joint_value(
    way: &PlainOutline,
    stages: &PlainStages,
    pieces: &[Piece],
    score: Score,
) -> JointValue {
    let (pressing, fresh) = (pressing(stages, pieces), fresh(stages, pieces));
    (Reverse(pressing), worth(way, pieces, score), Reverse(fresh), Reverse(pieces.len()))
}

/// The best value of all partitions, if there is any.
#[must_use]
pub fn joint(
    all: &[Vec<Piece>],
    way: &PlainOutline,
    stages: &PlainStages,
    score: Score,
) -> Option<JointValue> {
    all.iter().map(|pieces| joint_value(way, stages, pieces, score)).max()
}

/// The partition that [`Disjoint`](crate::partition::Disjoint) finds, in stages with free room if there
/// is one, else in those that press: of those aligned to the last of them, the greatest by worth, fewest
/// pieces, pieces that are there already if ties go by that, and the lengths of its pieces from the first
/// on.
#[must_use]
pub fn disjoint(
    all: &[Vec<Piece>],
    way: &PlainOutline,
    stages: &PlainStages,
    (score, ties): (Score, Ties),
) -> Vec<Piece> {
    let has_free = stages.0.iter().any(|stage| stage.room == Room::Free);
    let usable = if has_free { Room::Free } else { Room::Pressed };
    let with_room = stages.0.iter().enumerate().filter(|(_, stage)| stage.room == usable);
    let with_room: Vec<usize> = with_room.map(|(at, _)| at).collect();
    let aligned = |pieces: &&Vec<Piece>| {
        pieces
            .iter()
            .rev()
            .zip(with_room.iter().rev())
            .all(|(piece, at)| piece.stage.index() == *at)
            && pieces.len() <= with_room.len()
    };
    let value = |pieces: &&Vec<Piece>| {
        let lengths: Vec<u16> =
            pieces.iter().map(|piece| piece.steps.end - piece.steps.start).collect();
        let fresh = match ties {
            Ties::Cached => fresh(stages, pieces),
            Ties::Canonical => 0,
        };
        (worth(way, pieces, score), Reverse(pieces.len()), Reverse(fresh), lengths)
    };
    all.iter().filter(aligned).max_by_key(value).cloned().unwrap_or_default()
}
