//! Two aggregators that negotiate over links that lose, delay and break.
//!
//! The links, the order of events and the expected results are defined here: no code of the crate
//! decides what happens to a frame, or whether both ends agree.
#![expect(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::{collections::BTreeMap, num::NonZeroU16, time::Duration};

use proptest::prelude::*;
use shunt_lacp::{
    Aggregator, AggregatorSettings, LacpMode, LacpState, LacpTime, MemberId, MemberSettings,
    SlowFrame, SystemId,
};

/// Two systems, and the links between them.
struct Network {
    ends: [End; 2],
    links: Vec<Cable>,
    /// Frames on the links, by arrival time and order: link, receiver and octets.
    in_flight: BTreeMap<(Duration, u64), (usize, usize, Vec<u8>)>,
    sent: u64,
    now: Duration,
    random: u64,
}

/// A system with its bond.
struct End {
    settings: AggregatorSettings,
    aggregator: Aggregator,
    /// The flags of the last LACPDU that arrived on each link, since the link came up.
    heard: Vec<Option<LacpState>>,
}

/// A link, with its faults.
#[derive(Clone, Copy, Debug, Default)]
struct Cable {
    is_up: bool,
    /// Percentage of frames that are lost, in each direction.
    loss: [u8; 2],
    delay_ms: u64,
}

/// An event of a test case.
#[derive(Clone, Debug)]
enum Step {
    Wait { ms: u64 },
    Link { link: usize, is_up: bool },
    Faults { link: usize, loss: [u8; 2], delay_ms: u64 },
    Restart { end: usize },
}

impl Network {
    fn new(settings: [AggregatorSettings; 2], links: usize, seed: u64) -> Self {
        let end = |settings| End {
            settings,
            aggregator: Aggregator::new(settings),
            heard: vec![None; links],
        };
        let mut network = Self {
            ends: settings.map(end),
            links: vec![Cable { is_up: true, ..Cable::default() }; links],
            in_flight: BTreeMap::new(),
            sent: 0,
            now: Duration::ZERO,
            random: seed,
        };
        for end in 0..2 {
            network.start(end);
        }
        network
    }

