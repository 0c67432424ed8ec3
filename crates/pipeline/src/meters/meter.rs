//! Meters: limits of rate that rules share (OpenFlow 1.3.5, 5.7).
//!
//! A band is a bucket that fills at its rate, up to its burst; a packet that finds too little in it
//! exceeds the band. Instead of what is in the bucket, a band keeps the moment at which it will be
//! full again (the virtual scheduling of the generic cell rate algorithm, ITU-T I.371, annex A):
//!
//! ```text
//!   owed     = max(full_at - now, 0)          the time that it takes to fill what is missing
//!   exceeded = owed + cost > burst            cost: the time that fills what the packet takes
//!   full_at  = now + owed + cost              unless exceeded
//! ```
//!
//! So a band is one atomic word, threads share it without a lock, and what they let through
//! together is what one thread would have. Times are in ticks of 1/32 ns; the cost of a packet is
//! rounded down to them, which lets through too much by at most a tick per packet: 0.06 % with the
//! shortest frames at 10 Gbit/s.
//!
//! Threads could draw slices of a bucket and spend them by themselves. They do not: what a meter lets
//! through and what it counts is exact as it is, at every moment and for any number of threads, and
//! `docs/decisions/meters.md` says what that costs.
//!
//! As in Open vSwitch's userspace datapath, a band begins full, its burst is as much as a second
//! brings unless it is given, all bands take from their buckets whatever the others do, and of
//! several exceeded bands the one with the highest rate acts.

use std::{
    iter,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    id::{BridgeId, MeterId},
    packet_count::{PacketCount, PacketTotals},
    time::Time,
};

/// What a meter is told to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// What rates and bursts count.
    pub unit: MeterUnit,
    /// Bands have bursts (`OFPMF_BURST`).
    pub burst: bool,
    /// Counters are asked for (`OFPMF_STATS`); Shunt counts all the same.
    pub stats: bool,
    /// The bands, as they were given.
    pub bands: Box<[MeterBand]>,
}

/// What a meter counts.
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
    /// What happens above its rate.
    pub kind: MeterBandKind,
    /// Kilobits or packets per second; never 0.
    pub rate: u32,
    /// Kilobits or packets that may come at once, if the meter has bursts; 0: as much as a second
    /// brings.
    pub burst_size: u32,
}

/// What a band does to packets above its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterBandKind {
    /// `OFPMBT_DROP`.
    Drop,
    /// `OFPMBT_DSCP_REMARK`: raise the drop precedence by this.
    DscpRemark {
        /// How many levels.
        precedence: u8,
    },
}

/// A request to change meters (`ofp_meter_mod`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// What to do.
    pub command: MeterCommand,
    /// Which meter; `None`: all, only to delete.
    pub meter: Option<MeterId>,
    /// What it shall be; deletion does not look at it.
    pub config: MeterConfig,
}

/// What a meter-mod does (`ofp_meter_mod_command`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterCommand {
    /// Add a meter that does not exist.
    Add,
    /// Change one that does.
    Modify,
    /// Delete it, if it exists, and the rules that name it.
    Delete,
}

/// Why a meter-mod was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeterModError {
    /// `OFPMMFC_METER_EXISTS`.
    #[error("meter {0} exists already: modify it")]
    Exists(MeterId),
    /// `OFPMMFC_UNKNOWN_METER`.
    #[error("there is no meter {0}: add it")]
    Unknown(MeterId),
    /// `OFPMMFC_INVALID_METER`: no meter of the controller's can have this number.
    #[error("{0} is no number of a meter: they run from 1 to {max}", max = MeterId::MAX)]
    Invalid(MeterId),
    /// `OFPMMFC_OUT_OF_BANDS`.
    #[error("the meter has {0} bands: at most {max}", max = Meter::BANDS_MAX)]
    TooManyBands(usize),
    /// `OFPMMFC_OUT_OF_METERS`.
    #[error("the bridge has {0} meters, its limit")]
    TooMany(usize),
}

