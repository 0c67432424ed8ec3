//! What the engine and its circuit share: rules by number, gates, and what came out.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    actions::act,
    rules::Rules,
    state::{Packet, State},
};

/// Shared by the thread of the circuit and whoever steps it, one after the other.
pub(crate) struct Relation {
    pub(super) rules: Rules,
    /// Gates of lower positions are open.
    pub(super) open_below: u32,
    /// How many rows each gate holds, by position.
    pub(super) held: Vec<usize>,
    /// Whether a packet that loses its rule is stale: not if it is packets that change.
    pub(super) is_listening: bool,
    /// Packets that are stale, each with the position of a table that says so.
    pub(super) stale: Vec<(u64, u32)>,
    /// The next step fails.
    #[cfg(test)]
    pub(crate) is_failing: bool,
}

impl Relation {
    /// Of these rules and no packets.
    pub(super) const fn new(rules: Rules) -> Self {
        Self {
            rules,
            open_below: 0,
            held: Vec::new(),
            is_listening: false,
            stale: Vec::new(),
            #[cfg(test)]
            is_failing: false,
        }
    }

    /// Opens all gates. Nobody listens.
    pub(super) const fn open(&mut self) {
        self.open_below = u32::MAX;
        self.is_listening = false;
    }

    /// Opens the gates in front of a position and closes the others, for a change of rules.
    pub(super) const fn open_below(&mut self, position: u32) {
        self.open_below = position;
        self.is_listening = true;
    }

    /// Rows that gates hold.
    pub(super) fn held(&self) -> usize {
        self.held.iter().sum()
    }

    /// The table that a packet enters after a rule has matched it, and the packet then.
    pub(super) fn act(&self, rule: u32, state: &State) -> Option<(u8, State)> {
        let rule = self.rules.get(rule)?;
        let mut packet = Packet::of(state);
        let next = act(rule, &mut packet)?;
        let after = packet.to_state();
        Some((next.number(), if after == *state { State::clone(state) } else { after }))
    }
}

/// The relation, also after a panic of who held it: a step that failed is the end of it.
pub(super) fn locked(relation: &Mutex<Relation>) -> MutexGuard<'_, Relation> {
    relation.lock().unwrap_or_else(PoisonError::into_inner)
}
