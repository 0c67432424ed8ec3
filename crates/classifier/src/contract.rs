//! The contract of all classifiers, and the total order that they share.

use std::{cmp::Ordering, fmt};

use shunt_flow::{FlowKey, FlowMask, Match};

use crate::Version;

/// Priority of a rule: the higher one wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u16);

impl Priority {
    /// The highest priority.
    pub const MAX: Self = Self(u16::MAX);
    /// What a rule has that names none (`OFP_DEFAULT_PRIORITY`).
    pub const DEFAULT: Self = Self(0x8000);

    /// The priority of a number; every number is one.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A rule's place in the total order: priority first, then the older rule.
///
/// `a > b` means that `a` wins where both match. A table miss ranks below every rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rank {
    /// The rule's priority.
    pub priority: Priority,
    /// A number that grows with each rule added; unique in a table.
    pub age: u64,
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        self.priority.cmp(&other.priority).then(other.age.cmp(&self.age))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A table of rules that finds, for a key and a version, the highest-ranking rule that matches.
///
/// `R` is what the table answers with, usually an `Arc` of a rule. All implementations answer
/// alike; `Linear` is the one that is obviously right.
pub trait Classifier<R> {
    /// Adds a rule that versions from `added` on see.
    ///
    /// Two rules with one rank must not be visible to one version.
    fn insert(&mut self, matching: Match, rank: Rank, added: Version, rule: R);

    /// Ends the life of the visible rule with this match and rank: versions from `removed` on do
    /// not see it. Answers with the rule, or `None` when there is none.
    ///
    /// The rule stays in the table until [`Self::reclaim`].
    fn remove(&mut self, matching: &Match, rank: Rank, removed: Version) -> Option<R>;

    /// Forgets the rules that no version from `oldest` on sees.
    fn reclaim(&mut self, oldest: Version);

    /// The rule that `version` sees with exactly this match and priority (OpenFlow's strict match).
    fn find_exact(&self, matching: &Match, priority: Priority, version: Version) -> Option<&R>;

    /// The highest-ranking rule that `version` sees and that matches `key`.
    fn lookup(&self, key: &FlowKey, version: Version) -> Option<&R>;

    /// As [`Self::lookup`], and adds to `mask` bits that the answer depended on.
    ///
    /// Every key that agrees with `key` under the bits added gets the same answer.
    fn lookup_masked(&self, key: &FlowKey, version: Version, mask: &mut FlowMask) -> Option<&R>;

    /// Every rule that `version` sees and that matches `key`, in the total order, as far as it is
    /// asked for.
    fn matches<'a>(&'a self, key: &FlowKey, version: Version) -> impl Matches<'a, R>
    where
        R: 'a;

    /// Whether `version` sees a rule of this priority that matches a key that `matching` matches
    /// too (OpenFlow's `CHECK_OVERLAP`).
    fn overlaps(&self, matching: &Match, priority: Priority, version: Version) -> bool;

    /// Every rule that `version` sees and that matches no key beyond those of `matching`, in no
    /// particular order (OpenFlow's non-strict match).
    fn rules_within<'a>(
        &'a self,
        matching: &Match,
        version: Version,
    ) -> impl Iterator<Item = (&'a Match, Rank, &'a R)>
    where
        R: 'a;

    /// Every rule that `version` sees, in no particular order.
    fn rules<'a>(&'a self, version: Version) -> impl Iterator<Item = (&'a Match, Rank, &'a R)>
    where
        R: 'a;

    /// Number of rules held, those not yet reclaimed included.
    fn len(&self) -> usize;

    /// Whether no rule is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The rules that match one key, the highest-ranking first.
///
/// It is asked for one rule after another, because the caller knows only then how far it has to
/// look: a rule that decides alone ends the search; one that is part of a conjunction asks for the
/// others of its priority, and for no more.
pub trait Matches<'a, R> {
    /// A priority that no rule to come is above; `None`: no rule is to come. It falls with each
    /// `None` of [`Self::next_masked`] down to it, so that who asks for one priority after another
    /// need not know which ones there are.
    ///
    /// For every key that agrees under the bits added so far it is the same.
    fn priority_max(&self) -> Option<Priority>;

    /// The next rule, if its priority is at least `floor`; adds to `mask` bits that this depended
    /// on.
    ///
    /// For every key that agrees under the bits added so far, the calls so far have the same
    /// answers. After `None` a lower floor may find more.
    fn next_masked(&mut self, floor: Priority, mask: &mut FlowMask) -> Option<(Rank, &'a R)>;
}
