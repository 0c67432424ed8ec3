//! The reader of cache entries, rules and counters for `ovs-appctl`.

use std::{sync::Arc, time::Duration};

use shunt_datapath::{Command, DropReason, ThreadCounters, command::DumpedEntry};
use shunt_flow::{
    FieldId, FlowKey, FlowMask,
    layout::HEADER_START,
    text::{NoPortNames, format_match},
};
use shunt_pipeline::{
    BridgeId, EntryId, OwnerId, Priority, Rule, RuleFilter, Time, text::format_actions,
};

use super::{
    actions::{ActionWriter, recirc},
    fields::MaskedFields,
    key::key_text,
    numbering::DatapathPorts,
};
use crate::{
    control::ControlPlane,
    error::SwitchError,
    switch::Switch,
    threads::load::balancer::{QueueMoves, RxQueueStatus},
    trace::explain::bridge_name,
};

/// Selects how cache entries are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatapathFlowFormat {
    /// True to write the names of ports in place of their datapath numbers.
    pub port_names: bool,
    /// True to also write fields that the entry does not match, with an empty mask.
    pub wildcards: bool,
}

/// Selects cache entries by owner and bridge; `None` selects all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatapathFlowFilter<'a> {
    /// Number of the packet thread that has the entry.
    pub thread: Option<u16>,
    /// True selects entries of the NIC, false those of packet threads; `None`: all.
    pub is_offloaded: Option<bool>,
    /// Name of the bridge.
    pub bridge: Option<&'a str>,
}

impl DatapathFlowFilter<'_> {
    /// Returns whether entries of a packet thread (`None`: of the NIC) are selected.
    #[must_use]
    pub fn selects_owner(&self, thread: Option<u16>) -> bool {
        self.is_offloaded.is_none_or(|offloaded| offloaded == thread.is_none())
            && self.thread.is_none_or(|own| thread == Some(own))
    }
}

/// A cache entry in the syntax of Open vSwitch's datapath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatapathFlow {
    /// Number of the packet thread that has the entry; `None` for an entry of the NIC.
    pub thread: Option<u16>,
    /// Name of the entry, as [`Switch::explain_entry`] takes it.
    pub entry: String,
    /// Name of the entry in the form of a UUID.
    pub ufid: String,
    /// Name of the bridge that received the packets.
    pub bridge: String,
    /// Match of the entry.
    pub key: String,
    /// Number of packets that hit the entry.
    pub packets: u64,
    /// Number of bytes in these packets.
    pub bytes: u64,
    /// Time since the last hit; `None` before the first hit.
    pub used: Option<Duration>,
    /// Actions of the entry; `drop` if there are none.
    pub actions: String,
}

/// A rule in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleStatus {
    /// Name of the bridge.
    pub bridge: String,
    /// Number of the table of the rule.
    pub table: u8,
    /// Cookie of the rule.
    pub cookie: u64,
    /// Time since the rule was added.
    pub duration: Duration,
    /// Number of packets that matched the rule.
    pub packets: u64,
    /// Number of bytes in these packets.
    pub bytes: u64,
    /// Priority and match, in the syntax of `ovs-ofctl --no-names`.
    ///
    /// The default priority is not written.
    pub matching: String,
    /// Actions, in the syntax of `ovs-ofctl --no-names`.
    pub actions: String,
}

/// The iterations of a packet thread, and its packets by the result of the lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketThreadCounters {
    /// Poll loop iterations, including idle ones.
    pub iterations: u64,
    /// Number of packets that the thread received.
    pub received: u64,
    /// Packets that hit the exact-match cache.
    pub exact_hits: u64,
    /// Packets that hit the signature cache.
    pub signature_hits: u64,
    /// Packets that hit the megaflow cache, without hits of the signature cache.
    pub megaflow_hits: u64,
    /// Packets that hit the Gigaflow cache, or were decided without a cache.
    pub other_hits: u64,
    /// Searched subtables (masks), summed over all lookups in the megaflow cache.
    pub probes: u64,
    /// Lookups in the megaflow cache.
    pub lookups: u64,
    /// Packets that missed all caches and were translated.
    pub upcalls: u64,
    /// Packets dropped because too many packets waited for a translation.
    pub upcalls_lost: u64,
    /// Number of packets that the thread sent.
    pub sent: u64,
    /// Number of packets that the thread dropped.
    pub dropped: u64,
    /// Number of cache entries of the thread.
    pub entries: u64,
    /// Masks in the megaflow cache.
    pub masks: u64,
}

