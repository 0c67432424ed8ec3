//! The table of tuple space search: subtables in the order of their highest ranks.

use std::{cmp::Reverse, collections::BinaryHeap};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_flow::{FlowKey, FlowMask, Match, SparseMask};

use super::{
    addresses::{AddressTries, PrefixLengths},
    blocks::{self, Block},
    gates::{GateId, Gates},
    region::Region,
    search::{Search, TupleMatches},
    subtable::{RuleSubtable, SubtableRule},
    words::Hashing,
};
use crate::{Classifier, Lifetime, Matches, Priority, Rank, Version};

/// A classifier by tuple space search, with staged lookup and prefix tries.
///
/// Let `w` be the number of words of the mask of a rule, `s` the number of subtables and `r` the
/// number of rules. Insertion and removal take O(w + log r) hash, trie and tree steps. If the
/// highest rank of a subtable changes, up to `s` slots of the search order move too. A lookup takes
/// at most O(w) steps per subtable and allocates nothing.
#[derive(Clone, Debug)]
pub struct TupleSpace<R> {
    /// The secrets of the hash function.
    pub(super) hashing: Hashing,
    /// The subtables by [`SubtableId`]; subtables in `free` have no rules and no slot.
    pub(super) subtables: Vec<RuleSubtable<R>>,
    /// Numbers of unused subtables.
    free: Vec<SubtableId>,
    /// The subtable of each mask.
    by_mask: HashMap<SparseMask, SubtableId, FixedState>,
    /// The subtables that have rules, highest rank first.
    pub(super) order: Vec<SearchSlot>,
    /// The slots of `order`, 64 per block.
    pub(super) blocks: Vec<Block>,
    /// The gates of all subtables.
    pub(super) gates: Gates,
    /// The tries of the address fields.
    pub(super) addresses: AddressTries,
    /// The removed rules that are not reclaimed, earliest removal on top.
    retired: BinaryHeap<Reverse<RetiredRule>>,
    /// Number of rules, without retired rules.
    rules_count: usize,
}

/// The index of a subtable in the list of the table.
type SubtableId = usize;

/// A subtable in the search order, with the data that exclude it without a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchSlot {
    /// The highest rank of a rule of the subtable.
    pub(super) rank_max: Rank,
    /// The subtable of the slot.
    pub(super) subtable: SubtableId,
    /// The prefix lengths of the address fields in the mask.
    pub(super) prefix_lengths: PrefixLengths,
    /// The gate of the subtable, if it has one.
    pub(super) gate: Option<GateId>,
}

/// A removed rule that waits to be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RetiredRule {
    /// The first version without the rule.
    removed: Version,
    /// The subtable that contains the rule.
    subtable: SubtableId,
    /// The hash of the value of the rule.
    hash: u64,
}

impl<R> TupleSpace<R> {
    /// Creates a table without rules, with hashes that depend on `seed`.
    ///
    /// Keys come from packets. With a secret seed, senders cannot choose addresses that collide.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let seed = FixedState::with_seed(seed);
        Self {
            hashing: Hashing::new(&seed),
            subtables: Vec::new(),
            free: Vec::new(),
            order: Vec::new(),
            blocks: Vec::new(),
            gates: Gates::new(&seed),
            by_mask: HashMap::with_hasher(seed),
            addresses: AddressTries::new(),
            retired: BinaryHeap::new(),
            rules_count: 0,
        }
    }

    /// Returns the subtable with the mask of a match, if there is one.
    fn subtable_of(&self, matching: &Match) -> Option<&RuleSubtable<R>> {
        self.by_mask.get(matching.mask()).map(|id| &self.subtables[*id])
    }

    /// Returns the subtables that have rules, highest rank first.
    fn subtables(&self) -> impl Iterator<Item = &RuleSubtable<R>> {
        self.order.iter().map(|slot| &self.subtables[slot.subtable])
    }

    /// Returns the region of the keys that `matching` matches.
    pub(super) fn region(&self, matching: &Match) -> Region<'_> {
        Region::new(matching, &self.hashing)
    }

    /// Returns the subtable for rules with this mask, and creates it if it is missing.
    fn subtable_for(&mut self, mask: &SparseMask) -> SubtableId {
        if let Some(id) = self.by_mask.get(mask) {
            return *id;
        }
        let gate = self.gates.acquire(mask, &self.hashing);
        let subtable = RuleSubtable::new(mask.clone(), gate, &self.hashing);
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

    /// Moves a subtable in the search order after its highest rank changed.
    fn update_order(&mut self, id: SubtableId, earlier: Option<Rank>) {
        let subtable = &self.subtables[id];
        let present = subtable.rank_max();
        if present == earlier {
            return;
        }
        let (gate, prefix_lengths) = (subtable.gate(), subtable.prefix_lengths());
        if let Some(rank_max) = earlier {
            let position = self.position(rank_max, id);
            self.order.remove(position);
            blocks::remove(&mut self.blocks, &self.order, position);
        }
        if let Some(rank_max) = present {
            let slot = SearchSlot { rank_max, subtable: id, prefix_lengths, gate };
            let position = self.position(rank_max, id);
            self.order.insert(position, slot);
            blocks::insert(&mut self.blocks, &self.order, position);
        } else {
            self.by_mask.remove(self.subtables[id].mask());
            gate.into_iter().for_each(|gate| self.gates.release(gate));
            // The hash tables are freed now, and not when the subtable is used again.
            self.subtables[id].clear(&self.hashing);
            self.free.push(id);
        }
    }

    /// Returns the position of a subtable in the search order.
    fn position(&self, rank_max: Rank, id: SubtableId) -> usize {
        self.order.partition_point(|slot| (slot.rank_max, slot.subtable) > (rank_max, id))
    }

    /// Reclaims some of the rules that no version from `oldest` on sees.
    ///
    /// Takes at most `removals_max` removals, the earliest first, and returns their number. Rules with the
    /// match of such a rule are reclaimed at once, so their own removals need no work later.
    pub fn reclaim_some(&mut self, oldest: Version, removals_max: usize) -> usize {
        let mut chains = Vec::new();
        while chains.len() < removals_max
            && let Some(Reverse(retired)) = self.retired.peek().copied()
            && retired.removed <= oldest
        {
            self.retired.pop();
            chains.push((retired.subtable, retired.hash));
        }
        let count = chains.len();
        // One pass through a chain removes all reclaimed rules of the chain.
        chains.sort_unstable();
        chains.dedup();
        chains.into_iter().for_each(|(id, hash)| self.reclaim_chain(id, hash, oldest));
        count
    }

    /// Reclaims the rules of a subtable with one hash.
    ///
    /// Does nothing if they are reclaimed already.
    fn reclaim_chain(&mut self, id: SubtableId, hash: u64, oldest: Version) {
        let subtable = &mut self.subtables[id];
        let earlier = subtable.rank_max();
        let (count, values) = subtable.reclaim(hash, oldest, &self.hashing);
        for key in values {
            self.addresses.remove(&key, subtable.prefix_lengths());
            if let Some(gate) = subtable.gate() {
                self.gates.remove(gate, &key, &self.hashing);
            }
        }
        self.rules_count -= count;
        self.update_order(id, earlier);
    }
}

