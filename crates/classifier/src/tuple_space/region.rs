//! Finds the rules of a subtable that overlap a match, or that are within it.
//!
//! A rule overlaps a match if both agree in the bits that are in both masks. If the match has all
//! bits of the mask of the subtable, only one value can overlap, and this value is looked up. If
//! the match has all bits of a stage, the stage may exclude all rules. If no stage excludes the
//! rules, the match is compared with every value of the subtable.

use shunt_flow::{FlowKey, FlowMask, Match};

use super::{
    stages::StageValues,
    subtable::{RuleChain, RuleSubtable},
    words::{Hashing, has_words},
};

/// The rules of a subtable that may overlap a match.
pub(super) enum RegionCandidates<'a, R> {
    /// No rule overlaps the match.
    None,
    /// Only the rules of this chain overlap the match.
    One(&'a RuleChain<R>),
    /// Each rule must be compared with the match.
    Many,
}

/// A match with which rules are compared.
pub(super) struct Region<'a> {
    /// The key of the match.
    key: FlowKey,
    /// The mask of the match.
    mask: FlowMask,
    /// The hash function of the table.
    hashing: &'a Hashing,
}

impl<'a> Region<'a> {
    /// Creates a region from a match.
    pub(super) fn new(matching: &Match, hashing: &'a Hashing) -> Self {
        let (key, mask) = (matching.key(), FlowMask::from(matching.mask()));
        Self { key, mask, hashing }
    }

    /// Returns whether the mask of this subtable has every bit of the match.
    pub(super) fn is_looked_at<R>(&self, subtable: &RuleSubtable<R>) -> bool {
        self.mask.is_subset_of(&FlowMask::from(subtable.mask()))
    }

    /// Returns the rules of a subtable that overlap the match.
    pub(super) fn overlapping<'b, R>(
        &self,
        subtable: &'b RuleSubtable<R>,
    ) -> impl Iterator<Item = &'b RuleChain<R>> + use<'_, 'a, 'b, R> {
        let (one, are_many) = match self.candidates(subtable) {
            RegionCandidates::None => (None, false),
            RegionCandidates::One(chain) => (Some(chain), false),
            RegionCandidates::Many => (None, true),
        };
        let many = are_many.then(|| subtable.chains()).into_iter().flatten();
        let agrees = move |chain: &&'b RuleChain<R>| self.agrees(subtable, chain);
        one.into_iter().chain(many.filter(agrees))
    }

    /// Returns the rules of a subtable that may overlap the match.
    pub(super) fn candidates<'b, R>(
        &self,
        subtable: &'b RuleSubtable<R>,
    ) -> RegionCandidates<'b, R> {
        if has_words(&self.mask, subtable.words()) {
            let one = subtable.chain(&self.key, self.hashing);
            return one.map_or(RegionCandidates::None, RegionCandidates::One);
        }
        if self.is_excluded(subtable) { RegionCandidates::None } else { RegionCandidates::Many }
    }

    /// Returns whether the value of a chain overlaps the match.
    pub(super) fn agrees<R>(&self, subtable: &RuleSubtable<R>, chain: &RuleChain<R>) -> bool {
        subtable.words().iter().zip(chain.value()).all(|(word, value)| {
            let mask = self.mask.words()[word.index];
            (self.key.words()[word.index] ^ value) & word.bits & mask == 0
        })
    }

    /// Returns whether a stage proves that no rule of a subtable overlaps the match.
    fn is_excluded<R>(&self, subtable: &RuleSubtable<R>) -> bool {
        let looked_at = |part: &&StageValues| has_words(&self.mask, part.words());
        let mut parts = subtable.stages().iter().filter(looked_at);
        parts.any(|part| part.lacks(&self.key, self.hashing))
    }
}