/// A meter, with the state that packet threads share. A change makes a new value, with new
/// counters.
#[derive(Debug)]
pub struct Meter {
    /// Its number in its bridge.
    pub id: MeterId,
    /// Its bridge.
    pub bridge: BridgeId,
    /// What it is told to be.
    pub config: MeterConfig,
    /// When it was added; changes since do not count.
    pub created: Time,
    entered: PacketCount,
    buckets: Box<[Bucket]>,
}

/// What a meter says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterVerdict {
    /// It goes on as it is.
    Pass,
    /// It is dropped.
    Drop,
    /// It goes on, with its drop precedence raised by so many levels.
    Remark(u8),
}

/// What a band has left.
#[derive(Debug)]
struct Bucket {
    /// When it will be full again, if nothing is taken until then.
    full_at: AtomicU64,
    /// Time that fills it, from empty.
    burst: u64,
    /// Packets that exceeded the band, where no other acted.
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
    /// The most meters that a bridge may have.
    pub const COUNT_MAX: usize = 1 << 18;

    /// A meter with full buckets.
    #[must_use]
    pub fn new(id: MeterId, bridge: BridgeId, config: MeterConfig, created: Time) -> Self {
        Self::since(id, bridge, config, created, created)
    }

    /// What the meter says of a packet of so many bytes; it counts it.
    pub fn admit(&self, now: Time, bytes: usize) -> MeterVerdict {
        let length = bytes as u64;
        self.entered.credit(1, length);
        let now = ticks(now);
        let mut acting: Option<(&MeterBand, &Bucket)> = None;
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

    /// What has entered the meter so far.
    #[must_use]
    pub fn totals(&self) -> PacketTotals {
        self.entered.totals()
    }

    /// What each band has acted on so far.
    #[must_use]
    pub fn band_totals(&self) -> Vec<PacketTotals> {
        self.buckets.iter().map(|bucket| bucket.acted.totals()).collect()
    }

    /// Whether the meter may change packets.
    pub(crate) fn remarks(&self) -> bool {
        self.config.bands.iter().any(|band| band.kind != MeterBandKind::Drop)
    }

    /// A meter that was added at `created` and begins, with full buckets, at `now`.
    pub(crate) fn since(
        id: MeterId,
        bridge: BridgeId,
        config: MeterConfig,
        created: Time,
        now: Time,
    ) -> Self {
        let bucket = |band: &MeterBand| Bucket {
            full_at: AtomicU64::new(ticks(now)),
            burst: config.burst_ticks(band),
            acted: PacketCount::default(),
        };
        let buckets = config.bands.iter().map(bucket).collect();
        Self { id, bridge, config, created, entered: PacketCount::default(), buckets }
    }
}

impl MeterConfig {
    /// Time that fills the bucket of a band, from empty.
    fn burst_ticks(&self, band: &MeterBand) -> u64 {
        let is_given = self.burst && band.burst_size > 0;
        let burst = u64::from(if is_given { band.burst_size } else { band.rate });
        let whole = match self.unit {
            // A multiple of a packet's cost: so many packets fit exactly.
            MeterUnit::Packets => u128::from(burst) * u128::from(self.unit.cost(band, 0)),
            MeterUnit::Kilobits => {
                u128::from(burst) * u128::from(TICKS_PER_SECOND) / u128::from(band.rate.max(1))
            }
        };
        u64::try_from(whole).unwrap_or(u64::MAX).min(BURST_MAX)
    }
}

impl MeterUnit {
    /// Time in which a band brings what a packet takes.
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

impl Bucket {
    /// Takes from the bucket, if there is enough in it.
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
    /// Two values are the same meter if they share its state.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Meter {}

/// A moment in ticks; they wrap around every 18 years, and what is compared lies within 9.
const fn ticks(time: Time) -> u64 {
    time.nanoseconds().wrapping_mul(TICKS_PER_NANOSECOND)
}

/// A DSCP with its drop precedence raised by so many levels, up to the highest.
///
/// Only the classes of assured forwarding (RFC 2597) have one: other values stay as they are.
#[must_use]
pub const fn raise_drop_precedence(dscp: u8, levels: u8) -> u8 {
    let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
    if class < 1 || class > 4 || precedence == 0 || dscp & 1 != 0 {
        return dscp;
    }
    let raised = precedence.saturating_add(levels);
    class << 3 | (if raised > 3 { 3 } else { raised }) << 1
}
