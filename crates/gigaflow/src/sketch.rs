//! Counts what is distinct, and how fast there is more of it, in a kilobyte.
//!
//! This is HyperLogLog (Flajolet, Fusy, Gandouet, Meunier, 2007) with the estimate of Cohen
//! ("All-Distances Sketches, Revisited: HIP Estimators", 2014) and Ting ("Streamed Approximate
//! Counting of Distinct Elements", 2014): a register keeps the longest run of zeros that a hash of
//! its share of the stream began with, and whenever one grows, the count grows by the inverse of the
//! probability that a new element would have made some register grow.
//!
//! That estimate is unbiased at every moment. So the *difference* of two moments is an unbiased
//! estimate of what was new in between, which the usual estimate is not good for: its error is some
//! percent of all that was ever seen, and drowns the growth of a short window.

/// How many distinct hashes a stream had.
#[derive(Clone, Debug)]
pub struct Sketch {
    registers: [u8; REGISTERS],
    /// The sum over all registers of `2^-register`: a new element makes one grow with this
    /// probability, times the number of registers.
    open: f64,
    distinct: f64,
}

impl Sketch {
    /// The sketch of an empty stream.
    #[must_use]
    pub const fn new() -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a small power of two")]
        let open = REGISTERS as f64;
        Self { registers: [0; REGISTERS], open, distinct: 0.0 }
    }

    /// Adds an element by its hash, all of whose bits are good, and says by how much the count of
    /// distinct elements grew.
    pub fn add(&mut self, hash: u64) -> f64 {
        let index = (hash >> (64 - INDEX_BITS)) as usize;
        // The bit behind the others bounds the run, so that a rank fits in a register.
        let run = (hash << INDEX_BITS | 1 << (INDEX_BITS - 1)).leading_zeros();
        let rank = u8::try_from(run + 1).unwrap_or(u8::MAX);
        let Some(register) = self.registers.get_mut(index).filter(|register| **register < rank)
        else {
            return 0.0;
        };
        #[expect(clippy::cast_precision_loss, reason = "a small power of two")]
        let growth = REGISTERS as f64 / self.open;
        self.open += share(rank) - share(*register);
        *register = rank;
        self.distinct += growth;
        growth
    }

    /// How many distinct elements there were, within some three percent.
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

/// `2^-register`.
fn share(register: u8) -> f64 {
    (-f64::from(register)).exp2()
}

/// The bits of a hash that choose its register.
const INDEX_BITS: u32 = 10;
const REGISTERS: usize = 1 << INDEX_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        let mut word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

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
    fn what_was_seen_before_does_not_grow_it() {
        let mut sketch = Sketch::new();
        add(&mut sketch, 0..5000);
        assert!((0..5000).all(|number| sketch.add(hash(number)) == 0.0));
    }

    #[test]
    fn growth_is_the_share_of_what_is_new() {
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
