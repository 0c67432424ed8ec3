//! Statistics of a rule set that matter to classifiers.

use std::fmt;

use super::{filter::Filter, ranges::PortRange};

/// A field of a filter, for the statistics of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterField {
    /// The source addresses of filters.
    Source,
    /// The destination addresses of filters.
    Destination,
    /// The source ports of filters.
    SourcePorts,
    /// The destination ports of filters.
    DestinationPorts,
    /// The protocol of filters.
    Protocol,
}

impl FilterField {
    /// All fields of a filter.
    const ALL: [Self; 5] = [
        Self::Source,
        Self::Destination,
        Self::SourcePorts,
        Self::DestinationPorts,
        Self::Protocol,
    ];

    /// Returns the first and the last value that a filter matches in this field.
    fn range(self, filter: &Filter) -> (u32, u32) {
        let ports = |range: PortRange| (u32::from(range.low()), u32::from(range.high()));
        match self {
            Self::Source => (filter.source.address(), filter.source.last()),
            Self::Destination => (filter.destination.address(), filter.destination.last()),
            Self::SourcePorts => ports(filter.source_ports),
            Self::DestinationPorts => ports(filter.destination_ports),
            Self::Protocol => {
                filter.protocol.map_or((0, 255), |number| (number.into(), number.into()))
            }
        }
    }
}

impl fmt::Display for FilterField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source address",
            Self::Destination => "destination address",
            Self::SourcePorts => "source port",
            Self::DestinationPorts => "destination port",
            Self::Protocol => "protocol",
        })
    }
}

/// Statistics of a rule set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// Number of filters in the set.
    pub rules: usize,
    /// Number of distinct pairs of prefix lengths.
    pub address_pairs: usize,
    /// Number of distinct masks, with each port range as a separate mask.
    pub masks: usize,
    /// Number of distinct masks, with a port range as a wildcard.
    ///
    /// Tuple space search has one tuple for each of these masks.
    pub masks_without_ranges: usize,
    /// Masked matches per filter, after port ranges are expanded.
    pub expansion: f64,
    /// Largest share of filters that pairwise do not overlap in some field.
    pub independent: f64,
    /// The field in which that share of filters does not overlap.
    pub independent_in: FilterField,
    /// Mean number of filters with equal values in growing sets of fields.
    ///
    /// The sets are: destination; both addresses; with the protocol; with the destination ports;
    /// all five fields.
    pub recurrence: [f64; 5],
}

impl Statistics {
    /// Computes the statistics of filters.
    #[must_use]
    pub fn of(filters: &[Filter]) -> Self {
        let lengths = |filter: &Filter| (filter.source.length(), filter.destination.length());
        let exact = |range: PortRange| range.span() == 0;
        let with_ranges = |filter: &Filter| {
            let kind = |range| if exact(range) { None } else { Some(range) };
            (
                lengths(filter),
                kind(filter.source_ports),
                kind(filter.destination_ports),
                filter.protocol.is_some(),
            )
        };
        let without_ranges = |filter: &Filter| {
            let ports = (exact(filter.source_ports), exact(filter.destination_ports));
            (lengths(filter), ports, filter.protocol.is_some())
        };
        let expanded = filters.iter().map(|filter| {
            filter.source_ports.masks().count() * filter.destination_ports.masks().count()
        });
        let (independent, independent_in) = most_independent(filters);
        Self {
            rules: filters.len(),
            address_pairs: different(filters, lengths),
            masks: different(filters, with_ranges),
            masks_without_ranges: different(filters, without_ranges),
            expansion: ratio(expanded.sum(), filters.len()),
            independent: ratio(independent, filters.len()),
            independent_in,
            recurrence: recurrences(filters),
        }
    }
}

/// Returns how often values of more and more fields recur.
fn recurrences(filters: &[Filter]) -> [f64; 5] {
    let pair = |filter: &Filter| (filter.source, filter.destination);
    let counts = [
        different(filters, |filter| filter.destination),
        different(filters, pair),
        different(filters, |filter| (pair(filter), filter.protocol)),
        different(filters, |filter| (pair(filter), filter.protocol, filter.destination_ports)),
        different(filters, |filter| {
            (pair(filter), filter.protocol, filter.destination_ports, filter.source_ports)
        }),
    ];
    counts.map(|count| ratio(filters.len(), count))
}

