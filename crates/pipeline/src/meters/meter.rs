//! Meters: rate limits that rules share (OpenFlow 1.3.5, 5.7).
//!
//! A band is a token bucket that fills at its rate, up to its burst. A packet that finds too few
//! tokens exceeds the band. A band stores the time at which it will be full again, and not its
//! tokens. This is the virtual scheduling of the generic cell rate algorithm (ITU-T I.371, annex
//! A):
//!
//! ```text
//!   owed     = max(full_at - now, 0)          the time that fills the missing tokens
//!   exceeded = owed + cost > burst            cost: the time that fills the tokens of the packet
//!   full_at  = now + owed + cost              unless exceeded
//! ```
//!
//! So a band is one atomic word. Threads share it without a lock, and together they let through as
//! much as one thread would. Times are in ticks of 1/32 ns. The cost of a packet is rounded down to
//! ticks, which lets through at most one tick per packet too much: 0.06 % with the shortest frames
//! at 10 Gbit/s.
//!
//! Threads could take slices of a bucket and spend them alone. They do not: the meter and its
//! counters are exact as they are, at any time and for any number of threads.
//! `docs/decisions/meters.md` gives the price.
//!
//! As in Open vSwitch's userspace datapath, a band starts full. Its burst is the amount of one
//! second unless it is given. All bands take tokens, whatever the others do. Of several exceeded
//! bands the one with the highest rate acts.

use std::{
    iter,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    id::{BridgeId, MeterId},
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

/// The unit of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterUnit {
    /// Kilobits (`OFPMF_KBPS`).
    Kilobits,
    /// Packets (`OFPMF_PKTPS`).
    Packets,
}

/// One band (`ofp_meter_band`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// The action above the rate.
    pub kind: MeterBandKind,
    /// Kilobits or packets per second; never 0.
    pub rate: u32,
    /// Kilobits or packets of a burst, if the meter has bursts.
    ///
    /// 0 means the amount of one second.
    pub burst_size: u32,
}

/// The action of a band on packets above its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterBandKind {
    /// `OFPMBT_DROP`.
    Drop,
    /// `OFPMBT_DSCP_REMARK`: raise the drop precedence by this.
    DscpRemark {
        /// Number of levels.
        precedence: u8,
    },
}

/// A request to change meters (`ofp_meter_mod`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// The command.
    pub command: MeterCommand,
    /// The meter; `None`: all meters, only to delete.
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
    /// `OFPMMFC_METER_EXISTS`.
    #[error("meter {0} exists: use modify")]
    Exists(MeterId),
    /// `OFPMMFC_UNKNOWN_METER`.
    #[error("there is no meter {0}: add it first")]
    Unknown(MeterId),
    /// `OFPMMFC_INVALID_METER`: no meter of a controller can have this number.
    #[error("{0} is not a meter number: meters run from 1 to {max}", max = MeterId::MAX)]
    Invalid(MeterId),
    /// `OFPMMFC_OUT_OF_BANDS`.
    #[error("the meter has {0} bands, but at most {max} are allowed: remove some", max = Meter::BANDS_MAX)]
    TooManyBands(usize),
    /// `OFPMMFC_OUT_OF_METERS`.
    #[error("the bridge has {0} meters, its limit: delete some first")]
    TooMany(usize),
}

/// A meter, with the state that packet threads share.
///
/// A change makes a new value, with new counters.
#[derive(Debug)]
pub struct Meter {
    /// The number of the meter in its bridge.
    pub id: MeterId,
    /// The bridge.
    pub bridge: BridgeId,
    /// The configuration.
    pub config: MeterConfig,
    /// Time of the addition; changes do not count.
    pub created: Time,
    entered: PacketCount,
    buckets: Box<[TokenBucket]>,
}

/// The verdict of a meter on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterVerdict {
    /// The packet passes unchanged.
    Pass,
    /// The packet is dropped.
    Drop,
    /// The packet passes, with its drop precedence raised by this number of levels.
    Remark(u8),
}

/// The token bucket of a band.
#[derive(Debug)]
struct TokenBucket {
    /// Time at which the bucket will be full again, if nothing is taken until then.
    full_at: AtomicU64,
    /// Time that fills the bucket from empty.
    burst: u64,
    /// Packets that exceeded the band while no other band acted.
    acted: PacketCount,
}

const TICKS_PER_NANOSECOND: u64 = 32;
const TICKS_PER_SECOND: u64 = TICKS_PER_NANOSECOND * 1_000_000_000;
/// Bits of a kilobit.
const KILOBIT: u64 = 1000;
/// The longest time that a bucket takes to fill: four and a half years.
const BURST_MAX: u64 = 1 << 62;

