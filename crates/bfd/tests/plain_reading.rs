//! Compares a session with a slow and literal implementation of the pseudo code of RFC 5880, 6.8.6.
//!
//! The literal implementation has the variables of the RFC by their names, works on octets, and is
//! compared after every event. The literal implementation shares no code with the crate, and has no
//! jitter. So only the sent packets are compared, and the longest and shortest pause between them.
#![expect(clippy::unwrap_used, reason = "a test panics when it fails")]
#![expect(non_snake_case, reason = "the names are those of the RFC")]

use std::{
    num::{NonZeroU8, NonZeroU32},
    time::Duration,
};

use proptest::prelude::*;
use shunt_bfd::{BfdSession, BfdSettings, ControlPacket};

const ADMIN_DOWN: u8 = 0;
const DOWN: u8 = 1;
const INIT: u8 = 2;
const UP: u8 = 3;

/// The state variables of RFC 5880, 6.8.1, and the values of the settings.
///
/// Times are in microseconds.
struct PlainReading {
    SessionState: u8,
    RemoteSessionState: u8,
    LocalDiscr: u32,
    RemoteDiscr: u32,
    LocalDiag: u8,
    RemoteMinRxInterval: u64,
    RemoteDemandMode: bool,
    DetectMult: u8,
    /// Values of the settings.
    min_tx: u64,
    min_rx: u64,
    /// The intervals: as in packets, and as in use.
    DesiredMinTxInterval: [u64; 2],
    RequiredMinRxInterval: [u64; 2],
    is_polling: bool,
    owes_final: bool,
    /// Desired Min TX Interval and Detect Mult of the last packet,
    /// and its arrival time.
    last: Option<(u64, u64, u64)>,
}

fn word(octets: &[u8], position: usize) -> u32 {
    u32::from_be_bytes(octets[position..position + 4].try_into().unwrap())
}

impl PlainReading {
    /// Implements "Reception of BFD Control Packets";
    /// returns false for a discarded packet.
    fn receive(&mut self, octets: &[u8], now: u64) -> bool {
        // If the version number is not correct (1), the packet MUST be discarded.
        if octets[0] >> 5 != 1 {
            return false;
        }
        // If the Length field is less than 24, or than 26 with the A bit, the packet MUST be discarded.
        let [final_bit, a_bit, d_bit, multipoint] = [0x10, 4, 2, 1].map(|bit| octets[1] & bit != 0);
        let poll_bit = octets[1] & 0x20 != 0;
        let length = usize::from(octets[3]);
        if length < if a_bit { 26 } else { 24 } {
            return false;
        }
        // If the Length field is greater than the payload of the encapsulating protocol ..
        if length > octets.len() {
            return false;
        }
        // If the Detect Mult field is zero .. If the Multipoint (M) bit is nonzero ..
        if octets[2] == 0 || multipoint {
            return false;
        }
        // If the My Discriminator field is zero ..
        let my_discriminator = word(octets, 4);
        if my_discriminator == 0 {
            return false;
        }
        // If the Your Discriminator field is nonzero, it MUST be used to select the session. If no
        // session is found, the packet MUST be discarded.
        let your_discriminator = word(octets, 8);
        if your_discriminator != 0 && your_discriminator != self.LocalDiscr {
            return false;
        }
        // If the Your Discriminator field is zero and the State field is not Down or AdminDown ..
        let state = octets[1] >> 6;
        if your_discriminator == 0 && state != DOWN && state != ADMIN_DOWN {
            return false;
        }
        // If the A bit is set and no authentication is in use ..
        if a_bit {
            return false;
        }
        self.RemoteDiscr = my_discriminator;
        self.RemoteSessionState = state;
        self.RemoteDemandMode = d_bit;
        self.RemoteMinRxInterval = word(octets, 16).into();
        // If a Poll Sequence is being transmitted by the local system and the Final (F) bit in the
        // received packet is set, the Poll Sequence MUST be terminated.
        if self.is_polling && final_bit {
            self.is_polling = false;
            self.DesiredMinTxInterval[1] = self.DesiredMinTxInterval[0];
            self.RequiredMinRxInterval[1] = self.RequiredMinRxInterval[0];
        }
        // Update the Detection Time as described in section 6.8.4.
        self.last = Some((word(octets, 12).into(), octets[2].into(), now));
        // If bfd.SessionState is AdminDown, discard the packet.
        if self.SessionState == ADMIN_DOWN {
            return true;
        }
        if state == ADMIN_DOWN {
            if self.SessionState != DOWN {
                self.LocalDiag = 3;
                self.SessionState = DOWN;
            }
        } else if self.SessionState == DOWN {
            if state == DOWN {
                self.SessionState = INIT;
            } else if state == INIT {
                self.SessionState = UP;
            }
        } else if self.SessionState == INIT {
            if state == INIT || state == UP {
                self.SessionState = UP;
            }
        } else if state == DOWN {
            self.LocalDiag = 3;
            self.SessionState = DOWN;
        }
        // If the Poll (P) bit is set, send a BFD Control packet with the Final (F) bit set.
        if poll_bit {
            self.owes_final = true;
        }
        true
    }

