//! Why a cache entry is there, and why one went.
//!
//! An entry stays as long as every lookup that it stands for finds what it found, and everything else
//! that was consulted is as it was. So what keeps it is said from what made it: its visits and its
//! reads. What ended one is said from what the eviction desk remembers.

use serde::Serialize;
use shunt_datapath::{Command, Evicted, command::DumpedEntry, evict::history::RECENT_MAX};
use shunt_flow::text::format_match;
use shunt_pipeline::{
    BridgeId, Delta, EntryId, Object, RemovedReason, Rule, RuleChange, RuleDelta, Time,
};
use tokio::sync::oneshot;

use crate::{
    control::Control,
    error::SwitchError,
    ports::names::BridgeNames,
    trace::{
        explain::bridge_name,
        report::{Trace, TraceVisit},
    },
};

/// A cache entry.
#[derive(Clone, Debug, Serialize)]
pub struct EntryStatus {
    /// Its name: the packet thread, or the number after the last for the NIC, a slot, and how often the slot was used before.
    pub entry: String,
    /// Packets that hit it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Milliseconds since the last of them.
    pub idle_ms: u64,
    /// The packets that it takes, as a match.
    pub megaflow: String,
    /// What happens to them; empty: they are dropped, unless they go on.
    pub actions: Vec<String>,
    /// Of a piece of a chain: its stage.
    pub stage: Option<u8>,
    /// Of one that is not the last: what pieces match that go on from there.
    pub next: Option<String>,
}

/// The entries of all packet threads and of the NIC, those with most packets first.
#[derive(Clone, Debug, Serialize)]
pub struct EntryList {
    /// How many there are.
    pub total: u64,
    /// The first of them.
    pub entries: Vec<EntryStatus>,
}

/// Why an entry is there, or went.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Why {
    /// It is there.
    Live(Box<LiveEntry>),
    /// A change ended it.
    Evicted(EvictedEntry),
}

/// What keeps an entry.
#[derive(Clone, Debug, Serialize)]
pub struct LiveEntry {
    /// The entry.
    #[serde(flatten)]
    pub status: EntryStatus,
    /// The version that it was translated under.
    pub version: u64,
    /// The lookups that must find what they found.
    pub visits: Vec<TraceVisit>,
    /// What else must stay as it is.
    pub reads: Vec<String>,
}

/// What ended an entry.
#[derive(Clone, Debug, Serialize)]
pub struct EvictedEntry {
    /// The entry.
    pub entry: String,
    /// The version that ended it.
    pub version: u64,
    /// Milliseconds since.
    pub ago_ms: u64,
    /// The kind of the cause, as in [`EvictionStatus::by_cause`](crate::EvictionStatus::by_cause).
    pub cause: &'static str,
    /// The change, if one alone is known to have ended it.
    pub delta: Option<String>,
}

/// Entries that are explained before others have their turn.
const EXPLAINED_AT_ONCE: usize = 64;

impl Control {
    /// The entries of all packet threads, and of the NIC, so many of them; 0: all.
    pub(crate) async fn entries(&self, count: usize) -> EntryList {
        let dumps = self.plane.ask(|_, reply| Command::Dump(reply)).await;
        let mut all: Vec<DumpedEntry> = dumps.into_iter().flatten().collect();
        all.append(&mut self.entries_of_nic().await);
        let total = all.len() as u64;
        all.sort_by_key(|own| (std::cmp::Reverse(own.packets), own.entry));
        if count > 0 {
            all.truncate(count);
        }
        let mut entries = Vec::with_capacity(all.len());
        for own in &all {
            if entries.len().is_multiple_of(EXPLAINED_AT_ONCE) {
                // There may be a million, and controllers wait meanwhile.
                tokio::task::yield_now().await;
            }
            entries.push(self.entry_status(own, self.explain_entry(own)));
        }
        EntryList { total, entries }
    }

    /// The pieces that are meant to be in the NIC.
    pub(crate) async fn entries_of_nic(&self) -> Vec<DumpedEntry> {
        let Some(nic) = self.nic() else { return Vec::new() };
        let (sender, receiver) = oneshot::channel();
        nic.handle().dump(Box::new(move |entries| drop(sender.send(entries))));
        // Of an owner that ends meanwhile there are none.
        receiver.await.unwrap_or_default()
    }

    /// Why an entry is there, or went.
    pub(crate) async fn why(&self, text: &str) -> Result<Why, SwitchError> {
        let entry: EntryId = text.parse()?;
        let found = self
            .plane
            .inspect_coordinator(move |coordinator| coordinator.record().find(entry).cloned())
            .await;
        if let Some(evicted) = found.flatten() {
            return Ok(Why::Evicted(self.explain_eviction(&evicted)));
        }
        let present = if entry.owner.0 == self.plane.threads_count() {
            let all = self.entries_of_nic().await;
            all.into_iter().find(|own| own.entry.slot == entry.slot)
        } else {
            let question = |reply| Command::Entry(entry.slot, reply);
            self.plane.ask_one(entry.owner.0.into(), question).await.flatten()
        };
        match present {
            Some(live) if live.entry == entry => Ok(Why::Live(Box::new(self.explain_live(&live)))),
            other => Err(self.no_such_entry(entry, other.map(|own| own.entry))),
        }
    }

