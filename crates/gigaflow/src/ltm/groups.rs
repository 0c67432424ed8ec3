//! The rules of one tag in one stage: families of masks, and which of them to ask.
//!
//! Of several rules that match a packet any would be right, as each says what the tables say; the
//! longest leaves the most stages for the rest of the way. So a packet asks the families with the
//! longest rules first, and no further one that has none longer than what it has found.
//!
//! Masks of one [`Family`] have bits in the same words. So they have much in common, addresses by
//! prefixes of many lengths above all, and a packet is done with most families by one lookup.

use shunt_flow::{FlowKey, hash::KeyHasher};

use super::{
    LtmEntryRef, LtmRule, Next, Walk,
    family::Family,
    places::{FEW, Places},
};

/// The rules of one tag.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Those with the longest rules first.
    families: Vec<Family>,
}

/// An entry that a packet meets, and how it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) entry: LtmEntryRef,
    pub(super) next: Next,
    /// Whether the rule rewrites headers.
    pub(super) rewrites: bool,
}

/// A rule that matches a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) length: u16,
    pub(super) step: Step,
}

/// What was found for packets in a stage.
#[derive(Debug)]
pub(super) struct FoundFew {
    /// The longest rules, by the places of the packets.
    longest: [Option<Found>; FEW],
    /// Tables that packets were looked up in, for one each.
    pub(super) probes: u32,
}

impl FoundFew {
    pub(super) const NONE: Self = Self { longest: [None; FEW], probes: 0 };

    /// The longest rule that was found for each place.
    pub(super) fn longest(&self) -> impl Iterator<Item = Option<Found>> + use<'_> {
        self.longest.iter().copied()
    }

    /// Whether a rule of this length would be longer than what was found.
    #[inline]
    fn wants(&self, place: usize, length: u16) -> bool {
        is_longer(length, self.longest[place])
    }

    /// A rule matches the packet: it is noted if it is longer than what was found.
    #[inline]
    pub(super) fn note(&mut self, place: usize, found: Found) {
        if self.wants(place, found.length) {
            self.longest[place] = Some(found);
        }
    }
}

impl Groups {
    pub(super) const fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    /// How many masks there are.
    pub(super) fn masks_count(&self) -> usize {
        self.families.iter().map(Family::masks_count).sum()
    }

    /// The longest rule that lives and matches.
    #[inline]
    pub(super) fn find(
        &self,
        hasher: &KeyHasher,
        key: &FlowKey,
        is_live: impl Fn(LtmEntryRef) -> bool,
    ) -> Option<Step> {
        let mut longest = None;
        for family in &self.families {
            if !is_longer(family.length_max(), longest) {
                break;
            }
            let found = family.find(hasher, key, &is_live);
            longest = found.filter(|found| is_longer(found.length, longest)).or(longest);
        }
        longest.map(|found| found.step)
    }

    /// Notes the longest rules that these packets match. The first one that is found counts, also if it
    /// is dead.
    pub(super) fn find_few(
        &mut self,
        hasher: &KeyHasher,
        packets: (&[FlowKey], &[Walk]),
        mut asking: Places,
        found: &mut FoundFew,
    ) {
        for family in &mut self.families {
            asking.take(|place| !found.wants(place, family.length_max()));
            if asking.first().is_none() {
                break;
            }
            family.find_few(hasher, packets, asking, found);
        }
    }

    /// The slot of the rule with just this match and length, whose group is called so.
    pub(super) fn find_exact(&self, hasher: &KeyHasher, rule: &LtmRule, name: u64) -> Option<u32> {
        self.families[self.family_of(rule)?].find_exact(hasher, rule, name)
    }

    /// Adds a rule; there is none with its match and length.
    pub(super) fn insert(
        &mut self,
        hasher: &KeyHasher,
        rule: &LtmRule,
        name: u64,
        entry: LtmEntryRef,
    ) {
        let own = self.family_of(rule).unwrap_or_else(|| {
            self.families.push(Family::of(rule));
            self.families.len() - 1
        });
        self.families[own].insert(hasher, rule, name, entry);
        self.put_in_order();
    }

    /// Takes out a rule, whose group is called so.
    pub(super) fn remove(&mut self, hasher: &KeyHasher, rule: &LtmRule, name: u64) {
        let Some(own) = self.family_of(rule) else { return };
        self.families[own].remove(hasher, rule, name);
        self.families.retain(|family| !family.is_empty());
        self.put_in_order();
    }

    fn family_of(&self, rule: &LtmRule) -> Option<usize> {
        let words = rule.matching.mask().map();
        self.families.iter().position(|family| family.words() == words)
    }

    fn put_in_order(&mut self) {
        self.families.sort_by_key(|family| std::cmp::Reverse(family.length_max()));
    }
}

/// Whether a rule of this length is longer than what was found.
#[inline]
fn is_longer(length: u16, found: Option<Found>) -> bool {
    found.is_none_or(|found| length > found.length)
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
