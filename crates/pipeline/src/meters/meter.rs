//! Meters: rate limits that rules share (OpenFlow 1.3.5, 5.7).
//!
//! A band is a [`TokenBucket`], which threads share without a lock.
//!
//! Threads take the tokens of each packet from the shared bucket. So the meter and its counters are
//! exact at any time and for any number of threads. `docs/decisions/meters.md` gives the cost.
//!
//! As in Open vSwitch's userspace datapath, a band starts full. A band without a burst has a burst
//! of one second of its rate. A packet takes tokens from all bands, exceeded or not. Of several
//! exceeded bands, the band with the highest rate acts.

use std::iter;

use crate::{
    id::{BridgeId, MeterId},
    meters::token_bucket::TokenBucket,
    packet_count::{PacketCount, PacketTotals},
    time::Time,
};

/// The configuration of a meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// The unit of rates and bursts.
    pub unit: MeterUnit,
    /// True if bands have bursts (`OFPMF_BURST`).
    pub burst: bool,
    /// True if counters are requested (`OFPMF_STATS`); Shunt counts in any case.
    pub stats: bool,
    /// The bands, in the given order.
    pub bands: Box<[MeterBand]>,
}

/// The unit of the rates and bursts of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterUnit {
    /// The rates are in kilobits (`OFPMF_KBPS`).
    Kilobits,
    /// The rates are in packets (`OFPMF_PKTPS`).
    Packets,
}

/// One band (`ofp_meter_band`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// The action on packets above the rate.
    pub kind: MeterBandKind,
    /// Kilobits or packets per second; never 0.
    pub rate: u32,
    /// Kilobits or packets of a burst, if the meter has bursts.
    ///
    /// 0 means the tokens of one second.
    pub burst_size: u32,
}

/// The action of a band on packets above its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterBandKind {
    /// Drop the packet (`OFPMBT_DROP`).
    Drop,
    /// Raise the drop precedence of the DSCP (`OFPMBT_DSCP_REMARK`).
    DscpRemark {
        /// Number of levels to raise the drop precedence by.
        precedence: u8,
    },
}

/// A request to change meters (`ofp_meter_mod`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// The kind of change: to add, modify or delete the meter.
    pub command: MeterCommand,
    /// The meter; `None`: all meters, which only a deletion may name.
    pub meter: Option<MeterId>,
    /// The new configuration; deletion ignores it.
    pub config: MeterConfig,
}

/// The command of a meter-mod (`ofp_meter_mod_command`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterCommand {
    /// Add a meter that does not exist.
    Add,
    /// Change an existing meter.
    Modify,
    /// Delete the meter, if it exists, and the rules that name it.
    Delete,
}

/// The reason why a meter-mod was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeterModError {
    /// The meter exists already (`OFPMMFC_METER_EXISTS`).
    #[error("meter {0} exists already: modify it")]
    Exists(MeterId),
    /// The meter does not exist (`OFPMMFC_UNKNOWN_METER`).
    #[error("there is no meter {0}: add it first")]
    Unknown(MeterId),
    /// `OFPMMFC_INVALID_METER`: no meter of a controller can have this number.
    #[error("{0} is not a meter number: meters run from 1 to {max}", max = MeterId::MAX)]
    Invalid(MeterId),
    /// The meter has too many bands (`OFPMMFC_OUT_OF_BANDS`).
    #[error(
        "the meter has {0} bands, but at most {max} are allowed: remove some",
        max = Meter::BANDS_MAX
    )]
    TooManyBands(usize),
    /// The bridge has too many meters (`OFPMMFC_OUT_OF_METERS`).
    #[error("the bridge has {0} meters, which is its limit: delete some first")]
    TooMany(usize),
}

/// A meter, with the state that packet threads share.
///
/// A meter-mod that changes the meter creates a new `Meter`, with new counters.
#[derive(Debug)]
pub struct Meter {
    /// The number of the meter in its bridge.
    pub id: MeterId,
    /// The bridge that has the meter.
    pub bridge: BridgeId,
    /// The configuration of the meter.
    pub config: MeterConfig,
    /// Time of the addition; a modification does not change it.
    pub created: Time,
    /// The packets that entered the meter.
    entered: PacketCount,
    /// The token bucket and the counter of each band.
    states: Box<[BandState]>,
}

/// The verdict of a meter on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterVerdict {
    /// The meter passes the packet unchanged.
    Pass,
    /// The meter drops the packet.
    Drop,
    /// The packet passes, with its drop precedence raised by this number of levels.
    Remark(u8),
}

