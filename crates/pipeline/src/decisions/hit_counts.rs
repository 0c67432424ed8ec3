//! The hits of packets that tables decide, before they are credited to rules.
//!
//! A packet thread counts here and writes to no memory of another thread. Counters of rules, tables
//! and groups get the sums later, a few in each iteration, like the counts of cache entries.
//!
//! The counts are a table of slots by hash. A slot counts for one target: a rule, a table miss, a
//! group, an output or a refresh. A target has one of the few slots at its hash, and replaces
//! another target if all of them are in use. If the current burst refers to the target to
//! replace, the new target gets a slot at the end of the table, until the next burst. The table
//! grows while many targets are replaced, up to a bound. So memory is bounded, and a warm burst
//! allocates nothing.

use std::{collections::VecDeque, hint::black_box, sync::Arc};

use shunt_flow::hash::split_mix;

use crate::{
    bridges::{bridge::VersionedBridges, output_counter::OutputHit},
    id::{BridgeId, TableId},
    tables::rule::Rule,
    time::Time,
    traversals::traversal::{GroupHit, Refresh},
};

/// The counts of one packet thread.
pub(crate) struct HitCounts {
    /// The slots by hash, followed by the slots that last for this burst alone.
    slots: Vec<HitCount>,
    /// Binary logarithm of the number of slots by hash.
    bits: u32,
    /// Counts of replaced targets, which are not credited yet.
    replaced: Vec<HitCount>,
    /// Number of replacements since the table last grew.
    replacements: usize,
    /// Slots by hash that may have counts.
    dirty: VecDeque<u32>,
    /// The number of the current burst.
    burst: u32,
}

/// The count of one target.
#[derive(Default)]
struct HitCount {
    /// The counted object; `None` for a free slot.
    target: Option<HitTarget>,
    /// Number of packets that are not credited yet.
    packets: u64,
    /// Number of bytes that are not credited yet.
    bytes: u64,
    /// The time of the last hit.
    used: Time,
    /// The last burst that referred to the target.
    burst: u32,
    /// True while the slot is in `dirty`.
    is_dirty: bool,
}

/// An object that counts packets.
enum HitTarget {
    /// A rule, which also counts for its table.
    Rule(Arc<Rule>),
    /// A table in which no rule matched.
    TableMiss(BridgeId, TableId),
    Group(GroupHit),
    Output(OutputHit),
    Refresh(Refresh),
}

/// Binary logarithms of the initial and of the greatest number of slots by hash.
const BITS: std::ops::RangeInclusive<u32> = 10..=18;

/// Number of slots that a target may have.
const PROBES: usize = 4;

const _: () = assert!(size_of::<HitCount>() <= 64, "a hit touches one cache line");

impl HitCounts {
    /// Returns empty counts with the smallest number of hash slots.
    pub(crate) fn new() -> Self {
        let mut own = Self {
            slots: Vec::new(),
            bits: *BITS.start(),
            replaced: Vec::new(),
            replacements: 0,
            dirty: VecDeque::new(),
            burst: 1,
        };
        own.slots.resize_with(own.hashed(), HitCount::default);
        own.dirty.reserve(own.hashed());
        own
    }

    /// Returns the number of slots by hash.
    const fn hashed(&self) -> usize {
        1 << self.bits
    }

    /// Begins a burst. Slots that earlier bursts got are not valid any more.
    ///
    /// Returns the rules with timeouts that packets have lowered.
    pub(crate) fn begin_burst(&mut self, bridges: &VersionedBridges) -> Vec<Arc<Rule>> {
        let lowered = self.credit_replaced(bridges);
        if self.replacements > self.hashed() / 8 && self.bits < *BITS.end() {
            self.grow();
        }
        self.burst = self.burst.wrapping_add(1);
        lowered
    }

    /// Multiplies the number of slots by four, between two bursts.
    #[cold]
    fn grow(&mut self) {
        self.bits = (self.bits + 2).min(*BITS.end());
        self.replacements = 0;
        let former = std::mem::take(&mut self.slots);
        self.slots.resize_with(self.hashed(), HitCount::default);
        let mut moved = vec![None; former.len()];
        for (index, own) in former.into_iter().enumerate() {
            let Some(target) = own.target else { continue };
            let HitCount { packets, bytes, used, is_dirty, .. } = own;
            let place = self.slot(target.hash(), |_| false, || target);
            let slot = &mut self.slots[place as usize];
            (slot.packets, slot.bytes, slot.used, slot.is_dirty) = (packets, bytes, used, is_dirty);
            moved[index] = Some(place);
        }
        // The slots keep the order in which they are credited.
        let dirty = std::mem::take(&mut self.dirty);
        let hashed = self.hashed();
        self.dirty.reserve(hashed);
        let moved = dirty.into_iter().filter_map(|index| moved[index as usize]);
        self.dirty.extend(moved.filter(|index| (*index as usize) < hashed));
    }

