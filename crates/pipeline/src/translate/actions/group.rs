//! Groups: the buckets that run, each on a copy of the packet (OpenFlow 1.3.5, 5.6).
//!
//! A bucket runs as an action set does, on a copy of the packet. The next bucket and the actions
//! after the group do not see the changes of a bucket. An action that ends a bucket early, such as
//! an expired TTL, ends that bucket alone.
//!
//! A select group takes the live bucket with the earliest pseudo-random arrival time. The time of a
//! bucket depends on the packet's hash and on the number of the bucket, and its rate is the weight
//! of the bucket. So the share of packets of a bucket is proportional to its weight. When a bucket
//! goes down, comes up or changes its weight, only packets of this bucket move (Schindelhauer and
//! Schomaker, "Weighted Distributed Hash Tables").

use std::{slice, sync::Arc};

use shunt_flow::PortNo;

use super::hash::{Hash, hash_connection, hash_masked};
use crate::{
    bridges::port::PortInfo,
    groups::group::{Bucket, Group, GroupKind, Selection},
    id::{GroupId, MeterId},
    translate::{
        bridge_view::BridgeView, record::recorder::Recorder, working_packet::WorkingPacket,
    },
    traversals::{
        datapath_action::DatapathAction,
        traversal::{GroupHit, TraversalError},
    },
};

/// `group`: returns the hit of the group, and the buckets to run.
///
/// `None` if the group does not exist, or if no bucket can be chosen.
pub(in crate::translate) fn choose<'a>(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'a>,
    id: GroupId,
) -> Option<(GroupHit, &'a [Bucket])> {
    let group = bridge.find_group(id, &mut packet.recorder)?;
    let bucket = match group.kind {
        GroupKind::All | GroupKind::Indirect => None,
        GroupKind::FastFailover => {
            let recorder = &mut packet.recorder;
            Some(group.buckets.iter().position(|bucket| is_live(recorder, bridge, bucket))?)
        }
        GroupKind::Select => Some(select(packet, bridge, group)?),
    };
    let buckets = match bucket {
        Some(index) => slice::from_ref(&group.buckets[index]),
        None => &group.buckets[..],
    };
    Some((GroupHit { group: Arc::clone(group), bucket }, buckets))
}

/// `meter`: the datapath drops packets above the rate.
pub(in crate::translate) fn meter(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'_>,
    id: MeterId,
) -> Result<(), TraversalError> {
    match bridge.find_meter(id, &mut packet.recorder) {
        Some(meter) => packet.emit(DatapathAction::Meter(meter)),
        None => Ok(()),
    }
}

/// Returns the live bucket of a select group for the packet, if one has a weight.
fn select(packet: &mut WorkingPacket, bridge: BridgeView<'_>, group: &Group) -> Option<usize> {
    let hash = match &group.selection {
        Selection::Default => hash_connection(packet, 0),
        Selection::DatapathHash { basis } => hash_connection(packet, *basis),
        Selection::Fields { basis, fields } => hash_masked(packet, fields, *basis),
    };
    let mut soonest: Option<(f64, usize)> = None;
    for (index, bucket) in group.buckets.iter().enumerate() {
        if bucket.weight == 0 || !is_live(&mut packet.recorder, bridge, bucket) {
            continue;
        }
        let delay = delay(hash, bucket);
        if soonest.is_none_or(|(least, _)| delay < least) {
            soonest = Some((delay, index));
        }
    }
    soonest.map(|(_, index)| index)
}

/// Returns whether a bucket is live.
///
/// A bucket is live if it watches nothing, if its watched port is up, or if its watched group has a
/// live bucket. Chains of watched groups may be long, but have no loops.
fn is_live(recorder: &mut Recorder, bridge: BridgeView<'_>, bucket: &Bucket) -> bool {
    let mut ahead = vec![bucket];
    let mut seen = Vec::new();
    while let Some(bucket) = ahead.pop() {
        let port = bucket.watch_port;
        if port == PortNo::ANY && bucket.watch_group.is_none()
            || port != PortNo::ANY
                && bridge.find_port(port, recorder).is_some_and(PortInfo::is_live)
        {
            return true;
        }
        if let Some(watched) = bucket.watch_group.filter(|group| !seen.contains(group)) {
            seen.push(watched);
            let found = bridge.find_group(watched, recorder).into_iter();
            ahead.extend(found.flat_map(|group| &group.buckets));
        }
    }
    false
}

/// Returns a random arrival time of a bucket, with its weight as the arrival rate.
///
/// Of several buckets, each is the first with a probability proportional to its weight.
#[expect(clippy::cast_precision_loss, reason = "the value has at most 53 bits")]
fn delay(hash: Hash, bucket: &Bucket) -> f64 {
    let draw = (hash.with(u128::from(bucket.id)).whole() >> 12) as f64 + 0.5;
    -(draw / (1_u64 << 52) as f64).ln() / f64::from(bucket.weight)
}
