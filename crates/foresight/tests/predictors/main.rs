//! Tests predictors with flows that have known successors, and with random flows.

mod call_graph;
mod comparison;
mod pairs;

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use shunt_flow::{FieldId, FlowKey, PortNo, SparseKey, testing::UdpFlow};
use shunt_foresight::{
    FlowEvent, Forecast, ForecastSource, Foresight, Governor, GovernorConfig, GovernorState,
    NewFlow, Oracle, OutcomeCounts, Periodic, Predictor, Reply, SiblingSet, SiblingSets, Siblings,
    SuccessorTable, reply_key,
};

const SECOND: Duration = Duration::from_secs(1);

/// Time after which the entry of a forecast expires.
const IDLE: Duration = Duration::from_secs(5);

/// Returns a UDP packet from `source` to `destination` (address and port each).
fn udp(in_port: u32, source: (u32, u16), destination: (u32, u16)) -> FlowKey {
    UdpFlow { in_port, source, destination }.key()
}

fn new_flow(key: FlowKey) -> NewFlow {
    let mut egress = key.clone();
    egress.set_in_port(PortNo::new(9));
    NewFlow { key, egress: Some(egress), forecast: None }
}

fn forecasts(predictor: &mut dyn Predictor, now: Duration) -> Vec<Forecast> {
    let mut forecasts = Vec::new();
    predictor.forecast(now, 1000, &mut forecasts);
    forecasts
}

fn is_of(forecast: &Forecast, key: &FlowKey) -> bool {
    FlowKey::from(&forecast.key) == *key
}

#[test]
fn a_reply_swaps_source_and_destination() {
    let mut reply = Reply::default();
    reply.observe(&FlowEvent::Started(&new_flow(udp(1, (1, 4000), (2, 53)))), SECOND);
    let forecasts = forecasts(&mut reply, SECOND);
    let mut expected = udp(9, (2, 53), (1, 4000));
    expected.set_field(FieldId::EthSrc, 0x0200_0000_0002);
    expected.set_field(FieldId::EthDst, 0x0200_0000_0001);
    assert_eq!(forecasts.len(), 1);
    assert!(is_of(&forecasts[0], &expected));
}

#[test]
fn packets_without_a_reply_have_no_forecast() {
    let base = udp(1, (1, 4000), (2, 53));
    let with = |field, value| {
        let mut key = base.clone();
        key.set_field(field, value);
        reply_key(&key)
    };
    assert!(reply_key(&base).is_some());
    assert!(with(FieldId::EthDst, 0xffff_ffff_ffff).is_none());
    assert!(with(FieldId::NwFrag, 1).is_none());
    assert!(with(FieldId::EthType, 0x88cc).is_none());
    assert!(with(FieldId::IpProto, 47).is_none());
}

#[test]
fn siblings_differ_in_one_value() {
    let mut siblings = Siblings::default();
    let set = SiblingSet { field: FieldId::Ipv4Dst, values: vec![2, 3, 4] };
    let sets = Arc::new(SiblingSets::new(vec![set]));
    siblings.observe(&FlowEvent::RulesChanged(&sets), SECOND);
    siblings.observe(&FlowEvent::Started(&new_flow(udp(1, (1, 4000), (3, 80)))), SECOND);
    let expected = [udp(1, (1, 4000), (2, 80)), udp(1, (1, 4000), (4, 80))];
    let forecasts = forecasts(&mut siblings, SECOND);
    assert_eq!(forecasts.len(), 2);
    assert!(forecasts.iter().zip(&expected).all(|(own, key)| is_of(own, key)));
}

