//! A predictor with the worst forecasts, for tests of the invariants.

use std::{collections::VecDeque, time::Duration};

use shunt_flow::{FieldId, FlowKey, SparseKey};
use shunt_foresight::{
    Confidence, FlowEvent, Forecast, ForecastSource, Foresight, GovernorConfig, Predictor,
};

/// Forecasts recent flows again and again, and similar flows that never arrive.
///
/// Entries of recent flows are often stale, and entries of similar flows fill the cache.
#[derive(Debug, Default)]
pub(crate) struct WorstCase {
    recent: VecDeque<FlowKey>,
    /// Number of forecasts made so far.
    made: u64,
    next: Duration,
}

/// Maximum number of remembered flows.
const RECENT_MAX: usize = 8;

/// Time between two rounds of forecasts: the duration of a few iterations.
const INTERVAL: Duration = Duration::from_micros(30);

impl WorstCase {
    /// Returns this predictor with a governor that never disables it.
    pub(crate) fn unlimited() -> Foresight {
        let many = 1 << 40;
        let config = GovernorConfig {
            trial: many,
            trial_flows: many,
            trial_time: Duration::MAX,
            tokens_max: many,
            ..GovernorConfig::default()
        };
        let mut foresight = Foresight::new(config);
        foresight.add(Box::new(Self::default()));
        foresight
    }
}

impl Predictor for WorstCase {
    fn source(&self) -> ForecastSource {
        ForecastSource::Periodic
    }

    fn observe(&mut self, event: &FlowEvent<'_>, _now: Duration) {
        if let FlowEvent::Started(flow) = event {
            if self.recent.len() >= RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back(flow.key.clone());
        }
    }

    fn forecast(&mut self, now: Duration, budget: usize, forecasts: &mut Vec<Forecast>) {
        self.next = now + INTERVAL;
        let keys = self.recent.iter().flat_map(|key| [(key, false), (key, true)]);
        for (key, is_beside) in keys.take(budget) {
            let mut key = key.clone();
            self.made += 1;
            if is_beside {
                key.set_field(FieldId::EthSrc, 0x0200_0000_0000 + u128::from(self.made));
            }
            forecasts.push(Forecast {
                key: SparseKey::from(&key),
                known: None,
                confidence: Confidence::MAX,
                made: now,
                valid_until: now + Duration::from_secs(self.made % 20),
                source: ForecastSource::Periodic,
            });
        }
    }

    fn next_due(&self) -> Option<Duration> {
        Some(self.next)
    }

    fn len(&self) -> usize {
        self.recent.len()
    }

    fn capacity(&self) -> usize {
        RECENT_MAX
    }
}
