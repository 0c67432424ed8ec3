//! Flows that an operator or an orchestrator announces before they arrive.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use shunt_datapath::forecast::{ForecastTicket, TicketCounts};
use shunt_foresight::{ForecastRefusal, ForecastSource};

use crate::{
    switch::Switch,
    threads::preload_tickets::TICKETS_MAX,
    trace::{error::TraceError, preload::AnnouncedTime},
};

/// The result of an announcement of flows: how many were accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Announced {
    /// Flows that were queued for translation: always the first flows of the call.
    pub accepted: usize,
    /// Flows that were refused because the queue was full.
    pub refused: usize,
    /// Number of packet threads that create entries: those that receive from the ports.
    ///
    /// If flows have different numbers of threads, this number is the greatest.
    pub threads: usize,
    /// Limit of each packet thread: announced flows that have entries but no hit yet.
    pub entries: usize,
}

/// The outcomes of the flows of one preload.
///
/// A flow counts once for each packet thread that receives from its port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PreloadStatus {
    /// Flows that were sent to packet threads.
    pub sent: u64,
    /// Flows for which a packet thread installed new entries.
    pub installed: u64,
    /// Flows that existing entries already matched.
    pub covered: u64,
    /// Flows without entries, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Installed flows that the NIC has not handled yet.
    pub nic_waiting: u64,
    /// Installed flows with entries in the NIC.
    pub nic_accepted: u64,
    /// Installed flows without entries in the NIC.
    pub nic_refused: u64,
}

impl PreloadStatus {
    /// Returns the status of a preload from its counts.
    fn of(counts: &TicketCounts) -> Self {
        let TicketCounts { sent, installed, covered, refused, .. } = *counts;
        let reasons = ForecastRefusal::ALL.into_iter().zip(refused);
        let reasons = reasons.filter(|(_, count)| *count > 0);
        let handled = counts.device_accepted + counts.device_refused + counts.device_elsewhere;
        Self {
            sent,
            installed,
            covered,
            refused: reasons.map(|(reason, count)| (reason.name(), count)).collect(),
            nic_waiting: counts.device_offered.saturating_sub(handled),
            nic_accepted: counts.device_accepted,
            nic_refused: counts.device_refused,
        }
    }
}

impl Switch {
    /// Starts a preload, and returns its number for calls of [`Self::preload`].
    ///
    /// The switch keeps the outcomes of the last 64 preloads.
    #[must_use]
    pub fn start_preload(&self) -> u64 {
        self.control.plane.foresight().tickets().lock().start()
    }

    /// Preloads flows that will arrive within `valid`.
    ///
    /// Works like [`Self::announce`], for operators and scripts: the switch counts the outcomes of
    /// each preload separately. The caller can send flows again that did not fit the queue.
    ///
    /// # Errors
    ///
    /// Like [`Self::announce`]; also if no preload has this number.
    pub fn preload(
        &self,
        number: u64,
        bridge: &str,
        flows: &[&str],
        valid: Duration,
    ) -> Result<Announced, TraceError> {
        let ticket = self.ticket(number)?;
        self.send_announced(bridge, flows, valid, Some(ticket))
    }

    /// Returns the outcomes of the flows of a preload so far.
    ///
    /// # Errors
    ///
    /// If no preload has this number.
    pub fn preload_status(&self, number: u64) -> Result<PreloadStatus, TraceError> {
        Ok(PreloadStatus::of(&self.ticket(number)?.counts()))
    }

    /// Returns the ticket of a preload.
    fn ticket(&self, number: u64) -> Result<Arc<ForecastTicket>, TraceError> {
        let ticket = self.control.plane.foresight().tickets().lock().find(number);
        ticket.ok_or(TraceError::NoSuchPreload { number, kept: TICKETS_MAX })
    }

    /// Announces flows that will arrive within `valid`, for an orchestrator.
    ///
    /// The flows get cache entries before their packets. Each flow is a match in the syntax of
    /// `ovs-ofctl`, or a frame in hexadecimal after its ingress port. The masked bits of a match
    /// are unknown: the flow gets entries only if the tables do not consult these bits. Packet
    /// threads translate announced flows while no packet waits.
    ///
    /// Flows that do not fit the queue are refused; the result counts them.
    ///
    /// # Errors
    ///
    /// If the bridge or an ingress port does not exist, or a text is not a flow. After an error, no
    /// flow is announced.
    pub fn announce(
        &self,
        bridge: &str,
        flows: &[&str],
        valid: Duration,
    ) -> Result<Announced, TraceError> {
        self.send_announced(bridge, flows, valid, None)
    }

    /// Sends flows to packet threads; flows of a preload carry its ticket.
    fn send_announced(
        &self,
        bridge: &str,
        flows: &[&str],
        valid: Duration,
        ticket: Option<Arc<ForecastTicket>>,
    ) -> Result<Announced, TraceError> {
        let plane = &self.control.plane;
        let is_preload = ticket.is_some();
        let source = if is_preload { ForecastSource::Preload } else { ForecastSource::Announced };
        let now = Duration::from_nanos(plane.now().nanoseconds());
        let announced = AnnouncedTime { source, now, valid };
        let forecasts = self.control.tracer().announced(bridge, flows, announced)?;
        Ok(plane.foresight().announce(forecasts, source, ticket))
    }
}
