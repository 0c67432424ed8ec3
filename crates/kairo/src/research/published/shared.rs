//! What the engine and its circuit share: rules by number, gates, and what came out.

use super::{
    actions::apply_actions,
    rules::NumberedRules,
    state::{LookupPacket, PacketState},
};

/// Shared by the thread of the circuit and whoever steps it, one after the other.
pub(crate) struct SharedTables {
    pub(super) rules: NumberedRules,
    /// Gates of lower positions are open.
    pub(super) open_below: u32,
    /// How many rows each gate holds, by position.
    pub(super) held: Vec<usize>,
    /// Whether a packet that loses its rule is stale: not if it is packets that change.
    pub(super) records_stale: bool,
    /// Packets that are stale, each with the position of a table that says so.
    pub(super) stale: Vec<(u64, u32)>,
    /// The next step fails.
    #[cfg(test)]
    pub(crate) is_failing: bool,
}

impl SharedTables {
    /// Of these rules and no packets.
    pub(super) const fn new(rules: NumberedRules) -> Self {
        Self {
            rules,
            open_below: 0,
            held: Vec::new(),
            records_stale: false,
            stale: Vec::new(),
            #[cfg(test)]
            is_failing: false,
        }
    }

    /// Opens all gates. Nobody listens.
    pub(super) const fn open(&mut self) {
        self.open_below = u32::MAX;
        self.records_stale = false;
    }

    /// Opens the gates in front of a position and closes the others, for a change of rules.
    pub(super) const fn open_below(&mut self, position: u32) {
        self.open_below = position;
        self.records_stale = true;
    }

    /// Rows that gates hold.
    pub(super) fn held(&self) -> usize {
        self.held.iter().sum()
    }

    /// The table that a packet enters after a rule has matched it, and the packet then.
    pub(super) fn apply_actions(
        &self,
        rule: u32,
        state: &PacketState,
    ) -> Option<(u8, PacketState)> {
        let rule = self.rules.get(rule)?;
        let mut packet = LookupPacket::of(state);
        let next = apply_actions(rule, &mut packet)?;
        let after = packet.to_state();
        Some((next.number(), if after == *state { PacketState::clone(state) } else { after }))
    }
}
