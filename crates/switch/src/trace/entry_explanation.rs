//! The reasons why a cache entry is valid, or why it was evicted.
//!
//! An entry is valid while its lookups return the same results and the objects that it read do not
//! change. These lookups and objects are the visits and reads of its translation. The history of
//! the eviction coordinator explains recent evictions.

use serde::Serialize;
use shunt_datapath::{Command, Evicted, command::DumpedEntry, evict::history::RECENT_MAX};
use shunt_flow::text::format_match;
use shunt_foresight::ForecastSource;
use shunt_pipeline::{
    BridgeId, Delta, EntryId, Object, RemovedReason, Rule, RuleChange, RuleDelta, Time,
};

use crate::{
    config::CacheKind,
    error::SwitchError,
    nic::NicSlot,
    ports::{bridges::Bridges, names::BridgeNames},
    threads::data_plane::DataPlane,
    trace::{
        explain::{Tracer, bridge_name},
        report::{Trace, TraceVisit},
    },
};

/// The status of a cache entry.
#[derive(Clone, Debug, Serialize)]
pub struct EntryStatus {
    /// Name of the entry.
    ///
    /// The name consists of the owner number (a packet thread, or the next number for the NIC), the
    /// slot, and the number of earlier uses of the slot.
    pub entry: String,
    /// Number of packets that hit the entry.
    pub packets: u64,
    /// Number of bytes in these packets.
    pub bytes: u64,
    /// Milliseconds since the last hit.
    pub idle_ms: u64,
    /// Match of the entry.
    pub megaflow: String,
    /// Datapath actions of the entry.
    ///
    /// Empty if packets are dropped, or continue with the next LTM entry.
    pub actions: Vec<String>,
    /// Stage of an LTM entry; `None` for a megaflow.
    pub stage: Option<u8>,
    /// Tag that an LTM entry sets for the next entry; `None` for the last entry.
    pub next: Option<String>,
    /// Origin of the forecast for which the entry was made; absent if a packet missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<&'static str>,
}

/// The entries of all packet threads and of the NIC; most packets first.
#[derive(Clone, Debug, Serialize)]
pub struct EntryList {
    /// Kind of the caches of the packet threads;
    /// caches of kind `flows` have no entries.
    pub kind: CacheKind,
    /// Number of entries in all caches.
    pub total: u64,
    /// The entries with the most packets.
    pub entries: Vec<EntryStatus>,
}

/// The reason why a cache entry is valid, or why it was evicted.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum EntryExplanation {
    /// The cache entry is valid.
    Live(Box<LiveEntry>),
    /// A change evicted the entry.
    Evicted(EvictedEntry),
}

/// The dependencies of a valid entry.
#[derive(Clone, Debug, Serialize)]
pub struct LiveEntry {
    /// The status of the entry.
    #[serde(flatten)]
    pub status: EntryStatus,
    /// Version of the translation of the entry.
    pub version: u64,
    /// Drop reason, if the entry drops its packets.
    pub drop_reason: Option<&'static str>,
    /// Decisions before the first lookup, such as those of the ingress port.
    pub decisions: Vec<String>,
    /// Lookups that must return the same results.
    pub visits: Vec<TraceVisit>,
    /// Objects that evict the entry when they change.
    pub reads: Vec<String>,
}

/// An evicted entry, and the cause of its eviction.
#[derive(Clone, Debug, Serialize)]
pub struct EvictedEntry {
    /// Name of the evicted entry.
    pub entry: String,
    /// Version that evicted the entry.
    pub version: u64,
    /// Milliseconds since the eviction.
    pub ago_ms: u64,
    /// Kind of the cause of the eviction.
    ///
    /// The kinds are the same as in [`EvictionStatus::by_cause`](crate::EvictionStatus::by_cause).
    pub cause: &'static str,
    /// Change that caused the eviction, if a single change is known.
    pub delta: Option<String>,
}

/// Number of entries that are described between two yields to other tasks.
const EXPLAINED_AT_ONCE: usize = 64;

/// A reader of the cache entries of the packet threads and of the NIC.
pub(crate) struct EntryReader<'a> {
    plane: &'a DataPlane,
    bridges: &'a Bridges,
    nic: &'a NicSlot,
    /// Kind of the caches of the packet threads.
    kind: CacheKind,
    /// The tracer that translates the key of an entry again.
    tracer: Tracer<'a>,
}

impl<'a> EntryReader<'a> {
    /// Returns a reader that describes the entries of caches of this kind.
    pub(crate) fn new(
        plane: &'a DataPlane,
        bridges: &'a Bridges,
        nic: &'a NicSlot,
        kind: CacheKind,
    ) -> Self {
        let tracer = Tracer::new(plane.pipeline(), bridges, plane.vlan_limit());
        Self { plane, bridges, nic, kind, tracer }
    }

