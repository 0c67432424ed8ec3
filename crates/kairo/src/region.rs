//! Regions: the bits that all packets of an entry have in common as they enter a table.

use shunt_flow::{Match, layout::word};
use shunt_pipeline::{Rule, Traversal, Visit};

/// Index of the word with the transport ports.
const TRANSPORT: usize = word::TRANSPORT as usize;
/// The bits of the transport ports in the word [`TRANSPORT`].
const PORTS_BITS: u64 = 0xffff_ffff_0000_0000;
/// The word of the field `nw_frag`, and the bit in it that is set for fragments.
const FRAGMENT: (usize, u64) = (word::IP_MISC as usize, 1 << 32);

/// One word of the match of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchWord {
    /// Index of the word in the key.
    word: usize,
    /// The bits that the rule matches in the word.
    bits: u64,
    /// The value that the rule matches under `bits`.
    value: u64,
}

impl MatchWord {
    /// Returns the words of a match.
    pub(crate) fn all(matching: &Match) -> impl Iterator<Item = Self> + '_ {
        let words = matching.mask().iter().zip(matching.value());
        words.map(|((word, bits), value)| Self { word, bits, value: *value })
    }

    /// Returns whether a packet of the entry matches this word at the table of `visit`.
    /// The headers are compared as the packet enters the table, before the actions of the table.
    ///
    /// An entry fixes two kinds of bits: bits of the arriving packet that are in the mask of the
    /// entry, and bits that actions wrote before this table. A bit that differs from the arriving
    /// packet was written. The exception is a fragment: it is looked up with ports of zero,
    /// although no action wrote the ports. If an entry fixes ports, it also fixes whether its
    /// packets are fragments, and the ports of fragments are zero.
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

/// Returns whether a packet of the entry has this match at the table of `visit`.
/// The headers are compared as the packet enters the table.
#[cfg(feature = "dbsp")]
pub(crate) fn is_overlapped(traversal: &Traversal, visit: &Visit, matching: &Match) -> bool {
    MatchWord::all(matching).all(|match_word| match_word.overlaps(traversal, visit))
}

/// Returns whether `rule` overlaps a visit and outranks the rule that decided it.
/// A rule overlaps a visit if a packet of the region of the visit matches the rule.
#[cfg(feature = "dbsp")]
pub(crate) fn is_outranked_by(traversal: &Traversal, visit: &Visit, rule: &Rule) -> bool {
    visit.rank().is_none_or(|rank| rank < rule.rank())
        && is_overlapped(traversal, visit, &rule.matching)
}

/// Returns whether `rule` decided `visit`, alone or as a clause.
/// A rule counts only if `revision` returns true for it.
pub(crate) fn is_decided(visit: &Visit, rule: &Rule, revision: impl Fn(&Rule) -> bool) -> bool {
    let mut all = visit.rule.iter().chain(&visit.clauses);
    all.any(|own| own.id == rule.id && revision(own))
}