/// A reply is more probable than a flow to another back end.
#[test]
fn a_short_budget_makes_the_most_confident_forecasts() {
    let mut foresight = Foresight::new(GovernorConfig::default());
    foresight.add(Box::new(Siblings::default()));
    foresight.add(Box::new(Reply::default()));
    let set = SiblingSet { field: FieldId::Ipv4Dst, values: vec![2, 3, 4] };
    let sets = Arc::new(SiblingSets::new(vec![set]));
    foresight.observe(&FlowEvent::RulesChanged(&sets), SECOND);
    for (budget, expected) in [
        (1, vec![ForecastSource::Reply]),
        (1, vec![ForecastSource::Reply]),
        (2, vec![ForecastSource::Reply, ForecastSource::Siblings]),
    ] {
        let flow = new_flow(udp(1, (1, 4000), (3, 80)));
        foresight.observe(&FlowEvent::Started(&flow), SECOND);
        let mut made = Vec::new();
        foresight.forecast(SECOND, budget, &mut made);
        let sources: Vec<_> = made.iter().map(|forecast| forecast.source).collect();
        assert_eq!(sources, expected);
    }
}

/// Without forecasts, a predictor could earn nothing, and would be paused.
#[test]
fn a_confident_predictor_starves_no_trial() {
    /// Number of forecasts of a trial.
    const TRIAL: usize = 64;
    let mut foresight = Foresight::new(GovernorConfig::default());
    foresight.add(Box::new(Siblings::default()));
    foresight.add(Box::new(Reply::default()));
    let set = SiblingSet { field: FieldId::Ipv4Dst, values: vec![2, 3, 4] };
    let sets = Arc::new(SiblingSets::new(vec![set]));
    foresight.observe(&FlowEvent::RulesChanged(&sets), SECOND);
    foresight.update(SECOND, |source| {
        let hits = if source == ForecastSource::Reply { 64 } else { 0 };
        OutcomeCounts { received: hits, hits, ..OutcomeCounts::default() }
    });
    let states: Vec<_> = foresight.status().map(|own| own.state).collect();
    assert_eq!(states, [GovernorState::Trial, GovernorState::On]);
    let mut made = Vec::new();
    for _ in 0..TRIAL + 2 {
        let flow = new_flow(udp(1, (1, 4000), (3, 80)));
        foresight.observe(&FlowEvent::Started(&flow), SECOND);
        foresight.forecast(SECOND, 1, &mut made);
    }
    let sources: Vec<_> = made.iter().map(|forecast| forecast.source).collect();
    assert_eq!(sources[..TRIAL], [ForecastSource::Siblings; TRIAL]);
    assert_eq!(sources[TRIAL..], [ForecastSource::Reply; 2]);
}

/// Tests a client that calls a front end, which then calls a database.
#[test]
fn a_successor_is_learned_for_other_clients() {
    let mut successor = SuccessorTable::new(64);
    let (front, database) = ((100, 80), (200, 5432));
    let mut found = 0;
    for client in 1..=20_u16 {
        let now = SECOND * u32::from(client) * 10;
        let base = new_flow(udp(1, (client.into(), 40_000 + 50 * client), front));
        successor.observe(&FlowEvent::Started(&base), now);
        let forecasts = forecasts(&mut successor, now);
        let call = udp(2, (100, 50_000 + client), database);
        found += usize::from(forecasts.iter().any(|own| is_of(own, &call)));
        successor.observe(&FlowEvent::Started(&new_flow(call)), now + Duration::from_millis(5));
    }
    assert!(found >= 16, "{found} of 20 calls were forecast");
}

#[test]
fn successor_has_next_source_port_of_client() {
    let mut successor = SuccessorTable::new(16);
    for (round, time) in (0..8_u16).zip(1..) {
        // A client calls a front end, which calls a database and increases its source port by a
        // constant.
        let now = SECOND * time;
        let base = udp(1, (10, 33_000 + 97 * round), (20, 8000));
        successor.observe(&FlowEvent::Started(&new_flow(base)), now);
        let made = forecasts(&mut successor, now);
        let call = udp(2, (20, 50_000 + 2 * round), (30, 5432));
        if round == 7 {
            let is_named = |forecast: &Forecast| {
                is_of(forecast, &call) && forecast.known.is_none() && forecast.made == now
            };
            assert!(made.iter().any(is_named), "{made:?}");
        }
        successor.observe(&FlowEvent::Started(&new_flow(call)), now + SECOND / 1000);
    }
}

