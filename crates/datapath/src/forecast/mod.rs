//! Forecasts on a packet thread: entries for flows that are about to arrive.
//!
//! ```text
//!   miss ──► new flows (bounded, dropped when full) ──► predictors ──┐
//!                                                                    ├──► forecasts ──► entries
//!   flows that are announced ──► ring (bounded, refused when full) ──┘    (two queues, bounded)
//! ```
//!
//! Predictors run on the packet thread, because a follower may arrive before a ring to another thread and
//! back has delivered its forecast. They run after the packets of an iteration have left, and not while
//! others wait. Each thread learns from the flows that it receives. A forecast of a flow that arrives on a
//! port of another thread is sent there ([`ForecastRoutes`]).
//!
//! A packet thread translates a forecast at its own version, while no packet waits for a translation.
//! The new entry is installed and reported like any other. So all invariants hold, and a wrong
//! forecast costs room and time but never changes a decision.
//!
//! An entry is *speculative* until its first hit. `Speculation` has these entries. Packets do not touch
//! it: it reads the packet counts of some entries in each iteration.
//!
//! - A speculative entry expires after its own idle time.
//! - It is the first to go when room is needed.
//! - A forecast is refused if its entry could displace one with traffic (`ROOM_DIVISOR`).
//!
//! Translating a forecast has no side effect. A traversal that learns is refused, since only a packet may
//! learn. Meters and packet-ins happen when a packet hits the entry.

mod counters;
mod device;
mod endpoints;
mod observation;
mod preload;
mod queue;
mod routes;
mod speculation;
mod stopwatch;
mod ticket;

pub(crate) use counters::{ForecastAccount, Settlement};
pub use counters::{ForecastCounters, SourceCounters};
pub(crate) use device::device_forecast;
pub use device::{DeviceForecast, DeviceOutcome, DeviceWatch, EntryForecast};
pub use endpoints::{ForecastConfig, ForecastSender, ThreadForecasts, forecast_endpoint};
pub(crate) use observation::FlowObservation;
pub(crate) use preload::{Preload, Preloaded, refusal_of};
pub(crate) use queue::{ForecastQueue, WaitingForecast};
pub(crate) use routes::ForecastInbox;
pub use routes::ForecastRoutes;
pub(crate) use speculation::{Settled, Speculation, SpeculativeFlow};
pub use stopwatch::Stopwatch;
pub use ticket::{ForecastTicket, TicketCounts};

/// Forecasts are refused while all but one part in this many of the cache is used.
pub(crate) const ROOM_DIVISOR: usize = 4;
