//! Statistics of sets from the original ClassBench generator, for comparison.

use std::sync::LazyLock;

/// Statistics of a set of the original ClassBench generator.
///
/// [`Statistics`](super::Statistics) computes the same values for other sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedSet {
    /// The name of the parameter file, such as `acl1`.
    pub seed: &'static str,
    /// Number of requested filters.
    pub requested: u32,
    /// Number of filters after duplicates were dropped.
    pub rules: u32,
    /// Number of distinct pairs of prefix lengths.
    pub address_pairs: u32,
    /// Number of distinct masks, with each port range as a separate mask.
    pub masks: u32,
    /// Number of distinct masks, with a port range as a wildcard.
    pub masks_without_ranges: u32,
    /// Masked matches per filter, after port ranges are expanded.
    pub expansion: f64,
    /// Largest share of filters that pairwise do not overlap in some field.
    pub independent: f64,
}

/// All published sets.
pub static PUBLISHED: LazyLock<Vec<PublishedSet>> =
    LazyLock::new(|| TABLE.lines().filter_map(row).collect());

/// One row per set, with columns in the order of the fields of [`PublishedSet`].
static TABLE: &str = include_str!("../../data/classbench/original-generator.tsv");

/// Parses a line of the table of published rule sets.
fn row(line: &'static str) -> Option<PublishedSet> {
    let mut words = line.split('\t');
    let seed = words.next().filter(|word| !word.starts_with('#'))?;
    let mut count = || words.next()?.parse().ok();
    let (requested, rules, address_pairs) = (count()?, count()?, count()?);
    let (masks, masks_without_ranges) = (count()?, count()?);
    let mut share = || words.next()?.parse::<f64>().ok();
    let (expansion, independent) = (share()?, share()? / 100.0);
    Some(PublishedSet {
        seed,
        requested,
        rules,
        address_pairs,
        masks,
        masks_without_ranges,
        expansion,
        independent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_row_is_read() {
        let rows = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(PUBLISHED.len(), rows);
        assert!(PUBLISHED.iter().all(|set| set.rules <= set.requested && set.expansion >= 1.0));
    }
}
