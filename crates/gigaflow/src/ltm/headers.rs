//! The current headers of a packet that matched entries with rewrites.

use shunt_flow::{FlowKey, Match, layout::HEADER_START};

/// A copy of the headers of a packet, made at the first rewrite.
#[derive(Clone, Debug, Default)]
pub(crate) struct RewrittenHeaders {
    /// The copied headers; valid only if `is_rewritten` is true.
    key: FlowKey,
    /// True if a rewrite has changed the headers of this packet.
    is_rewritten: bool,
}

impl RewrittenHeaders {
    /// Forgets the copy, for a new packet.
    #[inline]
    pub(crate) const fn begin(&mut self) {
        self.is_rewritten = false;
    }

    /// Returns the current headers of the packet that arrived with the key `ingress`.
    ///
    /// The hidden words of the result have no meaning.
    #[inline]
    pub(crate) const fn of<'a>(&'a self, ingress: &'a FlowKey) -> &'a FlowKey {
        if self.is_rewritten { &self.key } else { ingress }
    }

    /// Applies the rewrite of an entry to the current headers.
    pub(crate) fn rewrite(&mut self, ingress: &FlowKey, rewrite: &Match) {
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
