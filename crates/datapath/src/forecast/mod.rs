//! Forecasts on a packet thread: entries for flows that are about to arrive.
//!
//! ```text
//!   miss ──► new flows (bounded, dropped when full) ──► predictors ──┐
//!                                                                    ├──► forecasts ──► entries
//!   flows that are announced ──► ring (bounded, refused when full) ──┘    (two queues, bounded)
//! ```
//!
//! Predictors run on the packet thread, because the forecast of another thread could arrive later
//! than the packet that it predicts. Predictors run after the packets of an iteration have left,
//! and not while packets wait. Each thread learns from the flows that it receives. A forecast for a
//! port of another thread is sent to that thread ([`ForecastRoutes`]).
//!
//! A packet thread translates a forecast at its own version, while no packet waits for a translation.
//! The new entry is installed and reported like every entry. So all invariants hold, and a wrong
//! forecast costs room and time, but never changes how packets are forwarded.
//!
//! An entry of a forecast is *speculative* until its first hit. `Speculation` has these entries,
//! and reads the packet counts of some of them in each iteration. So a hit does nothing else for a
//! speculative entry.
//!
//! - A speculative entry expires after the idle time of forecasts.
//! - Speculative entries are evicted first when room is needed.
//! - A forecast is refused if its entry could displace an entry with traffic (`ROOM_DIVISOR`).
//!
//! Some forecasts of predictors are withheld, as a control group (`ControlGroup`): their flows show
//! which misses the installed forecasts save. A withheld forecast has no entry, so it changes no
//! packet.
//!
//! The translation of a forecast has no side effect. A traversal with learn requests is refused,
//! because only a packet may learn. Meters and packet-ins take effect when a packet hits the entry.

mod control_group;
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

pub(crate) use control_group::{ControlChoice, ControlGroup};
pub(crate) use counters::{ForecastAccount, ForecastOutcome};
pub use counters::{ForecastCounters, SourceCounters};
pub(crate) use device::device_forecast;
pub use device::{DeviceForecast, DeviceOutcome, DeviceWatch, EntryForecast};
pub use endpoints::{ForecastConfig, ForecastSender, ThreadForecasts, forecast_endpoint};
pub(crate) use observation::FlowObservation;
pub(crate) use preload::{Preload, Preloaded, refusal_of};
pub(crate) use queue::{ForecastQueue, WaitingForecast};
pub(crate) use routes::ForecastInbox;
pub use routes::ForecastRoutes;
pub(crate) use speculation::{SettledForecast, Speculation, SpeculativeFlow};
pub use stopwatch::Stopwatch;
pub use ticket::{ForecastTicket, TicketCounts};

/// Forecasts are refused unless more than 1/`ROOM_DIVISOR` of the cache is free.
pub(crate) const ROOM_DIVISOR: usize = 4;
