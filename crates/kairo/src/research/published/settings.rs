//! How a mirror is set up, and what it tells of itself.

use std::time::Duration;

/// The parameters of the published design, and a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedSettings {
    /// Whether a change stops behind the last table that it touches; else it goes on to the end of
    /// all tables at once.
    pub has_gates: bool,
    /// How long packets wait, and what gates hold (`T_prop`); `None`: until there is a batch.
    pub propagation: Option<Duration>,
    /// How many packets go in together (`P_batch`).
    pub batch: usize,
    /// How often a packet may come by in a cycle of tables.
    pub layers: usize,
    /// Goes into every hash, so that a run can be repeated.
    pub seed: u64,
}

impl Default for PublishedSettings {
    /// As published: gates, two seconds, a hundred packets.
    fn default() -> Self {
        let propagation = Some(Duration::from_secs(2));
        Self { has_gates: true, propagation, batch: 100, layers: 4, seed: 0 }
    }
}

/// What has happened to a mirror, and how it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishedStats {
    /// Steps of its circuits.
    pub steps: u64,
    /// Circuits that were built: one at first, and one for each new way from table to table.
    pub circuits: u64,
    /// Steps that failed: each took all entries, and the circuit.
    pub errors: u64,
    /// Tables of the circuit, copies included.
    pub tables: usize,
    /// Rows that gates hold.
    pub held: usize,
    /// Packets that wait to be put in or deleted.
    pub waiting: usize,
    /// Packets whose entries any change of a table that they visit evicts.
    pub untracked: usize,
}
