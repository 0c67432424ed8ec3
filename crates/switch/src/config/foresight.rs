//! The configuration of forecasts: flows that are translated before their first packet.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shunt_datapath::forecast::ForecastConfig;
use shunt_foresight::{
    Foresight, GovernorConfig, Periodic, Predictor, Reply, Siblings, SuccessorTable,
};

/// The options of forecasts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForesightOptions {
    /// Predictors that run in each packet thread.
    ///
    /// By default only `reply` runs: it costs no measurable time for traffic that it cannot
    /// predict.
    pub predictors: Vec<PredictorName>,
    /// Maximum number of forecasts that a packet thread handles in one iteration.
    pub forecasts_per_iteration: usize,
    /// Milliseconds without a hit after which a predicted entry expires.
    pub idle_ms: u64,
    /// Maximum number of predicted flows without a hit, for each packet thread.
    pub entries: usize,
}

/// A predictor of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PredictorName {
    /// Predicts the reverse direction of each new flow.
    Reply,
    /// Predicts the same flow to the other back ends of its service.
    Siblings,
    /// Predicts flows that followed similar flows before.
    Successor,
    /// Predicts flows that return at intervals.
    Periodic,
}

/// Number of services or flows that a predictor remembers.
const REMEMBERED_MAX: usize = 4096;

impl Default for ForesightOptions {
    fn default() -> Self {
        let ForecastConfig { per_iteration, idle, speculative_max, .. } = ForecastConfig::default();
        Self {
            predictors: vec![PredictorName::Reply],
            forecasts_per_iteration: per_iteration,
            // 64 bits of milliseconds last for 584 million years.
            idle_ms: u64::try_from(idle.as_millis()).unwrap_or(u64::MAX),
            entries: speculative_max,
        }
    }
}

impl ForesightOptions {
    /// Returns the forecast settings of a packet thread.
    ///
    /// `seed` chooses the forecasts that are withheld.
    pub(crate) fn thread_config(&self, seed: u64) -> ForecastConfig {
        ForecastConfig {
            per_iteration: self.forecasts_per_iteration,
            idle: Duration::from_millis(self.idle_ms),
            speculative_max: self.entries,
            seed,
        }
    }

    /// Returns whether a predictor needs the back ends of services.
    pub(crate) fn has_siblings(&self) -> bool {
        self.predictors.contains(&PredictorName::Siblings)
    }

    /// Creates the predictors of one packet thread.
    pub(crate) fn foresight(&self, seed: u64) -> Foresight {
        let mut foresight = Foresight::new(GovernorConfig::default());
        let idle = Duration::from_millis(self.idle_ms);
        self.predictors.iter().for_each(|name| foresight.add(name.predictor(seed, idle)));
        foresight
    }
}

impl PredictorName {
    /// Creates the predictor with this name.
    ///
    /// `idle` is the time without a hit after which the entry of a forecast expires.
    fn predictor(self, seed: u64, idle: Duration) -> Box<dyn Predictor> {
        match self {
            Self::Reply => Box::new(Reply::default()),
            Self::Siblings => Box::new(Siblings::default()),
            Self::Successor => Box::new(SuccessorTable::with_seed(REMEMBERED_MAX, seed)),
            Self::Periodic => Box::new(Periodic::new(REMEMBERED_MAX, seed, idle)),
        }
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::testing::UdpFlow;
    use shunt_foresight::{FlowEvent, NewFlow};

    use super::*;

    #[test]
    fn idle_time_limits_lead_of_periodic_flows() {
        let options = ForesightOptions {
            predictors: vec![PredictorName::Periodic],
            idle_ms: 400,
            ..ForesightOptions::default()
        };
        let mut foresight = options.foresight(1);
        let key = UdpFlow { in_port: 1, source: (1, 4000), destination: (2, 53) }.key();
        let flow = NewFlow { key, egress: None, forecast: None };
        let minute = Duration::from_secs(60);
        (1..=4).for_each(|round| foresight.observe(&FlowEvent::Started(&flow), minute * round));
        let due = foresight.next_due().unwrap();
        assert_eq!(due, minute * 5 - Duration::from_millis(200));
    }
}
