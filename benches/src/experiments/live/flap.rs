//! A rule that a controller changes continuously, and the packets that the rule forwards.
//!
//! The rule sends the watched flows to one of two exits in turn, and writes the number of the rule
//! into the packets. The first exit can receive two kinds of packets during a change back to this
//! exit: packets in flight, and packets that follow a rule two changes old. The number tells both
//! kinds apart.

use std::time::{Duration, Instant};

use shunt_pipeline::{
    FlowMod,
    FlowModCommand::{Add, ModifyStrict},
};

use super::{
    judge::{Judgement, judge},
    probe::{Arrival, Exit, label},
    testbed::{Testbed, WATCHED, rule_with},
    traffic::{Random, Rates, Stream, Traffic, under_traffic},
};
use crate::{
    controller::{Changed, Controller, flow_mod},
    experiment::Samples,
};

/// Number of flows with numbered packets:
/// enough that each thread has some of these flows.
const NUMBERED_FLOWS: u32 = 16;
/// Rate of the numbered packets, and of the packets that each change affects.
const RATE: u32 = 10_000;
/// Maximum pause between two changes in milliseconds.
const PAUSE_MS_MAX: u32 = 40;
/// Time for packets in flight to arrive at the end.
const DRAIN: Duration = Duration::from_millis(300);
/// Priority of the changing rule.
pub(crate) const PRIORITY: u16 = 50_000;

/// Parameters of a window of rule changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flapping {
    /// Number of flows in the traffic.
    pub(crate) flows: u32,
    pub(crate) time: Duration,
    /// Seed of the random pauses between changes.
    pub(crate) seed: u64,
}

/// Results of one window of one switch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub(crate) flaps: f64,
    /// Number of replies that the switch guarantees.
    pub(crate) held: f64,
    pub(crate) judgement: Judgement,
    /// Percentage of numbered packets that were lost.
    pub(crate) lost: f64,
    pub(crate) reply_us: f64,
}

/// A controller that changes the rule.
pub(crate) trait Flapper {
    /// Replaces the previous rule with rule `number`, and waits for the barrier reply.
    fn install(&mut self, number: u32) -> Changed;

    /// Waits without changes.
    fn wait(&mut self, time: Duration);
}

impl Flapper for Controller {
    fn install(&mut self, number: u32) -> Changed {
        self.change(&[change(number)])
    }

    fn wait(&mut self, time: Duration) {
        Self::wait(self, time);
    }
}

/// Caches the flows and adds the first rule.
///
/// Starts the controller after the slow preparations.
pub(crate) fn begin<F: Flapper>(testbed: &Testbed, flows: u32, start: impl FnOnce() -> F) -> F {
    testbed.fill(flows);
    let mut flapper = start();
    flapper.install(0);
    testbed.cache(0..WATCHED);
    // Background work of the switch has ended by then.
    flapper.wait(Duration::from_secs(1));
    flapper
}

/// Changes the rule repeatedly for some time.
///
/// After each reply, `is_guaranteed` returns whether the switch guarantees the reply. The next
/// guaranteed reply then also covers the changes before it.
pub(crate) fn flap(
    testbed: &Testbed,
    flapper: &mut impl Flapper,
    flapping: Flapping,
    mut is_guaranteed: impl FnMut() -> bool,
) -> Window {
    let Flapping { flows, time, seed } = flapping;
    // Half of the other packets are packets of affected flows, so each change has entries to evict.
    let others = &[Stream { rate: RATE, flows }, Stream { rate: RATE, flows: WATCHED }];
    let rates = Rates { numbered: Some(Stream { rate: RATE, flows: NUMBERED_FLOWS }), others };
    let mut random = Random(seed);
    under_traffic(testbed, rates, |traffic| {
        let (mut confirmed, mut replies, mut number) = (Vec::new(), Samples::default(), 0);
        let mut held = 0.0;
        let mut arrivals: Vec<Arrival> = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < time {
            let changed = flapper.install(number);
            let reply = traffic.time(changed.replied);
            number += 1;
            if is_guaranteed() {
                confirmed.resize(number as usize, reply);
                held += 1.0;
            }
            replies.0.push(changed.took().as_secs_f64() * 1e6);
            arrivals.extend(traffic.arrivals());
            flapper.wait(Duration::from_millis(random.below(PAUSE_MS_MAX).into()));
        }
        let sent = await_idle(traffic, flapper, &mut arrivals);
        Window {
            flaps: number.into(),
            held,
            judgement: judge(&confirmed, &arrivals),
            lost: 100.0 * (sent - arrivals.len() as f64).max(0.0) / sent.max(1.0),
            reply_us: replies.median(),
        }
    })
}

/// Waits for packets in flight. Returns the number of packets in the window.
fn await_idle(
    traffic: &Traffic<'_>,
    flapper: &mut impl Flapper,
    arrivals: &mut Vec<Arrival>,
) -> f64 {
    let sent = traffic.next_number();
    flapper.wait(DRAIN);
    // Later packets belong to the next window.
    arrivals.extend(traffic.arrivals());
    arrivals.retain(|arrival| arrival.number < sent);
    sent as f64
}

/// Returns the change to rule `number`.
///
/// The new rule replaces the previous rule, or the change modifies the previous rule.
fn change(number: u32) -> FlowMod {
    let command = if is_new(number) { Add } else { ModifyStrict };
    flow_mod(command, &rule_with(PRIORITY, WATCHED, &label(number), exit_of(number)))
}

/// Returns whether a change adds a rule; other changes modify the previous rule.
pub(crate) const fn is_new(number: u32) -> bool {
    number % 4 < 2
}

/// Returns the exit of a rule.
pub(crate) const fn exit_of(number: u32) -> Exit {
    if number.is_multiple_of(2) { Exit::A } else { Exit::B }
}