    /// Returns the slot of a lookup that found this rule.
    pub(crate) fn of_lookup(
        &mut self,
        bridge: BridgeId,
        table: TableId,
        rule: Option<&Arc<Rule>>,
    ) -> u32 {
        match rule {
            Some(rule) => {
                let is_same = |target: &HitTarget| matches!(target, HitTarget::Rule(own) if Arc::ptr_eq(own, rule));
                self.slot(rule_hash(rule), is_same, || HitTarget::Rule(Arc::clone(rule)))
            }
            None => {
                let hash = miss_hash(bridge, table);
                let is_same = |target: &HitTarget| matches!(target, HitTarget::TableMiss(own, other) if (*own, *other) == (bridge, table));
                self.slot(hash, is_same, || HitTarget::TableMiss(bridge, table))
            }
        }
    }

    /// Returns the slot of a group that chose buckets.
    pub(crate) fn of_group(&mut self, hit: &GroupHit) -> u32 {
        let hash = group_hash(hit);
        let is_same = |target: &HitTarget| match target {
            HitTarget::Group(own) => {
                Arc::ptr_eq(&own.group, &hit.group) && own.bucket == hit.bucket
            }
            _ => false,
        };
        self.slot(hash, is_same, || HitTarget::Group(hit.clone()))
    }

    /// Returns the slot of a mirror that copied the packet, or of a bond that sent it.
    pub(crate) fn of_output(&mut self, hit: &OutputHit) -> u32 {
        let is_same = |target: &HitTarget| matches!(target, HitTarget::Output(own) if own == hit);
        self.slot(address(&hit.0), is_same, || HitTarget::Output(hit.clone()))
    }

    /// Returns the slot of an object that the packet refreshes.
    pub(crate) fn of_refresh(&mut self, refresh: &Refresh) -> u32 {
        let hash = refresh_hash(refresh);
        let is_same =
            |target: &HitTarget| matches!(target, HitTarget::Refresh(own) if own == refresh);
        self.slot(hash, is_same, || HitTarget::Refresh(refresh.clone()))
    }

    /// Returns the slot of a target; a new target may replace another.
    #[expect(clippy::cast_possible_truncation, reason = "slots are fewer than 2^32")]
    fn slot(
        &mut self,
        hash: u64,
        is_same: impl Fn(&HitTarget) -> bool,
        make: impl FnOnce() -> HitTarget,
    ) -> u32 {
        let first = (split_mix(&mut { hash }) >> (u64::BITS - self.bits)) as usize;
        let (burst, last) = (self.burst, self.hashed() - 1);
        let mut free = None;
        for probe in 0..PROBES {
            let index = (first + probe) & last;
            let slot = &mut self.slots[index];
            match &slot.target {
                Some(target) if is_same(target) => {
                    slot.burst = burst;
                    return index as u32;
                }
                Some(_) => {}
                None => {
                    free = Some(index);
                    break;
                }
            }
        }
        let index = free.unwrap_or(first);
        let slot = &mut self.slots[index];
        if slot.target.is_some() && slot.burst == burst {
            let own = HitCount { target: Some(make()), ..HitCount::default() };
            self.slots.push(own);
            return self.slots.len() as u32 - 1;
        }
        let is_dirty = slot.is_dirty;
        let own = HitCount { target: Some(make()), burst, is_dirty, ..HitCount::default() };
        let replaced = std::mem::replace(slot, own);
        if replaced.target.is_some() {
            self.replacements += 1;
        }
        if replaced.packets > 0 {
            self.replaced.push(replaced);
        }
        index as u32
    }

    /// Counts a packet for the targets of these slots.
    pub(crate) fn count(&mut self, slots: &[u32], bytes: u64, now: Time) {
        let hashed = self.hashed();
        for index in slots {
            let Some(slot) = self.slots.get_mut(*index as usize) else { continue };
            slot.packets += 1;
            slot.bytes += bytes;
            slot.used = now;
            if !slot.is_dirty && (*index as usize) < hashed {
                slot.is_dirty = true;
                self.dirty.push_back(*index);
            }
        }
    }

