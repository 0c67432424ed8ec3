//! The BFD session of a port: its options and addresses, and the time of the switch.
//!
//! The thread of BFD shares it with the registry of ports. Its lock is held for single steps, and no other
//! lock is taken under it. So no change of bridges or ports delays a packet.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shunt_bfd::{BfdDiagnostic, BfdError, BfdEvent, BfdSession, BfdState, parse_frame};
use shunt_datapath::metrics::PortTraffic;
use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, PortBfd, Time};

use crate::{config::BfdOptions, ports::port::BridgePort, status::bfd::BfdPortStatus};

/// The BFD session of a port.
pub(crate) struct PortSession {
    pub(crate) bridge: BridgeId,
    pub(crate) number: PortNo,
    /// Name of the port.
    pub(crate) name: String,
    /// Counters of the port, one for each packet thread.
    traffic: Vec<Arc<PortTraffic>>,
    source_port: u16,
    state: Mutex<PortSessionState>,
}

/// The parts of a session that change.
struct PortSessionState {
    session: BfdSession,
    options: BfdOptions,
    /// Address of the port.
    mac: [u8; 6],
    /// The value for the tables, as of the last run.
    is_forwarding: bool,
    /// The states of both ends, as of the last run.
    reported: BothEnds,
}

/// The states of both ends with their diagnostics.
type BothEnds = [(BfdState, BfdDiagnostic); 2];

/// The numbers that no other session of the switch has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionNumbers {
    pub(crate) discriminator: NonZeroU32,
    pub(crate) source_port: u16,
    /// Seed of the jitter.
    pub(crate) seed: u64,
}

/// The results of a run of a session.
pub(crate) struct SessionRun {
    /// A frame to send on the port.
    pub(crate) frame: Option<Vec<u8>>,
    /// Changes of the state, the oldest first.
    pub(crate) events: Vec<BfdEvent>,
    /// The new value of `forwarding`, if it has changed.
    pub(crate) forwarding: Option<bool>,
    /// True if the state of either end has changed.
    pub(crate) is_changed: bool,
}

impl PortSession {
    /// Makes the session of a port.
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
                is_forwarding: false,
                reported: BothEnds::default(),
            }),
        }
    }

    /// Follows the options and the address of the port.
    pub(crate) fn follow(&self, options: &BfdOptions, mac: [u8; 6], now: Time) {
        let mut state = self.state.lock();
        state.mac = mac;
        if state.options != *options {
            state.options.clone_from(options);
            state.session.set_settings(options.settings(), age(now));
        }
    }

    /// Ends the session: the next frame tells the other end so.
    pub(crate) fn shut_down(&self, now: Time) {
        self.state.lock().session.set_admin_down(true, age(now));
    }

    /// Decides `forwarding` for an operator; `None`: the session decides.
    pub(crate) fn force_forwarding(&self, is_forwarding: Option<bool>) {
        self.state.lock().session.force_forwarding(is_forwarding);
    }

    /// Takes the port out of use: nobody runs the session any more.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.session.force_forwarding(Some(false));
        state.is_forwarding = false;
    }

    /// Takes a frame that the port received.
    ///
    /// # Errors
    ///
    /// If the frame is malformed, or of another session. It has changed nothing but a counter.
    pub(crate) fn receive(&self, frame: &[u8], now: Time) -> Result<(), BfdError> {
        let session = &mut self.state.lock().session;
        match parse_frame(frame) {
            Ok(packet) => session.on_packet(&packet, age(now)),
            Err(error) => {
                session.count_bad_packets(1);
                Err(error)
            }
        }
    }

    /// Counts packets that were dropped because newer ones had come.
    pub(crate) fn count_bad_packets(&self, count: u64) {
        self.state.lock().session.count_bad_packets(count);
    }

    /// Returns what is due now.
    pub(crate) fn run(&self, now: Time) -> SessionRun {
        let received = self.traffic.iter().map(|own| own.rx_packets.get()).sum();
        let mut state = self.state.lock();
        let output = state.session.poll(received, age(now));
        let forwarding = state.session.is_forwarding(age(now));
        let before = std::mem::replace(&mut state.is_forwarding, forwarding);
        let status = state.session.status(age(now));
        let both =
            [(status.state, status.diagnostic), (status.remote.state, status.remote.diagnostic)];
        let reported = std::mem::replace(&mut state.reported, both);
        let addresses = || state.options.addresses(state.mac, self.source_port);
        SessionRun {
            frame: output.packet.map(|packet| addresses().emit(&packet)),
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

    /// Returns the tables' view of the session.
    pub(crate) fn info(&self) -> PortBfd {
        let state = self.state.lock();
        let destination = state.options.remote_destination();
        PortBfd { destination, is_forwarding: state.is_forwarding }
    }

    /// Returns whether the port may be used.
    pub(crate) fn is_forwarding(&self) -> bool {
        self.state.lock().is_forwarding
    }

    /// Returns the state of the session.
    pub(crate) fn status(&self, now: Time) -> BfdPortStatus {
        BfdPortStatus { session: self.state.lock().session.status(age(now)), now: age(now) }
    }
}

/// Returns the time since the start of the clock.
const fn age(now: Time) -> Duration {
    now.since(Time::ZERO)
}

#[cfg(test)]
mod tests {
    use shunt_bfd::BfdAddresses;

    use super::*;

    #[test]
    fn a_session_that_nobody_runs_takes_its_port_out_of_use() {
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