    /// Returns up to `count` entries of the packet threads and of the NIC; 0: all.
    pub(crate) async fn list(&self, count: usize) -> EntryList {
        let dumps = self.plane.ask(|_, reply| Command::Dump(reply)).await;
        let mut all: Vec<DumpedEntry> = dumps.into_iter().flatten().collect();
        all.append(&mut self.nic.entries().await);
        let total = all.len() as u64;
        all.sort_by_key(|own| (std::cmp::Reverse(own.packets), own.entry));
        if count > 0 {
            all.truncate(count);
        }
        let mut entries = Vec::with_capacity(all.len());
        for own in &all {
            if entries.len().is_multiple_of(EXPLAINED_AT_ONCE) {
                // There may be a million entries; other tasks, such as controller connections, run
                // in between.
                tokio::task::yield_now().await;
            }
            entries.push(self.entry_status(own, self.explain_entry(own)));
        }
        EntryList { kind: self.kind, total, entries }
    }

    /// Returns the reason why an entry is valid, or why it was evicted.
    pub(crate) async fn explain(&self, text: &str) -> Result<EntryExplanation, SwitchError> {
        let entry: EntryId = text.parse()?;
        let found = self
            .plane
            .inspect_coordinator(move |coordinator| coordinator.record().find(entry).cloned())
            .await;
        if let Some(evicted) = found.flatten() {
            return Ok(EntryExplanation::Evicted(self.explain_eviction(&evicted)));
        }
        let present = if entry.owner.0 == self.plane.threads_count() {
            let all = self.nic.entries().await;
            all.into_iter().find(|own| own.entry.slot == entry.slot)
        } else {
            let question = |reply| Command::Entry(entry.slot, reply);
            self.plane.ask_one(entry.owner.0.into(), question).await.flatten()
        };
        match present {
            Some(live) if live.entry == entry => {
                Ok(EntryExplanation::Live(Box::new(self.explain_live(&live))))
            }
            other => Err(self.no_such_entry(entry, other.map(|own| own.entry))),
        }
    }

    /// Returns the error of an entry that does not exist.
    fn no_such_entry(&self, entry: EntryId, other: Option<EntryId>) -> SwitchError {
        let threads = self.plane.threads_count();
        let present = match other {
            Some(other) => format!("its slot holds entry {other}"),
            None if entry.owner.0 < threads && self.kind == CacheKind::Flows => {
                "packet threads have no entries with caches.kind = \"flows\"".to_owned()
            }
            None if entry.owner.0 < threads => {
                "its slot is empty (idle entries are removed)".to_owned()
            }
            None if entry.owner.0 == threads && self.nic.front().is_some() => {
                "the NIC has no such entry (idle entries are removed)".to_owned()
            }
            None => {
                let last = threads.saturating_sub(1);
                let of_threads = if last == 0 { "0".to_owned() } else { format!("0 to {last}") };
                let of_nic = match self.nic.front() {
                    Some(_) => format!(", or {threads} for the NIC"),
                    None => String::new(),
                };
                format!("its first number is the packet thread, {of_threads}{of_nic}")
            }
        };
        SwitchError::NoSuchEntry { entry, present, remembered: RECENT_MAX }
    }

    /// Explains the visits of an entry.
    fn explain_entry(&self, entry: &DumpedEntry) -> Trace {
        self.tracer.explain_alone(&entry.traversal, bridge_of(entry))
    }

    /// Returns the status of an entry, with its explanation.
    fn entry_status(&self, entry: &DumpedEntry, trace: Trace) -> EntryStatus {
        EntryStatus {
            entry: entry.entry.to_string(),
            packets: entry.packets,
            bytes: entry.bytes,
            idle_ms: self.milliseconds_since(entry.used),
            megaflow: match entry.link {
                // In the text of an LTM entry, the tag must not look like a recirculation id of
                // Open vSwitch.
                Some(_) => trace.megaflow.replace("recirc_id=", "tag="),
                None => trace.megaflow,
            },
            actions: trace.actions,
            stage: entry.link.map(|link| link.stage.number()),
            next: entry.traversal.next.as_ref().map(|next| format!("tag={}", next.id())),
            forecast: entry.forecast.map(ForecastSource::name),
        }
    }