    /// Returns the number of counts that may not be credited yet.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len() + self.replaced.len() + (self.slots.len() - self.hashed())
    }

    /// Credits at most `count` slots by hash, and all other counts, between two bursts.
    ///
    /// Returns the rules with timeouts that packets have lowered, and the number of credited slots
    /// by hash.
    pub(crate) fn credit(
        &mut self,
        bridges: &VersionedBridges,
        count: usize,
    ) -> (Vec<Arc<Rule>>, usize) {
        let mut lowered = self.credit_replaced(bridges);
        let count = self.dirty.len().min(count);
        self.read_next(count);
        for _ in 0..count {
            let Some(index) = self.dirty.pop_front() else { break };
            let slot = &mut self.slots[index as usize];
            slot.is_dirty = false;
            lowered.extend(slot.credit(bridges));
            // A rule to which only the counts refer is in no table any more.
            if slot.target.as_ref().is_some_and(HitTarget::is_last) {
                slot.target = None;
            }
        }
        (lowered, count)
    }

    /// Reads the counters of the next targets.
    ///
    /// Loads after an atomic addition wait for it. So the loads of many targets overlap only before
    /// the additions.
    fn read_next(&self, count: usize) {
        for index in self.dirty.iter().take(count) {
            let slot = self.slots.get(*index as usize);
            if let Some(HitTarget::Rule(rule)) = slot.and_then(|slot| slot.target.as_ref()) {
                black_box(rule.stats.totals());
            }
        }
    }

    /// Credits the counts of targets that lost their slot.
    fn credit_replaced(&mut self, bridges: &VersionedBridges) -> Vec<Arc<Rule>> {
        let hashed = self.hashed();
        let own = self.slots.drain(hashed..).chain(self.replaced.drain(..));
        own.filter_map(|mut slot| slot.credit(bridges)).collect()
    }
}

impl HitCount {
    /// Credits the count; returns its rule if packets have lowered the rule's timeouts.
    fn credit(&mut self, bridges: &VersionedBridges) -> Option<Arc<Rule>> {
        let packets = std::mem::take(&mut self.packets);
        let bytes = std::mem::take(&mut self.bytes);
        if packets == 0 {
            return None;
        }
        let credit_table = |bridge: BridgeId, table: TableId, is_match: bool| {
            if let Some(bridge) = bridges.get(&bridge) {
                bridge.credit(table, packets, is_match);
            }
        };
        match self.target.as_ref()? {
            HitTarget::Rule(rule) => {
                rule.stats.credit(packets, bytes, self.used);
                credit_table(rule.bridge, rule.table, true);
            }
            HitTarget::TableMiss(bridge, table) => credit_table(*bridge, *table, false),
            HitTarget::Group(hit) => hit.credit(packets, bytes),
            HitTarget::Output(hit) => hit.credit(packets, bytes),
            HitTarget::Refresh(refresh) => return refresh.touch(self.used).cloned(),
        }
        None
    }
}

impl HitTarget {
    /// Returns the hash by which the target is found.
    fn hash(&self) -> u64 {
        match self {
            Self::Rule(rule) => rule_hash(rule),
            Self::TableMiss(bridge, table) => miss_hash(*bridge, *table),
            Self::Group(hit) => group_hash(hit),
            Self::Output(hit) => address(&hit.0),
            Self::Refresh(refresh) => refresh_hash(refresh),
        }
    }

    /// Returns whether nothing else refers to the rule, group or counter.
    fn is_last(&self) -> bool {
        match self {
            Self::Rule(rule) => Arc::strong_count(rule) == 1,
            Self::Group(hit) => Arc::strong_count(&hit.group) == 1,
            Self::Output(hit) => Arc::strong_count(&hit.0) == 1,
            Self::TableMiss(..) | Self::Refresh(_) => false,
        }
    }
}

/// Returns the address of an object, which is unique while a count refers to it.
fn address<T>(object: &Arc<T>) -> u64 {
    Arc::as_ptr(object) as usize as u64
}

/// Returns the hash of a rule.
fn rule_hash(rule: &Arc<Rule>) -> u64 {
    address(rule)
}

/// Returns the hash of a table in which packets match no rule.
fn miss_hash(bridge: BridgeId, table: TableId) -> u64 {
    u64::from(bridge.number()) << 8 | table.index() as u64
}

/// Returns the hash of a group and bucket.
fn group_hash(hit: &GroupHit) -> u64 {
    address(&hit.group) ^ hit.bucket.map_or(0, |bucket| bucket as u64 + 1)
}

/// Returns the hash of a refresh.
fn refresh_hash(refresh: &Refresh) -> u64 {
    match refresh {
        Refresh::Rule(rule) => address(rule) ^ 1,
        Refresh::Mac(entry) => address(entry),
        Refresh::FinTimeout { rule, .. } => address(rule) ^ 2,
    }
}
