//! Flows that an operator or an orchestrator announces before they arrive.

use std::time::Duration;

use serde::Serialize;
use shunt_foresight::ForecastSource;

use crate::{
    switch::Switch,
    trace::{error::TraceError, preload::AnnouncedTime},
};

/// The origin of announced flows, by which their outcomes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcer {
    /// A person or a script that preloads flows.
    Operator,
    /// A program that knows which services will talk to each other.
    Orchestrator,
}

/// The answer to announced flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Announced {
    /// Flows that wait for their translation: the first ones of the call.
    pub accepted: usize,
    /// Flows that did not fit the queue.
    pub refused: usize,
    /// Packet threads that make entries for each flow.
    pub threads: usize,
    /// Maximum number of flows without a hit that have entries, for each packet thread.
    pub entries: usize,
}

impl Switch {
    /// Announces flows that will arrive within `valid`.
    ///
    /// They get cache entries before their packets. Each flow is a match in the syntax of `ovs-ofctl`,
    /// or a frame in hexadecimal, with the ingress port before it. A masked field is not known: a flow
    /// gets entries only if the tables do not consult its other bits. Packet threads translate the
    /// flows while no packet waits.
    ///
    /// Flows that do not fit the queue are refused. An orchestrator has them counted, and an operator
    /// can send them again.
    ///
    /// # Errors
    ///
    /// If the bridge or an ingress port does not exist, or a text is not a flow; then no flow is
    /// announced.
    pub fn announce(
        &self,
        bridge: &str,
        flows: &[&str],
        valid: Duration,
        origin: Announcer,
    ) -> Result<Announced, TraceError> {
        let plane = &self.control.plane;
        let source = match origin {
            Announcer::Operator => ForecastSource::Preload,
            Announcer::Orchestrator => ForecastSource::Announced,
        };
        let now = Duration::from_nanos(plane.now().nanoseconds());
        let announced = AnnouncedTime { source, now, valid };
        let forecasts = self.control.tracer().announced(bridge, flows, announced)?;
        Ok(plane.foresight().announce(forecasts, source))
    }
}
