//! Outcomes of forecasts, as a switch counts them.

use std::time::Duration;

/// Outcomes of the forecasts of one origin.
///
/// `received = pending + installed + late + covered + refused`, and
/// `installed = unused so far + hits + wrong + evicted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Forecasts that a packet thread took.
    pub received: u64,
    /// Forecasts that became entries.
    pub installed: u64,
    /// Entries that the flow hit in time.
    pub hits: u64,
    /// Forecasts that came after their flow.
    pub late: u64,
    /// Forecasts of flows that an entry covered before.
    pub covered: u64,
    /// Entries that expired without a hit.
    pub wrong: u64,
    /// Entries without a hit that were evicted by a change, or for other entries.
    pub evicted: u64,
    /// Forecasts refused, by [`ForecastRefusal`].
    pub refused: [u64; ForecastRefusal::COUNT],
    /// Translations made for forecasts.
    pub translations: u64,
    /// Time from the installation to the first hit, summed over hits.
    pub lead: Duration,
}

/// The reason why a switch refused a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ForecastRefusal {
    /// Its time was over.
    Expired,
    /// Too many forecasts waited.
    QueueFull,
    /// It has hidden state, which no arriving packet has.
    HiddenState,
    /// Its ingress port belongs to no bridge.
    NoSuchPort,
    /// The tables drop the flow with an error.
    TranslationError,
    /// The flow makes the switch learn rules or addresses, and only a packet may do so.
    Learns,
    /// The decision depends on bits that the forecast does not know.
    UnknownBits,
    /// Entries with traffic need the room.
    NoRoom,
    /// The eviction thread does not keep up.
    ReportsFull,
    /// The cache has no entries of this form.
    NoEntries,
}

impl ForecastRefusal {
    /// All reasons.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Expired,
        Self::QueueFull,
        Self::HiddenState,
        Self::NoSuchPort,
        Self::TranslationError,
        Self::Learns,
        Self::UnknownBits,
        Self::NoRoom,
        Self::ReportsFull,
        Self::NoEntries,
    ];

    /// Number of reasons.
    pub const COUNT: usize = 10;

    /// Returns the name, as in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::QueueFull => "queue_full",
            Self::HiddenState => "hidden_state",
            Self::NoSuchPort => "no_such_port",
            Self::TranslationError => "translation_error",
            Self::Learns => "learns",
            Self::UnknownBits => "unknown_bits",
            Self::NoRoom => "no_room",
            Self::ReportsFull => "reports_full",
            Self::NoEntries => "no_entries",
        }
    }
}

impl OutcomeCounts {
    /// Returns the number of refused forecasts, all reasons together.
    #[must_use]
    pub fn refused_total(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Returns the number of installed forecasts with a known outcome.
    #[must_use]
    pub const fn settled(&self) -> u64 {
        self.hits + self.wrong + self.evicted
    }

    /// Returns the share of settled forecasts that were hit; `None` without any.
    #[must_use]
    pub fn precision(&self) -> Option<f64> {
        share(self.hits, self.settled())
    }

    /// Returns the share of new flows that forecasts saved from a miss.
    ///
    /// `upcalls` is the number of packets that missed in the same time. `None` without new flows.
    #[must_use]
    pub fn coverage(&self, upcalls: u64) -> Option<f64> {
        share(self.hits, self.hits + upcalls)
    }

    /// Returns the mean time from installation to first hit; `None` without hits.
    #[must_use]
    pub fn mean_lead(&self) -> Option<Duration> {
        // A `Duration` is divided by 32 bits: beyond 4 billion hits the mean is too large, which is
        // better than none.
        let hits = u32::try_from(self.hits).unwrap_or(u32::MAX);
        self.lead.checked_div(hits)
    }

    /// Adds the counts of another packet thread.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.installed += other.installed;
        self.hits += other.hits;
        self.late += other.late;
        self.covered += other.covered;
        self.wrong += other.wrong;
        self.evicted += other.evicted;
        self.translations += other.translations;
        self.lead += other.lead;
        for (own, more) in self.refused.iter_mut().zip(other.refused) {
            *own += more;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
