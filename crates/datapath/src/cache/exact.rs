//! The exact-match cache: recently active flows by all of their header bits.
//!
//! The cache has a fixed number of lines in sets of four. The tags of a set, 32 bits of the hash
//! each, share 16 bytes. A lookup that misses reads only the tags. A lookup that hits also reads
//! one [`CacheLine`], which fills three cache lines of the processor. A lookup hits only if all
//! words of the key are equal.
//!
//! A flow has one megaflow, or the LTM entries that its packets hit in the stages of a chain. The
//! line of the flow holds the first entry, and a separate array holds the other entries. A cached
//! list of LTM entries gives the same result as a walk through the stages while all of its entries
//! are live. So the caller must check that *all* entries are live.
//!
//! The cache serves keys at ingress only. The hidden state of such keys is zero except for bridge
//! and ingress port, so all compared bits are in the last [`INGRESS_WORDS`] words of the key, which
//! are consecutive. A recirculated packet has hidden state and is looked up in the wildcard cache
//! alone. For a port that sets hidden state at ingress, such as a tunnel id, the compared words
//! must be extended: [`ingress_words`] asserts that all other words are zero.
//!
//! **When to look up.** A hit in the exact-match cache costs about as much as one or two probes of
//! the wildcard cache. The hash covers every word of the key, and a line is long. So the
//! exact-match cache is used only while the wildcard cache needs two probes or more on average.
//! With few masks the wildcard cache alone is faster.
//!
//! **When to insert.** With fewer flows than lines every flow gets a line soon. With many more
//! flows, an insertion at every miss evicts a line per packet, and the new line is almost never
//! hit. If one miss in a hundred is inserted, as in Open vSwitch, there are a hundredth of the
//! writes. Large flows still get a line, because they miss often, and small flows rarely evict the
//! lines of large flows. The choice is random, because a counter could always choose the same flow
//! of periodic traffic.

use std::hint::black_box;

use shunt_flow::{FlowKey, layout::FLOW_WORDS, layout::word};

use super::{EntryRef, KeyHasher, split_mix};

/// Number of key words that are set at ingress: bridge, ingress port, headers.
pub const INGRESS_WORDS: usize = FLOW_WORDS - word::BRIDGE as usize;

/// Sizes of an exact-match cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactConfig {
    /// Number of flows; rounded up to a power of two, at least four.
    pub lines: usize,
    /// One miss in `insert_inverse` is inserted; 0 switches the cache off.
    pub insert_inverse: u32,
}

impl Default for ExactConfig {
    fn default() -> Self {
        Self { lines: 32_768, insert_inverse: 1 }
    }
}

/// The exact-match cache of one packet thread.
#[derive(Debug)]
pub struct ExactCache {
    /// Part of the hash of each flow, by set.
    tags: Box<[Tags]>,
    /// The flows of the exact-match cache, by set.
    lines: Box<[CacheLine]>,
    /// The entries after the first entry of each line, `further_max` per line.
    further: Box<[EntryRef]>,
    /// Maximum number of entries of a flow after the first.
    further_max: usize,
    /// Number of sets minus one, which masks a hash to a set.
    mask: u64,
    /// One miss in this number is inserted; 0 switches the cache off.
    insert_inverse: u32,
    /// The state of the random numbers that choose misses.
    random: u64,
}

/// The tags of one set.
type Tags = [u32; WAYS];

/// One flow and its first entry.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct CacheLine {
    /// The key of the flow at ingress.
    words: [u64; INGRESS_WORDS],
    /// The first entry that the packets of the flow hit.
    first: EntryRef,
}

/// Number of lines in a set of the exact-match cache.
const WAYS: usize = 4;

/// The tag of a line that holds no flow.
const EMPTY: u32 = 0;

const _: () = assert!(size_of::<CacheLine>() == 192, "an entry takes three cache lines of the CPU");
const _: () =
    assert!(word::IN_PORT == word::BRIDGE + 1, "the words set at ingress are consecutive");

