//! The state that the engine and its circuit share: rules, gates and stale packets.

use super::{
    actions::apply_actions,
    rules::NumberedRules,
    state::{LookupPacket, PacketState},
};

/// The state that the thread of the circuit and the thread of the engine share.
/// The two threads use the state one after the other.
pub(crate) struct SharedTables {
    pub(super) rules: NumberedRules,
    /// The gates of tables before this position pass packets on.
    pub(super) open_below: u32,
    /// Number of rows that each gate holds, by position.
    pub(super) held: Vec<usize>,
    /// True while rules change: a packet that no longer matches its rule is then stale.
    pub(super) records_stale: bool,
    /// Stale packets, each with the position of the table where its match changed.
    pub(super) stale: Vec<(u64, u32)>,
    /// If set, the next step fails, for a test.
    #[cfg(test)]
    pub(crate) is_failing: bool,
}

impl SharedTables {
    /// Creates the state for these rules, without packets.
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

    /// Opens all gates, for a change of packets.
    pub(super) const fn open(&mut self) {
        self.open_below = u32::MAX;
        self.records_stale = false;
    }

    /// Opens the gates before a position and closes the others, for a change of rules.
    pub(super) const fn open_below(&mut self, position: u32) {
        self.open_below = position;
        self.records_stale = true;
    }

    /// Returns the number of rows that gates hold.
    pub(super) fn held(&self) -> usize {
        self.held.iter().sum()
    }

    /// Returns the next table of a packet that a rule matched, and its next state.
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
