//! A member of an aggregator: its settings, its link, its state machines and its counters.

use std::time::Duration;

use crate::{
    machines::{
        mux::MuxMachine,
        periodic::{PeriodicMachine, period},
        receive::{Expiry, ReceiveMachine, ReceiveState},
        transmit::{RateLimit, TransmitMachine},
    },
    selection::{Aggregation, Selected, Unselected},
    settings::{AggregatorSettings, MemberSettings},
    status::LacpCounters,
    wire::{
        frame::SlowFrame,
        info::{LacpInfo, LacpState},
        lacpdu::Lacpdu,
        marker::Marker,
    },
};

/// A link of an aggregation with its LACP state machines and counters.
#[derive(Debug)]
pub(crate) struct AggregatorMember {
    pub(crate) settings: MemberSettings,
    pub(crate) receive: ReceiveMachine,
    pub(crate) mux: MuxMachine,
    pub(crate) selected: Result<Selected, Unselected>,
    pub(crate) counters: LacpCounters,
    periodic: PeriodicMachine,
    transmit: TransmitMachine,
    marker_limit: RateLimit<MARKERS_PER_SECOND>,
    /// Marker requests that must be answered; at most [`MARKERS_PER_SECOND`].
    markers: Vec<Marker>,
}

impl AggregatorMember {
    /// Creates a member; its link is down.
    pub(crate) fn new(settings: MemberSettings) -> Self {
        Self {
            settings,
            receive: ReceiveMachine::default(),
            mux: MuxMachine::default(),
            selected: Err(Unselected::LinkDown),
            counters: LacpCounters::default(),
            periodic: PeriodicMachine::default(),
            transmit: TransmitMachine::default(),
            marker_limit: RateLimit::default(),
            markers: Vec::new(),
        }
    }

    /// Returns the information about this end of the link (`Actor_Oper`).
    pub(crate) fn actor(&self, aggregator: &AggregatorSettings) -> LacpInfo {
        let receive = self.receive.state();
        let state = aggregator
            .state()
            .with(self.mux.state().flags())
            .with_if(LacpState::EXPIRED, receive == ReceiveState::Expired)
            .with_if(LacpState::DEFAULTED, receive == ReceiveState::Defaulted);
        LacpInfo {
            system: aggregator.system,
            key: self.settings.key.unwrap_or(aggregator.key).get(),
            port_priority: self.settings.port_priority,
            port: self.settings.port.get(),
            state,
        }
    }

    /// Returns the aggregation that the link of the member could belong to.
    pub(crate) fn aggregation(&self, aggregator: &AggregatorSettings) -> Aggregation {
        Aggregation::of(&self.actor(aggregator), self.receive.partner())
    }

    /// Updates the state after a change of the link.
    pub(crate) fn link(&mut self, is_up: bool, now: Duration) {
        let was_up = self.receive.state() != ReceiveState::PortDisabled;
        if is_up == was_up {
            return;
        }
        self.receive.link(is_up, now);
        self.transmit.reset();
        self.markers.clear();
        add_one(&mut self.counters.carrier_changes);
    }

    /// Handles a frame that arrived on a link that is up.
    pub(crate) fn take(&mut self, frame: &SlowFrame, actor: &LacpInfo, now: Duration) {
        match frame {
            SlowFrame::Lacpdu(pdu) => {
                add_one(&mut self.counters.rx_pdus);
                if self.receive.record(pdu, actor, now) {
                    self.transmit.need();
                }
            }
            SlowFrame::MarkerRequest(marker) => {
                add_one(&mut self.counters.rx_marker_requests);
                if self.marker_limit.free_at() <= now {
                    self.marker_limit.count(now);
                    self.markers.push(*marker);
                }
            }
            // This end sends no marker requests, so it expects no response.
            SlowFrame::MarkerResponse(_) => {}
        }
    }

    /// Handles an expiry of the receive machine.
    pub(crate) fn expire(&mut self, now: Duration) {
        if let Some(expiry) = self.receive.step(now) {
            add_one(match expiry {
                Expiry::Expired => &mut self.counters.expired,
                Expiry::Defaulted => &mut self.counters.defaulted,
            });
        }
    }

    /// Advances the mux and periodic machines;
    /// the receive machine and the selection precede them.
    pub(crate) fn follow(&mut self, aggregator: &AggregatorSettings, now: Duration) {
        self.mux.step(self.selected.ok(), self.receive.partner(), now);
        let is_up = self.receive.state() != ReceiveState::PortDisabled;
        let partner = self.receive.partner().state;
        let period = is_up.then(|| period(aggregator.state(), partner)).flatten();
        if self.periodic.step(period, now) {
            self.transmit.need();
        }
    }

    /// Appends the frames that are due to `frames`.
    pub(crate) fn transmit(
        &mut self,
        aggregator: &AggregatorSettings,
        now: Duration,
        frames: &mut Vec<Vec<u8>>,
    ) {
        let source = self.settings.mac;
        for marker in self.markers.drain(..) {
            add_one(&mut self.counters.tx_marker_responses);
            frames.push(SlowFrame::MarkerResponse(marker).emit(source));
        }
        let actor = self.actor(aggregator);
        if self.periodic.is_sending() && self.transmit.take_due(&actor, now) {
            add_one(&mut self.counters.tx_pdus);
            let partner = *self.receive.partner();
            let pdu = Lacpdu { actor, partner, collector_max_delay: 0 };
            frames.push(SlowFrame::Lacpdu(pdu).emit(source));
        }
    }

    /// Returns the last frame of a removed member, if one may be sent.
    pub(crate) fn last_frame(&self, aggregator: &AggregatorSettings) -> Option<Vec<u8>> {
        let own = self.actor(aggregator);
        let actor = LacpInfo { state: own.state.without(LacpState::USE), ..own };
        let pdu = Lacpdu { actor, partner: *self.receive.partner(), collector_max_delay: 0 };
        let frame = || SlowFrame::Lacpdu(pdu).emit(self.settings.mac);
        self.periodic.is_sending().then(frame)
    }

    /// Returns the time at which the next state change or frame is due.
    pub(crate) fn deadline(&self, aggregator: &AggregatorSettings) -> Option<Duration> {
        let actor = self.actor(aggregator);
        let transmit = self.transmit.deadline(&actor).filter(|_| self.periodic.is_sending());
        let marker = (!self.markers.is_empty()).then_some(Duration::ZERO);
        let machines =
            [self.receive.deadline(), self.mux.deadline(), self.periodic.deadline(), transmit];
        machines.into_iter().chain([marker]).flatten().min()
    }
}

/// Increments a counter, unless the counter is at its maximum.
pub(crate) const fn add_one(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

/// Maximum number of marker requests that a member answers in a second.
const MARKERS_PER_SECOND: usize = 5;
