//! Generates a rule set from parameters, as ClassBench does.
//!
//! First each filter gets its independent parts: protocol, flags, ports, and prefix lengths
//! ([`FilterDraft`]). Next, all source addresses are generated together, bit by bit from the root
//! of a binary tree ([`source`](super::source)). At the end, all destination addresses are
//! generated, which may follow the sources ([`destination`](super::destination)). Duplicate filters
//! are dropped, so a set has fewer filters than requested. The most specific filters come first.

use super::{
    destination::grow_destinations,
    filter::{AddressPrefix, Filter, TcpFlags},
    lengths::PrefixLengthSampler,
    parameters::{Branching, PAIR_NAMES, Parameters, PortShares},
    ranges::PortRange,
    source::grow_sources,
};
use crate::{FilterRequestError, Progress, RandomStream, Seed, WeightedIndices};

/// The number of filters to generate, and the deviation from the parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterRequest {
    /// Number of filters to generate.
    ///
    /// The result has slightly fewer filters, because duplicates are dropped.
    pub rules: u32,
    /// Maximum difference of prefix lengths from the parameters in bits, 0 to 64.
    pub smoothness: u8,
    /// Bias of prefix lengths, from -1 for longer to 1 for shorter prefixes.
    pub address_scope: f64,
    /// Bias of port ranges, from -1 for narrower to 1 for wider ranges.
    pub port_scope: f64,
}

impl FilterRequest {
    /// Maximum number of filters in a set.
    pub const RULES_MAX: u32 = 10_000_000;
    /// Maximum smoothness of prefix lengths, in bits.
    pub const SMOOTHNESS_MAX: u8 = 64;

    /// Requests this many filters with the published settings.
    ///
    /// The settings are smoothness 2, address scope 0.5 and port scope -0.1.
    #[must_use]
    pub const fn new(rules: u32) -> Self {
        Self { rules, smoothness: 2, address_scope: 0.5, port_scope: -0.1 }
    }

    /// Fails if the number of rules, the smoothness or a scope is out of range.
    fn check(&self) -> Result<(), FilterRequestError> {
        if !(1..=Self::RULES_MAX).contains(&self.rules) {
            return Err(FilterRequestError::Rules { rules: self.rules, max: Self::RULES_MAX });
        }
        if self.smoothness > Self::SMOOTHNESS_MAX {
            let (smoothness, max) = (self.smoothness, Self::SMOOTHNESS_MAX);
            return Err(FilterRequestError::Smoothness { smoothness, max });
        }
        for (what, scope) in [("address", self.address_scope), ("port", self.port_scope)] {
            if !(-1.0..=1.0).contains(&scope) {
                return Err(FilterRequestError::Scope { what, scope });
            }
        }
        Ok(())
    }
}

/// A filter during generation, before its addresses are complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterDraft {
    pub(super) source: AddressPrefix,
    pub(super) destination: AddressPrefix,
    protocol: u8,
    flags: TcpFlags,
    ports: [PortRange; 2],
}

/// Generates a rule set, the most specific filters first.
///
/// # Errors
///
/// If the request is out of range.
pub fn generate(
    parameters: &Parameters,
    request: &FilterRequest,
    seed: Seed,
    progress: &Progress,
) -> Result<Vec<Filter>, FilterRequestError> {
    request.check()?;
    let mut stream = seed.stream("filters");
    let chooser = FilterSampler::new(parameters, request);
    let mut drafts = Vec::new();
    for number in 1..=request.rules {
        drafts.push(chooser.draft(request, &mut stream));
        if number % PROGRESS_STEP == 0 {
            progress.advance(u64::from(PROGRESS_STEP));
        }
    }
    let growth = f64::from(request.rules) / f64::from(parameters.scale);
    let sources = scale_branching(&parameters.source, growth);
    grow_sources(&mut drafts, &sources, &mut seed.stream("sources"));
    let destinations = scale_branching(&parameters.destination, growth);
    let correlation = &parameters.correlation;
    grow_destinations(&mut drafts, &destinations, correlation, &mut seed.stream("destinations"));
    Ok(most_specific_first(drafts.iter().map(FilterDraft::filter).collect()))
}

/// Number of filters between two progress updates.
const PROGRESS_STEP: u32 = 10_000;

impl FilterDraft {
    /// Returns the filter when it is complete.
    fn filter(&self) -> Filter {
        let [source_ports, destination_ports] = self.ports;
        Filter {
            source: self.source,
            destination: self.destination,
            source_ports,
            destination_ports,
            protocol: (self.protocol != 0).then_some(self.protocol),
            flags: self.flags,
        }
    }
}

/// Sorts the most specific filters first, and drops duplicates.
///
/// In this order, no filter hides a later filter.
fn most_specific_first(mut filters: Vec<Filter>) -> Vec<Filter> {
    filters.sort_unstable_by_key(|filter| {
        let address_bits = filter.source.length() + filter.destination.length();
        let ports = (filter.destination_ports.span(), filter.source_ports.span());
        let flags = filter.flags.mask().count_zeros();
        (ports, u8::MAX - address_bits, filter.protocol.is_none(), flags, *filter)
    });
    filters.dedup();
    filters
}

