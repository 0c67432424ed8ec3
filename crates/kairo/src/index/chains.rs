//! A hash table of positions by fingerprint that grows without pauses.
//!
//! A position is the index of a row in a list of the caller. The positions with one fingerprint
//! form a doubly linked *chain*, so that a position is removed in constant time. A search in a
//! bucket looks only at the first position of each chain.
//!
//! A bucket is the list of the first positions of its chains. If there are more chains than
//! buckets, each new chain adds one bucket (Witold Litwin, "Linear Hashing: A New Tool for File and
//! Table Addressing"), so no insertion rehashes the whole table. Splitting a bucket reads one
//! position per chain, even if a million visits share a fingerprint.

/// Marks the end of a chain or of a bucket.
const NONE: u32 = u32::MAX >> 1;

/// A hash table of positions by fingerprint.
#[derive(Debug)]
pub(super) struct Chains {
    /// The first position of the first chain of each bucket.
    heads: Vec<u32>,
    /// The link of each position.
    links: Vec<ChainLink>,
    /// Number of positions in all chains.
    len: usize,
    /// Number of chains.
    chains: usize,
}

/// The links of a position in its chain.
#[derive(Clone, Copy, Debug)]
struct ChainLink {
    /// The next position in the chain, or [`NONE`].
    next: u32,
    /// The position before; for the first position, the first of the next chain.
    before: Predecessor,
    /// The fingerprint that all positions of the chain have.
    fingerprint: u32,
}

/// The predecessor of a position in its chain.
///
/// For the first position of a chain, this is instead the first position of the next chain in the
/// bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Predecessor(u32);

impl Predecessor {
    /// The bit that is set for the first position of a chain.
    const FIRST: u32 = 1 << 31;

    /// Creates the value of a first position: the next chain of the bucket.
    const fn chain(next_first: u32) -> Self {
        Self(next_first | Self::FIRST)
    }

    /// Creates the value of a later position: the position before it in the chain.
    const fn position(position: u32) -> Self {
        Self(position)
    }

    /// Returns the first position of the next chain of the bucket.
    /// The result is `None` if the position is not the first of its chain.
    const fn next_first(self) -> Option<u32> {
        if self.0 & Self::FIRST == 0 { None } else { Some(self.0 & !Self::FIRST) }
    }
}

impl Chains {
    /// Returns a table without positions.
    pub(super) fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates an empty table with room for this number of positions.
    pub(super) fn with_capacity(positions: usize) -> Self {
        let mut heads = Vec::with_capacity(positions.max(1));
        heads.push(NONE);
        Self { heads, links: Vec::with_capacity(positions), len: 0, chains: 0 }
    }

    /// Adds a position, which must be in no chain, to the chain of its fingerprint.
    pub(super) fn insert(&mut self, position: u32, fingerprint: u32) {
        let index = position as usize;
        if self.links.len() <= index {
            assert!(position < NONE, "a table of visits has fewer than 2^31 - 1 positions");
            let empty =
                ChainLink { next: NONE, before: Predecessor::position(NONE), fingerprint: 0 };
            self.links.resize(index + 1, empty);
        }
        self.len += 1;
        let bucket = self.bucket(fingerprint);
        if let Some(first) = self.first(bucket, fingerprint) {
            let next = std::mem::replace(&mut self.link(first).next, position);
            *self.link(position) =
                ChainLink { next, before: Predecessor::position(first), fingerprint };
            if next != NONE {
                self.link(next).before = Predecessor::position(position);
            }
            return;
        }
        *self.link(position) =
            ChainLink { next: NONE, before: Predecessor::chain(NONE), fingerprint };
        self.push(bucket, position);
        self.chains += 1;
        if self.chains > self.heads.len() {
            self.split();
        }
    }

    /// Removes a position from its chain.
    pub(super) fn remove(&mut self, position: u32) {
        self.len -= 1;
        let ChainLink { next, before, fingerprint } = *self.link(position);
        let Some(next_first) = before.next_first() else {
            self.link(before.0).next = next;
            if next != NONE {
                self.link(next).before = before;
            }
            return;
        };
        let bucket = self.bucket(fingerprint);
        let replacement = if next == NONE {
            self.chains -= 1;
            next_first
        } else {
            self.link(next).before = before;
            next
        };
        let previous = self.firsts(bucket).take_while(|first| *first != position).last();
        match previous {
            Some(previous) => self.link(previous).before = Predecessor::chain(replacement),
            None => self.heads[bucket] = replacement,
        }
    }

