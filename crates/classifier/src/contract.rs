//! The contract of all classifiers, and the total order of rules.

use std::{cmp::Ordering, fmt};

use shunt_flow::{FlowKey, FlowMask, Match};

use crate::Version;

/// The priority of a rule: the rule with the higher priority wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u16);

impl Priority {
    /// The highest priority of a rule.
    pub const MAX: Self = Self(u16::MAX);
    /// The priority of a rule without an explicit priority (`OFP_DEFAULT_PRIORITY`).
    pub const DEFAULT: Self = Self(0x8000);

    /// Creates the priority with this number; every number is legal.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Returns the priority as a number.
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

/// The rank of a rule: by priority first, then the older rule ranks higher.
///
/// `a > b` means that the rule with rank `a` wins if both rules match a key. Every rule outranks a
/// table miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rank {
    /// The priority of the rule.
    pub priority: Priority,
    /// A number that grows with each added rule, unique in a table.
    /// The rule with the smaller number is older.
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

/// A table of rules that finds the matching rule of the highest rank for a key.
///
/// `R` is the value that a lookup returns, usually an `Arc` of a rule. All implementations return
/// the same results; `Linear` is the simplest one, the oracle of tests.
pub trait Classifier<R> {
    /// Adds a rule that versions from `added` on see.
    ///
    /// Two rules with one rank must not be visible to one version.
    fn insert(&mut self, matching: Match, rank: Rank, added: Version, rule: R);

    /// Removes the visible rule with this match and rank.
    /// Versions from `removed` on do not see the rule.
    ///
    /// Returns the removed rule, or `None` if no rule with this match and rank is visible. The rule
    /// stays in the table until [`Self::reclaim`].
    fn remove(&mut self, matching: &Match, rank: Rank, removed: Version) -> Option<R>;

    /// Reclaims the rules that no version from `oldest` on sees.
    fn reclaim(&mut self, oldest: Version);

    /// Returns the rule with exactly this match and priority (OpenFlow's strict match).
    ///
    /// Flow-mods replace a rule with the same match and priority, so at most one such rule is
    /// visible. If several rules with them are visible, the newest one is returned.
    fn find_exact(&self, matching: &Match, priority: Priority, version: Version) -> Option<&R>;

    /// Returns the rule of the highest rank that `version` sees and that matches `key`.
    fn lookup(&self, key: &FlowKey, version: Version) -> Option<&R>;

    /// Does a [`Self::lookup`], and adds the bits that the result depends on to `mask`.
    ///
    /// Every key that agrees with `key` under the added bits gets the same result.
    fn lookup_masked(&self, key: &FlowKey, version: Version, mask: &mut FlowMask) -> Option<&R>;

    /// Returns the matching rules that `version` sees, in the total order, lazily.
    fn matches<'a>(&'a self, key: &FlowKey, version: Version) -> impl Matches<'a, R>
    where
        R: 'a;

    /// Returns whether a rule of this priority overlaps `matching`.
    /// OpenFlow's `CHECK_OVERLAP` requires this check.
    ///
    /// Two matches overlap if a key matches both of them.
    fn overlaps(&self, matching: &Match, priority: Priority, version: Version) -> bool;

    /// Returns the rules that match only keys that `matching` matches too.
    /// The search follows OpenFlow's non-strict match.
    ///
    /// The rules are returned in arbitrary order.
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

    /// Returns the number of rules, including removed rules that are not reclaimed yet.
    fn len(&self) -> usize;

    /// Returns whether the table has no rules.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The rules that match one key, highest rank first.
///
/// The caller takes one rule after another, because each rule shows whether more rules are needed.
/// A rule that decides alone ends the search. For a clause of a conjunction, only the other rules
/// of the same priority are needed.
pub trait Matches<'a, R> {
    /// Returns an upper bound on the priority of the remaining rules.
    /// The result is `None` if no rules remain.
    ///
    /// Each time [`Self::next_masked`] returns `None`, the bound falls below the floor of that
    /// call. So a caller can step through the priorities of a table without knowing them. The bound
    /// is the same for every key that agrees in the bits added so far.
    fn priority_max(&self) -> Option<Priority>;

    /// Returns the next rule if its priority is at least `floor`.
    /// Adds the bits that the result depends on.
    ///
    /// For every key that agrees in the bits added so far, the calls so far return the same rules.
    /// After `None`, a call with a lower floor may return more rules.
    fn next_masked(&mut self, floor: Priority, mask: &mut FlowMask) -> Option<(Rank, &'a R)>;
}
