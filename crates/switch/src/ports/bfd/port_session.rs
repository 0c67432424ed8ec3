//! The BFD session of a port: its options, its addresses and its state machine.
//!
//! The BFD thread shares the session with the registry of ports. The lock of the session is held
//! for single steps, and no other lock is taken while it is held. The session stores the datapath
//! port on which it sends. So no change of bridges, ports or rules delays a BFD packet.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shunt_bfd::{BfdDiagnostic, BfdError, BfdEvent, BfdSession, BfdState, parse_frame};
use shunt_datapath::metrics::PortTraffic;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, DatapathPort, PortBfd, Time};

use crate::{
    config::BfdOptions,
    ports::{
        frame_inbox::{ArrivedFrame, PortFrames},
        port::BridgePort,
    },
    status::bfd::BfdPortStatus,
};

/// The BFD session of a port.
pub(crate) struct PortSession {
    pub(crate) bridge: BridgeId,
    /// The OpenFlow number of the port.
    pub(crate) number: PortNo,
    /// Name of the port.
    pub(crate) name: String,
    /// Counters of the port's traffic, one for each packet thread.
    traffic: Vec<Arc<PortTraffic>>,
    /// The UDP source port of the session's packets.
    source_port: u16,
    /// The parts of the session that change.
    state: Mutex<PortSessionState>,
}

/// The parts of a session that change, under the lock of the session.
struct PortSessionState {
    /// The state machine of BFD.
    session: BfdSession,
    /// The BFD options of the port.
    options: BfdOptions,
    /// MAC address of the port.
    mac: [u8; 6],
    /// The port on which frames are sent; `None` while the port may not send.
    output: Option<DatapathPort>,
    /// The session's `forwarding` that the tables use, as of the last run.
    is_forwarding: bool,
    /// The states of both ends that were reported last.
    reported: BothEnds,
}

/// The states of both ends with their diagnostics.
type BothEnds = [(BfdState, BfdDiagnostic); 2];

/// The identifiers of a session, which no other session of the switch has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionNumbers {
    /// The discriminator of this end.
    pub(crate) discriminator: NonZeroU32,
    /// The UDP source port of the session's packets.
    pub(crate) source_port: u16,
    /// Seed of the random jitter of the transmit intervals.
    pub(crate) seed: u64,
}

/// The results of a run of a session.
pub(crate) struct SessionRun {
    /// A frame to send, with the datapath port.
    pub(crate) frame: Option<(DatapathPort, Vec<u8>)>,
    /// Changes of the session's state, the oldest first.
    pub(crate) events: Vec<BfdEvent>,
    /// The new value of `forwarding`, if it has changed.
    pub(crate) forwarding: Option<bool>,
    /// True if the state of either end has changed.
    pub(crate) is_changed: bool,
}

impl PortSession {
    /// Creates the session of a port.
    pub(crate) fn new(
        bridge: BridgeId,
        port: &BridgePort,
        options: &BfdOptions,
        numbers: SessionNumbers,
        now: Time,
    ) -> Self {
        let SessionNumbers { discriminator, source_port, seed } = numbers;
        let session = BfdSession::new(options.settings(), discriminator, seed, age(now));
        Self {
            bridge,
            number: port.number,
            name: port.settings.name.clone(),
            traffic: port.traffic.clone(),
            source_port,
            state: Mutex::new(PortSessionState {
                session,
                options: options.clone(),
                mac: port.mac,
                output: output(port),
                is_forwarding: false,
                reported: BothEnds::default(),
            }),
        }
    }

    /// Takes over changed options, the MAC address and the state of the port.
    pub(crate) fn follow(&self, options: &BfdOptions, port: &BridgePort, now: Time) {
        let mut state = self.state.lock();
        (state.mac, state.output) = (port.mac, output(port));
        if state.options != *options {
            state.options.clone_from(options);
            state.session.set_settings(options.settings(), age(now));
        }
    }

    /// Ends the session: its next frame has the state AdminDown.
    pub(crate) fn shut_down(&self, now: Time) {
        self.state.lock().session.set_admin_down(true, age(now));
    }

    /// Ends the session, and returns its last frame, with the state AdminDown.
    pub(crate) fn finish(&self, now: Time) -> SessionRun {
        let mut state = self.state.lock();
        state.session.set_admin_down(true, age(now));
        self.run_locked(&mut state, now)
    }

    /// Overrides `forwarding` for an operator; `None` removes the override.
    pub(crate) fn force_forwarding(&self, is_forwarding: Option<bool>) {
        self.state.lock().session.force_forwarding(is_forwarding);
    }

