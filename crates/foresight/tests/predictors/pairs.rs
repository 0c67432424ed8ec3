//! Tests the successor table with coflows: sources that all send to the same destinations.

use std::{collections::BTreeSet, time::Duration};

use shunt_flow::{FlowKey, testing::UdpFlow};
use shunt_foresight::{
    FlowEvent, Foresight, Governor, GovernorConfig, GovernorState, OutcomeCounts, Predictor,
    SuccessorTable,
};

use crate::{SECOND, new_flow, udp};

/// Addresses and ports of source and destination.
type Pair = [(u32, u16); 2];

/// The time between two flows.
const GAP: Duration = Duration::from_millis(1);

fn pair_of(key: &FlowKey) -> Pair {
    let UdpFlow { source, destination, .. } = UdpFlow::of(key);
    [source, destination]
}

/// A random number generator (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap_or_default() % bound
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

/// Returns all pairs of a coflow with `sources` sources, in random order.
fn coflow(number: u32, sources: u16, destinations: &[u16], random: &mut Random) -> Vec<Pair> {
    let source = |index: u16| (number * 1000 + u32::from(index), 40_000 + 7 * index);
    let all = (0..sources).flat_map(|index| {
        destinations.iter().map(move |port| [source(index), (9 + u32::from(port % 3), *port)])
    });
    let mut pairs: Vec<Pair> = all.collect();
    random.shuffle(&mut pairs);
    pairs
}

/// The number of flows that were forecast in time, and of forecast flows.
#[derive(Debug)]
struct Score {
    hits: usize,
    made: usize,
}

/// Passes flows to a table, and takes all forecasts.
fn score(table: &mut SuccessorTable, flows: &[Pair]) -> Score {
    let (mut expected, mut score) = (BTreeSet::new(), Score { hits: 0, made: 0 });
    let mut now = SECOND;
    for pair in flows {
        score.hits += usize::from(expected.contains(pair));
        table.observe(&FlowEvent::Started(&new_flow(udp(1, pair[0], pair[1]))), now);
        let mut made = Vec::new();
        table.forecast(now, 1000, &mut made);
        for forecast in made.iter().filter(|own| own.known.is_none()) {
            let is_new = expected.insert(pair_of(&FlowKey::from(&forecast.key)));
            score.made += usize::from(is_new);
        }
        now += GAP;
    }
    score
}

#[test]
fn the_pairs_of_a_coflow_are_forecast() {
    let flows = coflow(1, 40, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &mut Random(1));
    let Score { hits, made } = score(&mut SuccessorTable::new(256), &flows);
    // The first two flows of each source cannot be forecast.
    assert!(hits > 240, "{hits} of 400 flows");
    assert!(hits * 5 >= made * 4, "{hits} of {made} forecasts");
}

#[test]
fn a_new_destination_is_forecast_for_all_sources() {
    // All sources send to one destination before they send to the next one.
    let mut flows = coflow(1, 40, &[1, 2, 3, 4, 5, 6], &mut Random(1));
    flows.sort_unstable_by_key(|[source, destination]| (*destination, *source));
    let Score { hits, made } = score(&mut SuccessorTable::new(256), &flows);
    assert!(hits > 120, "{hits} of 240 flows");
    assert!(hits * 10 >= made * 9, "{hits} of {made} forecasts");
}

#[test]
fn coflows_with_common_destinations_are_kept_apart() {
    let mut random = Random(3);
    let mut flows = Vec::new();
    for number in 1..=6_u32 {
        let first = u16::try_from(number).unwrap() * 4;
        let destinations: Vec<u16> = (first..first + 12).collect();
        flows.extend(coflow(number, 30, &destinations, &mut random));
    }
    random.shuffle(&mut flows);
    let Score { hits, made } = score(&mut SuccessorTable::new(1024), &flows);
    assert!(hits * 2 > flows.len(), "{hits} of {} flows", flows.len());
    assert!(hits * 5 > made * 3, "{hits} of {made} forecasts");
}

