//! The stages of a subtable: the values that its rules have in some words of its mask.
//!
//! If no rule has the value of the packet in a set of words, these words prove that no rule
//! matches. A proof by fewer words is better. Two kinds of sets are kept. The first kind has all
//! words up to the end of a layer, so that later layers are not added to the mask. The second kind
//! has a single address. The second kind is kept for each address if rules match both addresses.

use shunt_flow::{FieldId, FlowKey, FlowMask, SparseMask, layout::Stage};

use super::{
    addresses::address_parts,
    value_set::ValueSet,
    words::{HashedWord, Hashing, add_words, added_bits_count, has_words},
};

/// Sets of words of a subtable, with the values that its rules have in them.
#[derive(Clone, Debug)]
pub(super) struct SubtableStages {
    /// The words up to the end of metadata, link and network, fewest words first.
    ///
    /// A stage is omitted if it adds no words, or if no words follow.
    stages: Vec<StageValues>,
    /// Number of stages before the addresses.
    before_addresses: usize,
    /// The source address and the destination address, if rules match both.
    addresses: Vec<StageValues>,
}

/// Some words of a mask, and the values that rules have in them.
#[derive(Clone, Debug)]
pub(super) struct StageValues {
    /// The words of the mask that this stage hashes.
    words: Box<[HashedWord]>,
    /// The hashes of the values of all rules in these words.
    values: ValueSet,
}

impl SubtableStages {
    /// Creates the stages of a mask.
    pub(super) fn new(mask: &SparseMask, hashing: &Hashing) -> Self {
        let words = hashing.words(mask);
        let mut stages: Vec<StageValues> = Vec::new();
        let mut before_addresses = 0;
        for stage in [Stage::Metadata, Stage::Link, Stage::Network] {
            let end = mask.words_until(stage);
            if end > stages.last().map_or(0, |part| part.words.len()) && end < words.len() {
                stages.push(StageValues::new(words[..end].into()));
                before_addresses += usize::from(stage < Stage::Network);
            }
        }
        let addresses = address_parts(mask).map(|part| StageValues::new(hashing.words(&part)));
        let addresses: Vec<_> = addresses.collect();
        let are_both = addresses.len() > 1;
        let addresses = if are_both { addresses } else { Vec::new() };
        Self { stages, before_addresses, addresses }
    }

    /// Adds the values of a rule to each stage and address set.
    pub(super) fn insert(&mut self, key: &FlowKey, hashing: &Hashing) {
        for part in self.stages.iter_mut().chain(&mut self.addresses) {
            part.values.insert(hashing.hash(&part.words, key));
        }
    }

    /// Removes the values of a rule from each stage and address set.
    pub(super) fn remove(&mut self, key: &FlowKey, hashing: &Hashing) {
        for part in self.stages.iter_mut().chain(&mut self.addresses) {
            part.values.remove(hashing.hash(&part.words, key));
        }
    }

    /// Returns the stages, lowest layer first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &StageValues> {
        self.stages.iter()
    }

    /// Returns the first stage that lacks the value of a key, before the addresses.
    pub(super) fn lacking_before_addresses(
        &self,
        key: &FlowKey,
        hashing: &Hashing,
    ) -> Option<&StageValues> {
        self.stages[..self.before_addresses].iter().find(|part| part.lacks(key, hashing))
    }

    /// Returns the last stage, if no rule has the value of a key in it.
    pub(super) fn lacking(&self, key: &FlowKey, hashing: &Hashing) -> Option<&StageValues> {
        self.stages.last().filter(|part| part.lacks(key, hashing))
    }

    /// Returns whether the last stage has the words of the addresses.
    const fn has_network(&self) -> bool {
        self.stages.len() > self.before_addresses
    }

    /// Adds a proof that no rule matches a key; the last stage must lack its value.
    pub(super) fn prove_lacking(&self, key: &FlowKey, hashing: &Hashing, mask: &mut FlowMask) {
        let Some((last, before)) = self.stages.split_last() else { return };
        if has_words(mask, &last.words) {
            return;
        }
        if let Some(part) = before.iter().find(|part| part.lacks(key, hashing)) {
            return part.add_to(mask);
        }
        if !(self.has_network() && self.prove_by_address(key, hashing, mask)) {
            last.add_to(mask);
        }
    }

    /// Adds a proof by one address for a key that no stage excludes.
    ///
    /// Returns whether an address is a proof. If no address is a proof, only the whole mask is one.
    pub(super) fn prove_behind(
        &self,
        key: &FlowKey,
        hashing: &Hashing,
        mask: &mut FlowMask,
    ) -> bool {
        !self.has_network() && self.prove_by_address(key, hashing, mask)
    }

    /// Adds the address that no rule of the subtable has to `mask`, if there is one.
    fn prove_by_address(&self, key: &FlowKey, hashing: &Hashing, mask: &mut FlowMask) -> bool {
        let lacking = self.addresses.iter().filter(|part| part.lacks(key, hashing));
        let Some(part) = lacking.min_by_key(|part| added_bits_count(mask, &part.words)) else {
            return false;
        };
        part.add_to(mask);
        // An OpenFlow match cannot have an address without its type.
        mask.add_field(FieldId::EthType);
        true
    }
}

impl StageValues {
    /// Creates a stage without values.
    fn new(words: Box<[HashedWord]>) -> Self {
        Self { words, values: ValueSet::default() }
    }

    /// Returns the words in which the values are compared.
    pub(super) const fn words(&self) -> &[HashedWord] {
        &self.words
    }

    /// Returns whether no rule has the value of a key in these words.
    pub(super) fn lacks(&self, key: &FlowKey, hashing: &Hashing) -> bool {
        !self.values.contains(hashing.hash(&self.words, key))
    }

    /// Adds the bits of these words to a mask.
    pub(super) fn add_to(&self, mask: &mut FlowMask) {
        add_words(mask, &self.words);
    }
}
