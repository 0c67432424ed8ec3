//! The table: subtables in the order of their highest ranks.

use std::{cmp::Reverse, collections::BinaryHeap};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_flow::{FlowKey, FlowMask, Match, SparseMask};

use super::{
    addresses::{AddressTries, PrefixLengths},
    subtable::{Held, Search, Subtable},
};
use crate::{Classifier, Lifetime, Priority, Rank, Version};

/// A classifier by tuple space search, with staged lookup and prefix tries.
///
/// With `w` words in a rule's mask, `s` subtables and `r` rules, insertion and removal take
/// O(w + log r) hash, trie and tree steps, and now and then move up to `s` entries of the order of
/// subtables by one. A lookup takes at most O(w) steps per subtable, and allocates nothing.
#[derive(Clone, Debug)]
pub struct TupleSpace<R> {
    hashing: FixedState,
    /// By [`SubtableId`]; those in `free` hold no rule and are in no order.
    subtables: Vec<Subtable<R>>,
    free: Vec<SubtableId>,
    by_mask: HashMap<SparseMask, SubtableId, FixedState>,
    /// The subtables that hold rules, the highest first.
    order: Vec<Place>,
    addresses: AddressTries,
    /// The rules whose lives have ended, the first to be reclaimed on top.
    ended: BinaryHeap<Reverse<Ended>>,
    rules_count: usize,
}

type SubtableId = usize;

/// A subtable's place in the order of searching, and what can exclude it without a look at it.
#[derive(Clone, Copy, Debug)]
struct Place {
    rank_max: Rank,
    subtable: SubtableId,
    prefix_lengths: PrefixLengths,
}

/// A rule that waits to be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ended {
    removed: Version,
    subtable: SubtableId,
    hash: u64,
}

impl<R> TupleSpace<R> {
    /// A table without rules, whose hashes depend on `seed`.
    ///
    /// Keys come from packets: a seed that nobody can guess keeps senders from choosing addresses
    /// that collide.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let hashing = FixedState::with_seed(seed);
        Self {
            by_mask: HashMap::with_hasher(hashing.clone()),
            hashing,
            subtables: Vec::new(),
            free: Vec::new(),
            order: Vec::new(),
            addresses: AddressTries::new(),
            ended: BinaryHeap::new(),
            rules_count: 0,
        }
    }

    fn search(&self, key: &FlowKey, version: Version, mask: &mut FlowMask) -> Option<&Held<R>> {
        let addresses = self.addresses.walks(key);
        let mut search = Search { key, version, hashing: &self.hashing, addresses, mask };
        let mut best: Option<&Held<R>> = None;
        for place in &self.order {
            if best.is_some_and(|best| best.rank >= place.rank_max) {
                break;
            }
            if search.addresses.exclude_free(place.prefix_lengths) {
                continue;
            }
            let found = self.subtables[place.subtable].find(&mut search);
            best = best.into_iter().chain(found).max_by_key(|held| held.rank);
        }
        best
    }

    fn subtable_of(&self, matching: &Match) -> Option<&Subtable<R>> {
        self.by_mask.get(matching.mask()).map(|id| &self.subtables[*id])
    }

    /// The subtable for rules with this mask, made when there is none.
    fn subtable_for(&mut self, mask: &SparseMask) -> SubtableId {
        if let Some(id) = self.by_mask.get(mask) {
            return *id;
        }
        let subtable = Subtable::new(mask.clone());
        let id = match self.free.pop() {
            Some(id) => {
                self.subtables[id] = subtable;
                id
            }
            None => {
                self.subtables.push(subtable);
                self.subtables.len() - 1
            }
        };
        self.by_mask.insert(mask.clone(), id);
        id
    }

    /// Moves a subtable from the place of an earlier highest rank to that of the present one.
    fn update_order(&mut self, id: SubtableId, earlier: Option<Rank>) {
        let present = self.subtables[id].rank_max();
        if present == earlier {
            return;
        }
        if let Some(rank_max) = earlier {
            self.order.remove(self.position(rank_max, id));
        }
        if let Some(rank_max) = present {
            let prefix_lengths = self.subtables[id].prefix_lengths();
            let place = Place { rank_max, subtable: id, prefix_lengths };
            self.order.insert(self.position(rank_max, id), place);
        } else {
            self.by_mask.remove(self.subtables[id].mask());
            // What the hash tables grew to is given back now, not when the place is used again.
            self.subtables[id] = Subtable::new(Match::any().mask().clone());
            self.free.push(id);
        }
    }

    fn position(&self, rank_max: Rank, id: SubtableId) -> usize {
        self.order.partition_point(|place| (place.rank_max, place.subtable) > (rank_max, id))
    }

    fn reclaim_one(&mut self, ended: Ended, oldest: Version) {
        let subtable = &mut self.subtables[ended.subtable];
        let earlier = subtable.rank_max();
        let Some(held) = subtable.take_ended(ended.hash, oldest, &self.hashing) else {
            debug_assert!(false, "a rule whose life has ended is held until it is reclaimed");
            return;
        };
        self.addresses.remove(&held.matching.key(), subtable.prefix_lengths());
        self.rules_count -= 1;
        self.update_order(ended.subtable, earlier);
    }
}

impl<R: Clone> Classifier<R> for TupleSpace<R> {
    fn insert(&mut self, matching: Match, rank: Rank, added: Version, rule: R) {
        let id = self.subtable_for(matching.mask());
        let key = matching.key();
        let subtable = &mut self.subtables[id];
        let earlier = subtable.rank_max();
        self.addresses.insert(&key, subtable.prefix_lengths());
        let held = Held { matching, rank, lifetime: Lifetime::since(added), rule };
        subtable.insert(&key, held, &self.hashing);
        self.rules_count += 1;
        self.update_order(id, earlier);
    }

    fn remove(&mut self, matching: &Match, rank: Rank, removed: Version) -> Option<R> {
        let id = *self.by_mask.get(matching.mask())?;
        let (rule, hash) = self.subtables[id].end(matching, rank, removed, &self.hashing)?;
        self.ended.push(Reverse(Ended { removed, subtable: id, hash }));
        Some(rule.clone())
    }

    fn reclaim(&mut self, oldest: Version) {
        while let Some(Reverse(ended)) = self.ended.peek().copied()
            && ended.removed <= oldest
        {
            self.ended.pop();
            self.reclaim_one(ended, oldest);
        }
    }

    fn find_exact(&self, matching: &Match, priority: Priority, version: Version) -> Option<&R> {
        let subtable = self.subtable_of(matching)?;
        subtable.find_exact(matching, priority, version, &self.hashing).map(|held| &held.rule)
    }

    fn lookup(&self, key: &FlowKey, version: Version) -> Option<&R> {
        let mut mask = FlowMask::EMPTY;
        self.lookup_masked(key, version, &mut mask)
    }

    fn lookup_masked(&self, key: &FlowKey, version: Version, mask: &mut FlowMask) -> Option<&R> {
        self.search(key, version, mask).map(|held| &held.rule)
    }

    fn rules<'a>(&'a self, version: Version) -> impl Iterator<Item = (&'a Match, Rank, &'a R)>
    where
        R: 'a,
    {
        let held = self.order.iter().flat_map(|place| self.subtables[place.subtable].rules());
        held.filter(move |held| held.lifetime.is_visible(version))
            .map(|held| (&held.matching, held.rank, &held.rule))
    }

    fn len(&self) -> usize {
        self.rules_count
    }
}
