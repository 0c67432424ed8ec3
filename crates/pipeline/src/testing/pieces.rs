//! Pieces of a traversal, put together again.

use crate::traversals::{sub_traversal::SubTraversal, traversal::Traversal};

/// Combines sub-traversals into the traversal of a packet that hits all of them.
///
/// The result has their actions, statistics and refreshes. Key and mask are those of the first.
///
/// # Panics
///
/// If `pieces` is empty.
#[must_use]
pub fn merged<'a>(pieces: impl IntoIterator<Item = &'a Traversal>) -> Traversal {
    let pieces: Vec<&Traversal> = pieces.into_iter().collect();
    let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
    let mut refreshes = Vec::new();
    for refresh in pieces.iter().flat_map(|piece| &piece.refreshes) {
        if !refreshes.contains(refresh) {
            refreshes.push(refresh.clone());
        }
    }
    Traversal {
        visits: pieces.iter().flat_map(|piece| &piece.visits).cloned().collect(),
        reads: pieces.iter().flat_map(|piece| &piece.reads).copied().collect(),
        group_hits: pieces.iter().flat_map(|piece| &piece.group_hits).cloned().collect(),
        learnings: pieces.iter().flat_map(|piece| &piece.learnings).cloned().collect(),
        refreshes: refreshes.into(),
        actions: pieces.iter().flat_map(|piece| &*piece.actions).cloned().collect(),
        error: pieces.iter().find_map(|piece| piece.error),
        next: last.next.clone(),
        ..first.clone()
    }
}

/// The traversals of some pieces.
pub fn traversals(pieces: &[SubTraversal]) -> impl Iterator<Item = &Traversal> {
    pieces.iter().map(|piece| &piece.traversal)
}