    /// Explains an entry that a thread has now.
    fn explain_live(&self, entry: &DumpedEntry) -> LiveEntry {
        let mut trace = self.tracer.explain_valid(&entry.traversal, bridge_of(entry));
        let reads = entry.traversal.reads.iter().map(|object| self.explain_object(*object));
        LiveEntry {
            version: trace.version,
            drop_reason: trace.drop_reason,
            decisions: std::mem::take(&mut trace.decisions),
            visits: std::mem::take(&mut trace.visits),
            reads: reads.collect(),
            status: self.entry_status(entry, trace),
        }
    }

    /// Explains the change that evicted an entry.
    fn explain_eviction(&self, evicted: &Evicted) -> EvictedEntry {
        EvictedEntry {
            entry: evicted.entry.to_string(),
            version: evicted.version.number(),
            ago_ms: self.milliseconds_since(evicted.at),
            cause: evicted.kind.name(),
            delta: evicted.delta.as_ref().map(|delta| self.explain_delta(delta)),
        }
    }

    /// Describes a delta of a change.
    fn explain_delta(&self, delta: &Delta) -> String {
        let RuleDelta { rule, change } = match delta {
            Delta::Changed(object) => return format!("{} changed", self.explain_object(*object)),
            Delta::Rule(delta) => delta,
        };
        let rule = self.explain_place(rule);
        match change {
            RuleChange::Added => format!("{rule} was added"),
            RuleChange::Modified(_) => format!("{rule} was modified"),
            RuleChange::Removed(reason) => format!("{rule} was removed: {}", reason_text(*reason)),
        }
    }

    /// Describes a rule by its bridge, table, priority and match.
    fn explain_place(&self, rule: &Rule) -> String {
        let names = BridgeNames::new(self.plane.pipeline(), rule.bridge);
        let (table, priority) = (rule.table, rule.priority.number());
        let matching = format_match(&rule.matching, &names);
        let comma = if matching.is_empty() { "" } else { "," };
        let bridge = self.name_of(rule.bridge);
        format!("the rule table={table},priority={priority}{comma}{matching} of {bridge}")
    }

    /// Describes an object that a traversal read.
    fn explain_object(&self, object: Object) -> String {
        let name = |bridge| self.name_of(bridge);
        match object {
            Object::Ports(bridge) => format!("the ports of {}", name(bridge)),
            Object::Port(bridge, port) => format!("port {port} of {}", name(bridge)),
            Object::PortFilters(bridge) => {
                format!("the port_down and no_recv settings of the ports of {}", name(bridge))
            }
            Object::Bridge(bridge) => format!("the settings and mirrors of {}", name(bridge)),
            Object::Group(bridge, group) => format!("group {group} of {}", name(bridge)),
            Object::Meter(bridge, meter) => format!("meter {meter} of {}", name(bridge)),
            Object::Mac(bridge, vlan, mac) => {
                let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
                format!("the port of MAC address {mac} in VLAN {vlan} of {}", name(bridge))
            }
            Object::MulticastGroup(bridge, vlan, group) => {
                format!("the ports of multicast group {group} in VLAN {vlan} of {}", name(bridge))
            }
            Object::MulticastRouters(bridge, vlan) => {
                format!("the ports with multicast routers in VLAN {vlan} of {}", name(bridge))
            }
            Object::Live(bridge) => format!(
                "the set of registers and metadata fields that tables of {} match",
                name(bridge)
            ),
            Object::Learned(bridge, table, _) => {
                format!("the rule that a learn action updates in table {table} of {}", name(bridge))
            }
        }
    }

    /// Returns the name of a bridge.
    fn name_of(&self, bridge: BridgeId) -> String {
        let name = bridge_name(&self.bridges.lock(), bridge);
        if name.is_empty() { "a deleted bridge".to_owned() } else { name }
    }

    /// Returns the milliseconds since a time.
    fn milliseconds_since(&self, then: Time) -> u64 {
        let passed = self.plane.now().since(then).as_millis();
        // 64 bits of milliseconds last for 584 million years.
        u64::try_from(passed).unwrap_or(u64::MAX)
    }
}

/// Returns the bridge that received the packets of an entry.
fn bridge_of(entry: &DumpedEntry) -> BridgeId {
    let number = entry.traversal.key.bridge();
    BridgeId::new(u16::try_from(number).unwrap_or_default())
}

/// Returns the reason for a removal as text.
const fn reason_text(reason: RemovedReason) -> &'static str {
    match reason {
        RemovedReason::IdleTimeout => "its idle timeout passed",
        RemovedReason::HardTimeout => "its hard timeout passed",
        RemovedReason::Delete => "a controller deleted it",
        RemovedReason::GroupDelete => "a group that it names was deleted",
        RemovedReason::MeterDelete => "a meter that it names was deleted",
        RemovedReason::Eviction => "evicted from a full table",
        RemovedReason::Replaced => "replaced by another rule",
    }
}