    /// Takes the port out of use, because no thread runs the session any more.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.session.force_forwarding(Some(false));
        state.is_forwarding = false;
    }

    /// Handles the frames that the port received;
    /// returns the reasons for ignored frames.
    ///
    /// A malformed frame, or a frame of another session, only changes a counter. The session does
    /// not expire at a time before which frames are still unread.
    pub(crate) fn receive(&self, received: &PortFrames) -> Vec<BfdError> {
        let session = &mut self.state.lock().session;
        session.count_bad_packets(received.removed);
        let take = match received.removed {
            0 => BfdSession::on_packet,
            _ => BfdSession::on_packet_after_loss,
        };
        let mut errors = Vec::new();
        for ArrivedFrame { arrived, frame } in &received.frames {
            let taken = parse_frame(frame).inspect_err(|_| session.count_bad_packets(1));
            errors.extend(taken.and_then(|packet| take(session, &packet, age(*arrived))).err());
        }
        errors
    }

    /// Runs the session: returns the frame to send and the changes to report.
    pub(crate) fn run(&self, now: Time) -> SessionRun {
        self.run_locked(&mut self.state.lock(), now)
    }

    /// Runs the session up to a time, under its lock.
    fn run_locked(&self, state: &mut PortSessionState, now: Time) -> SessionRun {
        let received = self.traffic.iter().map(|own| own.rx_packets.get()).sum();
        let output = state.session.poll(received, age(now));
        let forwarding = state.session.is_forwarding(age(now));
        let before = std::mem::replace(&mut state.is_forwarding, forwarding);
        let status = state.session.status(age(now));
        let both =
            [(status.state, status.diagnostic), (status.remote.state, status.remote.diagnostic)];
        let reported = std::mem::replace(&mut state.reported, both);
        let addresses = || state.options.addresses(state.mac, self.source_port);
        let frame = output.packet.zip(state.output);
        SessionRun {
            frame: frame.map(|(packet, port)| (port, addresses().emit(&packet))),
            events: output.events,
            forwarding: (before != forwarding).then_some(forwarding),
            is_changed: reported != both,
        }
    }

    /// Returns the time of the next [`Self::run`].
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        let deadline = self.state.lock().session.next_deadline(age(now))?;
        Some(Time::ZERO.after(deadline))
    }

    /// Returns the session's view for the tables.
    pub(crate) fn info(&self) -> PortBfd {
        let state = self.state.lock();
        let destination = state.options.remote_destination();
        PortBfd { destination, is_forwarding: state.is_forwarding }
    }

    /// Returns whether BFD lets the port be used.
    pub(crate) fn is_forwarding(&self) -> bool {
        self.state.lock().is_forwarding
    }

    /// Returns the state of the session.
    pub(crate) fn status(&self, now: Time) -> BfdPortStatus {
        BfdPortStatus { session: self.state.lock().session.status(age(now)), now: age(now) }
    }
}

/// Returns the datapath port on which the session of a port sends.
///
/// The output is `None` if the port is closed, or set to `no_fwd` or `port_down`, as for packets of
/// rules.
fn output(port: &BridgePort) -> Option<DatapathPort> {
    let may_send = port.open.is_some() && !port.config.no_fwd && !port.config.port_down;
    port.datapath.filter(|_| may_send)
}

/// Returns the time since the start of the daemon's clock.
const fn age(now: Time) -> Duration {
    now.since(Time::ZERO)
}

#[cfg(test)]
mod tests {
    use shunt_bfd::BfdAddresses;

    use super::*;

    #[test]
    fn an_unserved_bfd_session_disables_its_port() {
        let options = BfdOptions::default();
        let settings = options.settings();
        let session = PortSession {
            bridge: BridgeId::new(0),
            number: PortNo::new(1),
            name: "p1".to_owned(),
            traffic: Vec::new(),
            source_port: BfdAddresses::FIRST_SOURCE_PORT,
            state: Mutex::new(PortSessionState {
                session: BfdSession::new(settings, NonZeroU32::MIN, 0, Duration::ZERO),
                options,
                mac: [2; 6],
                output: None,
                is_forwarding: false,
                reported: BothEnds::default(),
            }),
        };
        session.force_forwarding(Some(true));
        assert_eq!(session.run(Time::ZERO).forwarding, Some(true));
        assert!(session.is_forwarding() && session.info().is_forwarding);
        session.abandon();
        assert!(!session.is_forwarding() && !session.info().is_forwarding);
        assert!(!session.status(Time::ZERO).session.forwarding);
    }
}