#[test]
fn long_unseen_successor_is_forgotten() {
    let forecasts_after = |pause: Duration| {
        let mut successor = SuccessorTable::new(64);
        let mut now = SECOND;
        for round in 1..=10_u16 {
            let base = new_flow(udp(1, (round.into(), 40_000), (100, 80)));
            successor.observe(&FlowEvent::Started(&base), now);
            let call = new_flow(udp(2, (100, 40_001), (200, 5432)));
            successor.observe(&FlowEvent::Started(&call), now + SECOND / 1000);
            now += SECOND * 10;
        }
        drop(forecasts(&mut successor, now));
        now += pause;
        let base = new_flow(udp(1, (99, 40_000), (100, 80)));
        successor.observe(&FlowEvent::Started(&base), now);
        forecasts(&mut successor, now).len()
    };
    assert!(forecasts_after(SECOND * 60) > 0);
    assert_eq!(forecasts_after(SECOND * 600), 0);
}

#[test]
fn a_successor_without_followers_is_forgotten() {
    let mut successor = SuccessorTable::new(64);
    for round in 1..=20_u16 {
        let now = SECOND * u32::from(round) * 10;
        let base = new_flow(udp(1, (round.into(), 40_000), (100, 80)));
        successor.observe(&FlowEvent::Started(&base), now);
        let made = forecasts(&mut successor, now).len();
        if round > 14 {
            assert_eq!(made, 0, "round {round}");
        }
        if round <= 10 {
            let call = new_flow(udp(2, (100, 40_001), (200, 5432)));
            successor.observe(&FlowEvent::Started(&call), now + Duration::from_millis(5));
        }
    }
}

#[test]
fn a_periodic_flow_is_forecast_before_it_returns() {
    let mut periodic = Periodic::new(64, 1, IDLE);
    let key = udp(1, (1, 4000), (2, 53));
    for round in 1..=4 {
        periodic.observe(&FlowEvent::Started(&new_flow(key.clone())), SECOND * round);
    }
    assert!(forecasts(&mut periodic, SECOND * 4).is_empty());
    let due = periodic.next_due().unwrap();
    assert!(due > SECOND * 4 && due < SECOND * 5, "{due:?}");
    let made = forecasts(&mut periodic, due);
    assert_eq!(made.len(), 1);
    assert!(is_of(&made[0], &key) && made[0].is_valid(SECOND * 5));
}

/// Between two arrivals, more other flows arrive than the table has room for.
#[test]
fn flows_that_arrive_once_displace_no_periodic_flow() {
    let mut periodic = Periodic::new(64, 1, IDLE);
    let key = udp(1, (1, 4000), (2, 53));
    let mut found = false;
    for round in 1..=6_u16 {
        let now = SECOND * round.into();
        periodic.observe(&FlowEvent::Started(&new_flow(key.clone())), now);
        for other in 0..200 {
            let key = udp(1, (u32::from(round), 1000 + other), (3, 53));
            periodic.observe(&FlowEvent::Started(&new_flow(key)), now + SECOND / 100);
        }
        let made = forecasts(&mut periodic, now + SECOND * 15 / 16);
        found |= made.iter().any(|own| is_of(own, &key));
    }
    assert!(found);
}

/// An eighth of a minute is longer than the time after which an entry expires.
#[test]
fn forecast_of_a_long_interval_outlives_its_lead() {
    let mut periodic = Periodic::new(64, 1, IDLE);
    let (key, minute) = (udp(1, (1, 4000), (2, 53)), SECOND * 60);
    for round in 1..=4 {
        periodic.observe(&FlowEvent::Started(&new_flow(key.clone())), minute * round);
    }
    let due = periodic.next_due().unwrap();
    assert_eq!(due, minute * 5 - IDLE / 2);
    let made = forecasts(&mut periodic, due);
    assert!(made.len() == 1 && is_of(&made[0], &key), "{made:?}");
}

