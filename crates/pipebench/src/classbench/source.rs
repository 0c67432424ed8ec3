//! Generates all source addresses of a set together, from the root of a binary tree.
//!
//! At each bit, the filters of a branch continue together or split, according to the parameters,
//! until their prefixes have their lengths. The tree is never stored: a call has the filters below
//! one node. The depth of recursion is the number of bits of an address.

use super::{filter::AddressPrefix, generate::FilterDraft, parameters::Branching};
use crate::RandomStream;

/// A node of the tree of addresses, as a prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeNode {
    /// The bits of the prefix, from the highest bit on.
    pub(super) address: u32,
    /// Number of bits of the prefix.
    pub(super) length: u8,
    /// Number of nodes above at which prefixes of filters end.
    pub(super) nesting: u32,
}

impl TreeNode {
    /// The node of all addresses.
    pub(super) const ROOT: Self = Self { address: 0, length: 0, nesting: 0 };

    /// Returns the child on a side.
    pub(super) fn child(self, side: ChildSide, nesting: u32) -> Self {
        let bit = (1_u32 << 31).checked_shr(self.length.into()).unwrap_or(0);
        let address = if side == ChildSide::One { self.address | bit } else { self.address };
        Self { address, length: self.length.saturating_add(1), nesting }
    }

    /// Completes the prefix of the only filter below a node with random bits.
    pub(super) fn alone(self, length: u8, stream: &mut RandomStream) -> AddressPrefix {
        let free = u32::MAX.checked_shr(self.length.into()).unwrap_or(0);
        let random = u32::try_from(stream.bits() >> 32).unwrap_or(0);
        AddressPrefix::new(self.address | (random & free), length)
    }
}

/// One of the two children of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildSide {
    Zero,
    One,
}

impl ChildSide {
    /// The sides of a node, in order.
    pub(super) const BOTH: [Self; 2] = [Self::Zero, Self::One];

    /// Returns a random side.
    pub(super) fn random(stream: &mut RandomStream) -> Self {
        if stream.below(2) == 0 { Self::Zero } else { Self::One }
    }

    /// Returns the other side of a node.
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Zero => Self::One,
            Self::One => Self::Zero,
        }
    }

    /// Selects one of two items.
    pub(super) const fn of<T>(self, pair: &mut [T; 2]) -> &mut T {
        let [zero, one] = pair;
        match self {
            Self::Zero => zero,
            Self::One => one,
        }
    }
}

/// Gives each filter a source address of the drafted length.
pub(super) fn grow_sources(
    drafts: &mut [FilterDraft],
    branching: &Branching,
    stream: &mut RandomStream,
) {
    let all = (0..drafts.len()).collect();
    SourceTree { drafts, branching, stream }.assign_addresses(TreeNode::ROOT, all);
}

/// A prefix tree that assigns source addresses to filters.
struct SourceTree<'a> {
    drafts: &'a mut [FilterDraft],
    branching: &'a Branching,
    stream: &'a mut RandomStream,
}

impl SourceTree<'_> {
    /// Assigns addresses to the filters below a node.
    fn assign_addresses(&mut self, node: TreeNode, filters: Vec<usize>) {
        if let [only] = *filters {
            let length = self.length(only);
            let prefix = node.alone(length, self.stream);
            self.end(only, prefix);
            return;
        }
        let (ended, rest): (Vec<_>, Vec<_>) =
            filters.into_iter().partition(|filter| self.length(*filter) == node.length);
        let here = AddressPrefix::new(node.address, node.length);
        ended.iter().for_each(|filter| self.end(*filter, here));
        if rest.is_empty() {
            return;
        }
        let nesting = node.nesting.saturating_add(u32::from(!ended.is_empty()));
        let [zero, one] = self.split(node.length, nesting, rest);
        for (side, filters) in ChildSide::BOTH.into_iter().zip([zero, one]) {
            if !filters.is_empty() {
                self.assign_addresses(node.child(side, nesting), filters);
            }
        }
    }

    /// Splits filters between the children.
    fn split(&mut self, length: u8, nesting: u32, mut filters: Vec<usize>) -> [Vec<usize>; 2] {
        let side = ChildSide::random(self.stream);
        let mut children = [Vec::new(), Vec::new()];
        let next = length.saturating_add(1);
        let ends_next = |tree: &Self, filter: &usize| tree.length(*filter) == next;
        if at_nesting_limit(self.branching, nesting, length, filters.len())
            && filters.iter().any(|filter| ends_next(self, filter))
        {
            // A prefix that ends at the next bit must not contain the prefixes of other filters.
            let (ending, rest) = filters.into_iter().partition(|filter| ends_next(self, filter));
            *side.of(&mut children) = ending;
            *side.other().of(&mut children) = rest;
            return children;
        }
        let level = self.branching.levels.get(usize::from(length)).copied().unwrap_or_default();
        if filters.len() > 1 && !self.stream.chance(level.single) {
            let light = filters.len().saturating_sub(heavy(filters.len(), level.skew));
            let rest = filters.split_off(light);
            *side.other().of(&mut children) = std::mem::replace(&mut filters, rest);
        }
        *side.of(&mut children) = filters;
        children
    }

    /// Returns the length of the source prefix of a filter.
    fn length(&self, filter: usize) -> u8 {
        self.drafts.get(filter).map_or(0, |draft| draft.source.length())
    }

    /// Sets the source prefix of a filter.
    fn end(&mut self, filter: usize, prefix: AddressPrefix) {
        if let Some(draft) = self.drafts.get_mut(filter) {
            draft.source = prefix;
        }
    }
}

/// Returns whether one more enclosing prefix would exceed the nesting limit.
pub(super) fn at_nesting_limit(
    branching: &Branching,
    nesting: u32,
    length: u8,
    filters: usize,
) -> bool {
    let full = nesting.saturating_add(1) >= branching.nesting;
    full && filters > 1 && length < AddressPrefix::LENGTH_MAX - 1
}

/// Returns the number of filters on the heavier side.
///
/// The number is half of the filters with skew 0, and all filters with skew 1.
pub(super) fn heavy(filters: usize, skew: f64) -> usize {
    #[expect(clippy::cast_precision_loss, reason = "a set has fewer filters than 2^53")]
    let heavy = (filters as f64 / (2.0 - skew)).floor();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the count is at most the number of filters"
    )]
    #[expect(clippy::cast_sign_loss, reason = "a skew is at most 1, so this is positive")]
    let heavy = heavy as usize;
    heavy.min(filters)
}