impl<R: Clone> Classifier<R> for TupleSpace<R> {
    fn insert(&mut self, matching: Match, rank: Rank, added: Version, rule: R) {
        let id = self.subtable_for(matching.mask());
        let key = matching.key();
        let subtable = &mut self.subtables[id];
        let earlier = subtable.rank_max();
        let stored = SubtableRule { matching, rank, lifetime: Lifetime::since(added), rule };
        if subtable.insert(&key, stored, &self.hashing) {
            self.addresses.insert(&key, subtable.prefix_lengths());
            if let Some(gate) = subtable.gate() {
                self.gates.insert(gate, &key, &self.hashing);
            }
        }
        self.rules_count += 1;
        self.update_order(id, earlier);
    }

    fn remove(&mut self, matching: &Match, rank: Rank, removed: Version) -> Option<R> {
        let id = *self.by_mask.get(matching.mask())?;
        let (rule, hash) = self.subtables[id].end(matching, rank, removed, &self.hashing)?;
        self.retired.push(Reverse(RetiredRule { removed, subtable: id, hash }));
        Some(rule.clone())
    }

    fn reclaim(&mut self, oldest: Version) {
        self.reclaim_some(oldest, usize::MAX);
    }

    fn find_exact(&self, matching: &Match, priority: Priority, version: Version) -> Option<&R> {
        let chain = self.subtable_of(matching)?.chain(&matching.key(), &self.hashing)?;
        chain.find(priority, version).map(|stored| &stored.rule)
    }

    fn lookup(&self, key: &FlowKey, version: Version) -> Option<&R> {
        Search::new(self, key).best(version, None).map(|stored| &stored.rule)
    }

    fn lookup_masked(&self, key: &FlowKey, version: Version, mask: &mut FlowMask) -> Option<&R> {
        Search::new(self, key).best(version, Some(mask)).map(|stored| &stored.rule)
    }

    fn matches<'a>(&'a self, key: &FlowKey, version: Version) -> impl Matches<'a, R>
    where
        R: 'a,
    {
        TupleMatches::new(Search::new(self, key), version)
    }

    fn overlaps(&self, matching: &Match, priority: Priority, version: Version) -> bool {
        let region = self.region(matching);
        let mut subtables = self.subtables().filter(|subtable| subtable.has_priority(priority));
        subtables.any(|subtable| {
            let mut stored = region.overlapping(subtable).flat_map(|chain| chain.visible(version));
            stored.any(|stored| stored.rank.priority == priority)
        })
    }

    fn rules_within<'a>(
        &'a self,
        matching: &Match,
        version: Version,
    ) -> impl Iterator<Item = (&'a Match, Rank, &'a R)>
    where
        R: 'a,
    {
        let region = self.region(matching);
        let subtables = self.subtables().filter(|subtable| region.is_looked_at(subtable));
        let chains: Vec<_> = subtables.flat_map(|subtable| region.overlapping(subtable)).collect();
        let stored = chains.into_iter().flat_map(move |chain| chain.visible(version));
        stored.map(|stored| (&stored.matching, stored.rank, &stored.rule))
    }

    fn rules<'a>(&'a self, version: Version) -> impl Iterator<Item = (&'a Match, Rank, &'a R)>
    where
        R: 'a,
    {
        let chains = self.subtables().flat_map(RuleSubtable::chains);
        let stored = chains.flat_map(move |chain| chain.visible(version));
        stored.map(|stored| (&stored.matching, stored.rank, &stored.rule))
    }

    fn len(&self) -> usize {
        self.rules_count
    }
}
