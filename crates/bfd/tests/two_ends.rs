//! Two sessions over a simulated cable that delays and loses packets.
//!
//! The simulated cable and the expected results are defined here: no code of the crate decides what
//! happens to a packet, or how soon an end must notice a failure.
#![expect(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::{
    collections::BTreeMap,
    num::{NonZeroU8, NonZeroU32},
    time::Duration,
};

use proptest::prelude::*;
use shunt_bfd::{
    BfdDiagnostic, BfdFlags, BfdSession, BfdSettings, BfdState, BfdStatus, ControlPacket,
};

/// Two ends and the cable between them.
struct Cable {
    ends: [BfdSession; 2],
    settings: [BfdSettings; 2],
    /// For each end, true if the packets that it sends are lost.
    is_cut: [bool; 2],
    delay: Duration,
    /// Packets on the cable by arrival time and order, each with its receiver.
    in_flight: BTreeMap<(Duration, u64), (usize, ControlPacket)>,
    /// All packets that each end has sent, with their times.
    sent: [Vec<(Duration, ControlPacket)>; 2],
    /// All state changes of each end, with their times.
    changes: [Vec<(Duration, BfdState, BfdDiagnostic)>; 2],
    /// Number of packets of any kind that each end has received.
    received: [u64; 2],
    now: Duration,
    restarts: u32,
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn settings(min_tx: u64, min_rx: u64, multiplier: u8) -> BfdSettings {
    BfdSettings {
        min_tx: ms(min_tx),
        min_rx: ms(min_rx),
        multiplier: NonZeroU8::new(multiplier).unwrap(),
        ..BfdSettings::default()
    }
}

impl Cable {
    fn new(settings: [BfdSettings; 2], delay: Duration) -> Self {
        let end = |own: usize| {
            let discriminator = NonZeroU32::new(u32::try_from(own).unwrap() + 1).unwrap();
            BfdSession::new(settings[own], discriminator, 5 + own as u64, Duration::ZERO)
        };
        Self {
            ends: [end(0), end(1)],
            settings,
            is_cut: [false; 2],
            delay,
            in_flight: BTreeMap::new(),
            sent: [const { Vec::new() }; 2],
            changes: [const { Vec::new() }; 2],
            received: [0; 2],
            now: Duration::ZERO,
            restarts: 0,
        }
    }

    /// Runs both ends for a time, from deadline to deadline.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.poll();
        while let Some(next) = self.next_event().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            while let Some(entry) = self.in_flight.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let (receiver, packet) = entry.remove();
                self.received[receiver] += 1;
                // A packet for an earlier session is refused, which is no failure.
                let _refused = self.ends[receiver].on_packet(&packet, self.now);
            }
            self.poll();
        }
        self.now = end;
        self.poll();
    }

    fn next_event(&self) -> Option<Duration> {
        let arrival = self.in_flight.first_key_value().map(|((time, _), _)| *time);
        let deadlines = self.ends.iter().filter_map(|end| end.next_deadline(self.now));
        deadlines.chain(arrival).min()
    }

    fn poll(&mut self) {
        for own in 0..2 {
            let output = self.ends[own].poll(self.received[own], self.now);
            for event in output.events {
                self.changes[own].push((self.now, event.to, event.diagnostic));
            }
            let Some(packet) = output.packet else { continue };
            self.sent[own].push((self.now, packet));
            if !self.is_cut[own] {
                let order = self.sent.iter().map(|sent| sent.len() as u64).sum();
                self.in_flight.insert((self.now + self.delay, order), (1 - own, packet));
            }
        }
    }

    fn states(&self) -> [BfdState; 2] {
        [self.ends[0].state(), self.ends[1].state()]
    }

    fn status(&self, own: usize) -> BfdStatus {
        self.ends[own].status(self.now)
    }

    /// Changes the settings of one end.
    fn set(&mut self, own: usize, change: impl FnOnce(&mut BfdSettings)) {
        change(&mut self.settings[own]);
        self.ends[own].set_settings(self.settings[own], self.now);
    }

    /// Restarts one end, which loses the state of the session.
    fn restart(&mut self, own: usize) {
        self.restarts += 1;
        let discriminator = NonZeroU32::new(100 + self.restarts).unwrap();
        self.ends[own] = BfdSession::new(self.settings[own], discriminator, 9, self.now);
    }

    /// Returns the time within which an end must notice that no packet arrives.
    fn detection_time(&self, own: usize) -> Duration {
        let other = self.settings[1 - own];
        let interval = self.settings[own].min_rx.max(other.min_tx);
        interval * u32::from(other.multiplier.get())
    }
}

