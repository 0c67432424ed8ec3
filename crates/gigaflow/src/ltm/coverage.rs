//! Rule-space coverage: the number of traversals that the entries of a chain can handle
//! ("GIGAFLOW: Rethinking the Fast Path", section 3.5).
//!
//! Each entry of a megaflow cache covers one traversal. A chain of stages covers every sequence of
//! entries with matching tags from a start tag to an end. The module counts the covered traversals
//! exactly, and makes two estimates:
//!
//! * Pairwise: for each tag, the number of entries that set the tag times the number of entries
//!   that match the tag.
//! * As published (table 3.2, computed by the program that came with the paper): entries are
//!   grouped by the partition that made them. A partition consists of its partition points, its
//!   stages and the exact masks of its sub-traversals. For two adjacent stages of a partition, the
//!   program multiplies the numbers of entries, and the largest product is the coverage of the
//!   partition. Instead it takes the number of entries of the largest stage if that is greater, or
//!   if the masks of adjacent sub-traversals have a common bit.
//!
//! Two details differ from the published program. The program counts a partition with entries in
//! only one stage as one; this module counts its entries. The program reports at least the number
//! of upcalls, which does not depend on entries. The estimate of this module has no lower bound;
//! all published results are above the number of upcalls.

use hashbrown::HashMap;

use super::{Next, PartitionOrigin, Tag};
use crate::partition::StageId;

/// The properties of an entry from which the rule-space coverage is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoverageLink {
    /// Stage of the entry.
    pub stage: StageId,
    /// The tag that packets arrive with.
    pub tag: Tag,
    /// The tag with which packets continue, or the end of the traversal.
    pub next: Next,
    /// True if packets have this tag when they arrive on a port.
    pub is_start: bool,
    /// The partition that the entry was made for.
    pub origin: PartitionOrigin,
}

/// The rule-space coverage of a set of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The exact number of sequences of entries from a start to an end.
    pub chains: u128,
    /// The coverage, estimated tag by tag.
    ///
    /// For each tag, the number of entries that set the tag is multiplied by the number of entries
    /// that match it. The estimate is the sum of the products of all tags, plus the number of
    /// entries that are a whole traversal.
    pub pairs: u128,
    /// The estimate of the published program.
    pub published: u128,
}

/// A count for each tag.
type ByTag = HashMap<Tag, u128, foldhash::fast::FixedState>;

impl Coverage {
    /// Computes the coverage of these entries; sums saturate at the largest `u128`.
    #[must_use]
    pub fn of(links: &[CoverageLink]) -> Self {
        Self { chains: chains(links), pairs: pairs(links), published: published_coverage(links) }
    }
}

/// Returns the exact number of traversals that the entries form.
fn chains(links: &[CoverageLink]) -> u128 {
    let mut by_stage: Vec<CoverageLink> = links.to_vec();
    by_stage.sort_unstable_by_key(|link| std::cmp::Reverse(link.stage));
    // Number of chains from each tag to the end, stage by stage from the last one back.
    let (mut chains_from, mut starts) = (ByTag::default(), 0_u128);
    for stage in by_stage.chunk_by(|one, other| one.stage == other.stage) {
        let mut here = ByTag::default();
        for link in stage {
            let behind = match link.next {
                Next::End => 1,
                Next::Tag(next) => chains_from.get(&next).copied().unwrap_or(0),
            };
            add(&mut here, link.tag, behind);
            if link.is_start {
                starts = starts.saturating_add(behind);
            }
        }
        for (tag, count) in here {
            add(&mut chains_from, tag, count);
        }
    }
    starts
}

/// Returns the estimate from pairs of entries with one tag between them.
fn pairs(links: &[CoverageLink]) -> u128 {
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

/// Returns the estimate by the formula of the paper.
fn published_coverage(links: &[CoverageLink]) -> u128 {
    let mut made: Vec<(PartitionOrigin, StageId)> =
        links.iter().map(|link| (link.origin, link.stage)).collect();
    made.sort_unstable();
    let partitions = made.chunk_by(|one, other| one.0 == other.0);
    partitions.map(published_of).fold(0, u128::saturating_add)
}

/// Returns the published estimate of one partition.
///
/// `made` has the entries of the partition in the order of their stages.
fn published_of(made: &[(PartitionOrigin, StageId)]) -> u128 {
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

/// Adds to the count of a tag.
fn add(counts: &mut ByTag, tag: Tag, count: u128) {
    let all = counts.entry(tag).or_default();
    *all = all.saturating_add(count);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tags of an LTM entry.
    fn link(stage: u8, tag: u32, next: Option<u32>) -> CoverageLink {
        let next = next.map_or(Next::End, |next| Next::Tag(Tag::new(next)));
        let stage = StageId::new(stage).expect("a stage");
        CoverageLink {
            stage,
            tag: Tag::new(tag),
            next,
            is_start: tag == 0,
            origin: PartitionOrigin::default(),
        }
    }

    #[test]
    fn two_and_two_entries_cover_four_traversals() {
        let links = [link(0, 0, Some(1)), link(0, 0, Some(1)), link(1, 1, None), link(2, 1, None)];
        let Coverage { chains, pairs, .. } = Coverage::of(&links);
        assert_eq!((chains, pairs), (4, 4));
    }

    #[test]
    fn chain_passes_stages_in_order() {
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

    /// Returns entries of one partition; `counts` are their numbers in stages 0 to 3.
    fn entries_of(origin: PartitionOrigin, counts: [usize; 4]) -> Vec<CoverageLink> {
        let of = |(stage, count)| vec![CoverageLink { origin, ..link(stage, 0, None) }; count];
        (0..).zip(counts).flat_map(of).collect()
    }

    #[test]
    fn published_estimate_takes_best_two_adjacent_stages() {
        let origin = |hash| PartitionOrigin { hash, overlaps: false };
        let of = |links: &[Vec<CoverageLink>]| Coverage::of(&links.concat()).published;
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[entries_of(origin(1), [3, 2, 5, 4])]), 20, "5 times 4, and no more");
        assert_eq!(of(&[entries_of(origin(1), [3, 0, 5, 0])]), 15, "an empty stage is skipped");
        assert_eq!(of(&[entries_of(origin(1), [0, 7, 0, 0])]), 7);
        let overlapping = PartitionOrigin { hash: 2, overlaps: true };
        assert_eq!(of(&[entries_of(overlapping, [3, 2, 5, 4])]), 5, "the largest stage alone");
        // One partition has 3 * 2 chains, and the other one has 5. No chain has entries of both
        // partitions.
        assert_eq!(
            of(&[entries_of(origin(1), [3, 2, 0, 0]), entries_of(overlapping, [0, 0, 5, 4])]),
            11
        );
        assert_eq!(
            of(&[entries_of(origin(1), [2, 2, 0, 0]), entries_of(origin(3), [2, 2, 0, 0])]),
            8
        );
    }

    #[test]
    fn rule_space_coverage_saturates() {
        let links: Vec<CoverageLink> = (0..64)
            .flat_map(|stage| (0..16).map(move |_| (stage, (stage < 63).then_some(stage + 1))))
            .map(|(stage, next)| link(stage, stage.into(), next.map(u32::from)))
            .collect();
        assert_eq!(Coverage::of(&links).chains, u128::MAX);
    }
}
