//! The predictor `Periodic`: forecasts flows that return at equal intervals.
//!
//! Most flows arrive once. A flow enters the table with its second arrival, so the flows that arrive
//! once take no room of those that return ([`FirstSightings`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use shunt_flow::{
    SparseKey,
    hash::KeyHasher,
    layout::{HEADER_START, word},
};

use super::first_sightings::FirstSightings;
use crate::{
    event::{FlowEvent, NewFlow},
    forecast::{Confidence, Forecast, ForecastSource},
    predictor::Predictor,
};

/// Forecasts flows that arrived at equal intervals.
///
/// The forecast of a flow is due an eighth of the interval before the next arrival. The entry of a
/// forecast expires, so this time is at most half of its idle time. Flows are found by a hash with a
/// seed, so an attacker cannot choose flows that collide.
#[derive(Debug)]
pub struct Periodic {
    /// The flows that arrived once, by the hash of their key.
    first_arrivals: FirstSightings<()>,
    /// The flows that arrived twice, by the hash of their key.
    flows: BTreeMap<u64, PeriodicFlow>,
    /// The flows, by the time at which their forecasts are due.
    due: BTreeSet<(Duration, u64)>,
    /// The flows, by the time of their last arrival, to forget the oldest.
    arrivals: BTreeSet<(Duration, u64)>,
    /// The hash function of the keys.
    hasher: KeyHasher,
    /// Maximum number of flows.
    capacity: usize,
    /// Maximum time from a forecast to the arrival that it expects.
    lead_max: Duration,
}

/// A flow that may arrive again at equal intervals.
#[derive(Debug)]
struct PeriodicFlow {
    /// The key of the flow.
    key: SparseKey,
    /// Time of the last arrival.
    last: Duration,
    /// Time between the last two arrivals.
    interval: Duration,
    /// Number of successive equal intervals.
    repeats: u8,
    /// Time of the next expected arrival.
    due: Option<Duration>,
}

/// Number of equal intervals from which on a flow is periodic.
const REPEATS_MIN: u8 = 2;

/// Two intervals are equal if they differ by at most one part in this number.
const TOLERANCE: u32 = 8;

/// Minimum interval: shorter intervals are within a burst of one flow.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// The confidence of all forecasts.
const CONFIDENCE: Confidence = Confidence::of_percent(75);

impl Periodic {
    /// Creates a predictor that remembers up to `capacity` flows that returned.
    ///
    /// `idle` is the time without a hit after which the entry of a forecast expires.
    #[must_use]
    pub fn new(capacity: usize, seed: u64, idle: Duration) -> Self {
        Self {
            first_arrivals: FirstSightings::new(capacity.max(1)),
            flows: BTreeMap::new(),
            due: BTreeSet::new(),
            arrivals: BTreeSet::new(),
            hasher: KeyHasher::new(seed),
            capacity: capacity.max(1),
            lead_max: idle / 2,
        }
    }

    /// Records the arrival of a flow, and the interval since the last one.
    fn arrive(&mut self, flow: &NewFlow, now: Duration) {
        let words = &flow.key.words()[usize::from(word::BRIDGE).min(HEADER_START)..];
        let id = self.hasher.hash(words);
        let Some(own) = self.flows.get_mut(&id) else {
            return self.arrive_again(id, flow, now);
        };
        let interval = now.saturating_sub(own.last);
        if interval < INTERVAL_MIN {
            return;
        }
        let is_equal = interval.abs_diff(own.interval) <= own.interval / TOLERANCE;
        own.repeats = if is_equal { own.repeats.saturating_add(1) } else { 0 };
        self.arrivals.remove(&(own.last, id));
        self.arrivals.insert((now, id));
        (own.interval, own.last) = (interval, now);
        if let Some(due) = own.due.take() {
            self.due.remove(&(due, id));
        }
        if own.repeats >= REPEATS_MIN {
            let due = now + interval - (interval / TOLERANCE).min(self.lead_max);
            own.due = Some(due);
            self.due.insert((due, id));
        }
    }

    /// Records an arrival of a flow that is not in the table.
    ///
    /// Adds the flow to the table if it returned.
    fn arrive_again(&mut self, id: u64, flow: &NewFlow, now: Duration) {
        let Some(first) = self.first_arrivals.find(id, now) else {
            return self.first_arrivals.record(id, (), now);
        };
        if first.age >= INTERVAL_MIN {
            self.first_arrivals.record(id, (), now);
            self.insert(id, flow, first.age, now);
        }
    }

    /// Adds a flow that returned after an interval, and may be periodic.
    fn insert(&mut self, id: u64, flow: &NewFlow, interval: Duration, now: Duration) {
        if self.flows.len() >= self.capacity
            && let Some((_, oldest)) = self.arrivals.pop_first()
            && let Some(removed) = self.flows.remove(&oldest)
            && let Some(due) = removed.due
        {
            self.due.remove(&(due, oldest));
        }
        self.arrivals.insert((now, id));
        let key = SparseKey::from(&flow.key);
        let new = PeriodicFlow { key, last: now, interval, repeats: 0, due: None };
        self.flows.insert(id, new);
    }
}

impl Predictor for Periodic {
    fn source(&self) -> ForecastSource {
        ForecastSource::Periodic
    }

    fn observe(&mut self, event: &FlowEvent<'_>, now: Duration) {
        if let FlowEvent::Started(flow) = event {
            self.arrive(flow, now);
        }
    }

    fn forecast(&mut self, now: Duration, budget: usize, forecasts: &mut Vec<Forecast>) {
        let mut left = budget;
        while let Some((due, id)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, id));
            let Some(own) = self.flows.get_mut(&id) else { continue };
            own.due = None;
            let Some(rest) = left.checked_sub(1) else { continue };
            left = rest;
            forecasts.push(Forecast {
                key: own.key.clone(),
                known: None,
                confidence: CONFIDENCE,
                made: now,
                valid_until: now + own.interval,
                source: ForecastSource::Periodic,
            });
        }
    }

    fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    fn confidence(&self, now: Duration) -> Option<Confidence> {
        self.next_due().filter(|due| *due <= now).map(|_| CONFIDENCE)
    }

    fn len(&self) -> usize {
        self.first_arrivals.len() + self.flows.len()
    }

    fn capacity(&self) -> usize {
        self.first_arrivals.capacity() + self.capacity
    }
}
