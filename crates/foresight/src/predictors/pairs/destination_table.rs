//! The recent destinations of flows, each with a small number.
//!
//! The number of a destination that was not used for a while is given to a new destination. Sets of
//! destinations are then out of date. A set remembers the number of removals that it knows
//! ([`DestinationTable::removals`]), and catches up when it is used.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{
    super::flow_ends::FlowService,
    destination_set::{DestinationId, DestinationSet},
};

/// The recent destinations of flows.
#[derive(Debug)]
pub(super) struct DestinationTable {
    /// The number of each destination.
    ids: BTreeMap<FlowService, DestinationId>,
    /// The destinations, by their numbers.
    destinations: Vec<KnownDestination>,
    /// The last removed destinations, in order.
    removed: VecDeque<DestinationId>,
    /// Number of removals so far.
    removals: u64,
    /// The index of the destination that was last considered for removal.
    hand: usize,
}

/// A destination of flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownDestination {
    /// The address, protocol and port of the destination.
    pub(super) service: FlowService,
    /// The Ethernet destination of the last flow.
    pub(super) ethernet: u128,
    /// Time of the last flow to the destination.
    used: Duration,
    /// Time since which the destination has its number.
    since: Duration,
}

/// The number of a destination, and the destination that had it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberedDestination {
    /// The number of the destination.
    pub(super) id: DestinationId,
    /// True if another destination had the number before.
    pub(super) is_reused: bool,
}

/// Number of destinations that are examined to find one to remove.
const CANDIDATES_MAX: usize = 8;

/// Maximum number of recorded removals, which sets of destinations apply later.
const REMOVED_MAX: usize = 256;

impl DestinationTable {
    /// Creates an empty table.
    pub(super) const fn new() -> Self {
        Self {
            ids: BTreeMap::new(),
            destinations: Vec::new(),
            removed: VecDeque::new(),
            removals: 0,
            hand: 0,
        }
    }

    /// Returns the number of destinations.
    pub(super) fn len(&self) -> usize {
        self.destinations.len()
    }

    /// Returns the number of destinations that were removed so far.
    pub(super) const fn removals(&self) -> u64 {
        self.removals
    }

    /// Returns a destination by its id.
    pub(super) fn find(&self, id: DestinationId) -> Option<&KnownDestination> {
        self.destinations.get(id.index())
    }

    /// Returns whether a destination has had its number for a time.
    ///
    /// The time is rounded up to milliseconds.
    pub(super) fn is_numbered_for(&self, id: DestinationId, age: Duration, now: Duration) -> bool {
        let begin = now.saturating_sub(age) + Duration::from_millis(1);
        self.find(id).is_some_and(|own| own.since <= begin)
    }

    /// Returns the number of the destination of a new flow.
    ///
    /// `None` means that the table is full of destinations that were used within `age_max`.
    pub(super) fn number(
        &mut self,
        service: FlowService,
        ethernet: u128,
        now: Duration,
        age_max: Duration,
    ) -> Option<NumberedDestination> {
        let new = KnownDestination { service, ethernet, used: now, since: now };
        if let Some(id) = self.ids.get(&service).copied() {
            let known = self.destinations.get_mut(id.index())?;
            *known = KnownDestination { since: known.since, ..new };
            return Some(NumberedDestination { id, is_reused: false });
        }
        if let Ok(id) = u8::try_from(self.destinations.len()) {
            self.destinations.push(new);
            self.ids.insert(service, DestinationId(id));
            return Some(NumberedDestination { id: DestinationId(id), is_reused: false });
        }
        let id = self.find_old(now, age_max)?;
        let old = self.destinations.get_mut(id.index())?;
        self.ids.remove(&old.service);
        *old = new;
        self.ids.insert(service, id);
        if self.removed.len() >= REMOVED_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back(id);
        self.removals += 1;
        Some(NumberedDestination { id, is_reused: true })
    }

    /// Returns a destination that was not used for `age_max`.
    fn find_old(&mut self, now: Duration, age_max: Duration) -> Option<DestinationId> {
        for _ in 0..CANDIDATES_MAX {
            self.hand = (self.hand + 1) % DestinationId::COUNT;
            let used = self.destinations.get(self.hand)?.used;
            if now.saturating_sub(used) >= age_max {
                return u8::try_from(self.hand).ok().map(DestinationId);
            }
        }
        None
    }

    /// Removes from `sets` the destinations of the removals after the first `known`.
    ///
    /// Too many removals empty the sets.
    pub(super) fn catch_up(&self, known: u64, sets: [&mut DestinationSet; 2]) {
        let missed = usize::try_from(self.removals - known).unwrap_or(usize::MAX);
        for set in sets {
            if missed > self.removed.len() {
                *set = DestinationSet::default();
            } else {
                self.removed.iter().rev().take(missed).for_each(|id| set.remove(*id));
            }
        }
    }
}