/// Returns the words of a key that are set at ingress.
///
/// # Panics
///
/// Never: the number of words is a constant.
#[must_use]
#[inline]
#[expect(clippy::expect_used, reason = "the range has INGRESS_WORDS words")]
pub fn ingress_words(key: &FlowKey) -> &[u64; INGRESS_WORDS] {
    debug_assert!(
        key.words().iter().take(usize::from(word::BRIDGE)).all(|word| *word == 0),
        "at ingress, a packet has no hidden state to compare"
    );
    key.words().last_chunk().expect("a key has more than INGRESS_WORDS words")
}

impl ExactCache {
    /// A reference to no entry: no store has an entry in this slot.
    pub const NO_ENTRY: EntryRef = EntryRef { slot: u32::MAX, generation: 0 };

    /// Creates an empty cache for flows of up to `entries_max` entries.
    #[must_use]
    pub fn new(config: ExactConfig, entries_max: usize, seed: u64) -> Self {
        let sets = config.lines.div_ceil(WAYS).next_power_of_two();
        let line = CacheLine { words: [0; INGRESS_WORDS], first: Self::NO_ENTRY };
        let further_max = entries_max.saturating_sub(1);
        Self {
            tags: vec![[EMPTY; WAYS]; sets].into_boxed_slice(),
            lines: vec![line; sets * WAYS].into_boxed_slice(),
            further: vec![Self::NO_ENTRY; sets * WAYS * further_max].into_boxed_slice(),
            further_max,
            mask: sets as u64 - 1,
            insert_inverse: config.insert_inverse,
            random: seed,
        }
    }

    /// Removes all flows; from now on a flow has up to `entries_max` entries.
    ///
    /// The lines keep their memory: a line without a tag is never read.
    pub fn empty(&mut self, entries_max: usize) {
        self.tags.fill([EMPTY; WAYS]);
        let further_max = entries_max.saturating_sub(1);
        if further_max != self.further_max {
            let further = self.lines.len() * further_max;
            self.further = vec![Self::NO_ENTRY; further].into_boxed_slice();
            self.further_max = further_max;
        }
    }

    /// Returns whether flows are inserted at all.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.insert_inverse != 0
    }

    /// Returns the hash of a key, for the other functions of the cache.
    #[must_use]
    #[inline]
    pub fn hash(hasher: &KeyHasher, key: &FlowKey) -> u64 {
        hasher.hash_array(ingress_words(key))
    }

    /// Returns the line that may hold the flow, to be checked with [`Self::confirm`].
    ///
    /// The caller finds the candidates of a whole burst first, so that their lines load in
    /// parallel.
    #[must_use]
    #[inline]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        let set = set_of(hash, self.mask);
        let tag = tag_of(hash);
        let way = self.tags[set].iter().position(|own| *own == tag)?;
        #[expect(clippy::cast_possible_truncation, reason = "a file has far fewer lines than 2^32")]
        Some((set * WAYS + way) as u32)
    }

    /// Loads a line before it is compared.
    ///
    /// The function only starts the load, so the loads of many packets overlap.
    #[inline]
    pub fn fetch(&self, line: u32) {
        let words = &self.lines[line as usize].words;
        let further = self.further.get(line as usize * self.further_max);
        black_box(words[0] | words[8] | words[16] | further.map_or(0, |entry| entry.slot.into()));
    }

    /// Returns the first entry of `key` if the line holds exactly this flow.
    ///
    /// The entry may be dead, and so may its [further](Self::further) entries.
    #[must_use]
    #[inline]
    pub fn confirm(&self, line: u32, key: &FlowKey) -> Option<EntryRef> {
        let line = &self.lines[line as usize];
        let words = line.words.iter().zip(ingress_words(key));
        let differing = words.fold(0, |differing, (own, word)| differing | (own ^ word));
        (differing == 0).then_some(line.first)
    }

    /// Returns the entries of a line after the first.
    #[inline]
    pub fn further(&self, line: u32) -> impl Iterator<Item = EntryRef> + use<'_> {
        let start = line as usize * self.further_max;
        let further = &self.further[start..start + self.further_max];
        further.iter().copied().take_while(|entry| *entry != Self::NO_ENTRY)
    }

    /// Decides at random whether this miss inserts its flow.
    ///
    /// So a flow that misses often is inserted sooner.
    #[inline]
    pub fn chooses(&mut self) -> bool {
        match self.insert_inverse {
            0 => false,
            1 => true,
            inverse => split_mix(&mut self.random).is_multiple_of(u64::from(inverse)),
        }
    }

    /// Inserts a flow with its entries, first to last.
    ///
    /// A random line of a full set is overwritten.
    ///
    /// A flow without entries, or with more than `entries_max`, is not inserted.
    pub fn insert(&mut self, hash: u64, key: &FlowKey, entries: &[EntryRef]) {
        let Some((first, further)) = entries.split_first() else { return };
        if further.len() > self.further_max {
            return;
        }
        let set = set_of(hash, self.mask);
        let tag = tag_of(hash);
        let tags = &mut self.tags[set];
        // A line with the same tag is replaced first: it has the same flow with a dead entry, or
        // another flow that would hide this flow.
        let way = tags
            .iter()
            .position(|own| *own == tag)
            .or_else(|| tags.iter().position(|own| *own == EMPTY))
            .unwrap_or_else(|| random_way(&mut self.random));
        tags[way] = tag;
        let line = set * WAYS + way;
        self.lines[line] = CacheLine { words: *ingress_words(key), first: *first };
        let start = line * self.further_max;
        let room = &mut self.further[start..start + self.further_max];
        let (used, rest) = room.split_at_mut(further.len());
        used.copy_from_slice(further);
        rest.fill(Self::NO_ENTRY);
    }
}