    /// Implements "Calculating the Detection Time": returns the time at which it ends.
    fn detection_end(&self) -> Option<u64> {
        let (desired_min_tx, detect_mult, time) = self.last?;
        Some(time + detect_mult * desired_min_tx.max(self.RequiredMinRxInterval[1]))
    }

    fn expire(&mut self, now: u64) {
        if self.detection_end().is_some_and(|end| end <= now) {
            // Without a packet for a Detection Time, bfd.RemoteDiscr MUST be set to zero. The other
            // values of the remote system are forgotten with it.
            (self.last, self.RemoteDiscr, self.RemoteSessionState) = (None, 0, DOWN);
            (self.RemoteDemandMode, self.RemoteMinRxInterval) = (false, 1);
            if self.SessionState == INIT || self.SessionState == UP {
                self.LocalDiag = 1;
                self.SessionState = DOWN;
            }
        }
    }

    /// Implements "Timer Negotiation" and "Timer Manipulation".
    fn negotiate(&mut self) {
        // When bfd.SessionState is not Up, the system MUST set bfd.DesiredMinTxInterval to a value of
        // not less than one second.
        let tx = if self.SessionState == UP { self.min_tx } else { self.min_tx.max(1_000_000) };
        let rx = self.min_rx;
        if self.SessionState != INIT && self.SessionState != UP {
            self.DesiredMinTxInterval = [tx; 2];
            self.RequiredMinRxInterval = [rx; 2];
            self.is_polling = false;
            return;
        }
        let is_changed = self.DesiredMinTxInterval[0] != tx || self.RequiredMinRxInterval[0] != rx;
        if self.is_polling || !is_changed {
            return;
        }
        // .. a Poll Sequence MUST be initiated.
        self.is_polling = true;
        // If bfd.DesiredMinTxInterval is increased and bfd.SessionState is Up, the actual transmission
        // interval used MUST NOT change until the Poll Sequence described above has terminated.
        if !(self.SessionState == UP && tx > self.DesiredMinTxInterval[1]) {
            self.DesiredMinTxInterval[1] = tx;
        }
        // If bfd.RequiredMinRxInterval is reduced and bfd.SessionState is Up, the previous value MUST be
        // used when calculating the Detection Time until the Poll Sequence has terminated.
        if !(self.SessionState == UP && rx < self.RequiredMinRxInterval[1]) {
            self.RequiredMinRxInterval[1] = rx;
        }
        self.DesiredMinTxInterval[0] = tx;
        self.RequiredMinRxInterval[0] = rx;
    }

    /// Implements "Transmitting BFD Control Packets":
    /// returns the interval, if packets must be sent.
    fn interval(&self) -> Option<u64> {
        if self.RemoteMinRxInterval == 0 {
            return None;
        }
        let is_in_demand =
            self.RemoteDemandMode && self.SessionState == UP && self.RemoteSessionState == UP;
        if is_in_demand && !self.is_polling {
            return None;
        }
        Some(self.DesiredMinTxInterval[1].max(self.RemoteMinRxInterval))
    }

    /// Returns the packet that is sent now.
    fn packet(&self) -> Vec<u8> {
        let flags = match (self.owes_final, self.is_polling) {
            (true, _) => 0x10,
            (false, true) => 0x20,
            (false, false) => 0,
        };
        let mut octets =
            vec![0x20 | self.LocalDiag, self.SessionState << 6 | flags, self.DetectMult, 24];
        octets.extend(self.LocalDiscr.to_be_bytes());
        octets.extend(self.RemoteDiscr.to_be_bytes());
        for interval in [self.DesiredMinTxInterval[0], self.RequiredMinRxInterval[0], 0] {
            octets.extend(u32::try_from(interval).unwrap().to_be_bytes());
        }
        octets
    }
}

/// An event of a test case.
#[derive(Clone, Debug)]
enum Step {
    Packet(Vec<u8>),
    Intervals(u64, u64),
    AdminDown(bool),
    Wait,
}

/// Generates packets that often reach the session,
/// with one octet that may be anything.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let discriminators = (
        prop_oneof![9 => Just(5_u32), 1 => 0_u32..3],
        prop_oneof![
            6 => Just(7_u32),
            3 => Just(0),
            1 => any::<u32>(),
        ],
    );
    let interval =
        || prop_oneof![Just(0_u32), 1_u32..1000, (1_u32..3000).prop_map(|ms| ms * 1000),];
    let flags = prop_oneof![3 => Just(0_u8), 2 => Just(0x10), 2 => Just(0x20), 1 => 0_u8..64];
    let change = prop::option::weighted(0.2, (0_usize..28, any::<u8>()));
    let parts = (0_u8..4, flags, 1_u8..6, discriminators, (interval(), interval()), change);
    parts.prop_map(|(state, flags, multiplier, (mine, yours), (tx, rx), change)| {
        let mut octets = vec![0x20, state << 6 | flags, multiplier, 24];
        for number in [mine, yours, tx, rx, 0] {
            octets.extend(number.to_be_bytes());
        }
        if let Some((position, octet)) = change {
            octets.resize(28, 0);
            octets[position] = octet;
        }
        octets
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any_packet().prop_map(Step::Packet),
        1 => (1_u64..3000, 1_u64..3000).prop_map(|(tx, rx)| Step::Intervals(tx, rx)),
        1 => any::<bool>().prop_map(Step::AdminDown),
        2 => Just(Step::Wait),
    ]
}

