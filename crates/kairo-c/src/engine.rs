//! Conversion of the caller's words into the types of the engine.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use shunt_flow::{FlowKey, FlowMask, Match, SparseKey, SparseMask, text};
use shunt_kairo::Direct;
use shunt_pipeline::{
    BridgeId, Cookie, Delta, DropCause, EntryId, Evictor, FlowFlags, Installed, Instructions,
    Object, OwnerId, Priority, RemovedReason, Rule, RuleChange, RuleDelta, RuleId, RuleStats,
    SharedTimers, TableId, Time, Traversal, Version, Visit,
};

use crate::rules::{RuleKey, SharedRules};

/// Words of the headers of a packet.
pub(crate) const WORDS: usize = 81;

/// The bridge of all tables of the caller.
const BRIDGE: BridgeId = BridgeId::new(1);

/// The headers of a packet, or a mask of them.
pub(crate) type HeaderWords = [u64; WORDS];

/// An engine, and the entries that its last change evicted.
pub(crate) struct CacheEngine {
    direct: Direct,
    version: Version,
    rules: SharedRules,
    pub(crate) evicted: Vec<EntryId>,
}

/// A rule, as the caller describes it.
pub(crate) struct RuleText<'a> {
    pub(crate) id: u64,
    pub(crate) revision: u32,
    pub(crate) priority: u16,
    pub(crate) table: u8,
    pub(crate) key: &'a HeaderWords,
    pub(crate) mask: &'a HeaderWords,
}

/// The change of a rule.
#[derive(Clone, Copy)]
pub(crate) enum RuleEvent {
    Added,
    Removed,
    Modified,
}

impl CacheEngine {
    /// Returns an engine without entries at this version of the tables.
    pub(crate) fn new(version: u64, seed: u64) -> Self {
        let version = Version::new(version);
        let (direct, rules) = (Direct::new(version, seed), SharedRules::default());
        Self { direct, version, rules, evicted: Vec::new() }
    }

    /// Records an entry; returns whether the engine accepted it.
    pub(crate) fn installed(&mut self, entry: EntryId, traversal: Traversal) -> bool {
        self.direct.installed(entry, &Arc::new(traversal)) == Installed::Recorded
    }

    /// Forgets an entry that its owner removed.
    pub(crate) fn removed(&mut self, entry: EntryId) {
        self.direct.removed(entry);
    }

    /// Forgets all entries of an owner.
    pub(crate) fn forget(&mut self, owner: u16) {
        self.direct.forget(OwnerId(owner));
    }

    /// Applies a change and returns the number of evicted entries.
    ///
    /// Returns `None`, and does nothing, if the version must not follow the last one or an id is
    /// used again.
    pub(crate) fn apply(&mut self, deltas: &[Delta], version: u64) -> Option<usize> {
        let version = Version::new(version);
        // An entry made between two changes of one version would seem to include both.
        let may_follow = version > self.version || version == self.version && deltas.is_empty();
        if !may_follow || uses_an_id_again(deltas) {
            return None;
        }
        self.version = version;
        self.evicted = self.direct.apply(deltas, version);
        Some(self.evicted.len())
    }

    /// Creates the lookup of a traversal from a packet and the rule that it matched.
    /// `None` if the table does not exist or the rule is in another table.
    pub(crate) fn visit(
        &mut self,
        table: u8,
        packet: &HeaderWords,
        consulted: &HeaderWords,
        rule: Option<&RuleText<'_>>,
    ) -> Option<Visit> {
        if rule.is_some_and(|rule| rule.table != table) {
            return None;
        }
        let rule = match rule {
            Some(described) => Some(self.rules.shared(described.name(), || described.rule())?),
            None => None,
        };
        Some(Visit {
            bridge: BRIDGE,
            table: TableId::new(table)?,
            key: sparse_key(packet),
            mask: sparse_mask(consulted),
            rule,
            clauses: Box::default(),
        })
    }

    /// Does a part of the deferred work; returns whether some is left.
    pub(crate) fn run_maintenance(&mut self) -> bool {
        self.direct.run_maintenance()
    }

    /// Returns the number of entries that the engine knows.
    pub(crate) fn len(&self) -> usize {
        self.direct.len()
    }
}

