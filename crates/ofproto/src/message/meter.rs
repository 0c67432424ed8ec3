//! Meter statistics, descriptions and features.

use std::time::Duration;

use shunt_pipeline::{Meter, MeterConfig, MeterId, PacketTotals, Time};

/// Counters of a meter (`ofp_meter_stats`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStatistics {
    /// Number of the meter.
    pub meter: MeterId,
    /// Number of rules that use the meter.
    pub flows: u32,
    /// Time since the meter was added.
    pub duration: Duration,
    /// Packets that the meter processed.
    pub total: PacketTotals,
    /// Packets that each band processed, in band order.
    pub bands: Vec<PacketTotals>,
}

impl MeterStatistics {
    /// Returns the counters of `meter` at time `now`.
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

/// Configuration of a meter (`ofp_meter_config`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterDescription {
    /// Number of the meter.
    pub meter: MeterId,
    /// Unit, flags and bands of the meter.
    pub config: MeterConfig,
}

impl MeterDescription {
    /// Returns the configuration of `meter`.
    #[must_use]
    pub fn of(meter: &Meter) -> Self {
        Self { meter: meter.id, config: meter.config.clone() }
    }
}

/// Meter features of the switch (`ofp_meter_features`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterFeatures {
    /// Maximum number of meters.
    pub meters_max: u32,
    /// Supported band types, one bit for each number of `ofp_meter_band_type`.
    pub band_kinds: u32,
    /// The capabilities of meters (`ofp_meter_flags`).
    pub capabilities: u32,
    /// Maximum number of bands per meter.
    pub bands_max: u8,
    /// Maximum number of colours.
    pub colors_max: u8,
}