/// The state of a band that threads share.
#[derive(Debug)]
struct BandState {
    /// The token bucket of the rate.
    bucket: TokenBucket,
    /// Packets that exceeded the band while no other band acted.
    acted: PacketCount,
}

/// Bits of a kilobit.
const KILOBIT: u64 = 1000;

impl Meter {
    /// The most bands of one meter.
    pub const BANDS_MAX: usize = 8;
    /// The most meters of a bridge.
    pub const COUNT_MAX: usize = 1 << 18;

    /// Creates a meter with full buckets.
    #[must_use]
    pub fn new(id: MeterId, bridge: BridgeId, config: MeterConfig, created: Time) -> Self {
        Self::since(id, bridge, config, created, created)
    }

    /// Counts a packet of this many bytes, and returns the verdict on it.
    pub fn admit(&self, now: Time, bytes: usize) -> MeterVerdict {
        let length = bytes as u64;
        self.entered.credit(1, length);
        let tokens = self.config.unit.tokens(length);
        let mut acting: Option<(&MeterBand, &BandState)> = None;
        for (band, state) in iter::zip(&self.config.bands, &self.states) {
            let is_exceeded = !state.bucket.take(now, tokens);
            if is_exceeded && acting.is_none_or(|(other, _)| other.rate < band.rate) {
                acting = Some((band, state));
            }
        }
        let Some((band, state)) = acting else { return MeterVerdict::Pass };
        state.acted.credit(1, length);
        match band.kind {
            MeterBandKind::Drop => MeterVerdict::Drop,
            MeterBandKind::DscpRemark { precedence } => MeterVerdict::Remark(precedence),
        }
    }

    /// Adds packets and bytes that entered the meter before it was restored.
    ///
    /// `bands` has the packets and bytes on which each band acted.
    pub fn credit(&self, entered: PacketTotals, bands: &[PacketTotals]) {
        self.entered.credit(entered.packets, entered.bytes);
        for (state, acted) in iter::zip(&self.states, bands) {
            state.acted.credit(acted.packets, acted.bytes);
        }
    }

    /// Returns the packets and bytes that entered the meter.
    #[must_use]
    pub fn totals(&self) -> PacketTotals {
        self.entered.totals()
    }

    /// Returns the packets and bytes that each band acted on.
    #[must_use]
    pub fn band_totals(&self) -> Vec<PacketTotals> {
        self.states.iter().map(|state| state.acted.totals()).collect()
    }

    /// Returns whether the meter may change packets.
    pub(crate) fn remarks(&self) -> bool {
        self.config.bands.iter().any(|band| band.kind != MeterBandKind::Drop)
    }

    /// Creates a meter that was added at `created` and starts at `now`, with full
    /// buckets.
    pub(crate) fn since(
        id: MeterId,
        bridge: BridgeId,
        config: MeterConfig,
        created: Time,
        now: Time,
    ) -> Self {
        let state = |band: &MeterBand| BandState {
            bucket: config.bucket(band, now),
            acted: PacketCount::default(),
        };
        let states = config.bands.iter().map(state).collect();
        Self { id, bridge, config, created, entered: PacketCount::default(), states }
    }
}

impl MeterConfig {
    /// Returns the full bucket of a band.
    fn bucket(&self, band: &MeterBand, now: Time) -> TokenBucket {
        let is_given = self.burst && band.burst_size > 0;
        let burst = if is_given { band.burst_size } else { band.rate };
        let [rate, burst] = [band.rate, burst].map(u64::from);
        match self.unit {
            MeterUnit::Packets => TokenBucket::of_packets(rate, burst, now),
            MeterUnit::Kilobits => TokenBucket::of_bits(rate * KILOBIT, burst * KILOBIT, now),
        }
    }
}

impl MeterUnit {
    /// Returns the tokens of a packet.
    const fn tokens(self, bytes: u64) -> u64 {
        match self {
            Self::Packets => 1,
            Self::Kilobits => bytes.saturating_mul(8),
        }
    }
}

impl PartialEq for Meter {
    /// Returns whether both are one revision of a meter, which share their buckets.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Meter {}

/// Returns a DSCP with its drop precedence raised by `levels`, up to the highest.
///
/// Only the classes of assured forwarding (RFC 2597) have a drop precedence: other values stay as
/// they are.
#[must_use]
pub const fn raise_drop_precedence(dscp: u8, levels: u8) -> u8 {
    let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
    if class < 1 || class > 4 || precedence == 0 || dscp & 1 != 0 {
        return dscp;
    }
    let raised = precedence.saturating_add(levels);
    class << 3 | (if raised > 3 { 3 } else { raised }) << 1
}
