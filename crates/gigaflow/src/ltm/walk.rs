//! A walk: the lookups of one packet in the stages of a chain, one after the other.

use shunt_flow::{FlowKey, Match};

use super::{LtmEntryRef, Next, RewrittenHeaders, Tag, table::MatchedEntry};

/// The entries that a packet matched in the stages, with its headers and tag.
///
/// The memory of a walk is reused for the next packet.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// The slots of the matched entries, first to last.
    slots: Vec<u32>,
    /// The generations of the entries in `slots`.
    generations: Vec<u32>,
    headers: RewrittenHeaders,
    /// The tag of the next lookup; `None` if the packet had no first tag.
    tag: Option<Tag>,
    /// True once an entry that ends the traversal has matched.
    is_hit: bool,
    /// True until the rewrite of the last matched entry is applied.
    is_to_rewrite: bool,
}

impl Walk {
    /// Starts the walk of a packet through the stages, at a tag.
    pub(super) fn begin(&mut self, tag: Option<Tag>) {
        self.slots.clear();
        self.generations.clear();
        self.headers.begin();
        (self.is_hit, self.is_to_rewrite, self.tag) = (false, false, tag);
    }

    /// Adds a matched entry, and continues with its next tag.
    #[inline]
    pub(super) fn follow(&mut self, matched: MatchedEntry) {
        self.slots.push(matched.entry.slot);
        self.generations.push(matched.entry.generation);
        self.is_to_rewrite = matched.rewrites;
        match matched.next {
            Next::Tag(tag) => self.tag = Some(tag),
            Next::End => self.is_hit = true,
        }
    }

    /// Returns the slot of the last entry if its rewrite is not applied yet, once.
    #[inline]
    pub(super) fn take_rewriting(&mut self) -> Option<u32> {
        let is_to_rewrite = std::mem::take(&mut self.is_to_rewrite);
        self.slots.last().copied().filter(|_| is_to_rewrite)
    }

    /// Returns the references of the entries that the packet matched, first to last.
    #[inline]
    pub fn entries(&self) -> impl Iterator<Item = LtmEntryRef> {
        let name =
            |(slot, generation): (&u32, &u32)| LtmEntryRef { slot: *slot, generation: *generation };
        self.slots.iter().zip(&self.generations).map(name)
    }

    /// Returns whether the walk is over: the packet hit, or has no tag.
    #[inline]
    pub(super) const fn is_over(&self) -> bool {
        self.is_hit || self.tag.is_none()
    }

    /// Returns the slots of the entries that the packet matched, first to last.
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Returns whether the packet hit: the last matched entry ends the traversal.
    #[must_use]
    pub const fn is_hit(&self) -> bool {
        self.is_hit
    }

    /// Returns the tag with which the packet missed; `None` if it had no first tag.
    #[must_use]
    pub const fn tag(&self) -> Option<Tag> {
        self.tag
    }

    /// Returns the headers with which the packet missed.
    ///
    /// The hidden words of the result have no meaning; no LTM rule matches them.
    #[must_use]
    #[inline]
    pub const fn key<'a>(&'a self, ingress: &'a FlowKey) -> &'a FlowKey {
        self.headers.of(ingress)
    }

    /// Applies a rewrite to the headers of the packet.
    #[inline]
    pub(super) fn rewrite(&mut self, ingress: &FlowKey, rewrite: &Match) {
        self.headers.rewrite(ingress, rewrite);
    }
}
