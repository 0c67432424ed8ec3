//! The way of one packet through a chain.

use shunt_flow::{FlowKey, Match};

use super::{Headers, LtmEntryRef, Next, Tag, groups::Step};

/// The way of a packet through the chain. It is used again for the next packet.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    slots: Vec<u32>,
    /// Of the entries in these slots.
    generations: Vec<u32>,
    headers: Headers,
    tag: Option<Tag>,
    is_hit: bool,
    /// The entry that it met last is to rewrite its headers.
    is_to_rewrite: bool,
}

impl Walk {
    pub(super) fn begin(&mut self, tag: Option<Tag>) {
        self.slots.clear();
        self.generations.clear();
        self.headers.begin();
        (self.is_hit, self.is_to_rewrite, self.tag) = (false, false, tag);
    }

    /// The packet meets an entry.
    #[inline]
    pub(super) fn go(&mut self, step: Step) {
        self.slots.push(step.entry.slot);
        self.generations.push(step.entry.generation);
        self.is_to_rewrite = step.rewrites;
        match step.next {
            Next::Tag(tag) => self.tag = Some(tag),
            Next::End => self.is_hit = true,
        }
    }

    /// The slot of the entry that is to rewrite its headers, if there is one.
    #[inline]
    pub(super) fn take_rewriting(&mut self) -> Option<u32> {
        let is_to_rewrite = std::mem::take(&mut self.is_to_rewrite);
        self.slots.last().copied().filter(|_| is_to_rewrite)
    }

    /// The entries that the packet met, as they were called then.
    #[inline]
    pub(super) fn entries(&self) -> impl Iterator<Item = LtmEntryRef> {
        let name =
            |(slot, generation): (&u32, &u32)| LtmEntryRef { slot: *slot, generation: *generation };
        self.slots.iter().zip(&self.generations).map(name)
    }

    /// Whether the packet goes no further.
    #[inline]
    pub(super) const fn is_over(&self) -> bool {
        self.is_hit || self.tag.is_none()
    }

    /// The entries that the packet met, first to last.
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Whether the packet came to the end of its way.
    #[must_use]
    pub const fn is_hit(&self) -> bool {
        self.is_hit
    }

    /// The tag that the packet has where it missed; `None`: no packet begins as it does.
    #[must_use]
    pub const fn tag(&self) -> Option<Tag> {
        self.tag
    }

    /// The headers of the packet where it missed. No rule looks at the hidden words, which are any.
    #[must_use]
    #[inline]
    pub const fn key<'a>(&'a self, ingress: &'a FlowKey) -> &'a FlowKey {
        self.headers.of(ingress)
    }

    #[inline]
    pub(super) fn rewrite(&mut self, ingress: &FlowKey, rewrite: &Match) {
        self.headers.rewrite(ingress, rewrite);
    }
}
