//! An index over starts of a kind that is chosen at run time.

use super::{
    segments::{LinearSegments, SegmentSettings},
    start_index::StartIndex,
    tree::StaticTree,
};
use crate::{
    Error,
    rqrmi::{CertifiedModel, STARTS_MAX, TrainingSettings},
};

/// The kind of an index over starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartIndexKind {
    /// A search tree over the starts: [`StaticTree`].
    #[default]
    Tree,
    /// Linear segments over the starts: [`LinearSegments`].
    Segments,
    /// RQ-RMI, the index of the papers: [`CertifiedModel`].
    Rqrmi,
}

/// An index over starts of a kind that is chosen at run time.
///
/// More than 2^24 starts are always indexed by a tree, because learned indexes hold no more. So a
/// build never fails.
///
/// ```
/// use shunt_nuevomatch::{AnyStartIndex, StartIndex, StartIndexKind};
///
/// let index = AnyStartIndex::build(&[0, 10, 20], &StartIndexKind::Rqrmi)?;
/// assert_eq!((index.find(9), index.find(10)), (0, 1));
/// assert_eq!(index.kind(), StartIndexKind::Rqrmi);
/// # Ok::<(), shunt_nuevomatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnyStartIndex(IndexVariant);

/// The index of each kind.
#[derive(Clone, Debug)]
enum IndexVariant {
    Tree(StaticTree),
    Segments(LinearSegments),
    Rqrmi(CertifiedModel),
}

impl AnyStartIndex {
    /// Returns the kind of the index.
    #[must_use]
    pub const fn kind(&self) -> StartIndexKind {
        match self.0 {
            IndexVariant::Tree(_) => StartIndexKind::Tree,
            IndexVariant::Segments(_) => StartIndexKind::Segments,
            IndexVariant::Rqrmi(_) => StartIndexKind::Rqrmi,
        }
    }

    /// Builds an index, which is a tree if there are more than `learned_max` starts.
    fn build_at_most(
        starts: &[u32],
        kind: StartIndexKind,
        learned_max: usize,
    ) -> Result<Self, Error> {
        let kind = if starts.len() > learned_max { StartIndexKind::Tree } else { kind };
        Ok(Self(match kind {
            StartIndexKind::Tree => IndexVariant::Tree(StaticTree::build(starts, &())?),
            StartIndexKind::Segments => {
                let settings = SegmentSettings::default();
                IndexVariant::Segments(LinearSegments::build(starts, &settings)?)
            }
            StartIndexKind::Rqrmi => {
                let settings = TrainingSettings::default();
                IndexVariant::Rqrmi(CertifiedModel::build(starts, &settings)?)
            }
        }))
    }
}

impl StartIndex for AnyStartIndex {
    type Settings = StartIndexKind;

    /// Builds an index of a kind with its default settings.
    fn build(starts: &[u32], kind: &StartIndexKind) -> Result<Self, Error> {
        Self::build_at_most(starts, *kind, STARTS_MAX)
    }

    fn find_batch(&self, keys: &[u32], positions: &mut [u32]) {
        match &self.0 {
            IndexVariant::Tree(index) => index.find_batch(keys, positions),
            IndexVariant::Segments(index) => index.find_batch(keys, positions),
            IndexVariant::Rqrmi(index) => index.find_batch(keys, positions),
        }
    }

    fn bytes(&self) -> usize {
        match &self.0 {
            IndexVariant::Tree(index) => index.bytes(),
            IndexVariant::Segments(index) => index.bytes(),
            IndexVariant::Rqrmi(index) => index.bytes(),
        }
    }

    fn certified_error(&self) -> Option<u32> {
        match &self.0 {
            IndexVariant::Tree(index) => index.certified_error(),
            IndexVariant::Segments(index) => index.certified_error(),
            IndexVariant::Rqrmi(index) => index.certified_error(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::test_starts::{check_index, patterns};

    /// The kinds of indexes.
    const KINDS: [StartIndexKind; 3] =
        [StartIndexKind::Tree, StartIndexKind::Segments, StartIndexKind::Rqrmi];

    #[test]
    fn every_kind_finds_every_pattern() {
        for (name, starts) in patterns() {
            for kind in KINDS {
                let index = AnyStartIndex::build(&starts, &kind).unwrap();
                assert_eq!(index.kind(), kind);
                assert_eq!(index.certified_error().is_some(), kind != StartIndexKind::Tree);
                assert!(index.bytes() >= size_of_val(&starts[..]));
                check_index(&format!("{name}, {kind:?}"), &index, &starts);
            }
        }
    }

    #[test]
    fn too_many_starts_are_indexed_by_a_tree() {
        let starts: Vec<u32> = (0..50).map(|start| start * 7).collect();
        for kind in KINDS {
            let index = AnyStartIndex::build_at_most(&starts, kind, starts.len()).unwrap();
            assert_eq!(index.kind(), kind);
            let index = AnyStartIndex::build_at_most(&starts, kind, starts.len() - 1).unwrap();
            assert_eq!(index.kind(), StartIndexKind::Tree);
            check_index("a tree", &index, &starts);
        }
    }
}
