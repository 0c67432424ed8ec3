//! Makes a rule-set from its parameters, as ClassBench does.
//!
//! First each filter gets what does not depend on the others: protocol, flags, ports, and lengths of
//! its prefixes ([`Draft`]). Then all source addresses are made together, bit by bit from the root
//! of a binary tree ([`source`](super::source)), then all destinations, which may follow the sources
//! ([`destination`](super::destination)). Equal filters are one, so a set has fewer than were asked
//! for; the most specific come first.

use super::{
    destination::grow_destinations,
    filter::{Filter, Prefix, TcpFlags},
    lengths::LengthChooser,
    parameters::{Branching, PAIR_NAMES, Parameters, PortShares},
    ranges::PortRange,
    source::grow_sources,
};
use crate::{Progress, RandomStream, RequestError, Seed, Weighted};

/// How many filters to make, and how freely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// How many; the set has somewhat fewer, as equal ones are one.
    pub rules: u32,
    /// By how many bits prefix lengths may differ from those of the parameters, 0 to 64.
    pub smoothness: u8,
    /// From -1 for longer prefixes to 1 for shorter ones.
    pub address_scope: f64,
    /// From -1 for narrower ports to 1 for wider ones.
    pub port_scope: f64,
}

impl Request {
    /// The most filters of a set.
    pub const RULES_MAX: u32 = 10_000_000;
    /// The greatest smoothness.
    pub const SMOOTHNESS_MAX: u8 = 64;

    /// That many filters, with the freedom that published sets were made with: smoothness 2,
    /// address scope 0.5, port scope -0.1.
    #[must_use]
    pub const fn new(rules: u32) -> Self {
        Self { rules, smoothness: 2, address_scope: 0.5, port_scope: -0.1 }
    }

    fn check(&self) -> Result<(), RequestError> {
        if !(1..=Self::RULES_MAX).contains(&self.rules) {
            return Err(RequestError::Rules { rules: self.rules, max: Self::RULES_MAX });
        }
        if self.smoothness > Self::SMOOTHNESS_MAX {
            let (smoothness, max) = (self.smoothness, Self::SMOOTHNESS_MAX);
            return Err(RequestError::Smoothness { smoothness, max });
        }
        for (what, scope) in [("address", self.address_scope), ("port", self.port_scope)] {
            if !(-1.0..=1.0).contains(&scope) {
                return Err(RequestError::Scope { what, scope });
            }
        }
        Ok(())
    }
}

/// A filter while its addresses are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    pub(super) source: Prefix,
    pub(super) destination: Prefix,
    protocol: u8,
    flags: TcpFlags,
    ports: [PortRange; 2],
}

/// Makes a rule-set, the most specific filters first.
///
/// # Errors
///
/// A request out of range.
pub fn generate(
    parameters: &Parameters,
    request: &Request,
    seed: Seed,
    progress: &Progress,
) -> Result<Vec<Filter>, RequestError> {
    request.check()?;
    let mut stream = seed.stream("filters");
    let chooser = Chooser::new(parameters, request);
    let mut drafts = Vec::new();
    for number in 1..=request.rules {
        drafts.push(chooser.draft(request, &mut stream));
        if number % PROGRESS_STEP == 0 {
            progress.advance(u64::from(PROGRESS_STEP));
        }
    }
    let growth = f64::from(request.rules) / f64::from(parameters.scale);
    let sources = scaled(&parameters.source, growth);
    grow_sources(&mut drafts, &sources, &mut seed.stream("sources"));
    let destinations = scaled(&parameters.destination, growth);
    let correlation = &parameters.correlation;
    grow_destinations(&mut drafts, &destinations, correlation, &mut seed.stream("destinations"));
    Ok(ordered(drafts.iter().map(Draft::filter).collect()))
}

/// How many filters are made between two notes of progress.
const PROGRESS_STEP: u32 = 10_000;

