//! The predictor `Siblings`: forecasts the same flow to other back ends of its service.

use std::{sync::Arc, time::Duration};

use shunt_flow::{FieldId, SparseKey};

use super::due::DueForecasts;
use crate::{
    event::{FlowEvent, NewFlow, SiblingSets},
    forecast::{Confidence, Forecast, ForecastSource},
    predictor::Predictor,
};

/// Forecasts flows that differ from a new flow in one field only.
///
/// In this field, a forecast has another value of the same [`SiblingSet`](crate::SiblingSet). The
/// sets come from the rules: a client that opens a flow to one back end of a service will open
/// flows to other back ends.
#[derive(Debug)]
pub struct Siblings {
    sets: Arc<SiblingSets>,
    /// The forecasts to return.
    due: DueForecasts,
}

/// Maximum number of forecasts for one new flow.
const SIBLINGS_MAX: usize = 16;

/// Maximum number of forecasts that wait to be taken.
const DUE_MAX: usize = 1024;

/// Time within which a forecast flow is expected.
const VALIDITY: Duration = Duration::from_secs(5);

impl Default for Siblings {
    fn default() -> Self {
        Self { sets: Arc::default(), due: DueForecasts::new(DUE_MAX) }
    }
}

impl Siblings {
    /// Forecasts the flow for each sibling of a field's value.
    fn expect_siblings(&mut self, flow: &NewFlow, field: FieldId, now: Duration) {
        let value = flow.key.field(field);
        for other in self.sets.siblings(field, value).take(SIBLINGS_MAX) {
            let mut key = flow.key.clone();
            key.set_field(field, other);
            self.due.push(Forecast {
                key: SparseKey::from(&key),
                known: None,
                confidence: Confidence::of_percent(50),
                made: now,
                valid_until: now + VALIDITY,
                source: ForecastSource::Siblings,
            });
        }
    }
}

impl Predictor for Siblings {
    fn source(&self) -> ForecastSource {
        ForecastSource::Siblings
    }

    fn observe(&mut self, event: &FlowEvent<'_>, now: Duration) {
        match event {
            FlowEvent::RulesChanged(sets) => self.sets = Arc::clone(sets),
            FlowEvent::Started(flow) => {
                let fields =
                    [FieldId::Ipv4Dst, FieldId::Ipv6Dst, FieldId::Ipv4Src, FieldId::Ipv6Src];
                fields.into_iter().for_each(|field| self.expect_siblings(flow, field, now));
            }
            FlowEvent::Ended(_) => {}
        }
    }

    fn forecast(&mut self, now: Duration, budget: usize, forecasts: &mut Vec<Forecast>) {
        self.due.take(now, budget, forecasts);
    }

    fn next_due(&self) -> Option<Duration> {
        self.due.next_due()
    }

    fn confidence(&self, _now: Duration) -> Option<Confidence> {
        self.due.confidence()
    }

    fn len(&self) -> usize {
        self.sets.len() + self.due.len()
    }

    fn capacity(&self) -> usize {
        SiblingSets::VALUES_MAX + self.due.capacity()
    }
}
