//! Statistics of the engines in circuits.

/// Counters of an engine in a circuit of dbsp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CircuitStats {
    /// Steps of the circuits.
    pub steps: u64,
    /// Steps that failed; each failure evicted all entries and ended the circuit.
    pub errors: u64,
    /// Changes that exceeded a bound; each evicted all entries of its tables.
    pub overflows: u64,
}
