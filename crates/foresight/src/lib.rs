//! Forecasts of flows that are about to arrive, for a switch that caches translations.
//!
//! The first packet of a flow misses in every cache and waits for a translation. If a switch knows
//! the flow beforehand, the switch can translate the flow before its first packet arrives. A
//! [`Forecast`] describes a flow that is about to arrive.
//!
//! [`Predictor`]s make forecasts from the flows that a switch sees. [`Foresight`] runs several
//! predictors, and gives each a budget. A [`Governor`] compares the translations that a predictor
//! costs with the translations that it saves. The governor pauses a predictor that costs more than
//! it saves, and tries the predictor again later. To know the saved translations, a caller withholds
//! some forecasts, and counts their flows that miss.
//!
//! The crate has no threads, clocks or sockets. The caller passes the current time as a duration
//! since a start of its choice. The caller also reports the outcomes of forecasts as
//! [`OutcomeCounts`].
//!
//! Ståhl, Chiesa, Ferlin and Chaudron, *On the Benefits of Predictable Traffic in Virtual Switches*
//! (ANRW 2025), measure the benefit of perfect forecasts. The paper leaves predictors as future
//! work.
//!
//! ```
//! use std::time::Duration;
//!
//! use shunt_flow::{FieldId, FlowKey, PortNo};
//! use shunt_foresight::{FlowEvent, Foresight, GovernorConfig, NewFlow, Reply};
//!
//! let mut foresight = Foresight::new(GovernorConfig::default());
//! foresight.add(Box::new(Reply::default()));
//!
//! // A UDP flow from port 1 leaves by port 2.
//! let mut key = FlowKey::ZERO;
//! key.set_in_port(PortNo::new(1));
//! for (field, value) in [
//!     (FieldId::EthType, 0x0800),
//!     (FieldId::EthSrc, 0x02_00_00_00_00_01),
//!     (FieldId::EthDst, 0x02_00_00_00_00_02),
//!     (FieldId::IpProto, 17),
//!     (FieldId::Ipv4Src, 0x0a00_0001),
//!     (FieldId::Ipv4Dst, 0x0a00_0002),
//!     (FieldId::UdpSrc, 40_000),
//!     (FieldId::UdpDst, 53),
//! ] {
//!     key.set_field(field, value);
//! }
//! let mut egress = key.clone();
//! egress.set_in_port(PortNo::new(2));
//! let flow = NewFlow { key, egress: Some(egress), forecast: None };
//!
//! let now = Duration::from_secs(1);
//! foresight.observe(&FlowEvent::Started(&flow), now);
//! let mut forecasts = Vec::new();
//! foresight.forecast(now, 16, &mut forecasts);
//! assert_eq!(forecasts.len(), 1);
//! let reply = FlowKey::from(&forecasts[0].key);
//! assert_eq!(reply.in_port(), PortNo::new(2));
//! assert_eq!(reply.field(FieldId::UdpSrc), 53);
//! ```

mod event;
mod forecast;
mod outcome;

mod predictor;
mod predictors;

mod comparison;
mod foresight;
mod governor;

pub use event::{FlowEvent, NewFlow, SiblingSet, SiblingSets};
pub use forecast::{Confidence, Forecast, ForecastSource};
pub use foresight::{Foresight, PredictorStatus};
pub use governor::{Governor, GovernorConfig, GovernorState, PauseReason, SlowPathTimes};
pub use outcome::{ForecastRefusal, OutcomeCounts};
pub use predictor::Predictor;
pub use predictors::{
    oracle::Oracle,
    periodic::Periodic,
    reply::{Reply, reply_key},
    siblings::Siblings,
    successor::SuccessorTable,
};