impl Draft {
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

/// Puts the most specific first, so that no filter is hidden by one before it, and drops copies.
fn ordered(mut filters: Vec<Filter>) -> Vec<Filter> {
    filters.sort_unstable_by_key(|filter| {
        let address_bits = filter.source.length() + filter.destination.length();
        let ports = (filter.destination_ports.span(), filter.source_ports.span());
        let flags = filter.flags.mask().count_zeros();
        (ports, u8::MAX - address_bits, filter.protocol.is_none(), flags, *filter)
    });
    filters.dedup();
    filters
}

/// Spreads addresses over more branches for a set larger than the one the parameters came from.
///
/// Growth is spent level by level from the root: a level that would lose all its unevenness by less
/// than what is left is made even, the next one takes part of the rest.
fn scaled(branching: &Branching, growth: f64) -> Branching {
    let mut scaled = branching.clone();
    let mut left = if growth > 1.0 { growth } else { 0.0 };
    for level in scaled.levels.iter_mut().take(usize::from(Prefix::LENGTH_MAX)) {
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

/// The distributions of the parameters, ready to draw from.
struct Chooser<'a> {
    parameters: &'a Parameters,
    protocols: Option<Weighted>,
    pairs: Vec<Option<Weighted>>,
    flags: Vec<(u8, Option<Weighted>)>,
    ports: [PortChooser<'a>; 2],
    lengths: Vec<Option<LengthChooser>>,
}

impl<'a> Chooser<'a> {
    fn new(parameters: &'a Parameters, request: &Request) -> Self {
        let protocols = &parameters.protocols;
        let flags = parameters.flags.iter().map(|flags| {
            (flags.protocol, Weighted::new(flags.shares.iter().map(|(_, share)| *share)).ok())
        });
        let smoothness = usize::from(request.smoothness);
        let lengths = parameters.lengths.iter().map(|lengths| lengths.smooth(smoothness).chooser());
        Self {
            parameters,
            protocols: Weighted::new(protocols.iter().map(|protocol| protocol.share)).ok(),
            pairs: protocols.iter().map(|protocol| Weighted::new(protocol.pairs).ok()).collect(),
            flags: flags.collect(),
            ports: [&parameters.source_ports, &parameters.destination_ports].map(PortChooser::new),
            lengths: lengths.collect(),
        }
    }

    fn draft(&self, request: &Request, stream: &mut RandomStream) -> Draft {
        let row = self.protocols.as_ref().map_or(0, |protocols| protocols.sample(stream));
        let protocol = self.parameters.protocols.get(row).map_or(0, |protocol| protocol.protocol);
        let flags = self.choose_flags(protocol, stream);
        let share = scoped(request.port_scope, stream);
        let pair = self.pairs.get(row).and_then(Option::as_ref).map_or(0, |pairs| pairs.at(share));
        let (source, destination) =
            PAIR_NAMES.get(pair).and_then(|name| name.split_once('_')).unwrap_or_default();
        let [source_ports, destination_ports] = &self.ports;
        let ports =
            [source_ports.choose(source, stream), destination_ports.choose(destination, stream)];
        let share = scoped(request.address_scope, stream);
        let lengths = self.lengths.get(pair).and_then(Option::as_ref);
        let (source, destination) = lengths.map_or((0, 0), |lengths| lengths.choose(share, stream));
        let (source, destination) = (Prefix::new(0, source), Prefix::new(0, destination));
        Draft { source, destination, protocol, flags, ports }
    }

    fn choose_flags(&self, protocol: u8, stream: &mut RandomStream) -> TcpFlags {
        let rows = self.flags.iter().zip(&self.parameters.flags);
        let row = rows.into_iter().find(|((of, _), _)| *of == protocol);
        let drawn = row.and_then(|((_, weighted), flags)| {
            let index = weighted.as_ref()?.sample(stream);
            flags.shares.get(index)
        });
        drawn.map_or(TcpFlags::ANY, |(flags, _)| *flags)
    }
}

/// A share from 0 to 1 that is more often low the greater the scope.
fn scoped(scope: f64, stream: &mut RandomStream) -> f64 {
    let share = stream.unit();
    share * (scope * share - scope + 1.0)
}

/// The ranges and ports of one side.
struct PortChooser<'a> {
    shares: &'a PortShares,
    ranges: Option<Weighted>,
    exact: Option<Weighted>,
}

impl<'a> PortChooser<'a> {
    fn new(shares: &'a PortShares) -> Self {
        let weighted =
            |ports: &[(PortRange, f64)]| Weighted::new(ports.iter().map(|(_, share)| *share)).ok();
        Self { shares, ranges: weighted(&shares.ranges), exact: weighted(&shares.exact) }
    }

    /// Ports of a class, by the name that it has in the format.
    fn choose(&self, class: &str, stream: &mut RandomStream) -> PortRange {
        let (ports, weighted) = match class {
            "lo" => return PortRange::LOW,
            "hi" => return PortRange::HIGH,
            "ar" => (&self.shares.ranges, &self.ranges),
            "em" => (&self.shares.exact, &self.exact),
            _ => return PortRange::ANY,
        };
        let index = weighted.as_ref().map(|weighted| weighted.sample(stream));
        let drawn = index.and_then(|index| ports.get(index));
        drawn.map_or(PortRange::ANY, |(range, _)| *range)
    }
}
