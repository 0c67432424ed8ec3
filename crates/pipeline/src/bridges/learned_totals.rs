//! Totals of the changes of the MAC table or the multicast table of a bridge.

/// The numbers of changes of a table since its bridge was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnedTotals {
    /// Number of entries that were added.
    pub learned: u64,
    /// Number of entries that were removed because of their age.
    pub expired: u64,
    /// Number of entries that were removed because the table was full.
    pub evicted: u64,
    /// Number of entries that moved to another port.
    pub moved: u64,
}

impl LearnedTotals {
    /// Returns the sum of two totals.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            learned: self.learned.saturating_add(other.learned),
            expired: self.expired.saturating_add(other.expired),
            evicted: self.evicted.saturating_add(other.evicted),
            moved: self.moved.saturating_add(other.moved),
        }
    }

    /// Returns the changes since `earlier`, or all if the table is newer than that.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        let is_later = self.learned >= earlier.learned
            && self.expired >= earlier.expired
            && self.evicted >= earlier.evicted
            && self.moved >= earlier.moved;
        if !is_later {
            return self;
        }
        Self {
            learned: self.learned.saturating_sub(earlier.learned),
            expired: self.expired.saturating_sub(earlier.expired),
            evicted: self.evicted.saturating_sub(earlier.evicted),
            moved: self.moved.saturating_sub(earlier.moved),
        }
    }
}
