//! The rules of one tag in one stage, grouped into families of similar masks.
//!
//! If several rules match a packet, each of these rules is correct, because each does what the
//! pipeline does. After the longest rule, the fewest table lookups remain for the later stages. So
//! a lookup searches the families with the longest rules first. The lookup stops at the first
//! family without a rule that is longer than the match so far.
//!
//! The masks of one [`MaskFamily`] have bits in the same words of the key. Masks with bits in the
//! same words have many common bits, for example address prefixes of many lengths. So one hash
//! lookup of the common bits is enough for most families.

use shunt_flow::{FlowKey, hash::KeyHasher};

use super::{
    family::MaskFamily,
    packet_set::{CHUNK_MAX, Chunk, PacketSet},
};
use crate::ltm::{LtmEntryRef, LtmRule, Next};

/// The rules of one tag in one stage.
#[derive(Debug, Default)]
pub(super) struct TagRules {
    /// The families in the order of their longest rules, longest first.
    families: Vec<MaskFamily>,
}

/// An entry that a packet matched, and the next tag of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ltm) struct MatchedEntry {
    pub(in crate::ltm) entry: LtmEntryRef,
    /// The next tag of the packet, or the end.
    pub(in crate::ltm) next: Next,
    /// True if the rule of the entry rewrites headers.
    pub(in crate::ltm) rewrites: bool,
}

/// A rule that matches a packet.
#[derive(Clone, Copy, Debug)]
pub(in crate::ltm) struct RuleMatch {
    /// Number of table lookups that the entry replaces.
    pub(in crate::ltm) length: u16,
    pub(in crate::ltm) matched: MatchedEntry,
}

/// The rules that the packets of a chunk match in one stage.
#[derive(Debug)]
pub(in crate::ltm) struct ChunkMatches {
    /// The longest rule of each packet, by its index in the chunk.
    longest: [Option<RuleMatch>; CHUNK_MAX],
    /// Number of hash table lookups: one for each packet and table.
    pub(in crate::ltm) probes: u32,
}

impl ChunkMatches {
    pub(in crate::ltm) const EMPTY: Self = Self { longest: [None; CHUNK_MAX], probes: 0 };

    /// Returns the longest rule of each packet of the chunk.
    pub(in crate::ltm) fn longest(&self) -> impl Iterator<Item = Option<RuleMatch>> + use<'_> {
        self.longest.iter().copied()
    }

    /// Returns whether a rule of this length is longer than the match of a packet.
    #[inline]
    fn wants(&self, packet: usize, length: u16) -> bool {
        is_longer(length, self.longest[packet])
    }

    /// Records a matching rule if it is longer than the match so far.
    #[inline]
    pub(super) fn note(&mut self, packet: usize, found: RuleMatch) {
        if self.wants(packet, found.length) {
            self.longest[packet] = Some(found);
        }
    }
}

impl TagRules {
    /// Returns whether the tag has no rules.
    pub(super) const fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    /// Returns the number of masks of the tag.
    pub(super) fn masks_count(&self) -> usize {
        self.families.iter().map(MaskFamily::masks_count).sum()
    }

    /// Returns the longest live rule of the tag that matches the key.
    #[inline]
    pub(super) fn find(
        &self,
        hasher: &KeyHasher,
        key: &FlowKey,
        is_live: impl Fn(LtmEntryRef) -> bool,
    ) -> Option<MatchedEntry> {
        let mut longest = None;
        for family in &self.families {
            if !is_longer(family.length_max(), longest) {
                break;
            }
            let found = family.find(hasher, key, &is_live);
            longest = found.filter(|found| is_longer(found.length, longest)).or(longest);
        }
        longest.map(|found| found.matched)
    }

    /// Records the longest rule that each of the `pending` packets matches.
    ///
    /// The first rule that is found is recorded, even if its entry is dead.
    pub(super) fn find_chunk(
        &mut self,
        hasher: &KeyHasher,
        chunk: Chunk<'_>,
        mut pending: PacketSet,
        found: &mut ChunkMatches,
    ) {
        for family in &mut self.families {
            pending.take(|packet| !found.wants(packet, family.length_max()));
            if pending.first().is_none() {
                break;
            }
            family.find_chunk(hasher, chunk, pending, found);
        }
    }

    /// Returns the slot of the rule with exactly this match and length.
    pub(super) fn find_exact(
        &self,
        hasher: &KeyHasher,
        rule: &LtmRule,
        mask_hash: u64,
    ) -> Option<u32> {
        self.families[self.family_of(rule)?].find_exact(hasher, rule, mask_hash)
    }

    /// Adds a rule. The tag must have no rule with the same match and length.
    pub(super) fn insert(
        &mut self,
        hasher: &KeyHasher,
        rule: &LtmRule,
        mask_hash: u64,
        entry: LtmEntryRef,
    ) {
        let own = self.family_of(rule).unwrap_or_else(|| {
            self.families.push(MaskFamily::of(rule));
            self.families.len() - 1
        });
        self.families[own].insert(hasher, rule, mask_hash, entry);
        self.put_in_order();
    }

    /// Removes a rule from its mask family.
    pub(super) fn remove(&mut self, hasher: &KeyHasher, rule: &LtmRule, mask_hash: u64) {
        let Some(own) = self.family_of(rule) else { return };
        self.families[own].remove(hasher, rule, mask_hash);
        self.families.retain(|family| !family.is_empty());
        self.put_in_order();
    }

    /// Returns the position of the family with the masked words of a rule.
    fn family_of(&self, rule: &LtmRule) -> Option<usize> {
        let words = rule.matching.mask().map();
        self.families.iter().position(|family| family.words() == words)
    }

    /// Sorts the families by their longest match, longest first.
    fn put_in_order(&mut self) {
        self.families.sort_by_key(|family| std::cmp::Reverse(family.length_max()));
    }
}

/// Returns whether a rule of this length is longer than `found`.
#[inline]
fn is_longer(length: u16, found: Option<RuleMatch>) -> bool {
    found.is_none_or(|found| length > found.length)
}

#[cfg(test)]
#[path = "tag_rules_tests.rs"]
mod tests;