/// A reader of cache entries, rules and counters in the form of `ovs-appctl`.
pub struct DatapathReader<'a> {
    control: &'a ControlPlane,
}

impl<'a> DatapathReader<'a> {
    /// Returns a reader of a switch.
    #[must_use]
    pub fn new(switch: &'a Switch) -> Self {
        Self { control: &switch.control }
    }

    /// Returns the selected cache entries by owner.
    ///
    /// The result is empty if the bridge does not exist. Packet threads write out all of their
    /// entries for this call, some in each poll loop iteration.
    pub async fn flows(
        &self,
        format: DatapathFlowFormat,
        filter: DatapathFlowFilter<'_>,
    ) -> Vec<DatapathFlow> {
        let bridge = filter.bridge.map(|name| self.control.bridges.id(name));
        let Ok(bridge) = bridge.transpose() else { return Vec::new() };
        let dumps = self.control.plane.ask(|_, reply| Command::Dump(reply)).await;
        let mut all: Vec<DumpedEntry> = dumps.into_iter().flatten().collect();
        all.append(&mut self.control.nic.entries().await);
        all.retain(|entry| {
            bridge.is_none_or(|own| own == bridge_of(entry))
                && filter.selects_owner(self.thread_of(entry))
        });
        all.sort_by_key(|entry| entry.entry);
        let ports = DatapathPorts::of(&self.control.bridges.lock(), format.port_names);
        let mut flows = Vec::with_capacity(all.len());
        for entry in &all {
            if flows.len().is_multiple_of(WRITTEN_AT_ONCE) {
                // There may be a million entries; other tasks, such as controller connections, run
                // in between.
                tokio::task::yield_now().await;
            }
            flows.push(self.write_flow(entry, &ports, format));
        }
        flows
    }

    /// Returns one cache entry.
    ///
    /// `name` is the name of the entry, or its UUID. `None` if no entry has this name.
    pub async fn flow(&self, name: &str, format: DatapathFlowFormat) -> Option<DatapathFlow> {
        let entry = self.entry(name).await?;
        let ports = DatapathPorts::of(&self.control.bridges.lock(), format.port_names);
        Some(self.write_flow(&entry, &ports, format))
    }

    /// Returns the packet thread of an entry; `None` for an entry of the NIC.
    fn thread_of(&self, entry: &DumpedEntry) -> Option<u16> {
        let owner = entry.entry.owner.0;
        (owner < self.control.plane.threads_count()).then_some(owner)
    }

    /// Formats an entry as a datapath flow.
    fn write_flow(
        &self,
        entry: &DumpedEntry,
        ports: &DatapathPorts,
        format: DatapathFlowFormat,
    ) -> DatapathFlow {
        let traversal = &entry.traversal;
        let key = FlowKey::from(&traversal.key);
        let mut mask = FlowMask::from(&traversal.mask);
        // The syntax has no fields for hidden state; a recirculation id replaces it.
        mask.words_mut()[..HEADER_START].fill(0);
        let bridge = bridge_of(entry);
        let is_port_matched = mask.field(FieldId::InPort) != 0;
        let in_port = ports.ingress(bridge, key.in_port());
        let in_port = match (is_port_matched, format.wildcards) {
            (true, _) => Some(in_port),
            (false, true) => Some(format!("{in_port}/0")),
            (false, false) => None,
        };
        let ingress = ports.datapath(bridge, key.in_port()).filter(|_| is_port_matched);
        let recirc_id = traversal.continuation.as_ref().map_or(0, |own| own.id());
        let fields = MaskedFields { key: &key, mask: &mask, with_wildcards: format.wildcards };
        let mut actions = ActionWriter { ports, ingress }.text(&traversal.actions, &key);
        if let Some(next) = &traversal.next {
            let next = recirc(next.id());
            actions = if actions == "drop" { next } else { format!("{actions},{next}") };
        }
        let since = self.control.plane.now().since(entry.used);
        DatapathFlow {
            thread: self.thread_of(entry),
            entry: entry.entry.to_string(),
            ufid: ufid(entry.entry),
            bridge: bridge_name(&self.control.bridges.lock(), bridge),
            key: key_text(fields, recirc_id, in_port),
            packets: entry.packets,
            bytes: entry.bytes,
            used: (entry.packets > 0).then_some(since),
            actions,
        }
    }

