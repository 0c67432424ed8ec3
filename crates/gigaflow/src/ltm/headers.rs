//! The headers of a packet on its way through pieces that rewrite them.

use shunt_flow::{FlowKey, Match, layout::HEADER_START};

/// The headers of a packet, if they are not any more those that it came with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Headers {
    key: FlowKey,
    is_rewritten: bool,
}

impl Headers {
    /// A packet comes.
    #[inline]
    pub(crate) const fn begin(&mut self) {
        self.is_rewritten = false;
    }

    /// The headers of a packet that came with `ingress`. The hidden words are any.
    #[inline]
    pub(crate) const fn of<'a>(&'a self, ingress: &'a FlowKey) -> &'a FlowKey {
        if self.is_rewritten { &self.key } else { ingress }
    }

    /// A piece writes some.
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
