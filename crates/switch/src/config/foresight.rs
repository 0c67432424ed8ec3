//! The configuration of forecasts: flows that are translated before their first packet.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shunt_datapath::forecast::ForecastConfig;
use shunt_foresight::{Periodic, Predictor, Reply, Siblings, SuccessorTable};

/// The options of forecasts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForesightOptions {
    /// Predictors that run.
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
    /// The reverse direction of each new flow.
    Reply,
    /// The same flow to the other back ends of its service.
    Siblings,
    /// Flows that followed similar flows before.
    Successor,
    /// Flows that return at intervals.
    Periodic,
}

/// Number of services or flows that a predictor remembers.
const REMEMBERED_MAX: usize = 4096;

impl Default for ForesightOptions {
    fn default() -> Self {
        let ForecastConfig { per_iteration, idle, speculative_max, .. } = ForecastConfig::default();
        Self {
            predictors: Vec::new(),
            forecasts_per_iteration: per_iteration,
            // 64 bits of milliseconds last for 584 million years.
            idle_ms: u64::try_from(idle.as_millis()).unwrap_or(u64::MAX),
            entries: speculative_max,
        }
    }
}

impl ForesightOptions {
    /// Returns the settings of a packet thread.
    pub(crate) const fn thread_config(&self) -> ForecastConfig {
        ForecastConfig {
            per_iteration: self.forecasts_per_iteration,
            idle: Duration::from_millis(self.idle_ms),
            speculative_max: self.entries,
            observes: !self.predictors.is_empty(),
        }
    }

    /// Creates the predictors.
    pub(crate) fn predictors(&self, seed: u64) -> impl Iterator<Item = Box<dyn Predictor>> {
        self.predictors.iter().map(move |name| -> Box<dyn Predictor> {
            match name {
                PredictorName::Reply => Box::new(Reply::default()),
                PredictorName::Siblings => Box::new(Siblings::default()),
                PredictorName::Successor => Box::new(SuccessorTable::new(REMEMBERED_MAX)),
                PredictorName::Periodic => Box::new(Periodic::new(REMEMBERED_MAX, seed)),
            }
        })
    }
}
