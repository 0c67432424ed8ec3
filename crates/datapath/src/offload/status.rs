//! The status of an offload device and its agent.

use std::{collections::BTreeMap, fmt, time::Duration};

use shunt_flow::FieldId;
use shunt_gigaflow::{
    cache::GigaflowCounts,
    offload::{OffloadError, Refusal},
};
use shunt_pipeline::Time;

/// The status of an offload device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OffloadStatus {
    /// The state of the device: connected or stale.
    pub state: OffloadState,
    /// Number of entries that each stage holds, including unconfirmed removals.
    pub held: Vec<usize>,
    /// Number of entries that each stage can hold, as far as known.
    pub capacity: Vec<usize>,
    /// Number of intended entries that the device does not hold yet.
    pub waiting: usize,
    /// Number of stale entries with a removal that is not confirmed.
    pub stale: usize,
    /// Number of tags in use.
    pub tags: usize,
    /// Number of LTM entries that the device cannot hold, by reason.
    pub refused: BTreeMap<OffloadRefusal, u64>,
    /// Counts of the partitions of offload candidates.
    pub partitioned: GigaflowCounts,
    /// Number of candidates that packet threads have offered.
    pub candidates_offered: u64,
    /// Number of candidates that were dropped because too many waited.
    pub candidates_dropped: u64,
    /// Number of candidates with a traversal that intended entries already covered.
    pub candidates_known: u64,
    /// Number of candidates of a port or bridge that the device does not have.
    pub candidates_elsewhere: u64,
    /// Counts of the operations on the device.
    pub operations: OperationCounts,
    /// Times from a packet's miss until all entries of its traversal were confirmed.
    pub latency: LatencyHistogram,
    /// Number of times that the device was restored after it was lost.
    pub repairs: u64,
    /// Number of times that the device became stale.
    pub stale_count: u64,
    /// Number of versions that were acknowledged while the device was stale.
    ///
    /// The barriers of these versions do not cover the device.
    pub unconfirmed: u64,
    /// True while a reading of the counters takes too long, and pulls do not wait.
    pub counts_late: bool,
    /// Number of packets that the entries of the device have counted.
    pub packets: u64,
    /// Number of bytes of the counted packets.
    pub bytes: u64,
}

/// The state of an offload device: connected or stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadState {
    /// The device confirms its operations.
    Connected,
    /// The device may forward by stale entries, and versions do not wait for it.
    Stale {
        /// The time at which the state began.
        since: Time,
        /// The reason why the device may have stale entries.
        reason: StaleReason,
    },
}

/// The reason why a device is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// The device has never been present.
    NotYet,
    /// The device does not respond.
    Lost,
    /// The device does not confirm in time.
    Unconfirmed,
    /// The device is back, but some stale entries are not confirmed as removed.
    Repairing,
    /// The agent of the device has ended, by a panic or because it was stopped.
    Ended,
}

/// The reason why the device does not hold a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OffloadRefusal {
    /// The rule consults a field that the device does not match.
    Match(FieldId),
    /// The rule consults bits that belong to no field.
    MatchUnnamed,
    /// The rule writes a field that the device does not write.
    Write(FieldId),
    /// The rule writes bits that belong to no field.
    WriteUnnamed,
    /// The rule has an action that the device cannot execute.
    Actions,
    /// The rule outputs to a port that the device does not have.
    Output,
    /// The rule covers too many table lookups.
    Length,
    /// The number of a tag is too large.
    Tag,
    /// The stage has its maximum of masks.
    Masks,
    /// The rule consults more bits than a key of the device has.
    KeyBits,
    /// The stage had no room.
    NoRoom,
    /// The device reported a failure.
    Failed,
}

/// Counts of operations on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Number of insertions sent to the device.
    pub inserts: u64,
    /// Number of removals sent to the device.
    pub removes: u64,
    /// Number of requests for counters sent to the device.
    pub counts: u64,
    /// Number of operations that succeeded.
    pub done: u64,
    /// Operations that were refused or failed.
    pub failed: u64,
    /// Operations without a response before the device was lost.
    pub lost: u64,
    /// Operations that are pending.
    pub pending_operations: u64,
}

/// A histogram of times.
///
/// Bucket `n` counts times below 2^n microseconds that are in no earlier bucket; the last bucket
/// counts all longer times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// The count of each bucket.
    pub buckets: [u64; LATENCY_BUCKETS],
    /// The sum of all times.
    pub sum: Duration,
}

/// Number of buckets of [`LatencyHistogram`]: the last but one ends at about 4 s.
pub const LATENCY_BUCKETS: usize = 24;

impl Default for OffloadState {
    fn default() -> Self {
        Self::Stale { since: Time::ZERO, reason: StaleReason::NotYet }
    }
}

impl OffloadState {
    /// Returns whether the device may forward by stale entries.
    #[must_use]
    pub const fn is_stale(self) -> bool {
        matches!(self, Self::Stale { .. })
    }
}

impl StaleReason {
    /// Returns the name that users read.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotYet => "not connected yet",
            Self::Lost => "lost",
            Self::Unconfirmed => "does not confirm removals in time",
            Self::Repairing => "repairing",
            Self::Ended => "the offload thread has ended",
        }
    }
}

impl From<Refusal> for OffloadRefusal {
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

impl From<&OffloadError> for OffloadRefusal {
    fn from(error: &OffloadError) -> Self {
        match error {
            OffloadError::Refused(refusal) => (*refusal).into(),
            OffloadError::NoRoom => Self::NoRoom,
            _ => Self::Failed,
        }
    }
}

impl fmt::Display for OffloadRefusal {
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

impl LatencyHistogram {
    /// Counts the time that an operation took.
    pub fn add(&mut self, time: Duration) {
        // 64 bits of microseconds suffice for 584,000 years; longer times belong to the last
        // bucket.
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bits = (u64::BITS - microseconds.leading_zeros()) as usize;
        self.buckets[bits.min(LATENCY_BUCKETS - 1)] += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// Returns the number of times counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the quantile `q`, to a factor of two.
    /// The result is zero if no time was counted.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Duration {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the value is a share of a count"
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
    fn a_histogram_returns_quantiles() {
        let mut latency = LatencyHistogram::default();
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
