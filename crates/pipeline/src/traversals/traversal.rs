//! Traversals: all that happened to one packet, and all that it depended on.

use std::sync::Arc;

use shunt_classifier::{Rank, Version};
use shunt_flow::{SparseKey, SparseMask};

use super::datapath_action::DatapathAction;
use crate::{
    bridges::mac_table::MacEntry,
    continuations::continuation::Continuation,
    groups::group::Group,
    id::{BridgeId, TableId},
    learn::learning::Learning,
    tables::rule::Rule,
    time::Time,
    versions::delta::Object,
};

/// All visits of one packet, its reads, and what was decided.
///
/// Kept as long as its cache entry, so keys and masks are sparse, and shared where they are alike.
#[derive(Clone, Debug)]
pub struct Traversal {
    /// The version that it saw.
    pub version: Version,
    /// The packet, as it came in or was parsed again.
    pub key: SparseKey,
    /// Where it went on, if it was parsed again.
    pub continuation: Option<Arc<Continuation>>,
    /// Where the packet goes on, if this is a piece that was cut off; `None`: it is over.
    pub next: Option<Arc<Continuation>>,
    /// Every bit of `key` that anything depended on: a packet that agrees under it fares alike.
    pub mask: SparseMask,
    /// Lookups, in order.
    pub visits: Box<[Visit]>,
    /// Everything else that was consulted, each once.
    pub reads: Box<[Object]>,
    /// Groups that chose buckets, in order.
    pub group_hits: Box<[GroupHit]>,
    /// What the packet teaches: a traversal with learnings is not cached.
    pub learnings: Vec<Learning>,
    /// What the packet and later hits refresh.
    pub refreshes: Box<[Refresh]>,
    /// What happens to the packet. Empty: it is dropped.
    pub actions: Arc<[DatapathAction]>,
    /// Why it came to nothing, if the switch and not a rule decided so.
    pub error: Option<TraversalError>,
}

/// One table lookup of a traversal, or one step of it, where conjunctions are met.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The bridge.
    pub bridge: BridgeId,
    /// The table.
    pub table: TableId,
    /// The packet as it entered the table.
    pub key: SparseKey,
    /// The bits of `key` that the lookup and the actions of the matched rule consulted.
    pub mask: SparseMask,
    /// The rule that matched; `None`: a table miss, or a conjunction.
    pub rule: Option<Arc<Rule>>,
    /// The rules that met a conjunction, all of one priority: the next visit is that of the lookup
    /// with its `conj_id`, and if that has no rule, the one after it goes on with this lookup.
    pub clauses: Box<[Arc<Rule>]>,
}

// A cached flow has as many as it visits tables.
const _: () = assert!(size_of::<Visit>() <= 64, "a visit fills a cache line at most");

impl Visit {
    /// Whether another visit found the same in the same place.
    fn says_as(&self, again: &Self) -> bool {
        let revision = |rule: &Arc<Rule>| (rule.id, rule.revision);
        self.bridge == again.bridge
            && self.table == again.table
            && self.rule.as_ref().map(revision) == again.rule.as_ref().map(revision)
            && self.clauses.iter().map(revision).eq(again.clauses.iter().map(revision))
    }

    /// The rank of what decided: a rule that is added and matches the packet changes the decision
    /// only if it ranks higher. `None`: a table miss.
    ///
    /// A conjunction ranks below every rule of its clauses' priority: one that is added there
    /// decides in its place, or meets another conjunction.
    #[must_use]
    pub fn rank(&self) -> Option<Rank> {
        let of_clause = |clause: &Arc<Rule>| Rank { priority: clause.priority, age: u64::MAX };
        let rule = self.rule.as_ref().map(|rule| rule.rank());
        rule.or_else(|| self.clauses.first().map(of_clause))
    }
}

impl Traversal {
    /// Whether `again`, a translation of a packet of this one's region, says the same of it: the same
    /// rules, groups and refreshes to credit, the same actions, and nothing to learn.
    #[must_use]
    pub fn says_as(&self, again: &Self) -> bool {
        self.actions == again.actions
            && self.next == again.next
            && self.error == again.error
            && self.group_hits == again.group_hits
            && again.learnings.is_empty()
            && self.refreshes == again.refreshes
            && self.visits.len() == again.visits.len()
            && self.visits.iter().zip(&again.visits).all(|(own, again)| own.says_as(again))
    }

