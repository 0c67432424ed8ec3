//! The packets of the published engine, and the cache entries that each packet made.
//!
//! An entry belongs only to the packet that made it. A packet of a megaflow has one sub-traversal,
//! and a packet of LTM entries has several. At the first table where the match of a packet changes,
//! the sub-traversal with that table and all later sub-traversals are evicted.

use std::{collections::BTreeSet, sync::Arc};

use dbsp::utils::Tup2;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, hash_map::Entry};
use shunt_flow::FlowKey;
use shunt_pipeline::{BridgeId, EntryId, Object, OwnerId, Traversal, Version, Visit};

use crate::bound::TableKey;

use super::{
    actions::reproduces,
    circuit::PacketRow,
    plan::CircuitPlan,
    state::{LookupPacket, PacketState},
};

/// All packets that have watched entries.
pub(super) struct TrackedPackets {
    /// The packets by number.
    all: HashMap<u64, Tracked, FixedState>,
    /// The number of the packet that made each entry.
    made_by: HashMap<EntryId, u64, FixedState>,
    /// Number of packets that were added so far.
    count: u64,
    /// The numbers of packets to load.
    /// Some packets of the batch may be removed already.
    waiting: Vec<u64>,
    /// Packets in the circuit that are to be deleted.
    retired: Vec<(BridgeId, PacketRow)>,
    /// The numbers of the packets that the circuit cannot track.
    untracked: BTreeSet<u64>,
    /// Number of sub-traversals that read each object.
    readers: HashMap<Object, usize, FixedState>,
}

/// A tracked packet, and the sub-traversals that it takes.
struct Tracked {
    /// The sub-traversals, first to last.
    sub_traversals: Vec<TrackedSubTraversal>,
    /// The bridge on which the packet arrives.
    bridge: BridgeId,
    state: PacketState,
    /// True if the circuit can model the packet.
    /// `apply_actions` then reproduces the visits of the packet.
    is_known: bool,
    /// The progress of the packet: waiting for the circuit, loaded, or untracked.
    status: PacketStatus,
}

/// A sub-traversal of a tracked packet.
struct TrackedSubTraversal {
    /// The entry of the sub-traversal, while it belongs to this packet.
    id: Option<EntryId>,
    traversal: Arc<Traversal>,
    /// Position of the last table that the sub-traversal visits.
    end: u32,
}

/// The state of a packet: waiting for the circuit, loaded into it, or untracked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PacketStatus {
    Waiting,
    Loaded,
    Untracked,
}

