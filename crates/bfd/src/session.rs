//! A session: the events that change its state, and the packets that it sends.

use std::{
    num::{NonZeroU8, NonZeroU32},
    time::Duration,
};

use crate::{
    activity::ReceiveActivity,
    decay::{DecayWindow, ReceivedPackets},
    error::BfdError,
    intervals::{IntervalPair, PolledIntervals},
    remote::RemoteSession,
    settings::BfdSettings,
    state::{BfdDiagnostic, BfdState},
    status::{BfdCounters, BfdEvent, BfdRemoteStatus, BfdStatus},
    transmit::TransmitTimer,
    wire::{flags::BfdFlags, packet::ControlPacket},
};

/// One end of a BFD session.
///
/// Each event has the time of its occurrence, counted from a start that the caller chooses. After
/// each event, and at [`next_deadline`](Self::next_deadline), the caller calls [`poll`](Self::poll)
/// and sends the returned packet. Each call costs O(1).
#[derive(Debug)]
pub struct BfdSession {
    /// The settings of this end.
    settings: BfdSettings,
    /// The variable `bfd.LocalDiscr` of RFC 5880.
    discriminator: NonZeroU32,
    /// The variable `bfd.SessionState` of RFC 5880.
    state: BfdState,
    /// The variable `bfd.LocalDiag` of RFC 5880.
    diagnostic: BfdDiagnostic,
    /// The state variables about the remote system.
    remote: RemoteSession,
    /// The transmit and receive intervals of this end.
    intervals: PolledIntervals,
    /// The timer of periodic control packets.
    transmit: TransmitTimer,
    /// The window that detects a session without traffic.
    decay: DecayWindow,
    /// The data packets that were received, as proof that the path forwards.
    activity: ReceiveActivity,
    /// True if a packet with the flag Final must be sent.
    owes_final: bool,
    /// State and diagnostic in the last sent packet.
    sent: Option<(BfdState, BfdDiagnostic)>,
    /// The forwarding state that an operator has forced, if any.
    forced_forwarding: Option<bool>,
    /// The forwarding state after the last event.
    was_forwarding: bool,
    /// Number of changes of the forwarding state.
    flap_count: u64,
    /// Numbers of packets that were sent, received and refused.
    counters: BfdCounters,
    /// State changes since the last call of `poll`, at most [`EVENTS_MAX`].
    events: Vec<BfdEvent>,
}

/// The result of [`BfdSession::poll`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BfdOutput {
    /// Packet that must be sent now.
    pub packet: Option<ControlPacket>,
    /// State changes since the last call, the oldest first.
    pub events: Vec<BfdEvent>,
}

impl BfdSession {
    /// Returns a session in the state Down.
    ///
    /// The discriminator must be unique among the sessions of the system. The seed determines the
    /// jitter.
    #[must_use]
    pub fn new(settings: BfdSettings, discriminator: NonZeroU32, seed: u64, now: Duration) -> Self {
        let mut session = Self {
            settings,
            discriminator,
            state: BfdState::Down,
            diagnostic: BfdDiagnostic::NONE,
            remote: RemoteSession::default(),
            intervals: PolledIntervals::default(),
            transmit: TransmitTimer::new(seed),
            decay: DecayWindow::default(),
            activity: ReceiveActivity::default(),
            owes_final: false,
            sent: None,
            forced_forwarding: None,
            was_forwarding: false,
            flap_count: 0,
            counters: BfdCounters::default(),
            events: Vec::new(),
        };
        if settings.cpath_down {
            session.diagnostic = BfdDiagnostic::CONCATENATED_PATH_DOWN;
        }
        session.step(now);
        session
    }

    /// Changes the settings; intervals change by a Poll Sequence.
    pub fn set_settings(&mut self, settings: BfdSettings, now: Duration) {
        self.expire(now);
        let before = std::mem::replace(&mut self.settings, settings);
        if before.cpath_down != settings.cpath_down {
            let is_admin_down = self.state == BfdState::AdminDown;
            let reason =
                if is_admin_down { BfdDiagnostic::ADMIN_DOWN } else { BfdDiagnostic::NONE };
            // As in Open vSwitch, the diagnostic of an earlier change is forgotten.
            self.set_state(self.state, reason);
        }
        if before.decay() != settings.decay() {
            self.decay.reset();
        }
        if !settings.forwarding_if_rx {
            self.activity = ReceiveActivity::default();
        }
        self.step(now);
    }