    /// Returns the rules of a bridge, by table and then by age.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist.
    pub async fn rules(&self, bridge: &str) -> Result<Vec<RuleStatus>, SwitchError> {
        let id = self.control.bridges.id(bridge)?;
        self.control.plane.pull().await;
        let rules = self.control.plane.pipeline().rules(id, &RuleFilter::all());
        let now = self.control.plane.now();
        Ok(rules.iter().map(|rule| self.rule(rule, now)).collect())
    }

    /// Returns the status of a rule.
    fn rule(&self, rule: &Arc<Rule>, now: Time) -> RuleStatus {
        let totals = rule.stats.totals();
        let mut parts = vec![format_match(&rule.matching, &NoPortNames)];
        if rule.priority != Priority::DEFAULT {
            parts.insert(0, format!("priority={}", rule.priority.number()));
        }
        parts.retain(|part| !part.is_empty());
        RuleStatus {
            bridge: bridge_name(&self.control.bridges.lock(), rule.bridge),
            table: rule.table.number(),
            cookie: rule.cookie.number(),
            duration: now.since(rule.created),
            packets: totals.packets,
            bytes: totals.bytes,
            matching: parts.join(","),
            actions: format_actions(&rule.instructions, &NoPortNames),
        }
    }

    /// Returns the rules that matched in the lookups of a cache entry, in order.
    ///
    /// `name` is the name of the entry, or its UUID. `None` if no entry has this name.
    pub async fn rules_of_flow(&self, name: &str) -> Option<Vec<RuleStatus>> {
        let found = self.entry(name).await?;
        let plane = &self.control.plane;
        plane.pull().await;
        let now = plane.now();
        let visits = found.traversal.visits.iter();
        let rules = visits.flat_map(|visit| visit.clauses.iter().chain(&visit.rule));
        Some(rules.map(|rule| self.rule(rule, now)).collect())
    }

    /// Requests an entry from its owner.
    async fn entry(&self, name: &str) -> Option<DumpedEntry> {
        let entry = name.parse().ok().or_else(|| entry_of(name))?;
        let plane = &self.control.plane;
        let found = if entry.owner.0 == plane.threads_count() {
            let all = self.control.nic.entries().await;
            all.into_iter().find(|own| own.entry == entry)
        } else {
            let question = |reply| Command::Entry(entry.slot, reply);
            plane.ask_one(entry.owner.0.into(), question).await.flatten()
        };
        found.filter(|own| own.entry == entry)
    }

    /// Returns the counters of each packet thread.
    #[must_use]
    pub fn packet_threads(&self) -> Vec<PacketThreadCounters> {
        let threads = self.control.plane.counters().iter();
        threads.map(|counters| PacketThreadCounters::of(counters)).collect()
    }

    /// Returns the receive queues of all ports, with their packet threads and loads.
    #[must_use]
    pub fn rx_queues(&self) -> Vec<RxQueueStatus> {
        self.control.loads.status(self.control)
    }

    /// Moves receive queues between packet threads by their measured loads.
    pub async fn rebalance(&self) -> QueueMoves {
        self.control.loads.rebalance_now(self.control).await
    }

