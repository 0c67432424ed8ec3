//! The bits of a key that prove the result of a lookup.
//!
//! A cache entry covers every key that agrees with a looked-up key under a mask. So the mask must
//! have bits that exclude every better rule, as in tuple space search. The proof has three parts:
//!
//! 1. The bits of the winner.
//! 2. For each iSet, leading bits of its lane that keep a key in the same buckets. Neighbouring
//!    buckets without a better rule belong to them, so that the interval is wide.
//! 3. For each better rule in these buckets and in the remainder, leading bits of one lane in which
//!    the rule differs from the key. Most rules differ in bits that the mask has already. Else the
//!    lane is taken that adds the fewest bits.
//!
//! Leading bits of addresses end at whole bytes where the rule allows it, and ports and protocols
//! are taken whole. So there are fewer masks, and a cache of hash tables has fewer tables. On the
//! rule-sets of ClassBench, the entries are still as few as those of tuple space search.
//! `examples/masks.rs` compares the lookup times and the caches of both methods.
//!
//! Buckets are skipped by their best rank. This rank may be of a rule that the caller does not see,
//! which only adds bits.

use crate::rule::PriorityRule;

/// Most buckets on each side of a bucket that are joined with it in a proof.
pub(super) const NEIGHBOURS_MAX: usize = 64;

/// Number of leading bits of an address of which a proof takes a multiple.
const ADDRESS_BITS: u32 = 8;

/// Widest lane of which a proof takes all bits that a rule fixes.
const WHOLE_WIDTH_MAX: u32 = 16;

/// The agreement of a rule and a key in the lanes of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneFit {
    /// The rule matches the key in every lane, but the lookup did not accept it.
    Same,
    /// The rule differs from the key in a lane.
    Different,
}

/// The bits of one key that a proof has so far.
pub(super) struct LaneProof<'a, const N: usize> {
    /// The key, without bits above the widths of lanes.
    pub(super) key: [u32; N],
    /// The last value of each lane.
    pub(super) max: [u32; N],
    /// The bits of the key that the proof has, lane by lane.
    pub(super) mask: &'a mut [u32; N],
}

/// Bits of one lane that exclude a rule.
#[derive(Clone, Copy)]
struct Exclusion {
    /// Index of the lane.
    lane: usize,
    /// The bits of the lane to consult.
    bits: u32,
    /// Number of bits in `bits` that the proof does not have yet.
    added: u32,
}

impl<const N: usize> LaneProof<'_, N> {
    /// Adds the bits that keep a key in the ranges of a rule.
    pub(super) fn keep_in(&mut self, rule: &PriorityRule<N>) {
        for lane in 0..N {
            self.mask[lane] |= rule.fixed_bits(lane) & self.max[lane];
            self.keep_between(lane, rule.low[lane], rule.high[lane]);
        }
    }

    /// Adds leading bits that keep a lane from `low` to `high`, which contain the key.
    pub(super) fn keep_between(&mut self, lane: usize, low: u32, high: u32) {
        let (key, max) = (self.key[lane], self.max[lane]);
        if low > 0 {
            self.mask[lane] |= leading_bits(key ^ (low - 1)) & max;
        }
        if high < max {
            self.mask[lane] |= leading_bits(key ^ (high + 1)) & max;
        }
    }

    /// Returns whether no key that agrees in the bits so far matches the rule.
    ///
    /// The result may be false for a rule with ranges that no such key matches.
    #[inline]
    pub(super) fn excludes(&self, rule: &PriorityRule<N>) -> bool {
        let differ = |lane: usize| {
            (self.key[lane] ^ rule.low[lane]) & rule.fixed_bits(lane) & self.mask[lane]
        };
        (0..N).fold(0, |differing, lane| differing | differ(lane)) != 0
    }

    /// Adds bits that exclude a rule; a rule that matches the key adds nothing.
    pub(super) fn exclude(&mut self, rule: &PriorityRule<N>) {
        let exclusions = (0..N).filter_map(|lane| self.exclusion(rule, lane));
        if let Some(least) = exclusions.min_by_key(|exclusion| exclusion.added) {
            self.mask[least.lane] |= least.bits;
        }
    }

    /// Returns the bits of a lane that exclude a rule, if the rule differs there.
    fn exclusion(&self, rule: &PriorityRule<N>, lane: usize) -> Option<Exclusion> {
        let (key, low, high) = (self.key[lane], rule.low[lane], rule.high[lane]);
        let fixed = rule.fixed_bits(lane) & self.max[lane];
        let differing = (key ^ low) & fixed;
        let least = if differing != 0 {
            leading_bits(differing)
        } else if key < low {
            leading_bits(key ^ low)
        } else if key > high {
            leading_bits(key ^ high)
        } else {
            return None;
        };
        let least = least & self.max[lane];
        // More bits are still a proof. Bits that the rule has are often in the mask anyway.
        let rounded = if self.max[lane].count_ones() <= WHOLE_WIDTH_MAX {
            fixed
        } else {
            let length = least.count_ones().next_multiple_of(ADDRESS_BITS);
            fixed & !self.max[lane].checked_shr(length).unwrap_or(0)
        };
        // Bits that the mask has already prove it at no cost.
        let bits = if least & !self.mask[lane] == 0 { 0 } else { least | rounded };
        Some(Exclusion { lane, bits, added: (bits & !self.mask[lane]).count_ones() })
    }
}

/// Returns the bits down to the highest one that differs; `differing` is not 0.
const fn leading_bits(differing: u32) -> u32 {
    !(u32::MAX >> differing.leading_zeros() >> 1)
}