impl Meter {
    /// The most bands of one meter.
    pub const BANDS_MAX: usize = 8;
    /// The most meters of a bridge.
    pub const COUNT_MAX: usize = 1 << 18;

    /// Makes a meter with full buckets.
    #[must_use]
    pub fn new(id: MeterId, bridge: BridgeId, config: MeterConfig, created: Time) -> Self {
        Self::since(id, bridge, config, created, created)
    }

    /// Counts a packet of this many bytes, and returns the verdict on it.
    pub fn admit(&self, now: Time, bytes: usize) -> MeterVerdict {
        let length = bytes as u64;
        self.entered.credit(1, length);
        let now = ticks(now);
        let mut acting: Option<(&MeterBand, &TokenBucket)> = None;
        for (band, bucket) in iter::zip(&self.config.bands, &self.buckets) {
            let is_exceeded = !bucket.take(now, self.config.unit.cost(band, length));
            if is_exceeded && acting.is_none_or(|(other, _)| other.rate < band.rate) {
                acting = Some((band, bucket));
            }
        }
        let Some((band, bucket)) = acting else { return MeterVerdict::Pass };
        bucket.acted.credit(1, length);
        match band.kind {
            MeterBandKind::Drop => MeterVerdict::Drop,
            MeterBandKind::DscpRemark { precedence } => MeterVerdict::Remark(precedence),
        }
    }

    /// Adds packets and bytes that entered the meter before.
    ///
    /// `bands` are those that each band acted on.
    pub fn credit(&self, entered: PacketTotals, bands: &[PacketTotals]) {
        self.entered.credit(entered.packets, entered.bytes);
        for (bucket, acted) in iter::zip(&self.buckets, bands) {
            bucket.acted.credit(acted.packets, acted.bytes);
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
        self.buckets.iter().map(|bucket| bucket.acted.totals()).collect()
    }

    /// Returns whether the meter may change packets.
    pub(crate) fn remarks(&self) -> bool {
        self.config.bands.iter().any(|band| band.kind != MeterBandKind::Drop)
    }

    /// Makes a meter that was added at `created` and starts at `now`, with full
    /// buckets.
    pub(crate) fn since(
        id: MeterId,
        bridge: BridgeId,
        config: MeterConfig,
        created: Time,
        now: Time,
    ) -> Self {
        let bucket = |band: &MeterBand| TokenBucket {
            full_at: AtomicU64::new(ticks(now)),
            burst: config.burst_ticks(band),
            acted: PacketCount::default(),
        };
        let buckets = config.bands.iter().map(bucket).collect();
        Self { id, bridge, config, created, entered: PacketCount::default(), buckets }
    }
}

impl MeterConfig {
    /// Returns the time that fills the bucket of a band from empty.
    fn burst_ticks(&self, band: &MeterBand) -> u64 {
        let is_given = self.burst && band.burst_size > 0;
        let burst = u64::from(if is_given { band.burst_size } else { band.rate });
        let whole = match self.unit {
            // A multiple of the cost of a packet, so that a whole number of packets fits.
            MeterUnit::Packets => u128::from(burst) * u128::from(self.unit.cost(band, 0)),
            MeterUnit::Kilobits => {
                u128::from(burst) * u128::from(TICKS_PER_SECOND) / u128::from(band.rate.max(1))
            }
        };
        // A larger burst than the limit is the limit in any case.
        u64::try_from(whole).unwrap_or(u64::MAX).min(BURST_MAX)
    }
}

impl MeterUnit {
    /// Returns the time in which a band fills the tokens of a packet.
    const fn cost(self, band: &MeterBand, bytes: u64) -> u64 {
        let rate = if band.rate == 0 { 1 } else { band.rate as u64 };
        match self {
            Self::Packets => TICKS_PER_SECOND / rate,
            Self::Kilobits => {
                (bytes.saturating_mul(8)).saturating_mul(TICKS_PER_SECOND / KILOBIT) / rate
            }
        }
    }
}

impl TokenBucket {
    /// Takes tokens from the bucket, if there are enough.
    fn take(&self, now: u64, cost: u64) -> bool {
        let take = |full_at: u64| {
            let owed = full_at.wrapping_sub(now).cast_signed().max(0).cast_unsigned();
            let owed = owed.saturating_add(cost);
            (owed <= self.burst).then(|| now.wrapping_add(owed))
        };
        self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

impl PartialEq for Meter {
    /// Two values are the same meter if they share their state.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Meter {}

/// Returns a time in ticks.
///
/// Ticks wrap around every 18 years; compared times lie within 9 years.
const fn ticks(time: Time) -> u64 {
    time.nanoseconds().wrapping_mul(TICKS_PER_NANOSECOND)
}

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