#[test]
fn an_oracle_forecasts_its_share() {
    let flows: Vec<(Duration, SparseKey)> = (0..1000_u16)
        .map(|at| (SECOND * u32::from(at), SparseKey::from(&udp(1, (1, at), (2, 53)))))
        .collect();
    for percent in [0, 25, 100] {
        let mut oracle = Oracle::new(flows.clone(), percent, SECOND, SECOND, 1);
        let mut made = 0;
        for at in 0..1000 {
            for forecast in forecasts(&mut oracle, SECOND * at) {
                assert!(forecast.is_valid(SECOND * at));
                made += 1;
            }
        }
        let expected = 10 * i32::from(percent);
        assert!((expected - made).abs() <= 40, "{made} of 1000 at {percent} %");
    }
}

#[test]
fn an_unprofitable_predictor_is_paused_and_retried() {
    let config = GovernorConfig::default();
    let mut governor = Governor::new(config);
    assert_eq!((governor.state(), governor.allowance(100)), (GovernorState::Trial, 64));
    governor.spend(64);
    assert_eq!(governor.allowance(100), 0);
    // Forecasts without an outcome so far may still earn tokens.
    let mut counts = OutcomeCounts { received: 64, installed: 64, ..OutcomeCounts::default() };
    governor.update(&counts, SECOND);
    governor.update(&counts, SECOND * 3);
    assert_eq!(governor.state(), GovernorState::Trial);
    counts.wrong = 64;
    governor.update(&counts, SECOND * 4);
    let until = SECOND * 4 + config.pause;
    assert_eq!((governor.state(), governor.pauses()), (GovernorState::Paused { until }, 1));
    assert_eq!(governor.allowance(100), 0);
    governor.update(&counts, until);
    assert_eq!((governor.state(), governor.allowance(100)), (GovernorState::Trial, 64));
    governor.spend(10);
    (counts.received, counts.hits) = (counts.received + 10, counts.hits + 10);
    governor.update(&counts, until + SECOND);
    assert_eq!((governor.state(), governor.allowance(100)), (GovernorState::On, 74));
}

#[test]
fn a_failed_trial_doubles_the_pause() {
    let config = GovernorConfig::default();
    let mut governor = Governor::new(config);
    let mut now = Duration::ZERO;
    for pause in [config.pause, config.pause * 2, config.pause * 4] {
        governor.spend(64);
        governor.update(&OutcomeCounts::default(), now);
        now += config.outcome_time;
        governor.update(&OutcomeCounts::default(), now);
        assert_eq!(governor.state(), GovernorState::Paused { until: now + pause });
        now += pause;
        governor.update(&OutcomeCounts::default(), now);
    }
}

#[test]
fn a_predictor_needs_a_hit_for_two_translations() {
    for (hits_per_cent, stays_on) in [(55, true), (45, false)] {
        let mut governor = Governor::new(GovernorConfig::default());
        let mut counts = OutcomeCounts::default();
        for round in 1..1000 {
            let made = governor.allowance(20) as u64;
            governor.spend(made);
            counts.received += made;
            // The outcome of every forecast is known before the next round.
            counts.hits = counts.received * hits_per_cent / 100;
            counts.wrong = counts.received - counts.hits;
            governor.update(&counts, SECOND * round);
        }
        assert_eq!(governor.pauses() == 0, stays_on, "{hits_per_cent} %: {counts:?}");
    }
}

/// Tests that a good predictor makes few useless forecasts when traffic changes.
#[test]
fn the_budget_of_a_good_predictor_is_bounded() {
    let config = GovernorConfig::default();
    let mut governor = Governor::new(config);
    let counts = OutcomeCounts { received: 1 << 20, hits: 1 << 20, ..OutcomeCounts::default() };
    governor.update(&counts, SECOND);
    assert_eq!(governor.allowance(usize::MAX) as u64, config.tokens_max);
}