#[test]
fn a_source_with_one_destination_is_forecast_nowhere() {
    let mut random = Random(5);
    let flows: Vec<Pair> = (0..2000_u16)
        .map(|flow| {
            let service = u16::try_from(random.below(10)).unwrap();
            [(u32::from(flow % 50), 33_000 + 16 * flow), (9, service)]
        })
        .collect();
    assert_eq!(score(&mut SuccessorTable::new(256), &flows).made, 0);
}

/// A forecast that waits for tokens is made with the next flow of its source.
#[test]
fn forecasts_without_a_budget_are_made_later() {
    let mut table = SuccessorTable::new(256);
    let flows = coflow(1, 20, &[1, 2, 3, 4, 5, 6, 7, 8], &mut Random(1));
    let (mut hits, mut expected, mut now) = (0, BTreeSet::new(), SECOND);
    for (pair, number) in flows.iter().zip(0..) {
        hits += usize::from(expected.contains(pair));
        table.observe(&FlowEvent::Started(&new_flow(udp(1, pair[0], pair[1]))), now);
        let mut made = Vec::new();
        table.forecast(now, if number < 80 { 0 } else { 1000 }, &mut made);
        assert!(table.next_due().is_none());
        expected.extend(made.iter().map(|own| pair_of(&FlowKey::from(&own.key))));
        now += GAP;
    }
    assert!(hits > 40, "{hits} of the last 80 flows");
}

/// A predictor with these hits, whatever it forecasts.
struct PlainPredictor {
    hits_per_cent: u64,
    /// The leads of the hits; each is that of equally many.
    leads: &'static [Duration],
}

/// The time from a forecast to its flow is the same for all flows.
const EQUAL_LEADS: &[Duration] = &[Duration::from_millis(300)];

/// Exponential leads with a mean of 300 ms: their deciles from 5 % on.
const RANDOM_LEADS: &[Duration] = &[
    Duration::from_millis(15),
    Duration::from_millis(49),
    Duration::from_millis(86),
    Duration::from_millis(129),
    Duration::from_millis(179),
    Duration::from_millis(240),
    Duration::from_millis(315),
    Duration::from_millis(416),
    Duration::from_millis(569),
    Duration::from_millis(899),
];

/// The forecasts of a predictor at a rate of flows, with outcomes after leads.
///
/// Returns the governor, the number of forecasts, and the time of the first pause.
fn run_governor(predictor: &PlainPredictor, time: Duration) -> (Governor, u64, Option<Duration>) {
    /// Time between two reports to the governor.
    const REPORT: Duration = Duration::from_millis(10);
    /// Number of new flows in that time.
    const FLOWS: u64 = 330;
    let (PlainPredictor { hits_per_cent, leads }, expiry) = (predictor, SECOND * 5);
    let mut governor = Governor::new(GovernorConfig::default());
    let mut made: Vec<(Duration, u64)> = Vec::new();
    let (mut now, mut paused) = (Duration::ZERO, None);
    let total = |made: &[(Duration, u64)], age: Duration, now: Duration| -> u64 {
        made.iter().filter(|(time, _)| *time + age <= now).map(|(_, count)| count).sum()
    };
    while now < time {
        (0..FLOWS).for_each(|_| governor.see_flow());
        let count = governor.allowance(1000) as u64;
        governor.spend(count);
        made.push((now, count));
        let installed = total(&made, Duration::ZERO, now);
        let mut counts = OutcomeCounts {
            received: installed,
            installed,
            wrong: total(&made, expiry, now) * (100 - hits_per_cent) / 100,
            ..OutcomeCounts::default()
        };
        for lead in *leads {
            let hits = total(&made, *lead, now) * hits_per_cent / 100 / leads.len() as u64;
            counts.hits += hits;
            counts.lead += *lead * u32::try_from(hits).unwrap_or(u32::MAX);
        }
        governor.update(&counts, now);
        if paused.is_none() && matches!(governor.state(), GovernorState::Paused { .. }) {
            paused = Some(now);
        }
        now += REPORT;
    }
    let made = total(&made, Duration::ZERO, now);
    (governor, made, paused)
}

