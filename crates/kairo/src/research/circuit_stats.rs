//! Statistics of the engines that run in circuits of dbsp.

/// Counters of an engine in a circuit of dbsp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CircuitStats {
    /// Number of steps of the circuits.
    pub steps: u64,
    /// Number of steps that failed.
    /// Each failure evicted all entries and ended the circuit.
    pub errors: u64,
    /// Number of changes that exceeded a bound.
    /// A change beyond a bound evicts all entries of its tables.
    pub overflows: u64,
}
