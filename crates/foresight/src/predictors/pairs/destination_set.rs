//! Sets of destinations, as bits.

/// The number of a destination in its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DestinationId(pub(super) u8);

/// A set of destinations, with a bit for each [`DestinationId`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DestinationSet([u64; 4]);

impl DestinationId {
    /// Number of identifiers that a set can contain.
    pub(super) const COUNT: usize = 256;

    /// Returns the position of the destination in its table.
    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

impl DestinationSet {
    /// Returns whether the set contains a destination.
    pub(super) fn contains(&self, id: DestinationId) -> bool {
        self.0[id.index() / 64] & Self::bit(id) != 0
    }

    /// Adds a destination to the set.
    pub(super) fn insert(&mut self, id: DestinationId) {
        self.0[id.index() / 64] |= Self::bit(id);
    }

    /// Removes a destination from the set.
    pub(super) fn remove(&mut self, id: DestinationId) {
        self.0[id.index() / 64] &= !Self::bit(id);
    }

    /// Returns the destinations that are not in `other`.
    pub(super) fn without(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own &= !other);
        self
    }

    /// Returns the number of destinations.
    pub(super) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the destinations in ascending order.
    pub(super) fn iter(self) -> impl Iterator<Item = DestinationId> {
        (0..=u8::MAX).map(DestinationId).filter(move |id| self.contains(*id))
    }

    /// Returns the bit of a destination in the set.
    const fn bit(id: DestinationId) -> u64 {
        1 << (id.0 % 64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_the_inserted_members() {
        let mut set = DestinationSet::default();
        for id in [0, 63, 64, 200, 255] {
            set.insert(DestinationId(id));
        }
        set.remove(DestinationId(200));
        let ids: Vec<u8> = set.iter().map(|id| id.0).collect();
        assert_eq!((ids, set.len()), (vec![0, 63, 64, 255], 4));
        let mut other = DestinationSet::default();
        other.insert(DestinationId(63));
        assert_eq!(set.without(&other).len(), 3);
    }
}
