//! A controller that changes one rule again and again, and packets that must not go by the old one.
//!
//! The rule sends 2,048 cached flows by one of two ways, in turns, and writes its own number into the
//! packets. After each barrier reply the controller notes which number the next packet will get: that
//! packet and all after it were sent after the reply was read, so each of them that carries an older
//! rule's number is a violation. Without the rule's number a packet that is on its way while the next
//! change comes, back to the first way, could not be told from one that is two rules late.

use std::time::{Duration, Instant};

use shunt_pipeline::{
    FlowMod,
    FlowModCommand::{Add, ModifyStrict},
};

use super::{
    bed::{Bed, WATCHED, rule_with},
    judge::{Confirmed, Judgement, judge},
    probe::{Arrival, Way, label},
    traffic::{Random, Rates, Stream, under_traffic},
};
use crate::{
    controller::flow_mod,
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, Setup, is_root},
};

/// Packet threads of Shunt.
const THREADS: u16 = 3;
/// Cached flows.
const FLOWS: u32 = 100_000;
/// Flows of numbered packets: enough that each thread has some.
const NUMBERED_FLOWS: u32 = 16;
/// The rule flaps again after at most so many milliseconds.
const PAUSE_MS_MAX: u32 = 40;
/// How long packets may be under way at the end.
const DRAIN: Duration = Duration::from_millis(300);
const PRIORITY: u16 = 50_000;

const VIOLATIONS: &str = "packets sent after the barrier reply that left by the old rule";
const LATEST: &str = "longest time after the reply at which such a packet was sent";
const JUDGED: &str = "packets sent after a barrier reply and received";
const LOST: &str = "packets with numbers that were lost";
const FLAPS: &str = "changes of the rule";
const REPLY: &str = "from sending the flow-mod to the barrier reply, median";

const WHY_REPLY: &str = "the rival's reply waits for its tables, not for its cache: the packets that \
                         went by the old rule after it are counted above";

/// What one window of one switch showed.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    flaps: f64,
    judgement: Judgement,
    lost: f64,
    reply_us: f64,
    cached: f64,
}

/// Windows of both switches, in turns.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    if !is_root() {
        println!("whole switches need virtual devices, and they need root: SKIPPED");
        return Vec::new();
    }
    let rival = Contender::OpenVSwitch.if_installed();
    let contenders: Vec<Contender> =
        [Some(Contender::ours()), rival].into_iter().flatten().collect();
    // Ten minutes of each.
    let windows = run.either(10, 2);
    let time = Duration::from_secs(run.either(60, 10) as u64);
    run.begin(windows * contenders.len());
    let mut measured: Vec<Vec<Window>> = contenders.iter().map(|_| Vec::new()).collect();
    for window in 1..=windows {
        for (contender, measured) in contenders.iter().zip(&mut measured) {
            let what = format!("window {window}, {}", contender.name());
            let shown = run.step(&what, |folder| {
                let entries_max = Some(2 * FLOWS);
                let setup = Setup { threads: Some(THREADS), entries_max, ..Setup::default() };
                flap(&Bed::new(contender, folder, &setup), (window as u64, time))
            });
            measured.push(shown);
        }
    }
    rows_of(&measured, contenders.get(1).map(Contender::name).as_deref())
}

/// Lets the rule flap for some time.
fn flap(bed: &Bed, (seed, time): (u64, Duration)) -> Window {
    bed.fill(FLOWS);
    let mut controller = bed.controller();
    controller.change(&[change(0)]);
    bed.cache(0..WATCHED);
    // What the switch goes on to do by itself is over then.
    controller.rest(Duration::from_secs(1));
    let cached = bed.switch.cached() as f64;
    // Half of the others are of the flows that each change ends, so that each has some to end.
    let others = &[Stream { rate: 10_000, flows: FLOWS }, Stream { rate: 10_000, flows: WATCHED }];
    let rates = Rates { numbered: Some(Stream { rate: 10_000, flows: NUMBERED_FLOWS }), others };
    let mut random = Random(seed);
    under_traffic(bed, rates, |traffic| {
        let (mut confirmed, mut replies) = (Vec::new(), Samples::default());
        let mut arrivals: Vec<Arrival> = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < time {
            let number = u32::try_from(confirmed.len()).unwrap_or(u32::MAX);
            let changed = controller.change(&[change(number)]);
            let (from, at) = (traffic.next_number(), traffic.time(changed.answered));
            confirmed.push(Confirmed { from, at });
            replies.0.push(changed.took().as_secs_f64() * 1e6);
            arrivals.extend(traffic.arrivals());
            controller.rest(Duration::from_millis(random.below(PAUSE_MS_MAX).into()));
        }
        let sent = traffic.next_number();
        controller.rest(DRAIN);
        // Later ones are not of this window.
        arrivals.extend(traffic.arrivals());
        arrivals.retain(|arrival| arrival.number < sent);
        Window {
            flaps: confirmed.len() as f64,
            judgement: judge(&confirmed, &arrivals),
            lost: 100.0 * (sent as f64 - arrivals.len() as f64).max(0.0) / (sent as f64).max(1.0),
            reply_us: replies.median(),
            cached,
        }
    })
}

/// The change that brings a rule, which is another each time: it replaces or modifies the one before.
fn change(number: u32) -> FlowMod {
    let way = if number.is_multiple_of(2) { Way::A } else { Way::B };
    let command = if number % 4 < 2 { Add } else { ModifyStrict };
    flow_mod(command, &rule_with(PRIORITY, WATCHED, (&label(number), way)))
}

fn rows_of(measured: &[Vec<Window>], rival: Option<&str>) -> Vec<Row> {
    type Of = fn(&Window) -> f64;
    let row = |(name, metric, unit): (&str, _, _), better, of: Of, sums: bool| {
        let samples = |windows: &Vec<Window>| {
            let each: Vec<f64> = windows.iter().map(of).collect();
            Samples(if sums { vec![each.iter().sum()] } else { each })
        };
        let ours = measured.first().map(samples).unwrap_or_default();
        let rival = rival.map(str::to_owned).zip(measured.get(1).map(samples));
        let row = Row { better, ours, rival, ..Row::new(name, metric, unit) };
        let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
        Row { why: if is_worse && metric == REPLY { WHY_REPLY } else { "" }, ..row }
    };
    let all = "100K entries, all windows";
    let each = "100K entries, each window";
    vec![
        row((all, VIOLATIONS, ""), Better::Less, |one| one.judgement.violations as f64, true),
        row((all, JUDGED, ""), Better::Neither, |one| one.judgement.judged as f64, true),
        row((all, FLAPS, ""), Better::Neither, |one| one.flaps, true),
        row(
            (each, LATEST, "ms"),
            Better::Less,
            |one| one.judgement.latest.as_secs_f64() * 1e3,
            false,
        ),
        row((each, REPLY, "us"), Better::Less, |one| one.reply_us, false),
        row((each, LOST, "%"), Better::Neither, |one| one.lost, false),
        row((each, "entries cached", ""), Better::Neither, |one| one.cached, false),
    ]
}
