//! The way of one packet through a chain.

use shunt_flow::{FlowKey, Match, layout::HEADER_START};

use super::{EntryRef, Next, Tag, table::Step};

/// The way of a packet through the chain. It is used again for the next packet.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    slots: Vec<u32>,
    /// Of the entries in these slots.
    generations: Vec<u32>,
    /// The headers, if an entry has rewritten some.
    key: FlowKey,
    is_rewritten: bool,
    tag: Option<Tag>,
    is_hit: bool,
}

impl Walk {
    pub(super) fn begin(&mut self, tag: Option<Tag>) {
        self.slots.clear();
        self.generations.clear();
        (self.is_rewritten, self.is_hit, self.tag) = (false, false, tag);
    }

    /// The packet meets an entry.
    #[inline]
    pub(super) fn go(&mut self, step: Step) {
        self.slots.push(step.entry.slot);
        self.generations.push(step.entry.generation);
        match step.next {
            Next::Tag(tag) => self.tag = Some(tag),
            Next::End => self.is_hit = true,
        }
    }

    /// The entries that the packet met, as they were called then.
    #[inline]
    pub(super) fn entries(&self) -> impl Iterator<Item = EntryRef> {
        let name =
            |(slot, generation): (&u32, &u32)| EntryRef { slot: *slot, generation: *generation };
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
        if self.is_rewritten { &self.key } else { ingress }
    }

    pub(super) fn rewrite(&mut self, ingress: &FlowKey, rewrite: &Match) {
        if rewrite.mask().is_empty() {
            return;
        }
        if !self.is_rewritten {
            let own = &mut self.key.words_mut()[HEADER_START..];
            own.copy_from_slice(&ingress.words()[HEADER_START..]);
            self.is_rewritten = true;
        }
        let words = self.key.words_mut();
        for ((index, mask), value) in rewrite.mask().iter().zip(rewrite.value()) {
            words[index] = words[index] & !mask | value;
        }
    }
}