    /// Whether these pieces, one behind the other, credit, refresh and teach what this whole translation
    /// does. What they do to a packet is not compared: what is cut writes headers that the whole does not
    /// write before it sends the packet.
    #[must_use]
    pub fn credits_as(&self, pieces: &[Arc<Self>]) -> bool {
        let visits = || pieces.iter().flat_map(|piece| &piece.visits);
        let refreshes = || pieces.iter().flat_map(|piece| &piece.refreshes);
        self.error == pieces.iter().find_map(|piece| piece.error)
            && self.learnings.iter().eq(pieces.iter().flat_map(|piece| &piece.learnings))
            && self.visits.len() == visits().count()
            && self.visits.iter().zip(visits()).all(|(own, cut)| own.says_as(cut))
            && self.group_hits.iter().eq(pieces.iter().flat_map(|piece| &piece.group_hits))
            && self.refreshes.iter().all(|own| refreshes().any(|cut| cut == own))
            && refreshes().all(|cut| self.refreshes.contains(cut))
    }

    /// The visits that end a lookup, with the rule that it found: of those that a lookup takes
    /// where conjunctions are met, the last.
    pub fn lookups(&self) -> impl Iterator<Item = &Visit> {
        let before = std::iter::once(None).chain(self.visits.iter().map(Some));
        let is_last = |before: Option<&Visit>, visit: &Visit| {
            let is_second = before.is_some_and(|before| !before.clauses.is_empty());
            visit.clauses.is_empty() && (visit.rule.is_some() || !is_second)
        };
        before.zip(&self.visits).filter(move |(b, v)| is_last(*b, v)).map(|(_, visit)| visit)
    }
}

/// A group that chose a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHit {
    /// The group.
    pub group: Arc<Group>,
    /// The bucket; `None`: all of them.
    pub bucket: Option<usize>,
}

impl GroupHit {
    /// Counts hits, for the group and for what it chose.
    pub(crate) fn credit(&self, packets: u64, bytes: u64) {
        let stats = &self.group.stats;
        stats.credit(packets, bytes);
        match self.bucket {
            Some(bucket) => stats.credit_bucket(bucket, packets, bytes),
            None => (0..self.group.buckets.len())
                .for_each(|bucket| stats.credit_bucket(bucket, packets, bytes)),
        }
    }
}

/// Something that a hit prolongs (law 7): always the same object, which it neither makes nor moves.
#[derive(Clone, Debug)]
pub enum Refresh {
    /// The rule that a `learn` would add again.
    Rule(Arc<Rule>),
    /// The MAC address that NORMAL would learn again.
    Mac(Arc<MacEntry>),
    /// The rule whose timeouts a TCP FIN or RST lowers.
    FinTimeout {
        /// The rule.
        rule: Arc<Rule>,
        /// Its idle timeout is not longer from then on, in seconds; 0: as it was.
        idle: u16,
        /// Its hard timeout, likewise.
        hard: u16,
    },
}

impl PartialEq for Refresh {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rule(own), Self::Rule(other)) => own.id == other.id,
            (Self::Mac(own), Self::Mac(other)) => Arc::ptr_eq(own, other),
            (
                Self::FinTimeout { rule, idle, hard },
                Self::FinTimeout { rule: other, idle: other_idle, hard: other_hard },
            ) => (rule.id, idle, hard) == (other.id, other_idle, other_hard),
            (Self::Rule(_) | Self::Mac(_) | Self::FinTimeout { .. }, _) => false,
        }
    }
}

impl Eq for Refresh {}

impl Refresh {
    /// A packet came at `now`. Answers with the rule that may expire earlier because of it.
    pub(crate) fn touch(&self, now: Time) -> Option<&Arc<Rule>> {
        match self {
            Self::Rule(rule) => {
                rule.timers().refresh(now);
                None
            }
            Self::Mac(entry) => {
                entry.refresh(now);
                None
            }
            Self::FinTimeout { rule, idle, hard } => {
                rule.timers().lower(*idle, *hard).then_some(rule)
            }
        }
    }
}

/// Why a translation was cut short; the whole packet is dropped, outputs already decided included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraversalError {
    /// Resubmits, buckets, patch ports, or copies that pass meters, nested deeper than the bound.
    #[error("resubmits, buckets, patch ports or copies are nested deeper than {0}")]
    TooDeep(u16),
    /// More table lookups by resubmit, goto or patch ports than the bound.
    #[error("more than {0} resubmits")]
    TooManyResubmits(u16),
    /// More MPLS labels than a key holds.
    #[error("more than {0} MPLS labels")]
    TooManyMplsLabels(u8),
    /// More bytes pushed to the stack than the bound.
    #[error("more than {0} bytes on the stack")]
    StackTooDeep(usize),
    /// Parsed again, after pops of labels and checks of its length, more often than the bound.
    #[error("more than {0} recirculations")]
    TooManyRecirculations(u8),
    /// The packet came in by a port that no bridge has.
    #[error("the packet came in by a port that no bridge has")]
    NoSuchPort,
    /// More learnings or refreshes than one packet may ask for.
    #[error("more than {0} learnings")]
    TooManyLearnedRules(usize),
    /// More steps than a packet thread is given.
    #[error("more than {0} outputs and rewrites")]
    TooManyActions(usize),
}
