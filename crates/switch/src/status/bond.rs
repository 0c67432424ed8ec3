//! The status of bonds.

use std::time::Duration;

use serde::Serialize;
use shunt_pipeline::Time;

use crate::{
    config::BondOptions,
    ports::{bonds::BondState, port::BridgePort, registry::BridgeState},
    status::lacp::{BondLacpStatus, BondMemberLacpStatus},
};

/// The status of a bond: options, LACP, rebalancing and members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BondStatus {
    /// Options of the bond; `member_status` has more about its `members`.
    #[serde(flatten)]
    pub options: BondOptions,
    /// Status of LACP; `None` if the bond does not use LACP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacp_status: Option<BondLacpStatus>,
    /// Milliseconds until the next rebalancing; `None` if rebalancing is off.
    pub rebalance_ms: Option<u64>,
    /// Status of each member.
    pub member_status: Vec<BondMemberStatus>,
}

/// The status of a member of a bond: link, LACP and buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BondMemberStatus {
    /// Name of the member's port.
    pub name: String,
    /// True if the port exists, and its link is up.
    ///
    /// With LACP, the partner also uses the member.
    pub may_enable: bool,
    /// True if the member may be active.
    pub enabled: bool,
    /// True for the active member of the bond.
    pub active: bool,
    /// Milliseconds until the member is enabled or disabled.
    ///
    /// `None` if no change is due.
    pub delay_ms: Option<u64>,
    /// Status of LACP on the member; `None` if the bond does not use LACP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacp: Option<BondMemberLacpStatus>,
    /// Buckets that are assigned to the member, with their loads, if the bond balances.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<BondBucketStatus>,
    /// MAC address of the port; zeros if the port does not exist.
    #[serde(skip)]
    pub mac: [u8; 6],
}

/// The status of a bucket of a balancing bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BondBucketStatus {
    /// Number of the bucket, as `bond/hash` prints it.
    pub bucket: u8,
    /// Bytes that the bucket has sent; halved at each rebalancing.
    pub load_bytes: u64,
}

impl BondStatus {
    /// Returns the bonds of a bridge, in configured order.
    pub(crate) fn of_bridge(bridge: &BridgeState, now: Time) -> Vec<Self> {
        let status = |options: &BondOptions| {
            let state = bridge.bonds.get(&options.name);
            let lacp = state.and_then(BondState::lacp).map(BondLacpStatus::of);
            let member = |name: &String| {
                let own = state.and_then(|state| state.member(name));
                let left = own.and_then(|own| own.due).map(|due| due.since(now));
                let port = bridge.port_named(name);
                let of_lacp = |lacp: &BondLacpStatus| {
                    let actor = state?.lacp()?;
                    let refused = port.map_or(0, BridgePort::refused_lacp_frames);
                    lacp.member(actor.id_of(name)?, refused.saturating_add(actor.refused(name)))
                };
                BondMemberStatus {
                    name: name.clone(),
                    may_enable: own.is_some_and(|own| own.may_enable),
                    enabled: own.is_some_and(|own| own.is_enabled),
                    active: state.is_some_and(|state| state.active() == Some(name.as_str())),
                    delay_ms: left.map(milliseconds),
                    lacp: lacp.as_ref().and_then(of_lacp),
                    buckets: state.map_or_else(Vec::new, |state| buckets_of(state, name)),
                    mac: port.map_or([0; 6], |port| port.mac),
                }
            };
            let rebalance_at = state.and_then(BondState::rebalance_at);
            Self {
                options: options.clone(),
                lacp_status: lacp.clone(),
                rebalance_ms: rebalance_at.map(|due| milliseconds(due.since(now))),
                member_status: options.members.iter().map(member).collect(),
            }
        };
        bridge.settings.bonds.iter().map(status).collect()
    }
}

/// Returns the buckets of a member, with their loads.
fn buckets_of(state: &BondState, member: &str) -> Vec<BondBucketStatus> {
    let buckets = state.buckets().into_iter().flat_map(|own| own.of_member(member));
    buckets.map(|(bucket, load_bytes)| BondBucketStatus { bucket, load_bytes }).collect()
}

/// Converts a time to milliseconds; a time that is too long is the maximum.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
