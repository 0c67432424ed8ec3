//! What the engines in circuits have in common.

/// What has happened to an engine in a circuit of dbsp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CircuitStats {
    /// Steps of its circuits.
    pub steps: u64,
    /// Steps that failed: each took all entries, and the circuit.
    pub errors: u64,
    /// Changes that were too much to be looked at one by one: each took all entries of its tables.
    pub overflows: u64,
}