    /// Starts an end without information about the partner.
    fn start(&mut self, end: usize) {
        let settings = self.ends[end].settings;
        let mut aggregator = Aggregator::new(settings);
        for (link, cable) in self.links.iter().enumerate() {
            let number = u16::try_from(link + 1).unwrap();
            let member = MemberSettings {
                mac: settings.system.mac,
                // The ends number their ports in opposite order, and only one end decides.
                port: NonZeroU16::new(if end == 0 { number } else { 100 - number }).unwrap(),
                port_priority: MemberSettings::PORT_PRIORITY,
                key: None,
            };
            aggregator.set_member(id(link), member, self.now);
            aggregator.on_link(id(link), cable.is_up, self.now);
        }
        self.ends[end].heard.fill(None);
        self.ends[end].aggregator = aggregator;
        self.exchange();
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Wait { ms } => self.run(Duration::from_millis(ms)),
            Step::Link { link, is_up } => {
                let link = link % self.links.len();
                if self.links[link].is_up == is_up {
                    return;
                }
                self.links[link].is_up = is_up;
                for end in &mut self.ends {
                    end.aggregator.on_link(id(link), is_up, self.now);
                    end.heard[link] = None;
                }
                self.in_flight.retain(|_, (carrier, ..)| *carrier != link);
                self.exchange();
            }
            Step::Faults { link, loss, delay_ms } => {
                let link = link % self.links.len();
                (self.links[link].loss, self.links[link].delay_ms) = (loss, delay_ms);
            }
            Step::Restart { end } => self.start(end),
        }
    }

    /// Advances the time, from deadline to deadline.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let deadlines = self.ends.iter().filter_map(|end| end.aggregator.next_deadline());
            let arrival = self.in_flight.keys().next().map(|(arrival, _)| *arrival);
            let Some(next) = deadlines.chain(arrival).min().filter(|next| *next <= end) else {
                break;
            };
            assert!(next >= self.now, "a deadline that has passed is left: {next:?}");
            self.now = next;
            self.deliver();
            self.exchange();
        }
        self.now = end;
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (link, to, frame) = entry.remove();
            self.ends[to].aggregator.on_frame(id(link), &frame, self.now).unwrap();
            if let Ok(SlowFrame::Lacpdu(pdu)) = SlowFrame::parse(&frame) {
                self.ends[to].heard[link] = Some(pdu.actor.state);
            }
        }
    }

    /// Takes the frames that are due, and checks properties that hold at any time.
    fn exchange(&mut self) {
        for from in 0..2 {
            for (member, frame) in self.ends[from].aggregator.poll(self.now).frames {
                let link = usize::try_from(member.0).unwrap();
                let Cable { is_up, loss, delay_ms } = self.links[link];
                assert!(is_up, "nothing is sent without a link");
                if u64::from(loss[from]) > self.draw(100) {
                    continue;
                }
                // Frames of one direction of a link arrive in order.
                let arrival = self.now + Duration::from_millis(delay_ms);
                let last = self.in_flight.iter().rev().find_map(|((time, _), (on, to, _))| {
                    (*on == link && *to == 1 - from).then_some(*time)
                });
                let arrival = arrival.max(last.unwrap_or_default());
                self.sent += 1;
                self.in_flight.insert((arrival, self.sent), (link, 1 - from, frame));
            }
        }
        for end in &self.ends {
            for (link, heard) in end.heard.iter().enumerate() {
                let uses = LacpState::SYNCHRONIZATION.with(LacpState::COLLECTING);
                let may_send = heard.is_some_and(|state| state.contains(uses));
                assert!(may_send || !self.sends(end, link), "the partner has not said it collects");
            }
        }
    }

    fn sends(&self, end: &End, link: usize) -> bool {
        end.aggregator.mux(id(link)).is_distributing()
    }

    /// Returns a pseudorandom number below a limit.
    fn draw(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % limit
    }

    /// Ends all faults and waits; returns for each end and link whether it sends.
    fn settle(&mut self) -> [Vec<bool>; 2] {
        for link in &mut self.links {
            (link.loss, link.delay_ms) = ([0; 2], 1);
        }
        self.run(CONVERGENCE);
        [0, 1].map(|end| {
            let links = 0..self.links.len();
            links.map(|link| self.sends(&self.ends[end], link)).collect()
        })
    }

    fn states(&self) -> String {
        let status = self.ends.iter().map(|end| format!("{:#?}", end.aggregator.status()));
        status.collect::<Vec<_>>().join("\n")
    }
}

fn id(link: usize) -> MemberId {
    MemberId(u32::try_from(link).unwrap())
}

fn settings(number: u8, mode: LacpMode, time: LacpTime) -> AggregatorSettings {
    AggregatorSettings {
        mode,
        time,
        system: SystemId { priority: 1, mac: [2, 0, 0, 0, 0, number] },
        key: NonZeroU16::new(number.into()).unwrap(),
        fallback_ab: false,
    }
}

fn time() -> impl Strategy<Value = LacpTime> {
    prop_oneof![Just(LacpTime::Slow), Just(LacpTime::Fast)]
}

fn mode() -> impl Strategy<Value = LacpMode> {
    prop_oneof![3 => Just(LacpMode::Active), 1 => Just(LacpMode::Passive)]
}

fn step() -> impl Strategy<Value = Step> {
    let waits = prop_oneof![0_u64..50, 0_u64..5000, 0_u64..100_000];
    let loss = prop_oneof![Just(0_u8), 0_u8..100, Just(100_u8)];
    let faults = (0_usize..4, [loss.clone(), loss], 0_u64..2500)
        .prop_map(|(link, loss, delay_ms)| Step::Faults { link, loss, delay_ms });
    prop_oneof![
        4 => waits.prop_map(|ms| Step::Wait { ms }),
        2 => (0_usize..4, any::<bool>()).prop_map(|(link, is_up)| Step::Link { link, is_up }),
        2 => faults,
        1 => (0_usize..2).prop_map(|end| Step::Restart { end }),
    ]
}

