//! NetFlow: counts the flows of received packets for bridges that export flows.
//!
//! The thread counts packets after the lookup of their burst. The output ports of a flow come from
//! the actions of the entries that its packets hit. The thread reads the actions again only when
//! packets of the flow hit other entries. The output ports of a packet that misses come from its
//! translation, so no packet is translated twice.

use std::time::Duration;

use shunt_flow::FlowKey;
use shunt_pipeline::{BridgeId, DatapathAction, DatapathPort, Time, Version};

use super::{
    PacketThread,
    sample::{BurstLookup, EgressScan},
};
use crate::{
    cache::{Entries, HitSlots},
    netflow::{DecisionId, FlowPosition, NetflowCache},
};

/// The NetFlow caches of a thread, one for each bridge that exports flows.
#[derive(Debug, Default)]
pub(super) struct NetflowCaches(Vec<NetflowCache>);

/// A packet and the identity of the decision about it.
pub(super) struct DecidedPacket<'a> {
    /// The flow key of the packet as received.
    pub(super) key: &'a FlowKey,
    /// The port that received the packet.
    pub(super) ingress: DatapathPort,
    /// Identifies the cache entries, or the version of the tables, that decided.
    pub(super) decision: DecisionId,
}

/// Maximum number of flows to check in a busy, and in an idle, iteration.
const CHECKS_PER_ITERATION: usize = 16;
/// Maximum number of flows that an idle iteration checks for expiry.
const CHECKS_PER_IDLE_ITERATION: usize = 512;

impl NetflowCaches {
    /// Returns whether no bridge exports flows.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the NetFlow cache of a bridge, and returns the old cache.
    pub(super) fn replace(
        &mut self,
        bridge: BridgeId,
        cache: Option<Box<NetflowCache>>,
    ) -> Option<Box<NetflowCache>> {
        let position = self.0.iter().position(|own| own.bridge() == bridge);
        let old = position.map(|position| Box::new(self.0.swap_remove(position)));
        self.0.extend(cache.map(|own| *own));
        old
    }

    /// Checks some flows for expiry; returns whether there was work.
    pub(super) fn scan(&mut self, is_idle: bool, max_idle: Duration, now: Time) -> bool {
        let checks = if is_idle { CHECKS_PER_IDLE_ITERATION } else { CHECKS_PER_ITERATION };
        // `|` instead of `||`: every cache must be scanned.
        let scan = |worked, own: &mut NetflowCache| worked | own.scan(checks, max_idle, now);
        self.0.iter_mut().fold(false, scan)
    }

    /// Returns whether a scan of a NetFlow cache is in progress.
    pub(super) fn is_scanning(&self) -> bool {
        self.0.iter().any(NetflowCache::is_scanning)
    }

    /// Returns the time until a scan of a NetFlow cache is due.
    pub(super) fn time_to_scan(&self, now: Time) -> Duration {
        self.0.iter().map(|own| own.time_to_scan(now)).min().unwrap_or(Duration::MAX)
    }

    /// Sets the output ports of a packet's flow, if the decision has changed.
    #[cold]
    pub(super) fn note_egress<'a>(
        &mut self,
        packet: &DecidedPacket<'_>,
        actions: impl Iterator<Item = &'a DatapathAction>,
    ) {
        let bridge = packet.key.bridge();
        let cache = self.0.iter_mut().find(|own| u64::from(own.bridge().number()) == bridge);
        if let Some(cache) = cache
            && let Some(flow) = cache.position(packet.key)
        {
            set_egress(cache, flow, packet, actions);
        }
    }
}

impl PacketThread {
    /// Counts the packets of a burst for their flows, if their bridge exports flows.
    #[cold]
    pub(super) fn count_flows(&mut self, input: usize, count: usize, lookup: BurstLookup) {
        let bridge = self.rx_ports.list[input].bridge;
        let Some(cache) = self.netflow.0.iter_mut().find(|own| own.bridge() == bridge) else {
            return;
        };
        let entries = self.caches.owner.entries();
        let packets = self.batch.packets.iter().zip(&self.batch.keys).zip(&self.batch.hits);
        for ((packet, key), hits) in packets.take(count) {
            let Some(flow) = cache.count(key, packet.len() as u64, self.now) else { continue };
            if lookup == BurstLookup::Done && !hits.is_miss() {
                let decision = decision_of_entries(entries, hits);
                let packet = DecidedPacket { key, ingress: packet.ingress, decision };
                let lists = hits.slots().iter().map(|slot| entries.actions(*slot));
                set_egress(cache, flow, &packet, lists.flat_map(|list| list.iter()));
            }
        }
    }

    /// Sets the output ports of a packet's flow after a decision of the tables.
    pub(super) fn note_egress_of_tables<'a>(
        &mut self,
        key: &FlowKey,
        ingress: DatapathPort,
        actions: impl Iterator<Item = &'a DatapathAction>,
    ) {
        let decision = decision_of_tables(self.caches.owner.version());
        self.netflow.note_egress(&DecidedPacket { key, ingress, decision }, actions);
    }

    /// Sets the output ports of a packet's flow after a cache hit.
    #[cold]
    pub(super) fn note_egress_of_entries(
        &mut self,
        key: &FlowKey,
        ingress: DatapathPort,
        hits: &HitSlots,
    ) {
        let entries = self.caches.owner.entries();
        let decision = decision_of_entries(entries, hits);
        let lists = hits.slots().iter().map(|slot| entries.actions(*slot));
        let packet = DecidedPacket { key, ingress, decision };
        self.netflow.note_egress(&packet, lists.flat_map(|list| list.iter()));
    }
}

/// Records the egress port of a flow, if another decision set the last one.
fn set_egress<'a>(
    cache: &mut NetflowCache,
    flow: FlowPosition,
    packet: &DecidedPacket<'_>,
    actions: impl Iterator<Item = &'a DatapathAction>,
) {
    if cache.is_egress_of_other(flow, packet.decision) {
        let mut scan = EgressScan::new(packet.ingress);
        scan.read(actions, &mut packet.key.clone());
        cache.set_egress(flow, scan.outcome().egress, packet.decision);
    }
}

/// Returns a number that identifies the chain of entries that a packet hit.
///
/// Two chains of entries may get the same number. If a flow changes from one chain to the other,
/// NetFlow then reports its old output ports.
fn decision_of_entries(entries: &Entries, hits: &HitSlots) -> DecisionId {
    let numbers = hits.slots().iter().map(|slot| {
        let generation = entries.live_at(*slot).map_or(0, |entry| entry.generation);
        u64::from(generation) << 32 | u64::from(*slot)
    });
    let mixed = numbers.fold(0, |mixed: u64, number| mixed.rotate_left(21) ^ number);
    // The lowest bit is 0 for entries, and 1 for a version of the tables.
    DecisionId(mixed << 1)
}

/// Returns a number that identifies the decisions of a version of the tables.
const fn decision_of_tables(version: Version) -> DecisionId {
    DecisionId(version.number() << 1 | 1)
}
