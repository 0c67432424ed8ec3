//! The base rules that fill all tables of a pipeline: filters with Ethernet addresses.

use crate::{DistributionError, Seed, Zipf, classbench::Filter};

/// A filter, and the Ethernet addresses of sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseRule {
    /// The match on IP addresses, protocol and ports.
    pub filter: Filter,
    /// The Ethernet address of the sender.
    pub eth_src: u64,
    /// The Ethernet address of the receiver.
    pub eth_dst: u64,
}

/// Samples filters with replacement, as for the published pipelines.
///
/// So some filters occur twice, and others never.
#[must_use]
pub fn sampled(filters: &[Filter], count: u32, seed: Seed) -> Vec<Filter> {
    let mut stream = seed.stream("drawn");
    (0..count).map_while(|_| stream.pick(filters).copied()).collect()
}

/// Adds Ethernet addresses to filters; a few addresses are common.
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

/// Number of hosts on each side of a switch.
const HOSTS: u32 = 2000;
/// Zipf exponent of the hosts' frequencies.
const HOST_EXPONENT: f64 = 0.9;
/// The prefix of the hosts' Ethernet addresses: locally administered, unicast.
const HOST_PREFIX: u64 = 0x0200_5e00_0000;