proptest! {
    #[test]
    fn both_ends_agree_after_any_disturbance(
        modes in [mode(), mode()],
        times in [time(), time()],
        links in 1_usize..4,
        steps in prop::collection::vec(step(), 0..40),
        seed: u64,
    ) {
        let systems = [settings(1, modes[0], times[0]), settings(2, modes[1], times[1])];
        let mut network = Network::new(systems, links, seed);
        for step in &steps {
            network.apply(step);
        }
        let sends = network.settle();
        let is_active = modes.contains(&LacpMode::Active);
        let expected: Vec<bool> = network.links.iter().map(|link| link.is_up && is_active).collect();
        prop_assert_eq!(&sends, &[expected.clone(), expected], "{}", network.states());
    }

    /// Without faults, no frame is sent to an end that drops it.
    #[test]
    fn a_quiet_start_loses_no_frame(
        times in [time(), time()],
        links in 1_usize..4,
        delays in prop::collection::vec(0_u64..400, 3),
        second in 0_u64..20_000,
    ) {
        let active = LacpMode::Active;
        let systems = [settings(1, active, times[0]), settings(2, active, times[1])];
        let mut network = Network::new(systems, links, 0);
        for (link, delay) in network.links.iter_mut().zip(delays) {
            link.delay_ms = delay;
        }
        network.run(Duration::from_millis(second));
        network.start(1);
        // By then, the frames from before the restart, and the first one after it, have arrived.
        network.run(Duration::from_millis(400));
        for _ in 0..1000 {
            network.run(Duration::from_millis(10));
            for link in 0..links {
                let [zero, one] = network.ends.each_ref().map(|end| end.aggregator.mux(id(link)));
                prop_assert!(!one.is_distributing() || zero.is_collecting());
                prop_assert!(!zero.is_distributing() || one.is_collecting());
            }
        }
        prop_assert!(network.settle().iter().flatten().all(|sends| *sends));
    }
}

#[test]
fn a_link_that_loses_one_direction_carries_nothing() {
    for direction in 0..2 {
        let fast = LacpTime::Fast;
        let systems = [1, 2].map(|number| settings(number, LacpMode::Active, fast));
        let mut network = Network::new(systems, 2, 0);
        network.run(Duration::from_secs(4));
        assert!((0..2).all(|link| network.ends.iter().all(|end| network.sends(end, link))));
        network.links[0].loss[direction] = 100;
        network.run(Duration::from_millis(4100));
        for end in &network.ends {
            assert!(!network.sends(end, 0) && network.sends(end, 1), "{}", network.states());
        }
    }
}

#[test]
fn a_partner_leaves_a_removed_member_at_once() {
    let systems = [1, 2].map(|number| settings(number, LacpMode::Active, LacpTime::Slow));
    let mut network = Network::new(systems, 2, 0);
    assert_eq!(network.settle(), [[true; 2]; 2]);
    let now = network.now;
    let frame = network.ends[0].aggregator.remove_member(id(0), now).unwrap();
    network.ends[1].aggregator.on_frame(id(0), &frame, now).unwrap();
    for end in &network.ends {
        let sends = [0, 1].map(|link| network.sends(end, link));
        assert_eq!(sends, [false, true], "{}", network.states());
    }
}

#[test]
fn two_passive_ends_stay_silent() {
    let systems = [1, 2].map(|number| settings(number, LacpMode::Passive, LacpTime::Fast));
    let mut network = Network::new(systems, 2, 0);
    network.run(Duration::from_secs(200));
    assert_eq!(network.sent, 0);
}

#[test]
fn a_settled_pair_sends_at_requested_rates() {
    for (time, expected) in [(LacpTime::Fast, 300), (LacpTime::Slow, 10)] {
        let systems =
            [settings(1, LacpMode::Active, LacpTime::Slow), settings(2, LacpMode::Passive, time)];
        let mut network = Network::new(systems, 1, 0);
        network.settle();
        let count = |network: &Network| {
            network.ends.each_ref().map(|end| end.aggregator.status().members[0].counters.tx_pdus)
        };
        let before = count(&network);
        network.run(Duration::from_secs(300));
        let after = count(&network);
        assert_eq!([after[0] - before[0], after[1] - before[1]], [expected, 10]);
    }
}

/// The longest time from the last fault until both ends agree.
///
/// An end that missed the restart of its partner notices the restart after 90 and 3 seconds. The
/// partner may then wait 30 seconds for the next LACPDU. Each end waits 2 seconds before it
/// attaches a member, and again 2 seconds after its partner stopped using the link.
const CONVERGENCE: Duration = Duration::from_secs(90 + 3 + 2 * 30 + 2 * 2 * 2);
