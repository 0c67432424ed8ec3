//! Lookups in a learned index, with the bits that their results depend on.
//!
//! A cache entry covers every key that agrees with the packet under the mask of its lookups. So the
//! mask must exclude every better rule that the version sees. `NuevoMatch::prove` finds bits of the
//! lanes for that. A better rule that matches in all lanes is excluded by bits outside of the
//! lanes. Such bits are also preferred if they are Ethernet fields or metadata, because they have
//! few values, and exclude many rules at once. Rules that the version does not see need no bits.
//!
//! OpenFlow allows an address only together with the Ethernet type, and a port only together with
//! the protocol. So these *prerequisites* are added too, and the protocol is never matched in part.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::{
    FieldId, FlowKey, FlowMask,
    layout::{Stage, word},
};
use shunt_nuevomatch::LaneFit;

use super::learned_rules::LearnedRules;
use crate::tables::rule::Rule;

/// The choice between tuple space search and learned indexes for masked lookups.
///
/// A masked lookup uses the learned index of a table with at least this number of rules. The table
/// must have an index with a short remainder ([`LearnedRules::has_short_remainder`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexedFrom(pub(crate) usize);

/// Most rules in the remainder of an index that masked lookups use.
///
/// A proof reads every rule of the remainder, so a longer remainder must save more.
/// The measurements are in docs/nuevomatch.md: of large tables, an index with 186 rules in the
/// remainder was faster, and one with 760 slower.
fn remainder_max(rules: usize) -> usize {
    (rules / RULES_PER_REMAINDER).clamp(REMAINDER_MAX, REMAINDER_OF_LARGE_MAX)
}

/// Most rules in the remainder of the index of a small table.
const REMAINDER_MAX: usize = 64;

/// Most rules in the remainder of the index of a table of any size.
const REMAINDER_OF_LARGE_MAX: usize = 192;

/// In larger tables, one rule in this number may be in the remainder.
const RULES_PER_REMAINDER: usize = 512;

/// The word of a key that has the Ethernet type.
const ETH_TYPE: usize = FieldId::EthType.slot().word as usize;
/// The bits of the Ethernet type in its word.
const ETH_TYPE_BITS: u64 = 0xffff << FieldId::EthType.slot().shift;
/// The bit of `vlan_tci` that packets with a tag have.
const TAG_PRESENT: u128 = 0x1000;
/// The words of MPLS labels and of PBB.
const LABELS: [usize; 2] = [word::MPLS as usize, word::MPLS_PBB as usize];

impl IndexedFrom {
    /// Tuple space search in every table.
    pub(crate) const NEVER: Self = Self(usize::MAX);
}

impl LearnedRules {
    /// Returns whether masked lookups in the index are faster than tuple space search.
    pub(crate) fn is_fast_with_masks(&self, from: IndexedFrom) -> bool {
        self.rules_count() >= from.0 && self.has_short_remainder()
    }

    /// Returns whether few rules are outside of the iSets, so that proofs are fast.
    pub(crate) fn has_short_remainder(&self) -> bool {
        self.index().remainder_len() <= remainder_max(self.rules_count())
    }

    /// Returns the rule that wins for a key, as a version sees the table.
    ///
    /// Adds to `mask` the bits that the result depends on.
    pub(crate) fn find_masked(
        &self,
        key: &FlowKey,
        version: Version,
        mask: &mut FlowMask,
    ) -> Option<&Arc<Rule>> {
        let lanes = self.selection().of_key(key.words());
        let mut best = [None];
        self.index().lookup_accepted(&[lanes], &mut best, |_, slot| {
            self.rest_matches(slot, key) && self.visible(slot, version).is_some()
        });
        let found = best[0].and_then(|best| self.visible(best.value, version));
        if let Some(rule) = found {
            mask.add_sparse(rule.matching.mask());
        }
        let mut bits = self.selection().of_key(mask.words());
        self.index().prove(&lanes, best[0], &mut bits, |slot, fit| {
            self.visible(slot, version).is_some() && !self.exclude_by_rest(slot, fit, key, mask)
        });
        self.selection().add_bits(bits, mask);
        add_prerequisites(mask);
        found
    }

    /// Adds bits outside of the lanes that exclude a rule, and returns whether bits
    /// exclude it.
    ///
    /// Returns false if the rule does not differ from the key outside of the lanes. The function
    /// also returns false if the rule differs in a lane, and otherwise only in the network or
    /// transport header.
    fn exclude_by_rest(&self, slot: u32, fit: LaneFit, key: &FlowKey, mask: &mut FlowMask) -> bool {
        let Some(rest) = self.rest(slot) else { return false };
        let mut first = None;
        for ((word, bits), value) in rest.mask().iter().zip(rest.value()) {
            let differing = (key.words()[word] ^ value) & bits;
            if differing & mask.words()[word] != 0 {
                return true;
            }
            if differing != 0 && first.is_none() {
                first = Some((word, bits, differing));
            }
        }
        let is_cheap = |word: usize| fit == LaneFit::Same || word < Stage::Network.words().start;
        let Some((word, bits, differing)) = first.filter(|(word, ..)| is_cheap(*word)) else {
            return false;
        };
        let has_other_type = word == ETH_TYPE && differing & ETH_TYPE_BITS != 0;
        mask.words_mut()[word] |= if has_other_type { bits & ETH_TYPE_BITS } else { bits };
        true
    }
}

/// Adds the fields without which a match may not have the bits of a mask.
fn add_prerequisites(mask: &mut FlowMask) {
    let has_any = |words: &[usize]| words.iter().any(|word| mask.words()[*word] != 0);
    let has_transport = has_any(&[word::TRANSPORT.into()]);
    let has_network = Stage::Network.words().any(|word| mask.words()[word] != 0);
    let needs_type =
        has_transport || has_network || has_any(&LABELS) || mask.field(FieldId::EthType) != 0;
    if has_transport || mask.field(FieldId::IpProto) != 0 {
        mask.add_field(FieldId::IpProto);
    }
    if needs_type {
        mask.add_field(FieldId::EthType);
    }
    if mask.field(FieldId::VlanTci) != 0 {
        mask.add_bits(FieldId::VlanTci, TAG_PRESENT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainders_of_measured_tables_are_short() {
        // The sizes of tables, and of their remainders, in docs/nuevomatch.md.
        for (rules, remainder) in [(1_229, 4), (1_277, 23), (13_000, 57), (133_953, 186)] {
            assert!(remainder <= remainder_max(rules), "{rules} rules");
        }
        for (rules, remainder) in [(2_778, 239), (30_708, 760), (1_000_000, 760)] {
            assert!(remainder > remainder_max(rules), "{rules} rules");
        }
    }
}