#[test]
fn late_forecasts_cost_a_quarter() {
    let mut governor = Governor::new(GovernorConfig::default());
    governor.spend(40);
    let counts = OutcomeCounts { received: 40, late: 40, ..OutcomeCounts::default() };
    governor.update(&counts, SECOND);
    assert_eq!(governor.allowance(100), 54);
}

/// Tests that random flows, which nobody can forecast, pause every predictor.
#[test]
fn unstructured_traffic_pauses_every_predictor() {
    let mut foresight = Foresight::new(GovernorConfig::default());
    foresight.add(Box::new(Reply::default()));
    let mut counts = OutcomeCounts::default();
    let mut made = Vec::new();
    for at in 0..1000_u16 {
        let now = Duration::from_millis(10) * u32::from(at);
        let flow = new_flow(udp(1, (u32::from(at) * 77, at), (u32::from(at) * 31, 53)));
        foresight.observe(&FlowEvent::Started(&flow), now);
        foresight.forecast(now, 16, &mut made);
        // The entries of forecasts expire unused two seconds later.
        counts.installed = made.len() as u64;
        let is_old = |own: &&Forecast| own.made + SECOND * 2 <= now;
        counts.wrong = made.iter().filter(is_old).count() as u64;
        foresight.update(now, |_| counts);
    }
    let status = foresight.status().next().unwrap();
    assert!(matches!(status.state, GovernorState::Paused { .. }), "{status:?}");
    assert!(status.forecasts <= 64, "{}", status.forecasts);
}

/// Tests that a predictor without forecasts is paused, because new flows cost time.
#[test]
fn a_predictor_that_learns_nothing_is_paused() {
    let config = GovernorConfig::default();
    let mut foresight = Foresight::new(config);
    foresight.add(Box::new(SuccessorTable::new(64)));
    let (mut made, mut random) = (Vec::new(), 1_u64);
    for at in 0..2 * u32::try_from(config.trial_flows).unwrap() {
        let now = Duration::from_micros(100) * at;
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let [a, b, c, d, high, low, ..] = random.to_be_bytes();
        let hosts = [u32::from_be_bytes([1, 0, a, b]), u32::from_be_bytes([2, 0, c, d])];
        let flow =
            new_flow(udp(1, (hosts[0], 40_000), (hosts[1], u16::from_be_bytes([high, low]))));
        assert_eq!(foresight.is_learning(), u64::from(at) < config.trial_flows, "{at}");
        foresight.observe(&FlowEvent::Started(&flow), now);
        foresight.forecast(now, 16, &mut made);
        foresight.update(now, |_| OutcomeCounts::default());
    }
    let status = foresight.status().next().unwrap();
    assert!(matches!(status.state, GovernorState::Paused { .. }), "{status:?}");
    assert_eq!(status.forecasts, 0);
}

/// At a low rate a trial ends by time, and not by the number of flows.
#[test]
fn a_trial_ends_after_ten_seconds() {
    let config = GovernorConfig::default();
    let ended_at = |flows_per_second: u64| {
        let mut governor = Governor::new(config);
        for tenth in 0..6000_u64 {
            let now = Duration::from_millis(tenth * 100);
            if (tenth * flows_per_second).is_multiple_of(10) {
                (0..flows_per_second.div_ceil(10)).for_each(|_| governor.see_flow());
            }
            governor.update(&OutcomeCounts::default(), now);
            if matches!(governor.state(), GovernorState::Paused { .. }) {
                return now;
            }
        }
        Duration::MAX
    };
    assert_eq!(ended_at(300), config.trial_time);
    assert_eq!(ended_at(20), config.trial_time);
    // A few flows are no trial: the first 64 take longer here.
    assert_eq!(ended_at(1), Duration::from_secs(63));
    // Without flows there is nothing to try.
    assert_eq!(ended_at(0), Duration::MAX);
}

