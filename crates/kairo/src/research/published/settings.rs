//! Settings and statistics of the published engine.

use std::time::Duration;

/// The parameters of the published design, and the seed of all hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedSettings {
    /// True if gates stop a change of rules after the last changed table.
    /// Without gates, a change passes all tables at once.
    pub has_gates: bool,
    /// The time that packets wait and gates hold rows (`T_prop` in the paper).
    /// `None` means that they wait until a batch is complete.
    pub propagation: Option<Duration>,
    /// Number of packets of a batch (`P_batch` in the paper).
    pub batch: usize,
    /// Number of times that a packet of the circuit may pass a cycle of tables.
    pub layers: usize,
    /// The seed of every hash; runs with the same seed are equal.
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
    /// Number of steps of the circuits.
    pub steps: u64,
    /// Number of circuits: the first, and one for each new edge between tables.
    pub circuits: u64,
    /// Number of steps that failed.
    /// Each failure evicted all entries and ended the circuit.
    pub errors: u64,
    /// Number of tables of the circuit, including copies.
    pub tables: usize,
    /// Number of rows that gates hold.
    pub held: usize,
    /// Number of packets that wait to be loaded or deleted.
    pub waiting: usize,
    /// Number of packets that the circuit does not model.
    /// Any change of a table that an untracked packet visits evicts its entries.
    pub untracked: usize,
}
