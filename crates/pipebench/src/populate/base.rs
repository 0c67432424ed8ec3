//! Filters with Ethernet addresses: what fills all tables of a pipeline.

use crate::{DistributionError, Seed, Zipf, classbench::Filter};

/// A filter, and the Ethernet addresses of those who speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseRule {
    /// What it asks of IP and ports.
    pub filter: Filter,
    /// The sender's address.
    pub eth_src: u64,
    /// The receiver's address.
    pub eth_dst: u64,
}

/// Draws filters at random, again and again: so published pipelines were filled, and so some filters
/// are drawn twice and others never.
#[must_use]
pub fn drawn(filters: &[Filter], count: u32, seed: Seed) -> Vec<Filter> {
    let mut stream = seed.stream("drawn");
    (0..count).map_while(|_| stream.pick(filters).copied()).collect()
}

/// Gives filters Ethernet addresses, of which few are common.
pub(super) fn base_rules(
    filters: &[Filter],
    seed: Seed,
) -> Result<Vec<BaseRule>, DistributionError> {
    let zipf = Zipf::new(HOSTS, HOST_EXPONENT)?;
    let mut stream = seed.stream("hosts");
    let host = |side: u64, rank: usize| {
        let rank = u64::try_from(rank).unwrap_or(0);
        (HOST_PREFIX | (side << 20)).saturating_add(rank)
    };
    let mut rule = |filter: &Filter| BaseRule {
        filter: *filter,
        eth_src: host(0, zipf.sample(&mut stream)),
        eth_dst: host(1, zipf.sample(&mut stream)),
    };
    Ok(filters.iter().map(&mut rule).collect())
}

/// Hosts on each side of a switch.
const HOSTS: u32 = 2000;
/// How fast hosts become rarer with their rank.
const HOST_EXPONENT: f64 = 0.9;
/// Locally administered unicast addresses.
const HOST_PREFIX: u64 = 0x0200_5e00_0000;