    /// Returns the positions with a fingerprint.
    pub(super) fn of(&self, fingerprint: u32) -> impl Iterator<Item = u32> + '_ {
        let after = |position: u32| (position != NONE).then_some(position);
        let first = self.first(self.bucket(fingerprint), fingerprint);
        std::iter::successors(first, move |position| after(self.links[*position as usize].next))
    }

    /// Returns the number of positions in all chains.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes on the heap.
    pub(super) const fn bytes(&self) -> usize {
        self.heads.capacity() * size_of::<u32>() + self.links.capacity() * size_of::<ChainLink>()
    }

    /// Returns the bucket of a fingerprint.
    ///
    /// The number of the bucket is the low bits of the fingerprint, as many as all buckets need. If
    /// that bucket does not exist yet, one bit less is used.
    const fn bucket(&self, fingerprint: u32) -> usize {
        let count = self.heads.len();
        let wide = count.next_power_of_two();
        let bucket = fingerprint as usize & (wide - 1);
        if bucket < count { bucket } else { bucket & (wide / 2 - 1) }
    }

    /// Returns the first position of each chain of a bucket.
    fn firsts(&self, bucket: usize) -> impl Iterator<Item = u32> + '_ {
        let mut first = self.heads[bucket];
        std::iter::from_fn(move || {
            let own = (first != NONE).then_some(first)?;
            first = self.links[own as usize].before.next_first().unwrap_or(NONE);
            Some(own)
        })
    }

    /// Returns the first position of the chain with a fingerprint.
    fn first(&self, bucket: usize, fingerprint: u32) -> Option<u32> {
        self.firsts(bucket).find(|first| self.links[*first as usize].fingerprint == fingerprint)
    }

    /// Adds a bucket, and splits the chains of an older bucket between the two.
    fn split(&mut self) {
        let added = self.heads.len();
        let source = added - (added + 1).next_power_of_two() / 2;
        self.heads.push(NONE);
        let mut first = std::mem::replace(&mut self.heads[source], NONE);
        while first != NONE {
            let ChainLink { before, fingerprint, .. } = *self.link(first);
            self.push(self.bucket(fingerprint), first);
            first = before.next_first().unwrap_or(NONE);
        }
    }

    /// Puts a chain at the front of a bucket.
    fn push(&mut self, bucket: usize, first: u32) {
        let next_first = std::mem::replace(&mut self.heads[bucket], first);
        self.link(first).before = Predecessor::chain(next_first);
    }

    /// Returns the link at a position.
    fn link(&mut self, position: u32) -> &mut ChainLink {
        &mut self.links[position as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn positions_of(chains: &Chains, fingerprint: u32) -> BTreeSet<u32> {
        let all: Vec<_> = chains.of(fingerprint).collect();
        let set: BTreeSet<_> = all.iter().copied().collect();
        assert_eq!(set.len(), all.len(), "a position is in its chain once");
        set
    }

    proptest! {
        #[test]
        fn hash_chains_equal_a_map(
            ops in prop::collection::vec((0u32..200, prop::option::of(0u32..40)), 1..600),
        ) {
            let (mut chains, mut model) = (Chains::new(), BTreeMap::<u32, u32>::new());
            for (position, fingerprint) in ops {
                // Fingerprints that differ only in high bits belong to the same bucket.
                let fingerprint = fingerprint.map(|fingerprint| (fingerprint << 24) + fingerprint % 3);
                match (fingerprint, model.contains_key(&position)) {
                    (Some(fingerprint), false) => {
                        chains.insert(position, fingerprint);
                        model.insert(position, fingerprint);
                    }
                    (None, true) => {
                        chains.remove(position);
                        model.remove(&position);
                    }
                    (Some(_), true) | (None, false) => {}
                }
            }
            for fingerprint in (0..40).map(|fingerprint: u32| (fingerprint << 24) + fingerprint % 3) {
                let expected = model.iter().filter(|(_, own)| **own == fingerprint);
                prop_assert_eq!(positions_of(&chains, fingerprint), expected.map(|(p, _)| *p).collect::<BTreeSet<_>>());
            }
            prop_assert_eq!(chains.len, model.len());
            prop_assert_eq!(chains.chains, model.values().collect::<BTreeSet<_>>().len());
        }
    }

    #[test]
    fn dividing_a_bucket_reads_few_positions() {
        let mut chains = Chains::new();
        (0..10_000).for_each(|position| chains.insert(position, position % 2 * 7));
        let buckets = 0..chains.heads.len();
        let longest = buckets.map(|bucket| chains.firsts(bucket).count()).max();
        assert_eq!((chains.heads.len(), longest), (2, Some(1)));
        assert_eq!((chains.of(0).count(), chains.of(7).count()), (5000, 5000));
    }

    #[test]
    fn hash_chains_stay_short() {
        let mut chains = Chains::new();
        (0..10_000u32).for_each(|n| chains.insert(n, n.wrapping_mul(0x9e37_79b1).rotate_left(13)));
        let mut lengths = vec![0; chains.heads.len()];
        let prints: Vec<_> = chains.links.iter().map(|link| link.fingerprint).collect();
        prints.iter().for_each(|fingerprint| lengths[chains.bucket(*fingerprint)] += 1);
        assert!(lengths.iter().all(|length| *length < 12), "{:?}", lengths.iter().max());
    }
}