/// Observing 33,000 flows in a second costs more than 64 forecasts can earn.
#[test]
fn a_predictor_that_pays_grows_within_its_trial() {
    for leads in [EQUAL_LEADS, RANDOM_LEADS] {
        let predictor = PlainPredictor { hits_per_cent: 65, leads };
        let (governor, made, paused) = run_governor(&predictor, SECOND * 4);
        assert_eq!((governor.state(), paused), (GovernorState::On, None));
        assert!(made > 20_000, "{made}");
    }
}

#[test]
fn an_unprofitable_predictor_stays_at_its_trial() {
    for (hits_per_cent, leads) in [
        (20, EQUAL_LEADS),
        (20, RANDOM_LEADS),
        (30, EQUAL_LEADS),
        (40, RANDOM_LEADS),
        (45, RANDOM_LEADS),
    ] {
        let (_, made, paused) = run_governor(&PlainPredictor { hits_per_cent, leads }, SECOND * 12);
        let paused = paused.unwrap();
        assert!(paused <= SECOND * 10, "{paused:?}");
        assert!(made < 1000, "{hits_per_cent} % hits: {made}");
    }
}

/// Random flows between few hosts pause the table within ten seconds, at any rate.
#[test]
fn unstructured_flows_pause_table_soon() {
    for flows_per_second in [200_u32, 5000, 50_000] {
        let mut foresight = Foresight::new(GovernorConfig::default());
        foresight.add(Box::new(SuccessorTable::new(4096)));
        let (mut random, mut now, mut counts) =
            (Random(7), Duration::ZERO, OutcomeCounts::default());
        while foresight.is_learning() {
            let mut end = || {
                let address = u32::try_from(random.below(8)).unwrap();
                (address, u16::try_from(1024 + random.below(64_000)).unwrap())
            };
            let flow = new_flow(udp(1, end(), end()));
            foresight.observe(&FlowEvent::Started(&flow), now);
            let mut made = Vec::new();
            foresight.forecast(now, 32, &mut made);
            counts.received += made.len() as u64;
            counts.installed += made.len() as u64;
            foresight.update(now, |_| counts);
            now += SECOND / flows_per_second;
        }
        assert!(now <= SECOND * 10 + SECOND / 100, "{now:?} at {flows_per_second} flows a second");
    }
}

/// Nine of ten flows are alone, each with a new source port.
///
/// The flows of each coflow are few, so its sources must be remembered between hundreds of others.
#[test]
fn coflows_between_many_other_flows_are_forecast() {
    const DESTINATIONS: usize = 64;
    let mut random = Random(11);
    let mut flows: Vec<Pair> = Vec::new();
    for number in 1..=4_u32 {
        let mut all: Vec<u16> = (1..=64).collect();
        random.shuffle(&mut all);
        flows.extend(coflow(number, 60, &all[..4], &mut random));
    }
    let coflow_flows = flows.len();
    for number in 0..9 * coflow_flows {
        let source = u32::try_from(1_000_000 + number).unwrap();
        let port = u16::try_from(1 + random.below(DESTINATIONS)).unwrap();
        flows.push([(source, 40_000), (9 + u32::from(port % 3), port)]);
    }
    random.shuffle(&mut flows);
    let Score { hits, made } = score(&mut SuccessorTable::new(1024), &flows);
    // The first two flows of each source cannot be forecast: half of the flows are left.
    assert!(hits * 4 > coflow_flows, "{hits} of {coflow_flows} flows");
    assert!(hits * 5 > made * 3, "{hits} of {made} forecasts");
}

/// A tenth of the sources open a flow to the last destination of a coflow.
#[test]
fn a_destination_of_few_sources_is_not_forecast() {
    let mut flows = coflow(1, 120, &[1, 2, 3, 4, 5, 6], &mut Random(13));
    let is_left_out = |[source, destination]: &Pair| destination.1 == 6 && source.0 % 10 != 0;
    flows.retain(|pair| !is_left_out(pair));
    let Score { hits, made } = score(&mut SuccessorTable::new(1024), &flows);
    // Without a confidence, all of the 108 forecasts to the last destination are made in vain.
    assert!((made - hits) * 2 < 108, "{hits} of {made} forecasts");
    assert!(hits > 300, "{hits} of {} flows", flows.len());
}