/// Returns whether a change removes a rule and then adds one with the same id.
///
/// Engines treat a rule that is added and removed in one change as one that never existed.
fn uses_an_id_again(deltas: &[Delta]) -> bool {
    let mut gone = BTreeSet::new();
    deltas.iter().any(|delta| match delta {
        Delta::Rule(RuleDelta { rule, change: RuleChange::Removed(_) }) => {
            gone.insert(rule.id);
            false
        }
        Delta::Rule(RuleDelta { rule, .. }) => gone.contains(&rule.id),
        Delta::Changed(_) => false,
    })
}

impl RuleText<'_> {
    /// Returns the key by which the caller names the rule.
    pub(crate) const fn name(&self) -> RuleKey {
        (self.id, self.revision, self.priority, self.table)
    }

    /// Returns the rule, or `None` if the table does not exist.
    pub(crate) fn rule(&self) -> Option<Rule> {
        Some(Rule {
            id: RuleId::new(self.id),
            revision: self.revision,
            bridge: BRIDGE,
            table: TableId::new(self.table)?,
            matching: Match::new(&key(self.key), &mask(self.mask)),
            priority: Priority::new(self.priority),
            cookie: Cookie::new(0),
            idle_timeout: Duration::ZERO,
            hard_timeout: Duration::ZERO,
            importance: 0,
            flags: FlowFlags::default(),
            instructions: Arc::new(Instructions::default()),
            modified: Time::ZERO,
            created: Time::ZERO,
            stats: Arc::new(RuleStats::default()),
            timers: SharedTimers::default(),
        })
    }
}

/// Returns the traversal of an entry.
///
/// The traversal has the packet that arrived, the bits that it depends on, the lookups, and the
/// objects read.
pub(crate) fn traversal(
    version: u64,
    packet: &HeaderWords,
    consulted: &HeaderWords,
    visits: Vec<Visit>,
    reads: &[u64],
) -> Traversal {
    Traversal {
        version: Version::new(version),
        key: sparse_key(packet),
        continuation: None,
        next: None,
        mask: sparse_mask(consulted),
        visits: visits.into(),
        reads: reads.iter().map(|name| object(*name)).collect(),
        group_hits: Box::default(),
        output_hits: Box::default(),
        learnings: Vec::new(),
        refreshes: Box::default(),
        actions: Arc::new([]),
        error: None,
        drop_cause: DropCause::default(),
    }
}

/// Returns the delta of a rule, or `None` if the table does not exist.
pub(crate) fn rule_delta(described: &RuleText<'_>, event: RuleEvent) -> Option<Delta> {
    let rule = Arc::new(described.rule()?);
    let change = match event {
        RuleEvent::Added => RuleChange::Added,
        RuleEvent::Removed => RuleChange::Removed(RemovedReason::Delete),
        RuleEvent::Modified => RuleChange::Modified(Arc::clone(&rule)),
    };
    Some(Delta::Rule(RuleDelta { rule, change }))
}

/// Returns the delta of an object that entries read.
pub(crate) const fn object_delta(name: u64) -> Delta {
    Delta::Changed(object(name))
}

/// Parses a match in the syntax of `ovs-ofctl` into its values and its mask.
pub(crate) fn parse(text: &str) -> Option<(HeaderWords, HeaderWords)> {
    let matching = text::parse_match(text, &text::NoPortNames).ok()?;
    Some((*matching.key().words(), *FlowMask::from(matching.mask()).words()))
}

/// Returns the object for a number of the caller.
const fn object(name: u64) -> Object {
    Object::Learned(BRIDGE, TableId::FIRST, name)
}

/// Returns the flow key of the caller's words.
fn key(words: &HeaderWords) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.words_mut().copy_from_slice(words);
    key
}

/// Returns the mask of the caller's words.
fn mask(words: &HeaderWords) -> FlowMask {
    let mut mask = FlowMask::EMPTY;
    mask.words_mut().copy_from_slice(words);
    mask
}

/// Returns the sparse flow key of the caller's words.
fn sparse_key(words: &HeaderWords) -> SparseKey {
    SparseKey::from(&key(words))
}

/// Returns the sparse mask of the caller's words.
fn sparse_mask(words: &HeaderWords) -> SparseMask {
    SparseMask::from(&mask(words))
}
