//! Generates destination addresses like sources, but some follow the source of their filter.
//!
//! From the root on, the destination of each filter has the bits of its source, with the
//! probability given by the correlation of the parameters. At the first bit without correlation,
//! the destination has the inverted bit; from there on it branches like other destinations. A
//! destination must not lie in the prefix of its own source, so it also differs where that prefix
//! ends.

use super::{
    filter::AddressPrefix,
    generate::FilterDraft,
    parameters::Branching,
    source::{ChildSide, TreeNode, at_nesting_limit, heavy},
};
use crate::RandomStream;

/// Gives each filter a destination address of the drafted length, after its source.
pub(super) fn grow_destinations(
    drafts: &mut [FilterDraft],
    branching: &Branching,
    correlation: &[f64; 33],
    stream: &mut RandomStream,
) {
    let following = (0..drafts.len()).collect();
    let tree = &mut DestinationTree { drafts, branching, correlation, stream };
    tree.assign_addresses(TreeNode::ROOT, NodeFilters { following, free: Vec::new() });
}

/// The filters below a node of the tree.
#[derive(Debug, Default)]
struct NodeFilters {
    /// Filters with a destination that is equal to the source up to this node.
    following: Vec<usize>,
    /// Filters with a destination that differs from the source above this node.
    free: Vec<usize>,
}

/// A prefix tree that assigns destination addresses to filters.
struct DestinationTree<'a> {
    drafts: &'a mut [FilterDraft],
    branching: &'a Branching,
    correlation: &'a [f64; 33],
    stream: &'a mut RandomStream,
}

impl DestinationTree<'_> {
    /// Assigns addresses to the filters below a node.
    fn assign_addresses(&mut self, node: TreeNode, mut below: NodeFilters) {
        if let ([], [only]) = (&*below.following, &*below.free) {
            let (only, length) = (*only, self.length(*only));
            let prefix = node.alone(length, self.stream);
            self.end(only, prefix);
            return;
        }
        let before = below.following.len().saturating_add(below.free.len());
        self.end_here(node, &mut below.following);
        self.end_here(node, &mut below.free);
        let after = below.following.len().saturating_add(below.free.len());
        let nesting = node.nesting.saturating_add(u32::from(after < before));

        let mut children = self.follow(node.length, nesting, &mut below);
        self.spread(node.length, nesting, below.free, &mut children);
        for (side, child) in ChildSide::BOTH.into_iter().zip(children) {
            if !(child.following.is_empty() && child.free.is_empty()) {
                self.assign_addresses(node.child(side, nesting), child);
            }
        }
    }

    /// Gives this prefix to the filters of the length of the node.
    fn end_here(&mut self, node: TreeNode, filters: &mut Vec<usize>) {
        let here = AddressPrefix::new(node.address, node.length);
        filters.retain(|filter| {
            let ends = self.length(*filter) == node.length;
            if ends {
                self.end(*filter, here);
            }
            !ends
        });
    }

    /// Distributes the following filters to the children; some become free.
    fn follow(&mut self, length: u8, nesting: u32, below: &mut NodeFilters) -> [NodeFilters; 2] {
        let mut children = [NodeFilters::default(), NodeFilters::default()];
        let following = std::mem::take(&mut below.following);
        let next = length.saturating_add(1);
        if at_nesting_limit(self.branching, nesting, length, following.len())
            && following.iter().any(|filter| self.length(*filter) == next)
        {
            below.free.extend(following);
            return children;
        }
        let holds = self.correlation.get(usize::from(next)).copied().unwrap_or(0.0);
        for filter in following {
            let Some(source) = self.drafts.get(filter).map(|draft| draft.source) else { continue };
            let one = source.address().checked_shr(31_u32.saturating_sub(length.into()));
            let side = if one.unwrap_or(0) & 1 == 1 { ChildSide::One } else { ChildSide::Zero };
            if source.length() <= length {
                below.free.push(filter);
            } else if source.length() > next && self.stream.chance(holds) {
                side.of(&mut children).following.push(filter);
            } else {
                side.other().of(&mut children).free.push(filter);
            }
        }
        children
    }

    /// Distributes the free filters to the children.
    ///
    /// Afterwards, the split of all filters has the skew of the parameters.
    fn spread(
        &mut self,
        length: u8,
        nesting: u32,
        mut free: Vec<usize>,
        children: &mut [NodeFilters; 2],
    ) {
        if free.is_empty() {
            return;
        }
        let [zero, one] = children.each_ref().map(|child| child.following.len() + child.free.len());
        let random = ChildSide::random(self.stream);
        let side = match zero.cmp(&one) {
            std::cmp::Ordering::Greater => ChildSide::Zero,
            std::cmp::Ordering::Less => ChildSide::One,
            std::cmp::Ordering::Equal => random,
        };
        let next = length.saturating_add(1);
        if at_nesting_limit(self.branching, nesting, length, free.len())
            && free.iter().any(|filter| self.length(*filter) == next)
        {
            let (ending, rest): (Vec<_>, Vec<_>) =
                free.into_iter().partition(|filter| self.length(*filter) == next);
            let ending_side = if ending.len() > rest.len() { side } else { side.other() };
            assign(ending_side, children, ending);
            assign(ending_side.other(), children, rest);
            return;
        }
        let level = self.branching.levels.get(usize::from(length)).copied().unwrap_or_default();
        let both_there = zero > 0 && one > 0;
        if self.stream.chance(level.single) && !both_there {
            // `side` is the only existing child, or a random child.
            assign(side, children, free);
            return;
        }
        let (heavier, lighter) = (zero.max(one), zero.min(one));
        let total = free.len().saturating_add(zero).saturating_add(one);
        let to_be = heavy(total, level.skew);
        let light = total.saturating_sub(to_be).saturating_sub(lighter);
        if heavier >= to_be && light > 0 {
            assign(side.other(), children, free);
        } else {
            let rest = free.split_off(light.min(free.len()));
            assign(side.other(), children, free);
            assign(side, children, rest);
        }
    }

    /// Returns the length of the destination prefix of a filter.
    fn length(&self, filter: usize) -> u8 {
        self.drafts.get(filter).map_or(0, |draft| draft.destination.length())
    }

    /// Sets the destination prefix of a filter.
    fn end(&mut self, filter: usize, prefix: AddressPrefix) {
        if let Some(draft) = self.drafts.get_mut(filter) {
            draft.destination = prefix;
        }
    }
}

/// Adds filters to a child node.
fn assign(side: ChildSide, children: &mut [NodeFilters; 2], filters: Vec<usize>) {
    side.of(children).free.splice(0..0, filters);
}
