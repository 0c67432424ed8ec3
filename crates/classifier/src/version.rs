//! Versions: a number over shared tables, not a copy of them.
//!
//! Every object that a translation can consult carries a [`Lifetime`]; a translation at a version
//! skips what that version cannot see. Publishing a version costs what changed.

use std::fmt;

/// A number that names the state of all tables of a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// The version before any change.
    pub const ZERO: Self = Self(0);

    /// The version of a number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The version that follows.
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

/// The versions that can see an object: from `added` on, until `removed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// First version that sees the object.
    pub added: Version,
    /// First version that no longer does; [`Self::NEVER`] as long as there is none.
    until: Version,
}

impl Lifetime {
    /// A version that is never reached.
    const NEVER: Version = Version(u64::MAX);

    /// A lifetime that has begun and not ended.
    #[must_use]
    pub const fn since(added: Version) -> Self {
        Self { added, until: Self::NEVER }
    }

    /// First version that no longer sees the object.
    #[must_use]
    pub fn removed(self) -> Option<Version> {
        (self.until != Self::NEVER).then_some(self.until)
    }

    /// The object is not seen by `removed` and those after it; `None`: it lives on.
    pub fn end(&mut self, removed: Option<Version>) {
        self.until = removed.unwrap_or(Self::NEVER);
    }

    /// Whether `version` sees the object.
    #[must_use]
    pub fn is_visible(self, version: Version) -> bool {
        self.added <= version && self.removed().is_none_or(|removed| version < removed)
    }

    /// Whether no version from `oldest` on sees the object.
    #[must_use]
    pub fn is_over(self, oldest: Version) -> bool {
        self.removed().is_some_and(|removed| removed <= oldest)
    }
}