#[test]
fn both_ends_send_at_agreed_intervals() {
    let mut cable = Cable::new([settings(100, 300, 3), settings(500, 1000, 5)], ms(2));
    cable.run(ms(10_000));
    assert_eq!(cable.states(), [BfdState::Up; 2]);
    for (own, interval) in [(0, 1000), (1, 500)] {
        assert_eq!(cable.status(own).tx_interval, Some(ms(interval)));
        let late: Vec<_> = cable.sent[own].iter().filter(|(time, _)| *time > ms(5000)).collect();
        for pair in late.windows(2) {
            let pause = pair[1].0 - pair[0].0;
            assert!(pause >= ms(interval) * 3 / 4 && pause <= ms(interval), "{pause:?}");
        }
        assert!(late.iter().all(|(_, packet)| packet.flags == BfdFlags::default()));
    }
    assert_eq!(cable.status(0).rx_interval, ms(500));
    assert_eq!(cable.status(0).remote.multiplier, 5);
    let polls = |own: usize| {
        cable.sent[own].iter().any(|(_, packet)| packet.flags.contains(BfdFlags::POLL))
    };
    assert!(polls(0) && polls(1), "a session that comes up sends faster after a Poll Sequence");
}

#[test]
fn one_way_loss_takes_both_ends_down() {
    let mut cable = Cable::new([settings(100, 100, 3), settings(100, 100, 3)], ms(1));
    cable.run(ms(5000));
    cable.is_cut[0] = true;
    cable.run(ms(400));
    assert_eq!(cable.states(), [BfdState::Down; 2]);
    assert_eq!(cable.ends[1].diagnostic(), BfdDiagnostic::TIME_EXPIRED);
    assert_eq!(cable.ends[0].diagnostic(), BfdDiagnostic::NEIGHBOR_DOWN);
    let [(down_0, ..), (down_1, ..)] = [0, 1].map(|own| *cable.changes[own].last().unwrap());
    assert_eq!(down_0 - down_1, ms(1), "the other end learns it at once");
    // The end that still receives stays in `init` until the other end receives its packets again.
    cable.run(ms(5000));
    assert_eq!(cable.states(), [BfdState::Init, BfdState::Down]);
    cable.is_cut[0] = false;
    cable.run(ms(3000));
    assert_eq!(cable.states(), [BfdState::Up; 2]);
}

/// A stalled end later reads only the newest of the packets that have arrived.
#[test]
fn dropped_packets_take_no_session_down() {
    let after = |discriminator: u32| {
        let mut cable = Cable::new([settings(100, 100, 3); 2], ms(1));
        cable.run(ms(5000));
        let (_, last) = *cable.sent[0].last().unwrap();
        let my_discriminator = NonZeroU32::new(discriminator).unwrap();
        let packet = ControlPacket { my_discriminator, ..last };
        cable.ends[1].on_packet_after_loss(&packet, cable.now + ms(2000)).unwrap();
        cable.ends[1].state()
    };
    assert_eq!(after(1), BfdState::Up);
    assert_eq!(after(9), BfdState::Down, "a packet of another system does not count");
}