/// Returns a random way of a set.
#[expect(clippy::cast_possible_truncation, reason = "the remainder is less than WAYS")]
const fn random_way(random: &mut u64) -> usize {
    (split_mix(random) % WAYS as u64) as usize
}

/// Returns the index of the set for a hash.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the hash is masked to the number of sets")]
const fn set_of(hash: u64, mask: u64) -> usize {
    (hash & mask) as usize
}

/// Returns the high half of the hash; the low half selects the set.
#[inline]
const fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_flow::{FieldId, PortNo};

    /// Returns the key of a flow.
    fn key(flow: u64) -> FlowKey {
        let mut key = FlowKey::ZERO;
        key.set_bridge(1);
        key.set_in_port(PortNo::new(3));
        key.set_field(FieldId::TcpSrc, u128::from(flow));
        key
    }

    /// Returns a reference to the entry in a slot.
    fn entry(slot: u32) -> EntryRef {
        EntryRef { slot, generation: 0 }
    }

    /// Looks up one key.
    fn find(cache: &ExactCache, hasher: &KeyHasher, key: &FlowKey) -> Option<EntryRef> {
        cache.candidate(ExactCache::hash(hasher, key)).and_then(|line| cache.confirm(line, key))
    }

    #[test]
    fn a_flow_is_found_only_by_its_key() {
        let hasher = KeyHasher::new(1);
        let mut cache = ExactCache::new(ExactConfig { lines: 64, insert_inverse: 1 }, 1, 1);
        cache.insert(ExactCache::hash(&hasher, &key(5)), &key(5), &[entry(9)]);
        assert_eq!(find(&cache, &hasher, &key(5)), Some(entry(9)));
        assert_eq!(find(&cache, &hasher, &key(6)), None);
        let mut elsewhere = key(5);
        elsewhere.set_bridge(2);
        assert_eq!(find(&cache, &hasher, &elsewhere), None);
    }

    #[test]
    fn equal_hashes_do_not_make_equal_flows() {
        let mut cache = ExactCache::new(ExactConfig { lines: 64, insert_inverse: 1 }, 1, 1);
        cache.insert(77, &key(1), &[entry(1)]);
        let line = cache.candidate(77).unwrap();
        assert_eq!(cache.confirm(line, &key(2)), None);
        cache.insert(77, &key(2), &[entry(2)]);
        let line = cache.candidate(77).unwrap();
        assert_eq!(cache.confirm(line, &key(2)), Some(entry(2)));
    }

    #[test]
    fn a_flow_finds_only_its_own_entries() {
        let (hasher, entries) = (KeyHasher::new(1), [7, 8, 9].map(entry));
        let mut cache = ExactCache::new(ExactConfig { lines: 4, insert_inverse: 1 }, 3, 1);
        let all = |cache: &ExactCache, flow| {
            let line = cache.candidate(ExactCache::hash(&hasher, &key(flow)))?;
            let first = cache.confirm(line, &key(flow))?;
            Some([first].into_iter().chain(cache.further(line)).collect::<Vec<_>>())
        };
        for count in [3, 1, 2, 3] {
            cache.insert(ExactCache::hash(&hasher, &key(5)), &key(5), &entries[..count]);
            assert_eq!(all(&cache, 5).as_deref(), Some(&entries[..count]));
        }
        // With more flows than lines, each flow that is found has the entries of this flow.
        for flow in 0..64_u32 {
            let own = [entry(flow), entry(flow + 100)];
            let key = key(flow.into());
            cache.insert(ExactCache::hash(&hasher, &key), &key, &own[..1 + flow as usize % 2]);
        }
        let mut found = 0;
        for flow in 0..64_u32 {
            let Some(all) = all(&cache, flow.into()) else { continue };
            let own = [entry(flow), entry(flow + 100)];
            assert_eq!(all, own[..1 + flow as usize % 2]);
            found += 1;
        }
        assert_eq!(found, 4);
        // A flow with too many entries, or with none, is not inserted.
        cache.insert(ExactCache::hash(&hasher, &key(99)), &key(99), &[7, 8, 9, 10].map(entry));
        cache.insert(ExactCache::hash(&hasher, &key(98)), &key(98), &[]);
        assert_eq!((all(&cache, 98), all(&cache, 99)), (None, None));
    }

    #[test]
    fn an_emptied_cache_keeps_only_its_memory() {
        let hasher = KeyHasher::new(1);
        let mut cache = ExactCache::new(ExactConfig { lines: 64, insert_inverse: 1 }, 1, 1);
        let (lines, all) = (cache.lines.as_ptr(), [7, 8, 9].map(entry));
        for entries_max in [1, 3, 3, 1] {
            let entries = &all[..entries_max];
            cache.empty(entries_max);
            assert_eq!(find(&cache, &hasher, &key(5)), None);
            cache.insert(ExactCache::hash(&hasher, &key(5)), &key(5), entries);
            assert_eq!(find(&cache, &hasher, &key(5)), Some(entry(7)));
            let line = cache.candidate(ExactCache::hash(&hasher, &key(5))).unwrap();
            assert_eq!(cache.further(line).collect::<Vec<_>>(), entries[1..]);
            assert_eq!(cache.lines.as_ptr(), lines);
        }
    }

    #[test]
    fn a_half_full_exact_cache_keeps_most_flows() {
        let hasher = KeyHasher::new(3);
        let mut cache = ExactCache::new(ExactConfig { lines: 8192, insert_inverse: 1 }, 1, 1);
        for flow in 0..4096_u32 {
            let key = key(u64::from(flow));
            cache.insert(ExactCache::hash(&hasher, &key), &key, &[entry(flow)]);
        }
        let found = (0..4096).filter(|flow| find(&cache, &hasher, &key(*flow)).is_some()).count();
        assert!(found > 3900, "{found}");
    }

    #[test]
    fn one_miss_in_a_hundred_is_inserted() {
        let mut cache = ExactCache::new(ExactConfig { lines: 4, insert_inverse: 100 }, 1, 5);
        let chosen = (0..100_000).filter(|_| cache.chooses()).count();
        assert!((850..1150).contains(&chosen), "{chosen}");
        let mut off = ExactCache::new(ExactConfig { lines: 4, insert_inverse: 0 }, 1, 5);
        assert!(!off.is_on() && !off.chooses());
    }
}
