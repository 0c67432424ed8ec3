//! What is told of meters.

use std::time::Duration;

use shunt_pipeline::{Meter, MeterConfig, MeterId, PacketTotals, Time};

/// What a meter has counted (`ofp_meter_stats`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStatistics {
    /// Which meter.
    pub meter: MeterId,
    /// Rules that send packets through it.
    pub flows: u32,
    /// How long it has been there.
    pub duration: Duration,
    /// Packets that entered it.
    pub total: PacketTotals,
    /// Packets that each band acted on, in the order of the bands.
    pub bands: Vec<PacketTotals>,
}

impl MeterStatistics {
    /// What there is to tell of `meter`, which so many rules pass, at `now`.
    #[must_use]
    pub fn of(meter: &Meter, flows: u32, now: Time) -> Self {
        Self {
            meter: meter.id,
            flows,
            duration: now.since(meter.created),
            total: meter.totals(),
            bands: meter.band_totals(),
        }
    }
}

/// What a meter is (`ofp_meter_config`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterDescription {
    /// Which meter.
    pub meter: MeterId,
    /// What it was told to be.
    pub config: MeterConfig,
}

impl MeterDescription {
    /// What there is to tell of `meter`.
    #[must_use]
    pub fn of(meter: &Meter) -> Self {
        Self { meter: meter.id, config: meter.config.clone() }
    }
}

/// What meters can be (`ofp_meter_features`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterFeatures {
    /// The most meters.
    pub meters_max: u32,
    /// The types of bands, one bit for each number of `ofp_meter_band_type`.
    pub band_kinds: u32,
    /// `ofp_meter_flags`.
    pub capabilities: u32,
    /// The most bands of a meter.
    pub bands_max: u8,
    /// The most colours of a packet.
    pub colors_max: u8,
}
