//! The joint distribution of source and destination prefix lengths, for each pair of port classes.

use super::filter::AddressPrefix;
use crate::{RandomStream, WeightedIndices};

/// Maximum prefix length, as an index.
const LENGTH_MAX: usize = AddressPrefix::LENGTH_MAX as usize;
/// Maximum sum of source and destination length.
pub(super) const TOTAL_MAX: usize = 2 * LENGTH_MAX;

/// Offset greater than any spread.
const SHIFT: usize = 2 * super::generate::FilterRequest::SMOOTHNESS_MAX as usize;

/// The joint distribution of source and destination prefix lengths.
///
/// The distribution consists of the shares of the sums of both lengths, and of the shares of source
/// lengths for each sum.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lengths {
    totals: [f64; TOTAL_MAX + 1],
    /// One distribution of source lengths for each sum.
    sources: Vec<[f64; LENGTH_MAX + 1]>,
}

impl Lengths {
    /// Creates an empty distribution.
    pub(super) fn empty() -> Self {
        Self { totals: [0.0; TOTAL_MAX + 1], sources: vec![[0.0; LENGTH_MAX + 1]; TOTAL_MAX + 1] }
    }

    /// Returns whether all shares are 0.
    pub(super) fn is_empty(&self) -> bool {
        self.totals.iter().all(|share| *share == 0.0)
    }

    /// Sets the share of a sum of lengths.
    pub(super) fn set_total(&mut self, total: usize, share: f64) {
        if let Some(slot) = self.totals.get_mut(total) {
            *slot = share;
        }
    }

    /// Sets the share of a source length among the filters with a sum of lengths.
    pub(super) fn set_source(&mut self, total: usize, source: usize, share: f64) {
        if let Some(slot) = self.sources.get_mut(total).and_then(|row| row.get_mut(source)) {
            *slot = share;
        }
    }

    /// Returns the sums of lengths that occur, with their shares and source lengths.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, f64, Vec<(usize, f64)>)> {
        let rows = self.totals.iter().zip(&self.sources).enumerate();
        rows.filter(|(_, (share, _))| **share > 0.0).map(|(total, (share, sources))| {
            let present = sources.iter().copied().enumerate().filter(|(_, share)| *share > 0.0);
            (total, *share, present.collect())
        })
    }

    /// Spreads each length over lengths that differ by at most `spread` bits.
    ///
    /// So a set has more lengths than the few of its model. The source lengths of a sum get
    /// additional weight from near sums, in proportion to their shares, and keep their own weight.
    /// So the source lengths of a sum stay nearly unchanged.
    pub(super) fn smooth(&self, spread: usize) -> Self {
        let mut smooth = Self::empty();
        let across = binomial(spread.saturating_mul(2));
        for (total, share, sources) in self.rows() {
            for (step, part) in across.iter().enumerate() {
                let moved = total.saturating_add(step).checked_sub(spread);
                if let Some(slot) = moved.and_then(|total| smooth.totals.get_mut(total)) {
                    *slot += share * part;
                }
            }
            for (source, weight) in sources {
                smooth.spread_source(total, source, spread, weight, share);
            }
        }
        smooth.remove_impossible();
        smooth
    }

    /// Spreads a weight over the source lengths near `source`.
    fn spread_source(
        &mut self,
        total: usize,
        source: usize,
        spread: usize,
        weight: f64,
        share: f64,
    ) {
        let slack = spread / 2;
        self.add(total, source + SHIFT - slack, slack * 2, weight);
        for moved in 1..=spread {
            let slack = (spread - moved) / 2;
            let width = moved + slack * 2;
            // The source length takes a part of the `moved` bits, in either direction.
            if let Some(total) = total.checked_sub(moved) {
                self.add(total, source + SHIFT - moved - slack, width, weight * share);
            }
            self.add(total + moved, source + SHIFT - slack, width, weight * share);
        }
    }

    /// Adds weight to `width` + 1 source lengths from `start` on, mostly in the middle.
    ///
    /// `start` includes [`SHIFT`], so that it cannot be negative.
    fn add(&mut self, total: usize, start: usize, width: usize, weight: f64) {
        let Some(row) = self.sources.get_mut(total) else { return };
        for (step, part) in binomial(width).into_iter().enumerate() {
            let source = start.saturating_add(step).checked_sub(SHIFT);
            if let Some(slot) = source.and_then(|source| row.get_mut(source)) {
                *slot += weight * part;
            }
        }
    }

    /// Removes lengths longer than an address.
    fn remove_impossible(&mut self) {
        for (total, row) in self.sources.iter_mut().enumerate() {
            for (source, slot) in row.iter_mut().enumerate() {
                if source > total || total - source > LENGTH_MAX {
                    *slot = 0.0;
                }
            }
        }
    }

    /// Returns a sampler of the distribution; `None` for an empty distribution.
    pub(super) fn chooser(&self) -> Option<PrefixLengthSampler> {
        let totals = WeightedIndices::new(self.totals).ok()?;
        let sources = self.sources.iter().map(|row| WeightedIndices::new(*row).ok()).collect();
        Some(PrefixLengthSampler { totals, sources })
    }
}

