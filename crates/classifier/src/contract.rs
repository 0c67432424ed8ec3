//! The contract of all classifiers, and the total order of rules.

use std::{cmp::Ordering, fmt};

use shunt_flow::{FlowKey, FlowMask, Match};

use crate::Version;

/// Priority of a rule: the higher one wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u16);

impl Priority {
    /// The highest priority.
    pub const MAX: Self = Self(u16::MAX);
    /// The priority of a rule that names none (`OFP_DEFAULT_PRIORITY`).
    pub const DEFAULT: Self = Self(0x8000);

    /// Creates the priority with this number; every number is legal.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Returns the number.
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

/// The rank of a rule in the total order: priority first, then the older rule.
///
/// `a > b` means that `a` wins where both match. A table miss ranks below every rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rank {
    /// Priority of the rule.
    pub priority: Priority,
    /// A number that grows with each rule added, unique in a table.
    /// The smaller is the older.
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

/// A table of rules that finds the highest-ranking match for a key and a version.
///
/// `R` is the value that a lookup returns, usually an `Arc` of a rule. All implementations return
/// the same; `Linear` is the obviously correct one.
pub trait Classifier<R> {
    /// Adds a rule that versions from `added` on see.
    ///
    /// Two rules with one rank must not be visible to one version.
    fn insert(&mut self, matching: Match, rank: Rank, added: Version, rule: R);

    /// Removes the visible rule with this match and rank.
    /// Versions from `removed` on do not see it.
    ///
    /// Returns the rule, or `None` if there is none. The rule stays in the table until
    /// [`Self::reclaim`].
    fn remove(&mut self, matching: &Match, rank: Rank, removed: Version) -> Option<R>;

    /// Reclaims the rules that no version from `oldest` on sees.
    fn reclaim(&mut self, oldest: Version);

    /// Returns the rule with exactly this match and priority (OpenFlow's strict match).
    ///
    /// Flow-mods replace such a rule, so there is one at most. Of several it is the newest.
    fn find_exact(&self, matching: &Match, priority: Priority, version: Version) -> Option<&R>;

    /// Returns the highest-ranking rule that `version` sees and that matches `key`.
    fn lookup(&self, key: &FlowKey, version: Version) -> Option<&R>;

    /// Does a [`Self::lookup`], and adds to `mask` the bits that the result depends on.
    ///
    /// Every key that agrees with `key` under the added bits gets the same result.
    fn lookup_masked(&self, key: &FlowKey, version: Version, mask: &mut FlowMask) -> Option<&R>;

    /// Returns the matching rules that `version` sees, in the total order, lazily.
    fn matches<'a>(&'a self, key: &FlowKey, version: Version) -> impl Matches<'a, R>
    where
        R: 'a;

    /// Returns whether a rule of this priority overlaps `matching`.
    /// This is OpenFlow's `CHECK_OVERLAP`.
    ///
    /// Two matches overlap if one key matches both.
    fn overlaps(&self, matching: &Match, priority: Priority, version: Version) -> bool;

    /// Returns the rules that match no key beyond those of `matching`.
    /// This is OpenFlow's non-strict match.
    ///
    /// The order is arbitrary.
    fn rules_within<'a>(
        &'a self,
        matching: &Match,
        version: Version,
    ) -> impl Iterator<Item = (&'a Match, Rank, &'a R)>
    where
        R: 'a;

    /// Returns every rule that `version` sees, in arbitrary order.
    fn rules<'a>(&'a self, version: Version) -> impl Iterator<Item = (&'a Match, Rank, &'a R)>
    where
        R: 'a;

    /// Returns the number of rules, including those not yet reclaimed.
    fn len(&self) -> usize;

    /// Returns whether the table has no rules.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The rules that match one key, the highest-ranking first.
///
/// The caller takes one rule after another, because it learns only then how many it needs. A rule
/// that decides alone ends the search. A clause of a conjunction needs the other rules of its
/// priority, and no more.
pub trait Matches<'a, R> {
    /// Returns an upper bound on the priority of the remaining rules.
    /// `None` if none remain.
    ///
    /// It falls with each `None` of [`Self::next_masked`] down to that floor, so that a caller can
    /// step through the priorities without knowing them. It is the same for every key that agrees
    /// under the bits added so far.
    fn priority_max(&self) -> Option<Priority>;

    /// Returns the next rule if its priority is at least `floor`.
    /// Adds the bits that the result depends on.
    ///
    /// For every key that agrees under the bits added so far, the calls so far return the same.
    /// After `None`, a lower floor may find more.
    fn next_masked(&mut self, floor: Priority, mask: &mut FlowMask) -> Option<(Rank, &'a R)>;
}