#[test]
fn an_operator_ends_a_session_without_an_expiry() {
    let mut cable = Cable::new([settings(100, 100, 3); 2], ms(1));
    cable.run(ms(5000));
    cable.ends[0].set_admin_down(true, cable.now);
    cable.run(ms(5000));
    assert_eq!(cable.states(), [BfdState::AdminDown, BfdState::Down]);
    assert_eq!(cable.ends[0].diagnostic(), BfdDiagnostic::ADMIN_DOWN);
    assert_eq!(cable.ends[1].diagnostic(), BfdDiagnostic::NEIGHBOR_DOWN);
    assert_eq!(cable.status(1).remote.state, BfdState::AdminDown);
    cable.ends[0].set_admin_down(false, cable.now);
    cable.run(ms(3000));
    assert_eq!(cable.states(), [BfdState::Up; 2]);
}

#[test]
fn a_restarted_end_is_a_new_session() {
    let mut cable = Cable::new([settings(100, 100, 3); 2], ms(1));
    cable.run(ms(5000));
    cable.restart(0);
    cable.run(ms(400));
    let lost = cable.changes[1].iter().any(|(.., reason)| *reason == BfdDiagnostic::NEIGHBOR_DOWN);
    assert!(lost, "{:?}", cable.changes[1]);
    cable.run(ms(3000));
    assert_eq!(cable.states(), [BfdState::Up; 2]);
    assert_eq!(cable.status(1).remote.discriminator, 101);
}

#[test]
fn cpath_down_stops_forwarding_at_the_other_end() {
    let mut cable = Cable::new([settings(100, 100, 3); 2], ms(1));
    cable.run(ms(5000));
    let forwarding = |cable: &Cable| [0, 1].map(|own| cable.ends[own].is_forwarding(cable.now));
    assert_eq!(forwarding(&cable), [true; 2]);
    cable.set(0, |own| own.cpath_down = true);
    cable.run(ms(100));
    assert_eq!(cable.states(), [BfdState::Up; 2]);
    assert_eq!(forwarding(&cable), [true, false]);
    assert_eq!(cable.status(1).remote.diagnostic, BfdDiagnostic::CONCATENATED_PATH_DOWN);
    cable.set(0, |own| own.cpath_down = false);
    cable.run(ms(100));
    assert_eq!(forwarding(&cable), [true; 2]);
    assert_eq!(cable.status(1).flap_count, 3);
    cable.ends[0].force_forwarding(Some(false));
    assert_eq!(forwarding(&cable), [false, true]);
    cable.ends[0].force_forwarding(None);
    assert_eq!(forwarding(&cable), [true; 2]);
}

#[test]
fn received_packets_keep_a_path_in_use() {
    let mut cable = Cable::new([settings(100, 100, 3); 2], ms(1));
    cable.set(1, |own| own.forwarding_if_rx = true);
    cable.run(ms(5000));
    cable.is_cut[0] = true;
    // Packets other than control packets still arrive at the second end.
    for _second in 0..9 {
        cable.received[1] += 1;
        cable.run(ms(1000));
        assert!(cable.ends[1].is_forwarding(cable.now), "{:?}", cable.now);
    }
    assert_eq!(cable.ends[1].state(), BfdState::Down);
    cable.run(ms(2600));
    assert!(!cable.ends[1].is_forwarding(cable.now), "no packet for two seconds");
    cable.received[1] += 1;
    cable.run(ms(600));
    assert!(!cable.ends[1].is_forwarding(cable.now), "no control packet in 100 intervals");
}

#[test]
fn idle_path_has_fewer_packets_until_traffic() {
    let mut cable = Cable::new([settings(100, 100, 3); 2], ms(1));
    cable.set(1, |own| own.decay_min_rx = Some(ms(3000)));
    cable.run(ms(12_000));
    assert_eq!(cable.status(1).min_rx, ms(3000));
    assert_eq!(cable.status(0).tx_interval, Some(ms(3000)));
    for _tick in 0..1000 {
        cable.received[1] += 1;
        cable.run(ms(10));
    }
    assert_eq!(cable.status(1).min_rx, ms(100));
    assert_eq!(cable.status(0).tx_interval, Some(ms(100)));
    cable.set(1, |own| own.decay_min_rx = Some(ms(50)));
    cable.run(ms(10_000));
    assert_eq!(cable.status(1).min_rx, ms(100), "less than min_rx has no effect");
    assert_eq!([0, 1].map(|own| cable.status(own).flap_count), [1; 2]);
}

