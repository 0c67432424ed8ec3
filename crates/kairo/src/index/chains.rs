//! Chains of positions by fingerprint: a hash table that never pauses.
//!
//! Positions are those of rows that somebody else keeps. Each is in one chain, doubly linked, so that
//! it leaves in constant time. The table grows by one bucket for each position that comes beyond the
//! last (Witold Litwin, "Linear Hashing: A New Tool for File and Table Addressing"): no insertion
//! ever rehashes the whole.

/// No position.
const NONE: u32 = u32::MAX;

/// Positions by fingerprint.
#[derive(Debug)]
pub(super) struct Chains {
    /// The first position of each bucket.
    heads: Vec<u32>,
    /// By position.
    links: Vec<Link>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    /// In a bucket's first position: [`NONE`].
    previous: u32,
    print: u32,
}

impl Chains {
    pub(super) fn new() -> Self {
        Self::with_room(0)
    }

    /// No positions, and room for so many: then none of them moves all the others.
    pub(super) fn with_room(positions: usize) -> Self {
        let mut heads = Vec::with_capacity(positions.max(1));
        heads.push(NONE);
        Self { heads, links: Vec::with_capacity(positions), len: 0 }
    }

    /// Adds a position that is in no chain.
    pub(super) fn insert(&mut self, position: u32, print: u32) {
        let index = position as usize;
        if self.links.len() <= index {
            self.links.resize(index + 1, Link { next: NONE, previous: NONE, print: 0 });
        }
        self.links[index].print = print;
        self.push(self.bucket(print), position);
        self.len += 1;
        if self.len > self.heads.len() {
            self.split();
        }
    }

    /// Takes a position out of its chain.
    pub(super) fn remove(&mut self, position: u32) {
        let bucket = self.bucket(self.links[position as usize].print);
        self.unlink(bucket, position);
        self.len -= 1;
    }

    /// The positions with a fingerprint, the newest first.
    pub(super) fn of(&self, print: u32) -> impl Iterator<Item = u32> + '_ {
        let after = |position: u32| (position != NONE).then_some(position);
        let first = after(self.heads[self.bucket(print)]);
        let all = std::iter::successors(first, move |position| {
            after(self.links[*position as usize].next)
        });
        all.filter(move |position| self.links[*position as usize].print == print)
    }

    /// Positions in all chains.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Bytes on the heap.
    pub(super) const fn bytes(&self) -> usize {
        self.heads.capacity() * size_of::<u32>() + self.links.capacity() * size_of::<Link>()
    }

    /// Where a fingerprint belongs: by as many bits as name all buckets, or one less where that
    /// bucket does not exist yet.
    const fn bucket(&self, print: u32) -> usize {
        let count = self.heads.len();
        let wide = count.next_power_of_two();
        let bucket = print as usize & (wide - 1);
        if bucket < count { bucket } else { bucket & (wide / 2 - 1) }
    }

    /// Adds a bucket, and gives it what belongs there of the one that it was part of.
    fn split(&mut self) {
        let added = self.heads.len();
        let source = added - (added + 1).next_power_of_two() / 2;
        self.heads.push(NONE);
        let mut rest = self.heads[source];
        while rest != NONE {
            let Link { next, print, .. } = self.links[rest as usize];
            if self.bucket(print) == added {
                self.unlink(source, rest);
                self.push(added, rest);
            }
            rest = next;
        }
    }

    fn unlink(&mut self, bucket: usize, position: u32) {
        let Link { next, previous, .. } = self.links[position as usize];
        if previous == NONE {
            self.heads[bucket] = next;
        } else {
            self.links[previous as usize].next = next;
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
    }

    fn push(&mut self, bucket: usize, position: u32) {
        let next = std::mem::replace(&mut self.heads[bucket], position);
        let link = &mut self.links[position as usize];
        (link.next, link.previous) = (next, NONE);
        if next != NONE {
            self.links[next as usize].previous = position;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn held(chains: &Chains, print: u32) -> BTreeSet<u32> {
        let all: Vec<_> = chains.of(print).collect();
        let set: BTreeSet<_> = all.iter().copied().collect();
        assert_eq!(set.len(), all.len(), "a position is in its chain once");
        set
    }

    proptest! {
        #[test]
        fn a_chain_holds_what_a_map_does(
            ops in prop::collection::vec((0u32..200, prop::option::of(0u32..40)), 1..600),
        ) {
            let (mut chains, mut model) = (Chains::new(), BTreeMap::<u32, u32>::new());
            for (position, print) in ops {
                // Prints that differ in high bits alone share buckets.
                let print = print.map(|print| (print << 24) + print % 3);
                match (print, model.contains_key(&position)) {
                    (Some(print), false) => {
                        chains.insert(position, print);
                        model.insert(position, print);
                    }
                    (None, true) => {
                        chains.remove(position);
                        model.remove(&position);
                    }
                    (Some(_), true) | (None, false) => {}
                }
            }
            for print in (0..40).map(|print: u32| (print << 24) + print % 3) {
                let expected = model.iter().filter(|(_, own)| **own == print);
                prop_assert_eq!(held(&chains, print), expected.map(|(p, _)| *p).collect::<BTreeSet<_>>());
            }
            prop_assert_eq!(chains.len, model.len());
        }
    }

    #[test]
    fn chains_stay_short() {
        let mut chains = Chains::new();
        (0..10_000u32).for_each(|n| chains.insert(n, n.wrapping_mul(0x9e37_79b1).rotate_left(13)));
        let mut lengths = vec![0; chains.heads.len()];
        let prints: Vec<_> = chains.links.iter().map(|link| link.print).collect();
        prints.iter().for_each(|print| lengths[chains.bucket(*print)] += 1);
        assert!(lengths.iter().all(|length| *length < 12), "{:?}", lengths.iter().max());
    }
}
