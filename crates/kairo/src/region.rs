//! Regions: what all packets of an entry have in common as they enter a table.

use shunt_flow::{Match, layout::word};
use shunt_pipeline::{Rule, Traversal, Visit};

const TRANSPORT: usize = word::TRANSPORT as usize;
/// The bits of transport ports in their word.
const PORTS_BITS: u64 = 0xffff_ffff_0000_0000;
/// The word of `nw_frag`, and the bit there that fragments have.
const FRAGMENT: (usize, u64) = (word::IP_MISC as usize, 1 << 32);

/// A word of what a rule matches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchWord {
    word: usize,
    bits: u64,
    /// Under these bits.
    value: u64,
}

impl MatchWord {
    /// Word by word, what is matched.
    pub(crate) fn all(matching: &Match) -> impl Iterator<Item = Self> + '_ {
        let words = matching.mask().iter().zip(matching.value());
        words.map(|((word, bits), value)| Self { word, bits, value: *value })
    }

    /// Whether some packet of an entry has this in its word, as it enters the table of one of its visits.
    ///
    /// An entry fixes there what its mask holds of the packet that came in, and whatever was written
    /// before: that is a function of what was consulted. What differs from the packet as it came in was
    /// written; but not ports that are zero, which a fragment is looked up without. Where ports are
    /// fixed, so is whether it is one; and where that is fixed, its ports are zero.
    pub(crate) fn overlaps(self, traversal: &Traversal, visit: &Visit) -> bool {
        let Self { word, bits, value } = self;
        let own = visit.key.word(word);
        let differing = (own ^ value) & bits;
        if differing == 0 {
            return true;
        }
        let Traversal { key, mask, .. } = traversal;
        let is_fragment = || {
            let (word, bit) = FRAGMENT;
            key.word(word) & (visit.mask.word(word) | mask.word(word)) & bit != 0
        };
        let has_no_ports = word == TRANSPORT && own & PORTS_BITS == 0;
        let written = (own ^ key.word(word)) & if has_no_ports { !PORTS_BITS } else { u64::MAX };
        let absent = if word == TRANSPORT && is_fragment() { PORTS_BITS } else { 0 };
        differing & (visit.mask.word(word) | mask.word(word) | written | absent) == 0
    }
}

/// Whether some packet of an entry matches, as it enters the table of one of its visits.
#[cfg(feature = "dbsp")]
pub(crate) fn is_overlapped(traversal: &Traversal, visit: &Visit, matching: &Match) -> bool {
    MatchWord::all(matching).all(|match_word| match_word.overlaps(traversal, visit))
}

/// Whether a rule outranks what decided a visit, and decides some packet of its region.
#[cfg(feature = "dbsp")]
pub(crate) fn is_taken_over(traversal: &Traversal, visit: &Visit, rule: &Rule) -> bool {
    visit.rank().is_none_or(|rank| rank < rule.rank())
        && is_overlapped(traversal, visit, &rule.matching)
}

/// Whether a rule decided a visit, alone or as one clause of several, in a revision of which this is
/// true.
pub(crate) fn is_decided(visit: &Visit, rule: &Rule, revision: impl Fn(&Rule) -> bool) -> bool {
    let mut all = visit.rule.iter().chain(&visit.clauses);
    all.any(|own| own.id == rule.id && revision(own))
}