/// Changes the branching so that a larger set has more branches.
///
/// The growth is used up level by level from the root. A level that needs less than the remaining
/// growth to split evenly splits evenly; the next level uses a part of the rest.
fn scale_branching(branching: &Branching, growth: f64) -> Branching {
    let mut scaled = branching.clone();
    let mut left = if growth > 1.0 { growth } else { 0.0 };
    for level in scaled.levels.iter_mut().take(usize::from(AddressPrefix::LENGTH_MAX)) {
        if left <= 0.0 {
            break;
        }
        let unevenness = 2.0 * (1.0 - level.double + level.skew * level.double);
        let if_all_part = 2.0 * level.skew;
        if unevenness <= left {
            (level.single, level.double, level.skew) = (0.0, 1.0, 0.0);
        } else if unevenness - if_all_part > left {
            level.double = (1.0 - (unevenness - left) / 2.0) / (1.0 - level.skew);
            level.single = 1.0 - level.double;
        } else {
            (level.single, level.double) = (0.0, 1.0);
            level.skew = (level.skew - left / 2.0).max(0.0);
        }
        left -= unevenness;
    }
    scaled
}

/// Samplers for the distributions of the parameters.
struct FilterSampler<'a> {
    parameters: &'a Parameters,
    protocols: Option<WeightedIndices>,
    pairs: Vec<Option<WeightedIndices>>,
    flags: Vec<(u8, Option<WeightedIndices>)>,
    ports: [PortSampler<'a>; 2],
    lengths: Vec<Option<PrefixLengthSampler>>,
}

impl<'a> FilterSampler<'a> {
    /// Returns samplers of the parameters, with smoothed prefix lengths.
    fn new(parameters: &'a Parameters, request: &FilterRequest) -> Self {
        let protocols = &parameters.protocols;
        let flags = parameters.flags.iter().map(|flags| {
            (
                flags.protocol,
                WeightedIndices::new(flags.shares.iter().map(|(_, share)| *share)).ok(),
            )
        });
        let smoothness = usize::from(request.smoothness);
        let lengths = parameters.lengths.iter().map(|lengths| lengths.smooth(smoothness).chooser());
        Self {
            parameters,
            protocols: WeightedIndices::new(protocols.iter().map(|protocol| protocol.share)).ok(),
            pairs: protocols
                .iter()
                .map(|protocol| WeightedIndices::new(protocol.pairs).ok())
                .collect(),
            flags: flags.collect(),
            ports: [&parameters.source_ports, &parameters.destination_ports].map(PortSampler::new),
            lengths: lengths.collect(),
        }
    }

    /// Returns a random filter, of which prefixes are only lengths yet.
    fn draft(&self, request: &FilterRequest, stream: &mut RandomStream) -> FilterDraft {
        let row = self.protocols.as_ref().map_or(0, |protocols| protocols.sample(stream));
        let protocol = self.parameters.protocols.get(row).map_or(0, |protocol| protocol.protocol);
        let flags = self.choose_flags(protocol, stream);
        let share = sample_scoped(request.port_scope, stream);
        let pair = self.pairs.get(row).and_then(Option::as_ref).map_or(0, |pairs| pairs.at(share));
        let (source, destination) =
            PAIR_NAMES.get(pair).and_then(|name| name.split_once('_')).unwrap_or_default();
        let [source_ports, destination_ports] = &self.ports;
        let ports =
            [source_ports.choose(source, stream), destination_ports.choose(destination, stream)];
        let share = sample_scoped(request.address_scope, stream);
        let lengths = self.lengths.get(pair).and_then(Option::as_ref);
        let (source, destination) = lengths.map_or((0, 0), |lengths| lengths.choose(share, stream));
        let (source, destination) =
            (AddressPrefix::new(0, source), AddressPrefix::new(0, destination));
        FilterDraft { source, destination, protocol, flags, ports }
    }

    /// Chooses the TCP flags of a filter.
    fn choose_flags(&self, protocol: u8, stream: &mut RandomStream) -> TcpFlags {
        let rows = self.flags.iter().zip(&self.parameters.flags);
        let row = rows.into_iter().find(|((of, _), _)| *of == protocol);
        let sampled = row.and_then(|((_, weighted), flags)| {
            let index = weighted.as_ref()?.sample(stream);
            flags.shares.get(index)
        });
        sampled.map_or(TcpFlags::ANY, |(flags, _)| *flags)
    }
}

/// Samples a number from 0 to 1; a greater scope makes low numbers more likely.
fn sample_scoped(scope: f64, stream: &mut RandomStream) -> f64 {
    let share = stream.unit();
    share * (scope * share - scope + 1.0)
}

/// The samplers of port ranges and single ports, of sources or of destinations.
struct PortSampler<'a> {
    shares: &'a PortShares,
    ranges: Option<WeightedIndices>,
    exact: Option<WeightedIndices>,
}

impl<'a> PortSampler<'a> {
    /// Returns samplers for ports; a distribution without shares has none.
    fn new(shares: &'a PortShares) -> Self {
        let weighted = |ports: &[(PortRange, f64)]| {
            WeightedIndices::new(ports.iter().map(|(_, share)| *share)).ok()
        };
        Self { shares, ranges: weighted(&shares.ranges), exact: weighted(&shares.exact) }
    }

    /// Samples ports of a port class, given by its name in the format.
    fn choose(&self, class: &str, stream: &mut RandomStream) -> PortRange {
        let (ports, weighted) = match class {
            "lo" => return PortRange::LOW,
            "hi" => return PortRange::HIGH,
            "ar" => (&self.shares.ranges, &self.ranges),
            "em" => (&self.shares.exact, &self.exact),
            _ => return PortRange::ANY,
        };
        let index = weighted.as_ref().map(|weighted| weighted.sample(stream));
        let sampled = index.and_then(|index| ports.get(index));
        sampled.map_or(PortRange::ANY, |(range, _)| *range)
    }
}