#[test]
fn an_active_predictor_pays_for_seen_flows() {
    let mut governor = Governor::new(GovernorConfig::default());
    (0..1600).for_each(|_| governor.see_flow());
    assert_eq!(governor.allowance(1000), 64, "flows are free in a trial");
    let counts = OutcomeCounts { received: 64, hits: 64, ..OutcomeCounts::default() };
    governor.update(&counts, SECOND);
    assert_eq!((governor.state(), governor.allowance(1000)), (GovernorState::On, 192));
    (0..1600).for_each(|_| governor.see_flow());
    assert_eq!(governor.allowance(1000), 92);
}

/// Tests a predictor that earns tokens late, so that sometimes it has none.
#[test]
fn a_predictor_that_pays_outgrows_its_trial() {
    let mut foresight = Foresight::new(GovernorConfig::default());
    foresight.add(Box::new(Reply::default()));
    let (mut made, mut hits) = (Vec::new(), 0);
    for at in 0..10_000_u32 {
        let now = Duration::from_micros(50) * at;
        let [.., high, low] = at.to_be_bytes();
        let flow = new_flow(udp(1, (at, u16::from_be_bytes([high, low])), (at + 1, 53)));
        foresight.observe(&FlowEvent::Started(&flow), now);
        foresight.forecast(now, 4, &mut made);
        // The reply arrives at once. A forecast is useful only if it was made for this flow.
        hits += made.drain(..).filter(|own| own.made == now).count() as u64;
        if at % 200 == 0 {
            let counts = OutcomeCounts { received: hits, hits, ..OutcomeCounts::default() };
            foresight.update(now, |_| counts);
        }
    }
    assert!(hits > 9_000, "{hits}");
    let status = foresight.status().next().unwrap();
    assert_eq!((status.state, status.forecasts), (GovernorState::On, hits));
}

#[derive(Clone, Debug)]
enum Step {
    Start(u8, u8, u8, u8),
    Sets(Vec<u8>),
    Take(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any::<(u8, u8, u8, u8)>().prop_map(|(a, b, c, d)| Step::Start(a, b, c, d)),
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(Step::Sets),
        3 => any::<u8>().prop_map(Step::Take),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Tests that memory and budgets are bounded, and forecasts have no hidden state.
    #[test]
    fn predictors_obey_their_bounds(
        steps in prop::collection::vec((step(), 0..400_u64), 1..400),
    ) {
        let predictors: [Box<dyn Predictor>; 4] = [
            Box::new(Reply::default()),
            Box::new(Siblings::default()),
            Box::new(SuccessorTable::new(8)),
            Box::new(Periodic::new(8, 1, IDLE)),
        ];
        for mut predictor in predictors {
            let mut now = Duration::ZERO;
            for (step, pause) in &steps {
                now += Duration::from_millis(*pause);
                match step {
                    Step::Start(source, destination, from, to) => {
                        let ends = ((*source).into(), 30_000 + 20 * u16::from(*from));
                        let key = udp(1, ends, ((*destination % 8).into(), u16::from(*to % 8)));
                        predictor.observe(&FlowEvent::Started(&new_flow(key)), now);
                    }
                    Step::Sets(values) => {
                        let values = values.iter().map(|value| (*value).into()).collect();
                        let set = SiblingSet { field: FieldId::Ipv4Dst, values };
                        let sets = Arc::new(SiblingSets::new(vec![set]));
                        predictor.observe(&FlowEvent::RulesChanged(&sets), now);
                    }
                    Step::Take(budget) => {
                        let mut made = Vec::new();
                        predictor.forecast(now, (*budget).into(), &mut made);
                        prop_assert!(made.len() <= usize::from(*budget));
                        prop_assert!(predictor.next_due().is_none_or(|due| due > now));
                        for forecast in made {
                            prop_assert!(forecast.is_valid(now) && forecast.made <= now);
                            prop_assert_eq!(forecast.source, predictor.source());
                            let key = FlowKey::from(&forecast.key);
                            prop_assert!(key.words()[..63].iter().all(|word| *word == 0));
                        }
                    }
                }
                prop_assert!(predictor.len() <= predictor.capacity());
            }
        }
    }
}
