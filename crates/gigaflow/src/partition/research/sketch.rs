//! A sketch of one kilobyte that counts distinct elements and measures their growth.
//!
//! The sketch is HyperLogLog (Flajolet, Fusy, Gandouet, Meunier, 2007) with the estimate of Cohen
//! ("All-Distances Sketches, Revisited: HIP Estimators", 2014) and Ting ("Streamed Approximate
//! Counting of Distinct Elements", 2014). A register keeps the longest run of leading zeros among
//! the hashes that select it. Each time a register grows, the count grows by `1 / q`, where `q` is
//! the probability that a new element makes some register grow.
//!
//! The estimate of Cohen and Ting is unbiased at every moment. So the *difference* between two
//! estimates is an unbiased estimate of the new elements between these moments. The usual estimate
//! of HyperLogLog is too coarse for this: its error is some percent of all elements so far, more
//! than the growth in a short window.

/// A sketch of the distinct hashes of a stream.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// The greatest rank of the hashes of each register.
    registers: [u8; REGISTERS],
    /// The sum over all registers of `2^-register`.
    ///
    /// This sum divided by the number of registers is the probability that a new element makes a
    /// register grow.
    open: f64,
    /// The estimated number of distinct hashes.
    distinct: f64,
}

impl Sketch {
    /// Creates the sketch of a stream without elements.
    #[must_use]
    pub const fn new() -> Self {
        #[expect(clippy::cast_precision_loss, reason = "the value is a small power of two")]
        let open = REGISTERS as f64;
        Self { registers: [0; REGISTERS], open, distinct: 0.0 }
    }

    /// Adds an element by its hash, and returns the growth of the distinct count.
    ///
    /// All bits of the hash must be well mixed.
    pub fn add(&mut self, hash: u64) -> f64 {
        let index = (hash >> (64 - INDEX_BITS)) as usize;
        // The added bit bounds the run of zeros, so that a rank fits into a register.
        let run = (hash << INDEX_BITS | 1 << (INDEX_BITS - 1)).leading_zeros();
        // A run is at most 64.
        let rank = u8::try_from(run + 1).unwrap_or(u8::MAX);
        let Some(register) = self.registers.get_mut(index).filter(|register| **register < rank)
        else {
            return 0.0;
        };
        #[expect(clippy::cast_precision_loss, reason = "the value is a small power of two")]
        let growth = REGISTERS as f64 / self.open;
        self.open += share(rank) - share(*register);
        *register = rank;
        self.distinct += growth;
        growth
    }

    /// Returns the number of distinct elements, within about three percent.
    #[must_use]
    pub const fn distinct(&self) -> f64 {
        self.distinct
    }
}

impl Default for Sketch {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the share of a register in the sum `open`: `2^-register`.
fn share(register: u8) -> f64 {
    (-f64::from(register)).exp2()
}

/// Number of bits of a hash that select its register.
const INDEX_BITS: u32 = 10;
/// Number of registers of a sketch.
const REGISTERS: usize = 1 << INDEX_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the hash of a number.
    fn hash(number: u64) -> u64 {
        let mut word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Adds numbers to a sketch.
    fn add(sketch: &mut Sketch, numbers: std::ops::Range<u64>) {
        for number in numbers {
            sketch.add(hash(number));
        }
    }

    #[test]
    fn distinct_elements_are_counted_within_a_tenth() {
        for count in [1_u32, 10, 100, 1000, 10_000, 100_000] {
            let mut sketch = Sketch::new();
            add(&mut sketch, 0..count.into());
            let ratio = sketch.distinct() / f64::from(count);
            assert!((0.9..1.1).contains(&ratio), "{count}: {}", sketch.distinct());
        }
    }

    #[test]
    fn repeated_elements_add_nothing() {
        let mut sketch = Sketch::new();
        add(&mut sketch, 0..5000);
        assert!((0..5000).all(|number| sketch.add(hash(number)) == 0.0));
    }

    #[test]
    fn growth_estimates_the_new_elements() {
        let mut sketch = Sketch::new();
        add(&mut sketch, 0..20_000);
        // Every fourth element of the next 20,000 is new.
        let of = |at: u64| if at.is_multiple_of(4) { 20_000 + at } else { at };
        let grown: f64 = (0..20_000).map(|at| sketch.add(hash(of(at)))).sum();
        assert!((3500.0..6500.0).contains(&grown), "{grown}");
    }

    #[test]
    fn every_hash_has_a_register_and_a_rank() {
        let mut sketch = Sketch::new();
        for hash in [0, u64::MAX, 1, 1 << 63, 1 << 55] {
            sketch.add(hash);
        }
        assert!(sketch.distinct() > 2.0 && sketch.open > 0.0);
    }
}
