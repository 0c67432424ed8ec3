//! Settings and statistics of the published engine.

use std::time::Duration;

/// The parameters of the published design, and a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedSettings {
    /// True if a change stops after the last table that it touches.
    /// Otherwise it passes all tables at once.
    pub has_gates: bool,
    /// Time that packets wait and gates hold rows (`T_prop`).
    /// `None` means until a batch is complete.
    pub propagation: Option<Duration>,
    /// Number of packets of a batch (`P_batch`).
    pub batch: usize,
    /// Number of times that a packet may pass a cycle of tables.
    pub layers: usize,
    /// The seed of every hash, so that a run can be repeated.
    pub seed: u64,
}

impl Default for PublishedSettings {
    /// Returns the published values: gates, two seconds, a hundred packets.
    fn default() -> Self {
        let propagation = Some(Duration::from_secs(2));
        Self { has_gates: true, propagation, batch: 100, layers: 4, seed: 0 }
    }
}

/// Counters and current sizes of a [`PublishedKairo`](super::PublishedKairo).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishedStats {
    /// Steps of the circuits.
    pub steps: u64,
    /// Circuits that were built: the first, and one for each new edge between tables.
    pub circuits: u64,
    /// Steps that failed; each failure evicted all entries and ended the circuit.
    pub errors: u64,
    /// Tables of the circuit, including copies.
    pub tables: usize,
    /// Rows that gates hold.
    pub held: usize,
    /// Packets that wait to be loaded or deleted.
    pub waiting: usize,
    /// Packets with entries that any change of a visited table evicts.
    pub untracked: usize,
}
