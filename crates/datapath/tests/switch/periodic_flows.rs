//! Tests entries of flows that return at intervals, with each cache.

use std::time::Duration;

use shunt_datapath::forecast::ForecastConfig;
use shunt_foresight::{ForecastSource, Foresight, GovernorConfig, Periodic};

use super::{forecasts::frame, thread_config};
use crate::harness::{Switch, added};

/// Number of arrivals that show an interval.
const LEARNED: u64 = 4;

/// An eighth of the interval is longer than the idle time of forecasts.
#[test]
fn a_flow_that_returns_every_minute_hits() {
    let mut switch = Switch::new(1, 3, thread_config());
    let config = ForecastConfig::default();
    let senders = switch.attach_predictors(config, || {
        let mut predictors = Foresight::new(GovernorConfig::default());
        predictors.add(Box::new(Periodic::new(16, 1, config.idle)));
        predictors
    });
    switch.apply(&added(&["udp,nw_dst=10.1.0.0/16,actions=output:2"]));
    for _ in 0..LEARNED + 3 {
        assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
        switch.settle();
        assert_eq!(switch.receive(0, 2).len(), 1);
        for _ in 0..60 {
            switch.wait(Duration::from_secs(1));
            switch.settle();
        }
    }
    let counts = senders[0].counters().of(ForecastSource::Periodic).counts();
    assert_eq!((counts.hits, counts.wrong, counts.late), (3, 0, 0), "{counts:?}");
    assert_eq!(switch.counters(0).upcalls.get(), LEARNED);
}
