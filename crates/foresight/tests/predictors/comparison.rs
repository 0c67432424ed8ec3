//! Tests governors with withheld forecasts, and with measured times.

use std::time::Duration;

use shunt_foresight::{
    Governor, GovernorConfig, GovernorState, OutcomeCounts, PauseReason, SlowPathTimes,
};

use super::SECOND;

const MICROSECOND: Duration = Duration::from_micros(1);

/// A predictor with equal outcomes in each round.
struct Rounds {
    /// Number of hits for ten installed forecasts.
    hits_of_ten: u64,
    /// Number of withheld forecasts of ten of which the flow misses.
    arrived_of_ten: u64,
    /// Number of forecasts of which one is withheld; 0 without a control group.
    one_in: u64,
    /// The time that each forecast takes.
    per_forecast: Duration,
}

impl Rounds {
    /// Runs a governor for some rounds of one second, and returns it with the outcomes.
    fn run(&self, rounds: u32) -> (Governor, OutcomeCounts) {
        let mut governor = Governor::new(GovernorConfig::default());
        let (mut counts, mut withheld) = (OutcomeCounts::default(), 0);
        for round in 1..=rounds {
            let made = governor.allowance(160) as u64;
            governor.spend(made);
            counts.received += made;
            counts.spent += self.per_forecast * u32::try_from(made).unwrap_or(u32::MAX);
            withheld += if self.one_in == 0 { 0 } else { made };
            counts.withheld = withheld / self.one_in.max(1);
            counts.installed = counts.received - counts.withheld;
            counts.hits = counts.installed * self.hits_of_ten / 10;
            counts.wrong = counts.installed - counts.hits;
            counts.arrived = counts.withheld * self.arrived_of_ten / 10;
            counts.unneeded = counts.withheld - counts.arrived;
            let per_miss = Some(MICROSECOND);
            governor.set_times(SlowPathTimes { predictor: Duration::ZERO, per_miss });
            governor.update(&counts, SECOND * round);
        }
        (governor, counts)
    }
}

/// Returns whether a predictor stays on, and else the reason of its first pause.
fn judge(rounds: &Rounds) -> Option<PauseReason> {
    (1..100).find_map(|count| rounds.run(count).0.pause_reason())
}

const USEFUL: Rounds =
    Rounds { hits_of_ten: 9, arrived_of_ten: 9, one_in: 16, per_forecast: MICROSECOND };

#[test]
fn a_useful_predictor_stays_on() {
    assert_eq!(judge(&USEFUL), None);
    let (governor, counts) = USEFUL.run(100);
    assert_eq!(governor.state(), GovernorState::On);
    assert!(counts.withheld > 500 && counts.saved_misses() * 10 > counts.installed * 8);
    // A predictor that is little better than its price stays on too.
    assert_eq!(judge(&Rounds { hits_of_ten: 6, arrived_of_ten: 6, ..USEFUL }), None);
}

/// All forecasts are hit, and other entries would cover their flows.
#[test]
fn hits_without_saved_misses_pause_a_predictor() {
    let unneeded = Rounds { hits_of_ten: 10, arrived_of_ten: 0, ..USEFUL };
    assert_eq!(judge(&unneeded), Some(PauseReason::FewSavedMisses));
    // Without a control group, the hits seem to save misses.
    assert_eq!(judge(&Rounds { one_in: 0, ..unneeded }), None);
    // The second trial is short, because the first outcomes are remembered.
    let pauses = Rounds { hits_of_ten: 10, arrived_of_ten: 0, ..USEFUL }.run(600).0.pauses();
    assert!((2..8).contains(&pauses), "{pauses}");
}

#[test]
fn a_predictor_without_hits_is_paused() {
    let useless = Rounds { hits_of_ten: 1, arrived_of_ten: 1, ..USEFUL };
    assert_eq!(judge(&useless), Some(PauseReason::FewHits));
}

/// A forecast may take as long as two misses, because no packet waits for it.
#[test]
fn a_slow_predictor_is_paused() {
    let slow = |per_forecast| {
        judge(&Rounds { hits_of_ten: 10, arrived_of_ten: 10, per_forecast, ..USEFUL })
    };
    assert_eq!(slow(MICROSECOND * 3), Some(PauseReason::SlowPathTime));
    assert_eq!(slow(MICROSECOND * 3 / 2), None);
}

/// The flows of a paused predictor begin to miss without it.
#[test]
fn a_paused_predictor_recovers_when_flows_miss() {
    let mut governor = Governor::new(GovernorConfig::default());
    let mut counts = OutcomeCounts::default();
    let mut now = SECOND;
    let mut round = |arrives: bool| {
        let made = governor.allowance(16) as u64;
        governor.spend(made);
        let withheld = u64::from(made == 16);
        counts.received += made;
        counts.withheld += withheld;
        counts.installed += made - withheld;
        counts.hits += made - withheld;
        let outcome = if arrives { &mut counts.arrived } else { &mut counts.unneeded };
        *outcome += withheld;
        governor.update(&counts, now);
        now += SECOND / 10;
        governor.state()
    };
    while !matches!(round(false), GovernorState::Paused { .. }) {}
    assert!((0..2000).any(|_| round(true) == GovernorState::On));
    assert!((0..500).all(|_| round(true) == GovernorState::On));
}