    /// Sets the session to AdminDown for an operator, or starts it again.
    ///
    /// The other end is notified by the state in packets, so its session does not expire.
    pub fn set_admin_down(&mut self, is_down: bool, now: Duration) {
        self.expire(now);
        if is_down {
            self.set_state(BfdState::AdminDown, BfdDiagnostic::ADMIN_DOWN);
        } else if self.state == BfdState::AdminDown {
            self.set_state(BfdState::Down, BfdDiagnostic::NONE);
        }
        self.step(now);
    }

    /// Overrides whether the path may be used; `None` removes the override.
    ///
    /// [`is_forwarding`](Self::is_forwarding) returns the result.
    pub fn force_forwarding(&mut self, is_forwarding: Option<bool>) {
        self.forced_forwarding = is_forwarding;
    }

    /// Handles a received packet.
    ///
    /// # Errors
    ///
    /// If the packet is for another session. A packet that is refused only changes the counters.
    pub fn on_packet(&mut self, packet: &ControlPacket, now: Duration) -> Result<(), BfdError> {
        // If the session expired before the packet arrived, the expiry is handled first.
        self.expire(now);
        let own = self.discriminator.get();
        if ![0, own].contains(&packet.your_discriminator) {
            self.count_bad_packets(1);
            return Err(BfdError::UnknownDiscriminator(packet.your_discriminator));
        }
        self.counters.rx_packets = self.counters.rx_packets.saturating_add(1);
        self.remote = RemoteSession::of(packet, now);
        if packet.flags.contains(BfdFlags::FINAL) {
            self.intervals.on_final();
        }
        if self.settings.forwarding_if_rx {
            self.activity.on_packet(self.settings.min_rx, now);
        }
        if self.state != BfdState::AdminDown {
            self.follow_remote();
            self.owes_final |= packet.flags.contains(BfdFlags::POLL);
        }
        self.step(now);
        Ok(())
    }

    /// Handles a received packet, before which received packets were dropped unread.
    ///
    /// Because of the dropped packets, the other end was not silent before this packet. So the
    /// session does not expire at a time before the packet.
    ///
    /// # Errors
    ///
    /// Like [`Self::on_packet`].
    pub fn on_packet_after_loss(
        &mut self,
        packet: &ControlPacket,
        now: Duration,
    ) -> Result<(), BfdError> {
        let is_known = packet.your_discriminator == self.discriminator.get()
            && packet.my_discriminator.get() == self.remote.discriminator;
        if is_known {
            self.remote.heard = self.remote.heard.map(|heard| heard.max(now));
        }
        self.on_packet(packet, now)
    }

    /// Counts received frames that were refused before they were passed to the session.
    pub const fn count_bad_packets(&mut self, count: u64) {
        self.counters.rx_bad_packets = self.counters.rx_bad_packets.saturating_add(count);
    }

    /// Returns the packet to send now, and the state changes since the last call.
    ///
    /// `received` is the number of packets of any kind that were received on the path. Only
    /// `decay_min_rx` and `forwarding_if_rx` use it; otherwise it may be 0.
    pub fn poll(&mut self, received: u64, now: Duration) -> BfdOutput {
        self.expire(now);
        self.run_decay(received, now);
        if self.settings.forwarding_if_rx {
            let rx_interval = self.rx_interval();
            let multiplier = u32::from(self.settings.multiplier.get());
            self.activity.run(rx_interval.saturating_mul(multiplier), received, now);
        }
        self.step(now);
        let forwarding = self.is_forwarding(now);
        if forwarding != self.was_forwarding {
            self.was_forwarding = forwarding;
            self.flap_count = self.flap_count.saturating_add(1);
        }
        let packet = self.is_due(now).then(|| self.take_packet(now));
        BfdOutput { packet, events: std::mem::take(&mut self.events) }
    }

