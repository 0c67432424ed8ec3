//! A rule that a controller changes again and again under traffic, and what left by it.
//!
//! The rule sends the watched flows by one of two ways, in turns, and writes its own number into the
//! packets. Without that number a packet that is on its way while the next change comes, back to the
//! first way, could not be told from one that is two rules late.

use std::time::{Duration, Instant};

use shunt_pipeline::{
    FlowMod,
    FlowModCommand::{Add, ModifyStrict},
};

use super::{
    bed::{Bed, WATCHED, rule_with},
    judge::{Judgement, judge},
    probe::{Arrival, Way, label},
    traffic::{Random, Rates, Stream, Traffic, under_traffic},
};
use crate::{
    controller::{Changed, Controller, flow_mod},
    experiment::Samples,
};

/// Flows of numbered packets: enough that each thread has some.
const NUMBERED_FLOWS: u32 = 16;
/// Packets a second with numbers, of all flows, and of those that each change ends.
const RATE: u32 = 10_000;
/// The rule flaps again after at most so many milliseconds.
const PAUSE_MS_MAX: u32 = 40;
/// How long packets may be under way at the end.
const DRAIN: Duration = Duration::from_millis(300);
/// The priority of the rule that flaps.
pub(crate) const PRIORITY: u16 = 50_000;

/// How a rule is to flap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flapping {
    /// Flows that packets are of.
    pub(crate) flows: u32,
    pub(crate) time: Duration,
    /// What pauses depend on.
    pub(crate) seed: u64,
}

/// What one window of a switch showed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub(crate) flaps: f64,
    /// Replies that the switch stood by.
    pub(crate) held: f64,
    pub(crate) judgement: Judgement,
    /// Percent of the packets with numbers.
    pub(crate) lost: f64,
    pub(crate) reply_us: f64,
}

/// A controller that has the rule flap.
pub(crate) trait Flapper {
    /// Brings rule `number` in place of the one before, and waits for the reply to a barrier behind it.
    fn bring(&mut self, number: u32) -> Changed;

    /// Changes nothing for a time.
    fn rest(&mut self, time: Duration);
}

impl Flapper for Controller {
    fn bring(&mut self, number: u32) -> Changed {
        self.change(&[change(number)])
    }

    fn rest(&mut self, time: Duration) {
        Self::rest(self, time);
    }
}

/// Has the flows cached, and the rule as it is before it flaps. The controller starts once what takes
/// long is done.
pub(crate) fn begin<F: Flapper>(bed: &Bed, flows: u32, start: impl FnOnce() -> F) -> F {
    bed.fill(flows);
    let mut flapper = start();
    flapper.bring(0);
    bed.cache(0..WATCHED);
    // What the switch goes on to do by itself is over then.
    flapper.rest(Duration::from_secs(1));
    flapper
}

/// Lets the rule flap for some time. `stands_by` is asked after each reply whether the switch stands by
/// it; where it does not, the next reply that it stands by is one to the changes before it too.
pub(crate) fn flap(
    (bed, flapper): (&Bed, &mut impl Flapper),
    flapping: Flapping,
    mut stands_by: impl FnMut() -> bool,
) -> Window {
    let Flapping { flows, time, seed } = flapping;
    // Half of the others are of the flows that each change ends, so that each has some to end.
    let others = &[Stream { rate: RATE, flows }, Stream { rate: RATE, flows: WATCHED }];
    let rates = Rates { numbered: Some(Stream { rate: RATE, flows: NUMBERED_FLOWS }), others };
    let mut random = Random(seed);
    under_traffic(bed, rates, |traffic| {
        let (mut confirmed, mut replies, mut number) = (Vec::new(), Samples::default(), 0);
        let mut held = 0.0;
        let mut arrivals: Vec<Arrival> = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < time {
            let changed = flapper.bring(number);
            let reply = traffic.time(changed.acked);
            number += 1;
            if stands_by() {
                confirmed.resize(number as usize, reply);
                held += 1.0;
            }
            replies.0.push(changed.took().as_secs_f64() * 1e6);
            arrivals.extend(traffic.arrivals());
            flapper.rest(Duration::from_millis(random.below(PAUSE_MS_MAX).into()));
        }
        let sent = come_to_rest(traffic, flapper, &mut arrivals);
        Window {
            flaps: number.into(),
            held,
            judgement: judge(&confirmed, &arrivals),
            lost: 100.0 * (sent - arrivals.len() as f64).max(0.0) / sent.max(1.0),
            reply_us: replies.median(),
        }
    })
}

/// Waits for packets that are under way; answers how many there were.
fn come_to_rest(
    traffic: &Traffic<'_>,
    flapper: &mut impl Flapper,
    arrivals: &mut Vec<Arrival>,
) -> f64 {
    let sent = traffic.next_number();
    flapper.rest(DRAIN);
    // Later ones are not of this window.
    arrivals.extend(traffic.arrivals());
    arrivals.retain(|arrival| arrival.number < sent);
    sent as f64
}

/// The change that brings a rule, which is another each time: it replaces or modifies the one before.
fn change(number: u32) -> FlowMod {
    let command = if is_new(number) { Add } else { ModifyStrict };
    flow_mod(command, &rule_with(PRIORITY, WATCHED, (&label(number), outline_of(number))))
}

/// Whether a change adds its rule, which replaces the one before; else it modifies that.
pub(crate) const fn is_new(number: u32) -> bool {
    number % 4 < 2
}

/// Where a rule leads.
pub(crate) const fn outline_of(number: u32) -> Way {
    if number.is_multiple_of(2) { Way::A } else { Way::B }
}
