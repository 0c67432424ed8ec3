//! Versions: numbers that name states of shared tables, without copies of the tables.
//!
//! Every object that a translation can consult has a [`Lifetime`]. A translation at a version skips
//! the objects that this version does not see. The cost of publishing a version depends on the size of the change.

use std::fmt;

/// A number that names the state of all tables of a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// The version before any change.
    pub const ZERO: Self = Self(0);

    /// Creates the version with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the version as a number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the next version.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The versions that see an object: from its addition on, until its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// First version that sees the object.
    pub added: Version,
    /// The first version that does not see the object any more, or [`Self::NEVER`].
    until: Version,
}

impl Lifetime {
    /// A version that is never reached.
    const NEVER: Version = Version(u64::MAX);

    /// Creates a lifetime that begins at the version `added` and has no end.
    #[must_use]
    pub const fn since(added: Version) -> Self {
        Self { added, until: Self::NEVER }
    }

    /// Returns the first version that does not see the object any more.
    #[must_use]
    pub fn removed(self) -> Option<Version> {
        (self.until != Self::NEVER).then_some(self.until)
    }

    /// Ends the lifetime before the version `removed`; `None` removes the end.
    pub fn end(&mut self, removed: Option<Version>) {
        self.until = removed.unwrap_or(Self::NEVER);
    }

    /// Returns whether `version` sees the object.
    #[must_use]
    pub fn is_visible(self, version: Version) -> bool {
        self.added <= version && self.removed().is_none_or(|removed| version < removed)
    }

    /// Returns whether no version from `oldest` on sees the object.
    #[must_use]
    pub fn is_over(self, oldest: Version) -> bool {
        self.removed().is_some_and(|removed| removed <= oldest)
    }
}
