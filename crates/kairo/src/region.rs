//! Regions: the bits that all packets of an entry have in common as they enter a table.

use shunt_flow::{Match, layout::word};
use shunt_pipeline::{Rule, Traversal, Visit};

const TRANSPORT: usize = word::TRANSPORT as usize;
/// Bits of the transport ports in their word.
const PORTS_BITS: u64 = 0xffff_ffff_0000_0000;
/// Word of `nw_frag`, and the bit in it that fragments have.
const FRAGMENT: (usize, u64) = (word::IP_MISC as usize, 1 << 32);

/// One word of the match of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchWord {
    word: usize,
    bits: u64,
    /// The value under these bits.
    value: u64,
}

impl MatchWord {
    /// Returns the match, word by word.
    pub(crate) fn all(matching: &Match) -> impl Iterator<Item = Self> + '_ {
        let words = matching.mask().iter().zip(matching.value());
        words.map(|((word, bits), value)| Self { word, bits, value: *value })
    }

    /// Returns whether a packet of the entry has this value at the table of `visit`.
    /// The value is compared before the actions of the table.
    ///
    /// An entry fixes two kinds of bits: those that its mask holds of the packet that arrived, and
    /// those that actions wrote before this table. A bit that differs from the packet that arrived
    /// was written. There is one exception: a fragment is looked up with ports of zero, although
    /// nothing wrote them. Where an entry fixes ports, it also fixes whether its packets are
    /// fragments, and the ports of fragments are zero.
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

/// Returns whether a packet of the entry matches at the table of `visit`.
/// The packet is compared as it enters the table.
#[cfg(feature = "dbsp")]
pub(crate) fn is_overlapped(traversal: &Traversal, visit: &Visit, matching: &Match) -> bool {
    MatchWord::all(matching).all(|match_word| match_word.overlaps(traversal, visit))
}

/// Returns whether `rule` outranks a visit's decider and overlaps its region.
/// A decider is the rule that decided a visit.
#[cfg(feature = "dbsp")]
pub(crate) fn is_outranked_by(traversal: &Traversal, visit: &Visit, rule: &Rule) -> bool {
    visit.rank().is_none_or(|rank| rank < rule.rank())
        && is_overlapped(traversal, visit, &rule.matching)
}

/// Returns whether `rule` decided `visit`, alone or as a clause.
/// Only revisions that pass `revision` count.
pub(crate) fn is_decided(visit: &Visit, rule: &Rule, revision: impl Fn(&Rule) -> bool) -> bool {
    let mut all = visit.rule.iter().chain(&visit.clauses);
    all.any(|own| own.id == rule.id && revision(own))
}
