//! What a target says of itself, and what its owner says of it.

use std::{collections::BTreeMap, fmt, time::Duration};

use shunt_flow::FieldId;
use shunt_gigaflow::{
    cache::GigaflowCounts,
    offload::{OffloadError, Refusal},
};
use shunt_pipeline::Time;

/// How a target is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OffloadStatus {
    /// Whether what it forwards is what the tables say.
    pub state: OffloadState,
    /// Entries that each stage holds, or may hold, first to last; removals that were not confirmed
    /// yet included.
    pub held: Vec<usize>,
    /// Entries that each stage may hold, as far as is known.
    pub capacity: Vec<usize>,
    /// Pieces that are meant to be there and are not yet.
    pub waiting: usize,
    /// Entries that versions made stale and that are not confirmed gone.
    pub stale: usize,
    /// Tags in use.
    pub tags: usize,
    /// Rules that the target does not hold, so that their packets stay in software, by why.
    pub refused: BTreeMap<Reason, u64>,
    /// What was done with packets that were offered.
    pub cuts: GigaflowCounts,
    /// Packets that packet threads have offered.
    pub candidates_offered: u64,
    /// Of these, those that were dropped as too many waited.
    pub candidates_dropped: u64,
    /// Of these, those that needed nothing: the target had all of their way, or was about to.
    pub candidates_known: u64,
    /// Of these, those that came in by a port or at a bridge that the target does not have.
    pub candidates_elsewhere: u64,
    /// What was asked of the target.
    pub operations: Operations,
    /// From the miss of a packet until all of its way was confirmed.
    pub latency: Latency,
    /// How often the target was restored after it was lost.
    pub repairs: u64,
    /// How often it became stale.
    pub stale_count: u64,
    /// Versions that were answered though it may forward by what they made stale: barriers that waited
    /// for them say nothing of the target.
    pub unconfirmed: u64,
    /// Whether its counters are being read for so long that nobody waits for them.
    pub counts_late: bool,
    /// Packets that its entries have counted.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Whether what a target forwards is what the tables say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadState {
    /// It confirms what it is asked for.
    Connected,
    /// It may forward by what is gone: nobody waits for it.
    Stale {
        /// Since when.
        since: Time,
        /// Why.
        why: StaleReason,
    },
}

/// Why a target is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// It was not there yet.
    NotYet,
    /// It does not answer.
    Lost,
    /// It does not confirm in time.
    Unconfirmed,
    /// It is back, and not everything that went stale meanwhile is confirmed gone.
    Repairing,
    /// Its owner has ended, by a panic or because it was stopped.
    Ended,
}

/// Why a rule is not in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It consults a field that the target does not match.
    Match(FieldId),
    /// It consults bits that no field names.
    MatchUnnamed,
    /// It writes a field that the target does not write.
    Write(FieldId),
    /// It writes bits that no field names.
    WriteUnnamed,
    /// It does something that the target cannot do.
    Actions,
    /// It sends to a port that the target does not have.
    Output,
    /// It stands for too many lookups.
    Length,
    /// The number of a tag is too large.
    Tag,
    /// The stage has as many masks as it may.
    Masks,
    /// It consults more bits than a key of the target has.
    KeyBits,
    /// The stage had no room.
    NoRoom,
    /// The target failed.
    Failed,
}

/// Operations on a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Insertions handed over.
    pub inserts: u64,
    /// Removals handed over.
    pub removes: u64,
    /// Readings of counters handed over.
    pub counts: u64,
    /// Those of all of these that were done.
    pub done: u64,
    /// Those that were refused or failed.
    pub failed: u64,
    /// Those that the target did not answer before it was lost.
    pub lost: u64,
    /// Those that are under way.
    pub under_way: u64,
}

/// A histogram of times: bucket `n` counts those below 2^n microseconds that are in none before it;
/// the last one, all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many there are in each bucket.
    pub buckets: [u64; LATENCY_BUCKETS],
    /// The sum of all.
    pub sum: Duration,
}

/// Buckets of [`Latency`]: the last but one ends at about 4 s.
pub const LATENCY_BUCKETS: usize = 24;

impl Default for OffloadState {
    fn default() -> Self {
        Self::Stale { since: Time::ZERO, why: StaleReason::NotYet }
    }
}

impl OffloadState {
    /// Whether it may forward by what is gone.
    #[must_use]
    pub const fn is_stale(self) -> bool {
        matches!(self, Self::Stale { .. })
    }
}

impl StaleReason {
    /// The name as users read it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotYet => "not connected yet",
            Self::Lost => "lost",
            Self::Unconfirmed => "does not confirm in time",
            Self::Repairing => "repairing",
            Self::Ended => "its owner has ended",
        }
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Match(field) => Self::Match(field),
            Refusal::MatchUnnamed => Self::MatchUnnamed,
            Refusal::Write(field) => Self::Write(field),
            Refusal::WriteUnnamed => Self::WriteUnnamed,
            Refusal::Actions => Self::Actions,
            Refusal::Output(_) => Self::Output,
            Refusal::Length { .. } => Self::Length,
            Refusal::Tag(_) => Self::Tag,
            Refusal::Masks => Self::Masks,
            Refusal::KeyBits => Self::KeyBits,
            _ => Self::Failed,
        }
    }
}

impl From<&OffloadError> for Reason {
    fn from(error: &OffloadError) -> Self {
        match error {
            OffloadError::Refused(refusal) => (*refusal).into(),
            OffloadError::NoRoom => Self::NoRoom,
            _ => Self::Failed,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Match(field) => write!(f, "match_{}", field.name()),
            Self::MatchUnnamed => f.write_str("match_unnamed"),
            Self::Write(field) => write!(f, "write_{}", field.name()),
            Self::WriteUnnamed => f.write_str("write_unnamed"),
            Self::Actions => f.write_str("actions"),
            Self::Output => f.write_str("output"),
            Self::Length => f.write_str("length"),
            Self::Tag => f.write_str("tag"),
            Self::Masks => f.write_str("masks"),
            Self::KeyBits => f.write_str("key_bits"),
            Self::NoRoom => f.write_str("no_room"),
            Self::Failed => f.write_str("failed"),
        }
    }
}

impl Latency {
    /// Counts a time.
    pub fn add(&mut self, time: Duration) {
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bits = (u64::BITS - microseconds.leading_zeros()) as usize;
        self.buckets[bits.min(LATENCY_BUCKETS - 1)] += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// A time that the share `q` of all does not exceed, to a factor of two; zero if there is none.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Duration {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let rank = (self.count() as f64 * q.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (bits, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank && seen > 0 {
                return Duration::from_micros(1 << bits);
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_says_what_a_share_of_times_does_not_exceed() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile(0.5), Duration::ZERO);
        for microseconds in [0, 1, 3, 100, 1_000_000_000] {
            latency.add(Duration::from_micros(microseconds));
        }
        assert_eq!((latency.count(), latency.buckets[0]), (5, 1));
        assert_eq!(latency.quantile(0.0), Duration::from_micros(1));
        assert_eq!(latency.quantile(0.6), Duration::from_micros(4));
        assert_eq!(latency.quantile(0.8), Duration::from_micros(128));
        assert_eq!(latency.buckets[LATENCY_BUCKETS - 1], 1);
    }
}