    /// Returns the time at which [`poll`](Self::poll) must be called next.
    ///
    /// If the time has passed, it must be called immediately.
    #[must_use]
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let at_once = self.is_due(now).then_some(now);
        let expiry = self.expiry();
        let activity =
            self.settings.forwarding_if_rx.then(|| self.activity.deadline(now)).flatten();
        let deadlines = [at_once, self.transmit.next(), expiry, self.decay.deadline(), activity];
        deadlines.into_iter().flatten().min()
    }

    /// Returns the state of the session.
    #[must_use]
    pub const fn state(&self) -> BfdState {
        self.state
    }

    /// Returns the diagnostic of the last state change.
    #[must_use]
    pub const fn diagnostic(&self) -> BfdDiagnostic {
        self.diagnostic
    }

    /// Returns the discriminator of the session at this end.
    #[must_use]
    pub const fn discriminator(&self) -> NonZeroU32 {
        self.discriminator
    }

    /// Returns whether the path may be used.
    ///
    /// The path may be used if the session is up, or if packets are received and `forwarding_if_rx`
    /// is set. In both cases, no path behind the other end may have failed. The rules are the same
    /// as in Open vSwitch.
    #[must_use]
    pub fn is_forwarding(&self, now: Duration) -> bool {
        self.forced_forwarding.unwrap_or_else(|| {
            let is_active = self.settings.forwarding_if_rx && self.activity.is_active(now);
            (self.state == BfdState::Up || is_active) && !self.remote.diagnostic.is_concatenated()
        })
    }

    /// Returns the status of the session, including the other end.
    #[must_use]
    pub fn status(&self, now: Duration) -> BfdStatus {
        let remote = &self.remote;
        BfdStatus {
            forwarding: self.is_forwarding(now),
            flap_count: self.flap_count,
            multiplier: self.settings.multiplier.get(),
            cpath_down: self.settings.cpath_down,
            tx_interval: self.transmit.interval(),
            rx_interval: self.rx_interval(),
            detect_at: self.expiry(),
            next_tx: self.transmit.next(),
            last_tx: self.transmit.last(),
            flags: self.flags(),
            state: self.state,
            diagnostic: self.diagnostic,
            discriminator: self.discriminator.get(),
            min_tx: self.intervals.advertised.desired_min_tx,
            min_rx: self.intervals.advertised.required_min_rx,
            remote: BfdRemoteStatus {
                flags: remote.flags,
                state: remote.state,
                diagnostic: remote.diagnostic,
                discriminator: remote.discriminator,
                min_tx: remote.min_tx,
                min_rx: remote.min_rx,
                multiplier: remote.multiplier.map_or(0, NonZeroU8::get),
            },
            counters: self.counters,
        }
    }

    /// Changes the state according to the state of the other end.
    ///
    /// Source: RFC 5880, 6.8.6, from "If received state is AdminDown" on.
    fn follow_remote(&mut self) {
        let next = match (self.state, self.remote.state) {
            (BfdState::Down, BfdState::Down) => BfdState::Init,
            (BfdState::Down, BfdState::Init) | (BfdState::Init, BfdState::Init | BfdState::Up) => {
                BfdState::Up
            }
            (BfdState::Init | BfdState::Up, BfdState::AdminDown)
            | (BfdState::Up, BfdState::Down) => {
                return self.set_state(BfdState::Down, BfdDiagnostic::NEIGHBOR_DOWN);
            }
            (state, _) => state,
        };
        self.set_state(next, self.diagnostic);
    }

    /// Handles the expiry of the detection time, if it has passed.
    fn expire(&mut self, now: Duration) {
        if self.expiry().is_some_and(|expiry| expiry <= now) {
            self.remote = RemoteSession::default();
            if self.state.is_connected() {
                self.set_state(BfdState::Down, BfdDiagnostic::TIME_EXPIRED);
            }
            // The intervals are updated immediately: a packet that is being handled may change the
            // state again.
            self.step(now);
        }
    }

    /// Changes the state, and reports the change as an event.
    fn set_state(&mut self, state: BfdState, diagnostic: BfdDiagnostic) {
        let from = std::mem::replace(&mut self.state, state);
        self.diagnostic = if self.settings.cpath_down && state != BfdState::AdminDown {
            BfdDiagnostic::CONCATENATED_PATH_DOWN
        } else {
            diagnostic
        };
        if from == state {
            return;
        }
        if state != BfdState::Up {
            self.decay.reset();
        }
        if self.events.len() >= EVENTS_MAX {
            self.events.remove(0);
        }
        self.events.push(BfdEvent {
            from,
            to: state,
            diagnostic: self.diagnostic,
            remote_diagnostic: self.remote.diagnostic,
        });
    }

    /// Runs the check of the received rate (`decay_min_rx`) while the session is up.
    fn run_decay(&mut self, received: u64, now: Duration) {
        if let Some(decay_min_rx) = self.settings.decay()
            && self.state == BfdState::Up
        {
            let received = ReceivedPackets { all: received, control: self.counters.rx_packets };
            self.decay.run(decay_min_rx, received, now);
        }
    }

    /// Updates intervals and timers for the present state.
    fn step(&mut self, now: Duration) {
        let settings = &self.settings;
        let is_up = self.state == BfdState::Up;
        let slow = if is_up { Duration::ZERO } else { SLOW_INTERVAL };
        let idle = settings.decay().filter(|_| self.decay.is_idle());
        let wanted = IntervalPair {
            desired_min_tx: settings.min_tx.clamp(INTERVAL_MIN, INTERVAL_MAX).max(slow),
            required_min_rx: idle.unwrap_or(settings.min_rx).clamp(INTERVAL_MIN, INTERVAL_MAX),
        };
        self.intervals.follow(wanted, self.state);
        let is_silent = self.remote.min_rx.is_zero()
            || is_up && self.remote.is_in_demand() && !self.intervals.is_polling();
        let interval = self.intervals.used.desired_min_tx.max(self.remote.min_rx);
        let interval = (!is_silent).then_some(interval);
        self.transmit.follow(interval, self.settings.multiplier, now);
    }

    /// Returns the longest time between two packets of the other end.
    fn rx_interval(&self) -> Duration {
        self.intervals.used.required_min_rx.max(self.remote.min_tx)
    }

    /// Returns the time at which the state of the other end is forgotten.
    fn expiry(&self) -> Option<Duration> {
        self.remote.deadline(self.intervals.used.required_min_rx)
    }

    /// Returns whether a packet must be sent now.
    ///
    /// A changed state is sent immediately, so that the other end learns of a failure in one
    /// direction.
    fn is_due(&self, now: Duration) -> bool {
        let is_periodic = self.transmit.next().is_some_and(|next| next <= now);
        let is_news = self.sent.is_some_and(|sent| sent != (self.state, self.diagnostic));
        self.owes_final || is_news || is_periodic
    }

    /// Returns the flags of the next packet, which never has both Poll and Final.
    fn flags(&self) -> BfdFlags {
        match (self.owes_final, self.intervals.is_polling()) {
            (true, _) => BfdFlags::FINAL,
            (false, true) => BfdFlags::POLL,
            (false, false) => BfdFlags::default(),
        }
    }

    /// Returns the next packet to send, and starts the timer of the packet after it.
    fn take_packet(&mut self, now: Duration) -> ControlPacket {
        let advertised = self.intervals.advertised;
        let packet = ControlPacket {
            diagnostic: self.diagnostic,
            state: self.state,
            flags: self.flags(),
            multiplier: self.settings.multiplier,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_min_tx_us: microseconds(advertised.desired_min_tx),
            required_min_rx_us: microseconds(advertised.required_min_rx),
            required_min_echo_rx_us: 0,
        };
        let is_extra = std::mem::take(&mut self.owes_final)
            && self.transmit.next().is_none_or(|next| next > now);
        self.sent = Some((self.state, self.diagnostic));
        self.counters.tx_packets = self.counters.tx_packets.saturating_add(1);
        // An answer does not replace a periodic packet, which may have the flag Poll.
        if !is_extra {
            self.transmit.sent(self.settings.multiplier, now);
        }
        packet
    }
}

/// Returns an interval in microseconds.
fn microseconds(interval: Duration) -> u32 {
    u32::try_from(interval.as_micros()).unwrap_or(u32::MAX)
}

/// Minimum time between two sent packets of a session that is not up (RFC 5880,
/// 6.8.3).
const SLOW_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum interval of this end; zero has other meanings in the protocol.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// The longest interval that a packet can contain, in whole milliseconds.
const INTERVAL_MAX: Duration = Duration::from_millis(4_294_967);

/// Maximum number of changes between two calls of `poll`;
/// older changes are dropped.
const EVENTS_MAX: usize = 16;
