//! The sampled comparison of installed and withheld forecasts.
//!
//! A hit of a predicted entry does not prove that the forecast saved a miss. Other traffic may have
//! added entries that cover the flow too, as with the shared sub-traversals of Gigaflow. So a
//! switch withholds one of about 16 forecasts, and counts the withheld flows that miss. The
//! withheld forecasts are the control group of an experiment, and their share of misses is the
//! number of misses that an installed forecast saves.
//!
//! [`Comparison`] gives the worth of a hit: the misses of a withheld forecast for each hit of an
//! installed one. A few withheld forecasts are a weak proof, so [`Comparison::hit_worth`] favors the
//! predictor. It assumes [`PRIOR`] more withheld forecasts, of which as many missed as installed
//! ones were hit. It also adds one standard deviation to the number of misses.

use crate::outcome::OutcomeCounts;

/// The outcomes of installed and withheld forecasts, older ones with less weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Number of installed forecasts that were hit.
    hits: u64,
    /// Number of installed forecasts with a known outcome.
    settled: u64,
    /// Number of withheld forecasts of which the flow missed.
    arrived: u64,
    /// Number of withheld forecasts that ended without a miss.
    unneeded: u64,
}

/// The worth of one saved miss.
pub(crate) const MISS_WORTH: u64 = 1024;

/// Number of withheld forecasts that are assumed to equal the installed ones.
const PRIOR: u64 = 4;

/// Number of ended withheld forecasts with their full weight.
///
/// With more of them, all outcomes lose half of their weight.
const WITHHELD_MAX: u64 = 64;

impl Comparison {
    /// Adds the outcomes since `before`.
    pub(crate) const fn add(&mut self, before: &OutcomeCounts, counts: &OutcomeCounts) {
        self.hits += counts.hits.saturating_sub(before.hits);
        self.settled += counts.settled().saturating_sub(before.settled());
        self.arrived += counts.arrived.saturating_sub(before.arrived);
        self.unneeded += counts.unneeded.saturating_sub(before.unneeded);
        if self.arrived + self.unneeded > WITHHELD_MAX {
            self.age();
        }
    }

    /// Halves the weight of all outcomes so far.
    pub(crate) const fn age(&mut self) {
        self.hits /= 2;
        self.settled /= 2;
        self.arrived /= 2;
        self.unneeded /= 2;
    }

    /// Returns the worth of a hit, at most [`MISS_WORTH`].
    pub(crate) fn hit_worth(&self) -> u64 {
        let withheld = self.arrived + self.unneeded;
        if withheld == 0 || self.hits == 0 {
            return MISS_WORTH;
        }
        let likely = (self.arrived + (self.arrived + 1).isqrt()).min(withheld);
        let misses = u128::from(likely * self.settled.max(self.hits) + PRIOR * self.hits);
        let worth = misses * u128::from(MISS_WORTH) / u128::from((withheld + PRIOR) * self.hits);
        u64::try_from(worth).map_or(MISS_WORTH, |worth| worth.min(MISS_WORTH))
    }

    /// Returns whether the hits alone, without the withheld forecasts, would pay.
    pub(crate) const fn hits_suffice(&self, tokens_per_hit: u64) -> bool {
        self.hits > 0 && self.hits * tokens_per_hit >= self.settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the worth of a hit in percent of a miss.
    fn worth(hits: u64, settled: u64, arrived: u64, unneeded: u64) -> u64 {
        Comparison { hits, settled, arrived, unneeded }.hit_worth() * 100 / MISS_WORTH
    }

    #[test]
    fn a_hit_is_worth_the_misses_of_withheld_forecasts() {
        assert_eq!(worth(300, 300, 0, 0), 100, "nothing is withheld");
        assert_eq!(worth(0, 300, 0, 20), 100, "no hit has a worth");
        assert_eq!(worth(300, 300, 20, 0), 100);
        assert_eq!(worth(150, 300, 10, 10), 100, "the shares are equal");
        assert!(worth(300, 300, 10, 10) < 80);
        assert!(worth(300, 300, 0, 20) < 25);
    }

    /// Three withheld forecasts prove less than twenty.
    #[test]
    fn few_withheld_forecasts_change_little() {
        let worths = [1, 3, 10, 20, 60].map(|withheld| worth(300, 300, 0, withheld));
        assert!(worths.is_sorted_by(|one, other| one > other), "{worths:?}");
        assert!(worths[1] > 50, "{worths:?}");
    }

    #[test]
    fn old_outcomes_lose_their_weight() {
        let (mut comparison, mut counts) = (Comparison::default(), OutcomeCounts::default());
        let mut add = |hits, arrived, unneeded| {
            let before = counts;
            counts.hits += hits;
            counts.arrived += arrived;
            counts.unneeded += unneeded;
            comparison.add(&before, &counts);
            comparison.hit_worth() * 2 > MISS_WORTH
        };
        assert!(!add(960, 0, 64));
        assert!((0..10).any(|_| add(240, 16, 0)), "the flows of the predictor miss now");
    }
}