/// Samples prefix lengths.
#[derive(Clone, Debug)]
pub(super) struct PrefixLengthSampler {
    totals: WeightedIndices,
    sources: Vec<Option<WeightedIndices>>,
}

impl PrefixLengthSampler {
    /// Returns source and destination length; `share` selects their sum.
    pub(super) fn choose(&self, share: f64, stream: &mut RandomStream) -> (u8, u8) {
        let total = self.totals.at(share);
        let sampled = self.sources.get(total).and_then(Option::as_ref);
        let source = sampled.map_or(total / 2, |weighted| weighted.sample(stream));
        let byte = |length: usize| {
            u8::try_from(length.min(LENGTH_MAX)).unwrap_or(AddressPrefix::LENGTH_MAX)
        };
        (byte(source), byte(total.saturating_sub(source)))
    }
}

/// Returns the probability of each number of heads in `throws` coin throws.
fn binomial(throws: usize) -> Vec<f64> {
    let throws = u32::try_from(throws).unwrap_or(u32::MAX);
    let mut likely = (0..throws).fold(1.0, |all: f64, _| all / 2.0);
    let mut all = Vec::new();
    for heads in 0..=throws {
        all.push(likely);
        likely *= f64::from(throws - heads) / f64::from(heads + 1);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    /// Returns a distribution with one pair of lengths.
    fn spike(total: usize, source: usize) -> Lengths {
        let mut lengths = Lengths::empty();
        lengths.set_total(total, 1.0);
        lengths.set_source(total, source, 1.0);
        lengths
    }

    #[test]
    fn smoothing_spreads_a_prefix_length() {
        let smooth = spike(40, 16).smooth(2);
        let totals: Vec<_> = smooth.rows().map(|(total, share, _)| (total, share)).collect();
        assert_eq!(totals, [(38, 0.0625), (39, 0.25), (40, 0.375), (41, 0.25), (42, 0.0625)]);
        for (total, _, sources) in smooth.rows() {
            for (source, _) in sources {
                let away = source.abs_diff(16) + (total - source).abs_diff(24);
                assert!(away <= 2, "{source} and {}", total - source);
            }
        }
    }

    #[test]
    fn smoothing_by_zero_changes_nothing() {
        assert_eq!(spike(40, 16).smooth(0), spike(40, 16));
    }

    #[test]
    fn the_maximum_smoothing_is_accepted() {
        assert!(spike(0, 0).smooth(64).rows().count() > 60);
    }

    #[test]
    fn prefix_lengths_stay_within_addresses() {
        let mut stream = Seed::new(1).stream("lengths");
        for (total, source) in [(0, 0), (64, 32), (32, 32), (32, 0), (1, 1)] {
            let chooser = spike(total, source).smooth(8).chooser().unwrap();
            for _ in 0..500 {
                let share = stream.unit();
                let (source, destination) = chooser.choose(share, &mut stream);
                assert!(source <= 32 && destination <= 32);
            }
        }
    }
}