/// Returns the mean number of filters per tuple of header fields.
///
/// Entry k is the mean over all sets of k + 1 fields.
#[must_use]
pub fn tuple_recurrence(filters: &[Filter]) -> [f64; 5] {
    let mut sums = [0.0; 5];
    let mut choices = [0_u32; 5];
    for choice in 1_u32..1 << FilterField::ALL.len() {
        let has = |field: usize| choice & (1 << field) != 0;
        let tuple = |filter: &Filter| {
            let fields = FilterField::ALL.iter().enumerate().filter(|(index, _)| has(*index));
            fields.map(|(_, field)| field.range(filter)).collect::<Vec<_>>()
        };
        let size = (choice.count_ones() as usize).saturating_sub(1);
        if let (Some(sum), Some(count)) = (sums.get_mut(size), choices.get_mut(size)) {
            *sum += ratio(filters.len(), different(filters, tuple));
            *count += 1;
        }
    }
    let means = sums.iter().zip(choices).map(|(sum, count)| sum / f64::from(count));
    let mut all = [0.0; 5];
    all.iter_mut().zip(means).for_each(|(slot, mean)| *slot = mean);
    all
}

/// Returns the number of distinct values of `key` over the filters.
fn different<K: Ord>(filters: &[Filter], key: impl Fn(&Filter) -> K) -> usize {
    let mut keys: Vec<K> = filters.iter().map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.len()
}

/// Returns the field in which most filters do not overlap, and their number.
///
/// In each field, a greedy choice of the range that ends first gives the maximum.
fn most_independent(filters: &[Filter]) -> (usize, FilterField) {
    let counts = FilterField::ALL.map(|field| {
        let mut ranges: Vec<(u32, u32)> = filters
            .iter()
            .map(|filter| field.range(filter))
            .map(|(first, last)| (last, first))
            .collect();
        ranges.sort_unstable();
        let mut end: Option<u32> = None;
        let taken = ranges.iter().filter(|(last, first)| {
            let free = end.is_none_or(|end| *first > end);
            if free {
                end = Some(*last);
            }
            free
        });
        (taken.count(), field)
    });
    let best = counts.into_iter().reduce(|best, other| if other.0 > best.0 { other } else { best });
    best.unwrap_or((0, FilterField::Source))
}

/// Returns the quotient of two counts.
#[expect(clippy::cast_precision_loss, reason = "counts of filters are below 2^53")]
fn ratio(count: usize, of: usize) -> f64 {
    if of == 0 { 0.0 } else { count as f64 / of as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classbench::read_filters;

    #[test]
    fn statistics_of_a_small_set_are_right() {
        let text = "@10.0.0.0/8\t1.0.0.0/8\t0 : 65535\t80 : 80\t0x06/0xFF\n\
                    @10.1.0.0/16\t1.0.0.0/8\t0 : 65535\t1024 : 65535\t0x06/0xFF\n\
                    @10.2.0.0/16\t1.0.0.0/8\t0 : 65535\t1024 : 65535\t0x06/0xFF\n\
                    @10.2.0.0/16\t1.0.0.0/8\t0 : 65535\t0 : 65535\t0x00/0x00\n";
        let statistics = Statistics::of(&read_filters(text).unwrap());
        assert_eq!((statistics.rules, statistics.address_pairs), (4, 2));
        assert_eq!((statistics.masks, statistics.masks_without_ranges), (3, 3));
        assert_eq!(statistics.expansion, (1.0 + 6.0 + 6.0 + 1.0) / 4.0);
        assert_eq!((statistics.independent, statistics.independent_in), (0.5, FilterField::Source));
        assert_eq!(statistics.recurrence[0], 4.0);
    }

    #[test]
    fn tuples_with_more_fields_recur_less() {
        let text = "@10.0.0.0/8\t1.0.0.0/8\t0 : 65535\t80 : 80\t0x06/0xFF\n\
                    @10.0.0.0/8\t2.0.0.0/8\t0 : 65535\t80 : 80\t0x06/0xFF\n";
        let [one, two, .., five] = tuple_recurrence(&read_filters(text).unwrap());
        // The filters differ only in the destination; six of ten pairs of fields do not include it.
        assert_eq!((one, two, five), ((4.0 * 2.0 + 1.0) / 5.0, (6.0 * 2.0 + 4.0) / 10.0, 1.0));
    }

    #[test]
    fn an_empty_filter_list_has_no_statistics() {
        let statistics = Statistics::of(&[]);
        assert_eq!((statistics.rules, statistics.expansion), (0, 0.0));
    }
}
