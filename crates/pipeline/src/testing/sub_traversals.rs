//! Combination of the sub-traversals of one packet.

use crate::traversals::{sub_traversal::SubTraversal, traversal::Traversal};

/// Combines sub-traversals into the traversal of a packet that hits all of them.
///
/// The result has the actions, statistics and refreshes of all sub-traversals, and the key and mask
/// of the first.
///
/// # Panics
///
/// If `sub_traversals` is empty.
#[must_use]
pub fn merged<'a>(sub_traversals: impl IntoIterator<Item = &'a Traversal>) -> Traversal {
    let sub_traversals: Vec<&Traversal> = sub_traversals.into_iter().collect();
    let (first, last) = (sub_traversals[0], sub_traversals[sub_traversals.len() - 1]);
    let mut refreshes = Vec::new();
    for refresh in sub_traversals.iter().flat_map(|sub_traversal| &sub_traversal.refreshes) {
        if !refreshes.contains(refresh) {
            refreshes.push(refresh.clone());
        }
    }
    Traversal {
        visits: sub_traversals
            .iter()
            .flat_map(|sub_traversal| &sub_traversal.visits)
            .cloned()
            .collect(),
        reads: sub_traversals
            .iter()
            .flat_map(|sub_traversal| &sub_traversal.reads)
            .copied()
            .collect(),
        group_hits: sub_traversals
            .iter()
            .flat_map(|sub_traversal| &sub_traversal.group_hits)
            .cloned()
            .collect(),
        output_hits: sub_traversals
            .iter()
            .flat_map(|sub_traversal| &sub_traversal.output_hits)
            .cloned()
            .collect(),
        learnings: sub_traversals
            .iter()
            .flat_map(|sub_traversal| &sub_traversal.learnings)
            .cloned()
            .collect(),
        refreshes: refreshes.into(),
        actions: sub_traversals
            .iter()
            .flat_map(|sub_traversal| &*sub_traversal.actions)
            .cloned()
            .collect(),
        error: sub_traversals.iter().find_map(|sub_traversal| sub_traversal.error),
        drop_cause: last.drop_cause,
        next: last.next.clone(),
        ..first.clone()
    }
}

/// Returns the traversals of the sub-traversals.
pub fn traversals(sub_traversals: &[SubTraversal]) -> impl Iterator<Item = &Traversal> {
    sub_traversals.iter().map(|sub_traversal| &sub_traversal.traversal)
}
