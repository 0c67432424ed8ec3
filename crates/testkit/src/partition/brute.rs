//! A brute-force oracle for policies: it enumerates all partitions with all stages.
//!
//! The oracle shares no code with the policies except the types of the contract. A test enumerates
//! the [`partitions`] once, since they are the same for all traversals with the same partition
//! points.

use std::cmp::Reverse;

use shunt_gigaflow::{
    outline::FieldSet,
    partition::{Placement, Score, StageId, research::Ties},
};

use super::plain::{PlainOutline, PlainStage, PlainStages, StageRoom};

/// Returns whether the fields of these steps are connected.
///
/// The search starts with one step, and repeatedly adds steps that share a field with those reached
/// so far.
#[must_use]
pub fn coupled(steps: &[FieldSet]) -> bool {
    let mut left: Vec<FieldSet> = steps.iter().copied().filter(|set| !set.is_empty()).collect();
    let Some(mut reached) = left.pop() else { return true };
    while let Some(at) = left.iter().position(|set| set.intersects(reached)) {
        reached = reached.union(left.remove(at));
    }
    left.is_empty()
}

/// Returns the total score of a partition.
#[must_use]
pub fn worth(outline: &PlainOutline, placements: &[Placement], score: Score) -> u32 {
    let fields = outline.fields();
    let worth = |placement: &Placement| {
        let steps = &fields[usize::from(placement.steps.start)..usize::from(placement.steps.end)];
        let length = u32::try_from(steps.len()).unwrap_or(u32::MAX);
        match (coupled(steps), score) {
            (false, _) => 0,
            (true, Score::Length) => length,
            (true, Score::Joins) => length - 1,
        }
    };
    placements.iter().map(worth).sum()
}

/// Returns the number of new entries of a partition.
#[must_use]
pub fn new_entries_count(stages: &PlainStages, placements: &[Placement]) -> usize {
    placements.iter().filter(|placement| is_fresh(stages, placement)).count()
}

/// Returns the number of new entries in stages with [`StageRoom::Contended`].
#[must_use]
pub fn new_entries_in_nearly_full_stages(stages: &PlainStages, placements: &[Placement]) -> usize {
    let is_contended =
        |placement: &&Placement| stages.0[placement.stage.index()].room == StageRoom::Contended;
    placements.iter().filter(is_contended).filter(|placement| is_fresh(stages, placement)).count()
}

/// Returns whether the stage does not hold the sub-traversal yet.
fn is_fresh(stages: &PlainStages, placement: &Placement) -> bool {
    !stages.0[placement.stage.index()].held.contains(&placement.steps)
}

/// The value that [`JointPolicy`] maximises.
///
/// The value prefers few new entries in nearly full stages, then a high score, few new entries and
/// few entries.
///
/// [`JointPolicy`]: shunt_gigaflow::partition::JointPolicy
pub type JointValue = (Reverse<usize>, u32, Reverse<usize>, Reverse<usize>);

/// Returns every complete partition that fits into the stages.
#[must_use]
pub fn partitions(outline: &PlainOutline, stages: &PlainStages) -> Vec<Vec<Placement>> {
    let mut bounds = outline.starts();
    bounds.push(u16::try_from(outline.0.len()).unwrap_or(u16::MAX));
    let (mut partial, mut complete) = (vec![(0, Vec::<Placement>::new())], Vec::new());
    while let Some((first, placements)) = partial.pop() {
        if first + 1 == bounds.len() {
            complete.push(placements);
            continue;
        }
        let next = placements.last().map_or(0, |placement| placement.stage.index() + 1);
        for (number, PlainStage { room, held }) in stages.0.iter().enumerate().skip(next) {
            for end in first + 1..bounds.len() {
                let steps = bounds[first]..bounds[end];
                let stage = u8::try_from(number).ok().and_then(StageId::new);
                if let Some(stage) =
                    stage.filter(|_| *room != StageRoom::Full || held.contains(&steps))
                {
                    let with =
                        placements.iter().cloned().chain([Placement { steps, stage }]).collect();
                    partial.push((end, with));
                }
            }
        }
    }
    complete
}

/// Returns the [`JointValue`] of a partition.
#[must_use]
pub fn joint_value(
    outline: &PlainOutline,
    stages: &PlainStages,
    placements: &[Placement],
    score: Score,
) -> JointValue {
    let new_entries_count = new_entries_count(stages, placements);
    (
        Reverse(new_entries_in_nearly_full_stages(stages, placements)),
        worth(outline, placements, score),
        Reverse(new_entries_count),
        Reverse(placements.len()),
    )
}

/// Returns the best value of all partitions, if there is any.
#[must_use]
pub fn joint(
    all: &[Vec<Placement>],
    outline: &PlainOutline,
    stages: &PlainStages,
    score: Score,
) -> Option<JointValue> {
    all.iter().map(|placements| joint_value(outline, stages, placements, score)).max()
}

/// Returns the partition that the disjoint policy must find.
///
/// The policy uses the stages with free room, or the contended ones if there are none. The policy
/// considers the partitions that are aligned to the last of these stages. The highest score wins,
/// then the fewest entries, then the fewest new entries if `ties` asks for it. The last criterion
/// is the longest first sub-traversal, then the longest second one, and so on.
#[must_use]
pub fn disjoint(
    all: &[Vec<Placement>],
    outline: &PlainOutline,
    stages: &PlainStages,
    score: Score,
    ties: Ties,
) -> Vec<Placement> {
    let has_free = stages.0.iter().any(|stage| stage.room == StageRoom::Free);
    let usable = if has_free { StageRoom::Free } else { StageRoom::Contended };
    let with_room = stages.0.iter().enumerate().filter(|(_, stage)| stage.room == usable);
    let with_room: Vec<usize> = with_room.map(|(at, _)| at).collect();
    let aligned = |placements: &&Vec<Placement>| {
        placements
            .iter()
            .rev()
            .zip(with_room.iter().rev())
            .all(|(placement, at)| placement.stage.index() == *at)
            && placements.len() <= with_room.len()
    };
    let value = |placements: &&Vec<Placement>| {
        let lengths: Vec<u16> = placements
            .iter()
            .map(|placement| placement.steps.end - placement.steps.start)
            .collect();
        let new_entries_count = match ties {
            Ties::Cached => new_entries_count(stages, placements),
            Ties::Canonical => 0,
        };
        (
            worth(outline, placements, score),
            Reverse(placements.len()),
            Reverse(new_entries_count),
            lengths,
        )
    };
    all.iter().filter(aligned).max_by_key(value).cloned().unwrap_or_default()
}