/// A factor that spreads packet numbers over all 64 bits.
///
/// Without this factor, packets that are removed together would be neighbours in a trace, and each
/// cursor would pass over all of them.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl TrackedPackets {
    /// Creates an empty set; its hash tables use `hashes`.
    pub(super) fn new(hashes: &FixedState) -> Self {
        Self {
            all: HashMap::with_hasher(hashes.clone()),
            made_by: HashMap::with_hasher(hashes.clone()),
            count: 0,
            waiting: Vec::new(),
            retired: Vec::new(),
            untracked: BTreeSet::new(),
            readers: HashMap::with_hasher(hashes.clone()),
        }
    }

    /// Records that a packet made these entries, in the order of the traversal.
    pub(super) fn insert(&mut self, sub_traversals: &[(EntryId, Arc<Traversal>)]) {
        self.count += 1;
        let number = self.count.wrapping_mul(SPREAD);
        let own = |(id, traversal): &(EntryId, Arc<Traversal>)| {
            let is_new = !self.made_by.contains_key(id);
            if is_new {
                self.made_by.insert(*id, number);
            }
            TrackedSubTraversal {
                id: is_new.then_some(*id),
                traversal: Arc::clone(traversal),
                end: u32::MAX,
            }
        };
        let owned: Vec<TrackedSubTraversal> = sub_traversals.iter().map(own).collect();
        let Some(first) =
            owned.first().filter(|_| owned.iter().any(|sub_traversal| sub_traversal.id.is_some()))
        else {
            return;
        };
        let is_known = reproduces(owned.iter().map(|sub_traversal| &*sub_traversal.traversal));
        let bridge = first.traversal.visits.first().map(|visit| visit.bridge);
        let state = LookupPacket::new(FlowKey::from(&first.traversal.key)).to_state();
        for object in owned.iter().flat_map(|sub_traversal| &sub_traversal.traversal.reads) {
            *self.readers.entry(*object).or_default() += 1;
        }
        let status = if is_known {
            self.waiting.push(number);
            PacketStatus::Waiting
        } else {
            self.untracked.insert(number);
            PacketStatus::Untracked
        };
        let bridge = bridge.unwrap_or_default();
        self.all.insert(number, Tracked { sub_traversals: owned, bridge, state, is_known, status });
    }

    /// Deletes the packet that made an expired entry, with all entries of the packet.
    ///
    /// Returns whether a tracked packet had made the entry.
    pub(super) fn remove(&mut self, entry: EntryId) -> bool {
        let packet = self.made_by.get(&entry).copied();
        packet.map(|packet| self.delete(packet)).is_some()
    }

    /// Deletes the packets of an owner.
    pub(super) fn forget(&mut self, owner: OwnerId) {
        let own = self.made_by.iter().filter(|(id, _)| id.owner == owner);
        let own: Vec<u64> = own.map(|(_, packet)| *packet).collect();
        own.into_iter().for_each(|packet| self.delete(packet));
    }

    /// Evicts the entries of a packet from the table at this position on.
    pub(super) fn end_at(&mut self, packet: u64, position: u32, evicted: &mut Vec<EntryId>) {
        self.end(packet, |sub_traversal| sub_traversal.end >= position, evicted);
    }

    /// Evicts the entries that read an object that a version changed.
    /// The later entries of the same packets are evicted too.
    pub(super) fn evict_readers(
        &mut self,
        object: Object,
        version: Version,
        evicted: &mut Vec<EntryId>,
    ) {
        if !self.readers.contains_key(&object) {
            return;
        }
        let reads = |sub_traversal: &TrackedSubTraversal| {
            sub_traversal.traversal.version < version
                && sub_traversal.traversal.reads.contains(&object)
        };
        let all: Vec<u64> = self.all.keys().copied().collect();
        all.into_iter().for_each(|packet| self.end(packet, reads, evicted));
    }

    /// Evicts the untracked entries that visit one of these tables.
    pub(super) fn end_beside(&mut self, tables: &BTreeSet<TableKey>, evicted: &mut Vec<EntryId>) {
        let all: Vec<u64> = self.untracked.iter().copied().collect();
        all.into_iter().for_each(|packet| {
            self.end(packet, |sub_traversal| sub_traversal.visits(tables), evicted);
        });
    }

    /// Evicts all entries that visit one of these tables.
    pub(super) fn evict_visitors(
        &mut self,
        tables: &BTreeSet<TableKey>,
        evicted: &mut Vec<EntryId>,
    ) {
        if tables.is_empty() {
            return;
        }
        let all: Vec<u64> = self.all.keys().copied().collect();
        all.into_iter().for_each(|packet| {
            self.end(packet, |sub_traversal| sub_traversal.visits(tables), evicted);
        });
    }

    /// Returns the bridges on which packets of the circuit arrive.
    pub(super) fn bridges(&self) -> BTreeSet<BridgeId> {
        self.all.values().filter(|packet| packet.is_known).map(|packet| packet.bridge).collect()
    }

    /// Returns whether the plan does not have the bridge of a waiting packet.
    pub(super) fn lack_table(&self, plan: &CircuitPlan) -> bool {
        let waiting = self.waiting.iter().filter_map(|packet| self.all.get(packet));
        waiting.into_iter().any(|packet| !plan.has_bridge(packet.bridge))
    }

    /// Returns the next packet to load.
    ///
    /// If the plan does not have the tables of a packet in order, the packet becomes untracked.
    pub(super) fn next_in(&mut self, plan: &CircuitPlan) -> Option<(BridgeId, PacketRow)> {
        while let Some(number) = self.waiting.pop() {
            let Some(packet) = self.all.get_mut(&number) else { continue };
            if packet.locate(plan) {
                packet.status = PacketStatus::Loaded;
                return Some((packet.bridge, Tup2(number, PacketState::clone(&packet.state))));
            }
            packet.status = PacketStatus::Untracked;
            self.untracked.insert(number);
        }
        None
    }

    /// Returns the next packet to delete.
    pub(super) fn next_out(&mut self) -> Option<(BridgeId, PacketRow)> {
        self.retired.pop()
    }

    /// Marks all packets for loading into a new circuit.
    pub(super) fn restart(&mut self) {
        self.retired.clear();
        self.waiting.clear();
        for (number, packet) in self.all.iter_mut().filter(|(_, packet)| packet.is_known) {
            packet.status = PacketStatus::Waiting;
            self.untracked.remove(number);
            self.waiting.push(*number);
        }
    }

    /// Returns the number of packets that wait to be loaded or deleted.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting.len() + self.retired.len()
    }

    /// Returns the number of packets that the circuit does not track.
    pub(super) fn untracked(&self) -> usize {
        self.untracked.len()
    }

    /// Returns the watched entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.made_by.keys().copied()
    }

    /// Returns the number of tracked packets.
    pub(super) fn len(&self) -> usize {
        self.made_by.len()
    }

    /// Evicts the first stale sub-traversal of a packet, and all later ones.
    fn end(
        &mut self,
        number: u64,
        is_stale: impl Fn(&TrackedSubTraversal) -> bool,
        evicted: &mut Vec<EntryId>,
    ) {
        let Some(packet) = self.all.get_mut(&number) else { return };
        let ended =
            packet.sub_traversals.iter_mut().skip_while(|sub_traversal| !is_stale(sub_traversal));
        for id in ended.filter_map(|sub_traversal| sub_traversal.id.take()) {
            self.made_by.remove(&id);
            evicted.push(id);
        }
        if packet.sub_traversals.iter().all(|sub_traversal| sub_traversal.id.is_none()) {
            self.delete(number);
        }
    }

    /// Deletes a tracked packet with its sub-traversals.
    fn delete(&mut self, number: u64) {
        let Some(Tracked { sub_traversals, bridge, state, status, .. }) = self.all.remove(&number)
        else {
            return;
        };
        for sub_traversal in sub_traversals {
            if let Some(id) = sub_traversal.id {
                self.made_by.remove(&id);
            }
            for object in &sub_traversal.traversal.reads {
                if let Entry::Occupied(mut readers) = self.readers.entry(*object) {
                    *readers.get_mut() -= 1;
                    if *readers.get() == 0 {
                        readers.remove();
                    }
                }
            }
        }
        match status {
            PacketStatus::Waiting => {}
            PacketStatus::Loaded => self.retired.push((bridge, Tup2(number, state))),
            PacketStatus::Untracked => {
                self.untracked.remove(&number);
            }
        }
    }
}

impl Tracked {
    /// Finds the position of the last table of each sub-traversal.
    /// Returns whether the plan has the tables of the packet in this order.
    fn locate(&mut self, plan: &CircuitPlan) -> bool {
        let visits =
            self.sub_traversals.iter().flat_map(|sub_traversal| &sub_traversal.traversal.visits);
        let Some(path) = plan.path(self.bridge, visits.map(|visit| visit.table)) else {
            return false;
        };
        let mut seen = 0;
        for sub_traversal in &mut self.sub_traversals {
            seen += sub_traversal.traversal.visits.len();
            sub_traversal.end = path.get(seen.saturating_sub(1)).copied().unwrap_or_default();
        }
        true
    }
}

impl TrackedSubTraversal {
    /// Returns whether the sub-traversal visits one of some tables.
    fn visits(&self, tables: &BTreeSet<TableKey>) -> bool {
        let table_key = |visit: &Visit| (visit.bridge, visit.table);
        self.traversal.visits.iter().any(|visit| tables.contains(&table_key(visit)))
    }
}