    /// Closes the OpenFlow connections of a bridge, then connects again.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or its sockets cannot be opened again.
    pub async fn reconnect(&self, bridge: &str) -> Result<(), SwitchError> {
        let structure = self.control.structure().await;
        let id = self.control.bridges.id(bridge)?;
        structure.reconnect(id).await
    }
}

impl PacketThreadCounters {
    /// Reads the counters of a packet thread.
    fn of(counters: &ThreadCounters) -> Self {
        let (megaflow, signature) = (counters.megaflow.hits.get(), counters.signature.hits.get());
        Self {
            iterations: counters.iterations.get(),
            received: counters.received.get(),
            exact_hits: counters.exact.hits.get(),
            signature_hits: signature,
            megaflow_hits: megaflow,
            other_hits: counters.chain.hits.get() + counters.decided.get(),
            probes: counters.probes.get(),
            lookups: megaflow + counters.megaflow.misses.get(),
            upcalls: counters.upcalls.get(),
            upcalls_lost: counters.dropped[DropReason::UpcallQueueFull as usize].get(),
            sent: counters.sent.get(),
            dropped: counters.dropped_total(),
            entries: counters.entries.get(),
            masks: counters.masks.get(),
        }
    }

    /// Returns the increase of the counters since `earlier`.
    ///
    /// Numbers of entries and masks are no counters, and stay as they are.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let increase = |of: fn(&Self) -> u64| of(self).saturating_sub(of(earlier));
        Self {
            iterations: increase(|own| own.iterations),
            received: increase(|own| own.received),
            exact_hits: increase(|own| own.exact_hits),
            signature_hits: increase(|own| own.signature_hits),
            megaflow_hits: increase(|own| own.megaflow_hits),
            other_hits: increase(|own| own.other_hits),
            probes: increase(|own| own.probes),
            lookups: increase(|own| own.lookups),
            upcalls: increase(|own| own.upcalls),
            upcalls_lost: increase(|own| own.upcalls_lost),
            sent: increase(|own| own.sent),
            dropped: increase(|own| own.dropped),
            entries: self.entries,
            masks: self.masks,
        }
    }

    /// Returns the number of packets that hit a cache or were decided without a cache.
    #[must_use]
    pub const fn hits(&self) -> u64 {
        self.exact_hits + self.signature_hits + self.megaflow_hits + self.other_hits
    }
}

/// Number of entries that are written between two yields to other tasks.
const WRITTEN_AT_ONCE: usize = 64;

/// Returns the bridge that received the packets of an entry.
fn bridge_of(entry: &DumpedEntry) -> BridgeId {
    BridgeId::new(u16::try_from(entry.traversal.key.bridge()).unwrap_or_default())
}

/// Returns the name of an entry in the form of a UUID.
fn ufid(entry: EntryId) -> String {
    let EntryId { owner, slot, generation } = entry;
    let (high, low) = (slot >> 16, slot & 0xffff);
    format!("{:08x}-0000-0000-{high:04x}-{low:04x}{generation:08x}", owner.0)
}

/// Parses a name that [`ufid`] has written, with or without the prefix `ufid:`.
fn entry_of(text: &str) -> Option<EntryId> {
    let text = text.strip_prefix("ufid:").unwrap_or(text);
    let digits: String = text.chars().filter(|digit| *digit != '-').collect();
    let number = |range| u32::from_str_radix(digits.get(range)?, 16).ok();
    let entry = EntryId {
        owner: OwnerId(u16::try_from(number(0..8)?).ok()?),
        slot: number(16..24)?,
        generation: number(24..32)?,
    };
    (ufid(entry) == text.to_ascii_lowercase()).then_some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uuid_of_an_entry_parses_back() {
        let entry = EntryId { owner: OwnerId(3), slot: 0x0102_0304, generation: 0xffff_fffe };
        assert_eq!(ufid(entry), "00000003-0000-0000-0102-0304fffffffe");
        assert_eq!(entry_of(&format!("ufid:{}", ufid(entry))), Some(entry));
        for text in ["", "ufid:x", "00000003-0000-0001-0102-0304fffffffe", "00000003"] {
            assert_eq!(entry_of(text), None, "{text}");
        }
    }
}