fn any_settings() -> impl Strategy<Value = BfdSettings> {
    // With a multiplier of one, a change of the delay would count as a lost packet.
    (10_u64..3000, 10_u64..3000, 2_u8..20)
        .prop_map(|(tx, rx, multiplier)| settings(tx, rx, multiplier))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn broken_link_is_detected_within_detection_time(
        settings in [any_settings(), any_settings()],
        delay in 0_u64..30,
        up in 20_000_u64..30_000,
    ) {
        let mut cable = Cable::new(settings, ms(delay));
        cable.run(ms(up));
        prop_assert_eq!(cable.states(), [BfdState::Up; 2]);
        cable.is_cut = [true; 2];
        let cut = cable.now;
        cable.run(ms(80_000));
        for own in 0..2 {
            let (down, state, reason) = *cable.changes[own].last().unwrap();
            prop_assert_eq!((state, reason), (BfdState::Down, BfdDiagnostic::TIME_EXPIRED));
            // The last packet was sent before the cut, and arrived after it.
            let limit = cut + ms(delay) + cable.detection_time(own);
            prop_assert!(down <= limit, "{:?} after {:?}", down, limit);
            let other = cable.sent[1 - own].iter().rev().find(|(time, _)| *time <= cut).unwrap();
            prop_assert!(down >= other.0 + cable.detection_time(own));
        }
    }

    #[test]
    fn changes_of_the_intervals_lose_no_session(
        first in [any_settings(), any_settings()],
        changes in prop::collection::vec((0_usize..2, any_settings(), 0_u64..9000), 1..12),
        delay in 0_u64..5,
    ) {
        let mut cable = Cable::new(first, ms(delay));
        cable.run(ms(20_000));
        for (own, settings, pause) in changes {
            cable.set(own, |before| *before = settings);
            cable.run(ms(pause));
            prop_assert_eq!(cable.states(), [BfdState::Up; 2]);
        }
        cable.run(ms(30_000));
        prop_assert_eq!([0, 1].map(|own| cable.status(own).flap_count), [1; 2]);
        for own in 0..2 {
            let expected = cable.settings[own].min_tx.max(cable.settings[1 - own].min_rx);
            prop_assert_eq!(cable.status(own).tx_interval, Some(expected));
            prop_assert_eq!(cable.status(own).flags, BfdFlags::default());
        }
    }

    #[test]
    fn both_ends_agree_after_the_last_fault(
        settings in [any_settings(), any_settings()],
        faults in prop::collection::vec(
            prop_oneof![
                (any::<[bool; 2]>(), Just(None)),
                (Just([false; 2]), (0_usize..2).prop_map(Some)),
            ],
            0..8,
        ),
        pauses in prop::collection::vec(0_u64..20_000, 8),
    ) {
        let mut cable = Cable::new(settings, ms(3));
        for ((is_cut, restarted), pause) in faults.into_iter().zip(pauses) {
            cable.is_cut = is_cut;
            if let Some(own) = restarted {
                cable.restart(own);
            }
            cable.run(ms(pause));
        }
        cable.is_cut = [false; 2];
        // The time allows for the longest detection time, and three packets of a slow session.
        cable.run(ms(60_000 + 9000));
        prop_assert_eq!(cable.states(), [BfdState::Up; 2]);
        for own in 0..2 {
            let expected = cable.ends[1 - own].discriminator().get();
            prop_assert_eq!(cable.status(own).remote.discriminator, expected);
        }
    }
}