    fn no_such_entry(&self, entry: EntryId, other: Option<EntryId>) -> SwitchError {
        let threads = self.plane.threads_count();
        let present = match other {
            Some(other) => format!("in its place is {other}"),
            None if entry.owner.0 < threads => "its slot is empty (an idle entry goes)".to_owned(),
            None if entry.owner.0 == threads && self.nic().is_some() => {
                "the NIC has no such piece (an idle one goes)".to_owned()
            }
            None if self.nic().is_some() => {
                format!("the packet threads are 0 to {}, and the NIC is {threads}", threads - 1)
            }
            None => format!("the packet threads are 0 to {}", threads - 1),
        };
        SwitchError::NoSuchEntry { entry, present, remembered: RECENT_MAX }
    }

    fn explain_entry(&self, entry: &DumpedEntry) -> Trace {
        self.explain_alone(&entry.traversal, bridge_of(entry))
    }

    fn entry_status(&self, entry: &DumpedEntry, trace: Trace) -> EntryStatus {
        EntryStatus {
            entry: entry.entry.to_string(),
            packets: entry.packets,
            bytes: entry.bytes,
            idle_ms: self.milliseconds_since(entry.used),
            megaflow: trace.megaflow,
            actions: trace.actions,
            stage: entry.link.map(|link| link.stage.number()),
            next: entry.traversal.next.as_ref().map(|next| format!("recirc_id={}", next.id())),
        }
    }

    fn explain_live(&self, entry: &DumpedEntry) -> LiveEntry {
        let mut trace = self.explain_entry(entry);
        let reads = entry.traversal.reads.iter().map(|object| self.explain_object(*object));
        LiveEntry {
            version: trace.version,
            visits: std::mem::take(&mut trace.visits),
            reads: reads.collect(),
            status: self.entry_status(entry, trace),
        }
    }

    fn explain_eviction(&self, evicted: &Evicted) -> EvictedEntry {
        EvictedEntry {
            entry: evicted.entry.to_string(),
            version: evicted.version.number(),
            ago_ms: self.milliseconds_since(evicted.at),
            cause: evicted.kind.name(),
            delta: evicted.delta.as_ref().map(|delta| self.explain_delta(delta)),
        }
    }

    fn explain_delta(&self, delta: &Delta) -> String {
        let RuleDelta { rule, change } = match delta {
            Delta::Changed(object) => return format!("{} changed", self.explain_object(*object)),
            Delta::Rule(delta) => delta,
        };
        let rule = self.explain_place(rule);
        match change {
            RuleChange::Added => format!("{rule} was added"),
            RuleChange::Modified(_) => format!("{rule} was modified"),
            RuleChange::Removed(reason) => format!("{rule} was removed: {}", say(*reason)),
        }
    }

    fn explain_place(&self, rule: &Rule) -> String {
        let names = BridgeNames::new(&self.plane.pipeline, rule.bridge);
        let (table, priority) = (rule.table, rule.priority.number());
        let matching = format_match(&rule.matching, &names);
        let comma = if matching.is_empty() { "" } else { "," };
        let bridge = self.name_of(rule.bridge);
        format!("the rule table={table},priority={priority}{comma}{matching} of {bridge}")
    }

    fn explain_object(&self, object: Object) -> String {
        let name = |bridge| self.name_of(bridge);
        match object {
            Object::Ports(bridge) => format!("the ports of {}", name(bridge)),
            Object::Port(bridge, port) => format!("port {port} of {}", name(bridge)),
            Object::PortFilters(bridge) => {
                format!("whether any port of {} drops packets", name(bridge))
            }
            Object::Bridge(bridge) => format!("the settings of {}", name(bridge)),
            Object::Group(bridge, group) => format!("group {group} of {}", name(bridge)),
            Object::Meter(bridge, meter) => format!("meter {meter} of {}", name(bridge)),
            Object::Mac(bridge, vlan, mac) => {
                let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
                format!("where {mac} of VLAN {vlan} is in {}", name(bridge))
            }
            Object::Live(bridge) => format!("which hidden state tables of {} read", name(bridge)),
            Object::Learned(bridge, table, _) => {
                format!("what a learn finds in table {table} of {}", name(bridge))
            }
        }
    }

    fn name_of(&self, bridge: BridgeId) -> String {
        let name = bridge_name(&self.bridges.lock(), bridge);
        if name.is_empty() { "a bridge that is gone".to_owned() } else { name }
    }

    fn milliseconds_since(&self, then: Time) -> u64 {
        let passed = self.plane.clock.now().since(then).as_millis();
        u64::try_from(passed).unwrap_or(u64::MAX)
    }
}

/// The bridge that the packets of an entry are in.
fn bridge_of(entry: &DumpedEntry) -> BridgeId {
    let number = entry.traversal.key.bridge();
    BridgeId::new(u16::try_from(number).unwrap_or_default())
}

const fn say(reason: RemovedReason) -> &'static str {
    match reason {
        RemovedReason::IdleTimeout => "its idle timeout passed",
        RemovedReason::HardTimeout => "its hard timeout passed",
        RemovedReason::Delete => "a controller deleted it",
        RemovedReason::GroupDelete => "a group that it names was deleted",
        RemovedReason::MeterDelete => "a meter that it names was deleted",
        RemovedReason::Eviction => "it made room in a full table",
        RemovedReason::Replaced => "another took its place",
    }
}
