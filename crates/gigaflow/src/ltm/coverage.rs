//! How many ways a packet can go through the entries of a chain: the rule space of the paper
//! ("GIGAFLOW: Rethinking the Fast Path", section 3.5).
//!
//! A megaflow cache of as many entries covers one way with each. A chain covers every way from a
//! beginning to an end by tags that agree, which is counted here exactly. Two estimates stand beside it:
//!
//! * By pairs: for each tag, whoever leads to it times whoever it leads to.
//! * As published (table 3.2, by the program that came with the paper): entries are told apart by the
//!   partition that made them, which is the places of its cuts, its stages and the exact masks of its
//!   pieces. Of each partition counts the largest product of its entries in two stages that follow on
//!   each other, of those where it has any; or its entries in one stage, where these are more, and where
//!   masks of neighbours have a bit in common.
//!
//! A partition that has entries in one stage alone counts as one there, and here as many as it has entries.
//! In return, what is printed there is no less than the number of upcalls, which says nothing of entries:
//! here it is left out. All published figures are above it.

use hashbrown::HashMap;

use super::{Next, Origin, Tag};
use crate::partition::StageId;

/// An entry, as far as it matters which follows which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its stage.
    pub stage: StageId,
    /// The tag that packets arrive with.
    pub tag: Tag,
    /// How they go on.
    pub next: Next,
    /// Whether packets have this tag as they come in.
    pub is_start: bool,
    /// The partition that made it.
    pub origin: Origin,
}

/// How many ways entries make together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Ways from a beginning to an end, through stages in order.
    pub chains: u128,
    /// For each tag in the middle the entries that lead to it times those that it leads to, and the
    /// entries that are a whole way.
    pub pairs: u128,
    /// What the published program would estimate of these entries.
    pub published: u128,
}

type ByTag = HashMap<Tag, u128, foldhash::fast::FixedState>;

impl Coverage {
    /// Counts the ways through these entries; what does not fit the number is as many as that.
    #[must_use]
    pub fn of(links: &[Link]) -> Self {
        Self { chains: chains(links), pairs: pairs(links), published: published(links) }
    }
}

fn chains(links: &[Link]) -> u128 {
    let mut by_stage: Vec<Link> = links.to_vec();
    by_stage.sort_unstable_by_key(|link| std::cmp::Reverse(link.stage));
    // Ways from each tag to the end, by the stages from the last one on.
    let (mut ways, mut starts) = (ByTag::default(), 0_u128);
    for stage in by_stage.chunk_by(|one, other| one.stage == other.stage) {
        let mut here = ByTag::default();
        for link in stage {
            let behind = match link.next {
                Next::End => 1,
                Next::Tag(next) => ways.get(&next).copied().unwrap_or(0),
            };
            add(&mut here, link.tag, behind);
            if link.is_start {
                starts = starts.saturating_add(behind);
            }
        }
        for (tag, count) in here {
            add(&mut ways, tag, count);
        }
    }
    starts
}

fn pairs(links: &[Link]) -> u128 {
    let (mut before, mut behind, mut whole) = (ByTag::default(), ByTag::default(), 0_u128);
    for link in links {
        match link.next {
            Next::Tag(next) => add(&mut before, next, 1),
            Next::End if link.is_start => whole += 1,
            Next::End => {}
        }
        add(&mut behind, link.tag, 1);
    }
    let pairs = before
        .iter()
        .map(|(tag, count)| count.saturating_mul(behind.get(tag).copied().unwrap_or(0)));
    pairs.fold(whole, u128::saturating_add)
}

fn published(links: &[Link]) -> u128 {
    let mut made: Vec<(Origin, StageId)> =
        links.iter().map(|link| (link.origin, link.stage)).collect();
    made.sort_unstable();
    let partitions = made.chunk_by(|one, other| one.0 == other.0);
    partitions.map(published_of).fold(0, u128::saturating_add)
}

/// What the entries of one partition, in the order of their stages, count together.
fn published_of(made: &[(Origin, StageId)]) -> u128 {
    let stages = made.chunk_by(|one, other| one.1 == other.1);
    let (mut most, mut before) = (0, None);
    for count in stages.map(|stage| stage.len() as u128) {
        most = most.max(count);
        if let Some(before) = before.filter(|_| !made[0].0.overlaps) {
            most = most.max(count * before);
        }
        before = Some(count);
    }
    most
}

fn add(counts: &mut ByTag, tag: Tag, count: u128) {
    let all = counts.entry(tag).or_default();
    *all = all.saturating_add(count);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(stage: u8, tag: u32, next: Option<u32>) -> Link {
        let next = next.map_or(Next::End, |next| Next::Tag(Tag::new(next)));
        let stage = StageId::new(stage).expect("a stage");
        Link { stage, tag: Tag::new(tag), next, is_start: tag == 0, origin: Origin::default() }
    }

    #[test]
    fn two_and_two_pieces_are_four_ways() {
        let links = [link(0, 0, Some(1)), link(0, 0, Some(1)), link(1, 1, None), link(2, 1, None)];
        let Coverage { chains, pairs, .. } = Coverage::of(&links);
        assert_eq!((chains, pairs), (4, 4));
    }

    #[test]
    fn a_way_goes_through_stages_in_order_and_from_a_beginning_to_an_end() {
        let links = [
            link(1, 0, Some(1)),
            link(0, 1, None),
            link(2, 1, Some(2)),
            link(3, 2, None),
            link(3, 9, None),
            link(3, 0, None),
        ];
        assert_eq!(Coverage::of(&links).chains, 2, "1 to 2 to 3, and 3 alone");
    }

    /// So many entries of a partition in each of the stages 0, 1, ..
    fn made(origin: Origin, counts: [usize; 4]) -> Vec<Link> {
        let of = |(stage, count)| vec![Link { origin, ..link(stage, 0, None) }; count];
        (0..).zip(counts).flat_map(of).collect()
    }

    #[test]
    fn as_published_a_partition_counts_its_best_two_neighbours() {
        let origin = |name| Origin { name, overlaps: false };
        let of = |links: &[Vec<Link>]| Coverage::of(&links.concat()).published;
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[made(origin(1), [3, 2, 5, 4])]), 20, "5 times 4, and no more");
        assert_eq!(of(&[made(origin(1), [3, 0, 5, 0])]), 15, "a stage without any is passed over");
        assert_eq!(of(&[made(origin(1), [0, 7, 0, 0])]), 7);
        let overlapping = Origin { name: 2, overlaps: true };
        assert_eq!(of(&[made(overlapping, [3, 2, 5, 4])]), 5, "the largest stage alone");
        // 3 * 2 of one and 5 of the other; no pairs of both.
        assert_eq!(of(&[made(origin(1), [3, 2, 0, 0]), made(overlapping, [0, 0, 5, 4])]), 11);
        assert_eq!(of(&[made(origin(1), [2, 2, 0, 0]), made(origin(3), [2, 2, 0, 0])]), 8);
    }

    #[test]
    fn what_does_not_fit_is_as_many_as_that() {
        let links: Vec<Link> = (0..64)
            .flat_map(|stage| (0..16).map(move |_| (stage, (stage < 63).then_some(stage + 1))))
            .map(|(stage, next)| link(stage, stage.into(), next.map(u32::from)))
            .collect();
        assert_eq!(Coverage::of(&links).chains, u128::MAX);
    }
}
