//! The order in which BFD sessions are run: by their deadlines.
//!
//! The cost of a run depends on the number of due sessions, not on the number of all sessions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, Time};

use crate::ports::bfd::port_session::PortSession;

/// The BFD sessions by port and by deadline.
pub(crate) struct SessionSchedule {
    /// The sessions, in an order that does not change.
    sessions: Arc<[Arc<PortSession>]>,
    /// The index of the session of each port.
    places: BTreeMap<(BridgeId, PortNo), usize>,
    /// The index of each waiting session, by its deadline.
    deadlines: BTreeSet<(Time, usize)>,
    /// The deadline of each session, as in `deadlines`.
    due: Vec<Option<Time>>,
}

impl SessionSchedule {
    /// Returns a schedule in which all sessions are due.
    pub(crate) fn new(sessions: Arc<[Arc<PortSession>]>) -> Self {
        let place = |(place, own): (usize, &Arc<PortSession>)| ((own.bridge, own.number), place);
        let places = sessions.iter().enumerate().map(place).collect();
        let all = 0..sessions.len();
        Self {
            places,
            deadlines: all.clone().map(|place| (Time::ZERO, place)).collect(),
            due: all.map(|_| Some(Time::ZERO)).collect(),
            sessions,
        }
    }

    /// Returns whether the schedule was made for the list `sessions`.
    pub(crate) fn is_of(&self, sessions: &Arc<[Arc<PortSession>]>) -> bool {
        Arc::ptr_eq(&self.sessions, sessions)
    }

    /// Returns the earliest deadline of a session.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    /// Returns the session of a port, and makes it due.
    pub(crate) fn session(&mut self, bridge: BridgeId, port: PortNo) -> Option<&PortSession> {
        let place = *self.places.get(&(bridge, port))?;
        self.set_due(place, Some(Time::ZERO));
        self.sessions.get(place).map(|session| &**session)
    }

    /// Makes all sessions due, because their settings may have changed.
    pub(crate) fn set_all_due(&mut self) {
        for place in 0..self.sessions.len() {
            self.set_due(place, Some(Time::ZERO));
        }
    }

    /// Takes the sessions that are due.
    ///
    /// The caller runs each session and then calls [`Self::put_back`].
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<(usize, Arc<PortSession>)> {
        let mut taken = Vec::new();
        while let Some((time, place)) = self.deadlines.first().copied()
            && time <= now
        {
            self.set_due(place, None);
            taken.extend(self.sessions.get(place).map(|own| (place, Arc::clone(own))));
        }
        taken
    }

    /// Puts a session back into the schedule after its run.
    pub(crate) fn put_back(&mut self, place: usize, now: Time) {
        let deadline = self.sessions.get(place).and_then(|session| session.deadline(now));
        self.set_due(place, deadline);
    }

    /// Sets the time at which a session must run next.
    fn set_due(&mut self, place: usize, deadline: Option<Time>) {
        let Some(due) = self.due.get_mut(place) else { return };
        if let Some(before) = std::mem::replace(due, deadline) {
            self.deadlines.remove(&(before, place));
        }
        self.deadlines.extend(deadline.map(|time| (time, place)));
    }
}
