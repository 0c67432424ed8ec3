//! The outcomes of forecasts, which a switch counts.

use std::time::Duration;

/// The outcomes of the forecasts of one origin.
///
/// `received = pending + installed + withheld + late + covered + refused`.
/// `installed = unused so far + hits + wrong + evicted + device_covered`.
/// `withheld = waiting + arrived + unneeded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Number of forecasts that a packet thread received.
    pub received: u64,
    /// Number of forecasts that became cache entries.
    pub installed: u64,
    /// Number of installed entries that the flow hit before they expired.
    pub hits: u64,
    /// Number of forecasts that were received after their flow had arrived.
    pub late: u64,
    /// Number of forecasts of flows that an older entry covered already.
    pub covered: u64,
    /// Number of installed entries that expired without a hit.
    pub wrong: u64,
    /// Number of entries evicted without a hit, by a change or for other entries.
    pub evicted: u64,
    /// Number of entries without a hit of flows that an offload device forwards.
    ///
    /// The device has entries of packets for them, so the forecast was neither wrong nor needed.
    pub device_covered: u64,
    /// Number of withheld forecasts: translated, but not installed.
    ///
    /// They are the control group of the installed forecasts.
    pub withheld: u64,
    /// Number of withheld forecasts with a miss that an entry would have saved.
    pub arrived: u64,
    /// Number of withheld forecasts without such a miss.
    ///
    /// They end when their entries would have expired.
    pub unneeded: u64,
    /// Number of refused forecasts, by [`ForecastRefusal`].
    pub refused: [u64; ForecastRefusal::COUNT],
    /// Number of translations that were made for forecasts.
    pub translations: u64,
    /// The time from the installation to the first hit, summed over hits.
    pub lead: Duration,
    /// Time of the packet thread that forecasts took, refused ones included.
    pub spent: Duration,
    /// Cache entries of forecasts that were wrong or evicted.
    pub unused_entries: u64,
}

/// The reason why a switch refused a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ForecastRefusal {
    /// The time until which the forecast was valid is over.
    Expired,
    /// The queue of forecasts of the packet thread was full.
    QueueFull,
    /// `foresight.entries` announced flows have entries without a hit.
    ForecastsFull,
    /// The forecast has hidden state, which no arriving packet has.
    HiddenState,
    /// The ingress port of the forecast belongs to no bridge.
    NoSuchPort,
    /// The translation of the forecast ends with an error, which drops the flow.
    TranslationError,
    /// The translation has a learn request, which only a real packet may make.
    Learns,
    /// The decision depends on bits that are unknown in the forecast.
    UnknownBits,
    /// The cache has no room except that of entries with traffic.
    NoRoom,
    /// The queue of reports to the eviction thread is full.
    ReportsFull,
    /// The switch has no cache that can hold the entry.
    NoEntries,
}

impl ForecastRefusal {
    /// All reasons for refusals.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Expired,
        Self::QueueFull,
        Self::ForecastsFull,
        Self::HiddenState,
        Self::NoSuchPort,
        Self::TranslationError,
        Self::Learns,
        Self::UnknownBits,
        Self::NoRoom,
        Self::ReportsFull,
        Self::NoEntries,
    ];

    /// Number of reasons for refusals.
    pub const COUNT: usize = 11;

    /// Returns the name of the reason in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::QueueFull => "queue_full",
            Self::ForecastsFull => "forecasts_full",
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
    /// Returns the number of refused forecasts, summed over all reasons.
    #[must_use]
    pub fn refused_total(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Returns the number of installed forecasts that were right or wrong.
    #[must_use]
    pub const fn settled(&self) -> u64 {
        self.hits + self.wrong + self.evicted
    }

    /// Returns the share of hits in forecasts with a known outcome.
    /// The result is `None` without forecasts that have a known outcome.
    #[must_use]
    pub fn precision(&self) -> Option<f64> {
        share(self.hits, self.settled())
    }

    /// Returns the share of new flows that forecasts saved from a miss.
    ///
    /// `upcalls` is the number of packets that missed in the same time. The result is `None`
    /// without new flows.
    #[must_use]
    pub fn coverage(&self, upcalls: u64) -> Option<f64> {
        share(self.hits, self.hits + upcalls)
    }

    /// Returns the mean time from the installation to the first hit, if there are hits.
    #[must_use]
    pub fn mean_lead(&self) -> Option<Duration> {
        // A `Duration` is divided by a number of 32 bits. Beyond 4 billion hits the mean is too
        // large, which is accepted.
        let hits = u32::try_from(self.hits).unwrap_or(u32::MAX);
        self.lead.checked_div(hits)
    }

    /// Returns the share of withheld forecasts of which the flow missed.
    ///
    /// The result is `None` without withheld forecasts that have a known outcome.
    #[must_use]
    pub fn arrived_share(&self) -> Option<f64> {
        share(self.arrived, self.arrived + self.unneeded)
    }

    /// Estimates the number of misses that the forecasts saved.
    ///
    /// An installed forecast saves as many misses as a withheld one had, and at most its own hits.
    /// Without withheld forecasts, each hit counts as a saved miss.
    #[must_use]
    pub fn saved_misses(&self) -> u64 {
        let withheld = self.arrived + self.unneeded;
        if withheld == 0 {
            return self.hits;
        }
        let saved = u128::from(self.settled()) * u128::from(self.arrived) / u128::from(withheld);
        u64::try_from(saved).unwrap_or(u64::MAX).min(self.hits)
    }

    /// Estimates the time that packets did not wait for translations.
    ///
    /// `per_miss` is the mean time of the slow path for a miss. Without it, a miss takes as long as
    /// the mean translation of a forecast. The result is `None` without both.
    #[must_use]
    pub fn saved(&self, per_miss: Option<Duration>) -> Option<Duration> {
        let mean = match per_miss {
            Some(time) => time.as_nanos(),
            None => self.spent.as_nanos().checked_div(self.translations.into())?,
        };
        let saved = mean.saturating_mul(self.saved_misses().into());
        // 64 bits of nanoseconds last for 584 years.
        Some(Duration::from_nanos(u64::try_from(saved).unwrap_or(u64::MAX)))
    }

    /// Returns the counts after `earlier` ones of the same origin.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut refused = self.refused;
        refused.iter_mut().zip(earlier.refused).for_each(|(own, before)| *own -= before);
        Self {
            received: self.received - earlier.received,
            installed: self.installed - earlier.installed,
            hits: self.hits - earlier.hits,
            late: self.late - earlier.late,
            covered: self.covered - earlier.covered,
            wrong: self.wrong - earlier.wrong,
            evicted: self.evicted - earlier.evicted,
            device_covered: self.device_covered - earlier.device_covered,
            withheld: self.withheld - earlier.withheld,
            arrived: self.arrived - earlier.arrived,
            unneeded: self.unneeded - earlier.unneeded,
            refused,
            translations: self.translations - earlier.translations,
            lead: self.lead.saturating_sub(earlier.lead),
            spent: self.spent.saturating_sub(earlier.spent),
            unused_entries: self.unused_entries - earlier.unused_entries,
        }
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
        self.device_covered += other.device_covered;
        self.withheld += other.withheld;
        self.arrived += other.arrived;
        self.unneeded += other.unneeded;
        self.translations += other.translations;
        self.lead += other.lead;
        self.spent += other.spent;
        self.unused_entries += other.unused_entries;
        for (own, more) in self.refused.iter_mut().zip(other.refused) {
            *own += more;
        }
    }
}

/// Returns the share of a part; `None` without a whole.
#[expect(clippy::cast_precision_loss, reason = "the share is only displayed")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