fn settings(min_tx_us: u64, min_rx_us: u64) -> BfdSettings {
    BfdSettings {
        min_tx: Duration::from_micros(min_tx_us),
        min_rx: Duration::from_micros(min_rx_us),
        multiplier: NonZeroU8::new(3).unwrap(),
        ..BfdSettings::default()
    }
}

proptest! {
    #[test]
    fn a_session_follows_the_rfc_pseudo_code(
        steps in prop::collection::vec((any_step(), 0_u64..2000), 1..80),
    ) {
        let mut plain = PlainReading {
            SessionState: DOWN,
            RemoteSessionState: DOWN,
            LocalDiscr: 7,
            RemoteDiscr: 0,
            LocalDiag: 0,
            RemoteMinRxInterval: 1,
            RemoteDemandMode: false,
            DetectMult: 3,
            min_tx: 100_000,
            min_rx: 50_000,
            DesiredMinTxInterval: [0; 2],
            RequiredMinRxInterval: [0; 2],
            is_polling: false,
            owes_final: false,
            last: None,
        };
        plain.negotiate();
        let discriminator = NonZeroU32::new(7).unwrap();
        let mut session =
            BfdSession::new(settings(100_000, 50_000), discriminator, 11, Duration::ZERO);
        let mut now = 0;
        let mut sent = None;
        let mut last_sent = None;
        for (step, pause_ms) in steps {
            now += pause_ms * 1000;
            let time = Duration::from_micros(now);
            plain.expire(now);
            plain.negotiate();
            match step {
                Step::Packet(octets) => {
                    let is_taken = ControlPacket::parse(&octets)
                        .is_ok_and(|packet| session.on_packet(&packet, time).is_ok());
                    prop_assert_eq!(is_taken, plain.receive(&octets, now), "{:?}", octets);
                }
                Step::Intervals(tx, rx) => {
                    (plain.min_tx, plain.min_rx) = (tx * 1000, rx * 1000);
                    session.set_settings(settings(tx * 1000, rx * 1000), time);
                }
                Step::AdminDown(true) => {
                    (plain.SessionState, plain.LocalDiag) = (ADMIN_DOWN, 7);
                    session.set_admin_down(true, time);
                }
                Step::AdminDown(false) => {
                    if plain.SessionState == ADMIN_DOWN {
                        (plain.SessionState, plain.LocalDiag) = (DOWN, 0);
                    }
                    session.set_admin_down(false, time);
                }
                Step::Wait => {}
            }
            plain.negotiate();
            // A shorter interval may end the Detection Time immediately.
            plain.expire(now);
            plain.negotiate();
            let output = session.poll(0, time);
            let own = (session.state().bits(), session.diagnostic().bits());
            prop_assert_eq!(own, (plain.SessionState, plain.LocalDiag), "at {}", now);
            let status = session.status(time);
            let detection_end = status.detect_at.map(|end| u64::try_from(end.as_micros()).unwrap());
            prop_assert_eq!(detection_end, plain.detection_end());
            let interval = status.tx_interval.map(|own| u64::try_from(own.as_micros()).unwrap());
            prop_assert_eq!(interval, plain.interval());
            prop_assert_eq!(status.remote.discriminator, plain.RemoteDiscr);
            let is_news = sent.is_some_and(|sent| sent != own);
            if let Some(packet) = output.packet {
                prop_assert_eq!(packet.emit().to_vec(), plain.packet());
                // Before three quarters of the interval, only state changes and answers are sent.
                let is_early = last_sent.zip(interval).is_some_and(|(last, interval): (u64, u64)| {
                    now - last < interval * 3 / 4
                });
                prop_assert!(!is_early || is_news || plain.owes_final);
                // After an answer, this test cannot determine the time of the next periodic packet.
                last_sent = (!plain.owes_final).then_some(now);
                (plain.owes_final, sent) = (false, Some(own));
            } else {
                prop_assert!(!plain.owes_final && !is_news, "a packet is due at {}", now);
                let is_late = last_sent.zip(interval).is_some_and(|(last, interval): (u64, u64)| {
                    now - last >= interval
                });
                prop_assert!(!is_late, "a periodic packet is due at {}", now);
            }
        }
    }
}
