//! Traversals: the lookups and actions of one packet, with all dependencies.

use std::sync::Arc;

use shunt_classifier::{Rank, Version};
use shunt_flow::{FlowKey, FlowMask, SparseKey, SparseMask};

use super::{datapath_action::DatapathAction, drop_cause::DropCause};
use crate::{
    bridges::{mac_table::MacEntry, output_counter::OutputHit},
    continuations::continuation::Continuation,
    groups::group::Group,
    id::{BridgeId, DatapathPort, QueueId, TableId},
    learn::learning::Learning,
    tables::rule::Rule,
    time::Time,
    versions::delta::Object,
};

/// All visits of one packet, its reads, and its actions.
///
/// A traversal lives as long as its cache entry. So keys and masks are sparse, and visits share
/// equal keys and masks.
#[derive(Clone, Debug)]
pub struct Traversal {
    /// The version of the tables.
    pub version: Version,
    /// The key of the packet at its arrival, or after it was parsed again.
    pub key: SparseKey,
    /// The continuation at the beginning; `None` for a packet that has just arrived.
    pub continuation: Option<Arc<Continuation>>,
    /// The continuation after a sub-traversal; `None` at the end of the traversal.
    pub next: Option<Arc<Continuation>>,
    /// The bits of `key` that the traversal depends on.
    /// The traversal is valid for all packets that agree under this mask.
    pub mask: SparseMask,
    /// The table lookups, in order.
    pub visits: Box<[Visit]>,
    /// All objects other than rules that were consulted, each once.
    pub reads: Box<[Object]>,
    /// Groups that chose buckets, in order.
    pub group_hits: Box<[GroupHit]>,
    /// Mirrors that copied the packet and bonds that balanced it, in order.
    pub output_hits: Box<[OutputHit]>,
    /// The learn requests of the packet: a traversal with learn requests is not cached.
    pub learnings: Vec<Learning>,
    /// The refreshes of the packet, which later hits repeat.
    pub refreshes: Box<[Refresh]>,
    /// The datapath actions. Empty: the packet is dropped.
    pub actions: Arc<[DatapathAction]>,
    /// The error for which the switch, and not a rule, dropped the packet.
    pub error: Option<TraversalError>,
    /// The cause of the drop, if no action outputs the packet and there is no error.
    pub drop_cause: DropCause,
}

/// One table lookup of a traversal, or one step of a lookup with conjunctions.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The bridge that has the table.
    pub bridge: BridgeId,
    /// The table that was looked up.
    pub table: TableId,
    /// The key of the packet as it entered the table.
    pub key: SparseKey,
    /// The bits of `key` that the lookup and the actions of the matched rule consulted.
    pub mask: SparseMask,
    /// The rule that matched; `None`: a table miss, or a conjunction.
    pub rule: Option<Arc<Rule>>,
    /// The clauses that satisfy a conjunction, all of one priority.
    ///
    /// The next visit is the lookup with its `conj_id`. If that lookup finds no rule, the visit
    /// after it continues this lookup.
    pub clauses: Box<[Arc<Rule>]>,
}

// A cached traversal stores one visit per table.
const _: () = assert!(size_of::<Visit>() <= 64, "a visit fills a cache line at most");

impl Visit {
    /// Returns whether `again` visited the same table and found the same rule.
    fn decides_like(&self, again: &Self) -> bool {
        let revision = |rule: &Arc<Rule>| (rule.id, rule.revision);
        self.bridge == again.bridge
            && self.table == again.table
            && self.rule.as_ref().map(revision) == again.rule.as_ref().map(revision)
            && self.clauses.iter().map(revision).eq(again.clauses.iter().map(revision))
    }

    /// Returns the rank of the decision; `None` for a table miss.
    ///
    /// An added rule that matches the packet changes the decision only if the rule ranks higher. A
    /// conjunction ranks below every rule of its clauses' priority, because a rule added at that
    /// priority may decide instead, or satisfy another conjunction.
    #[must_use]
    pub fn rank(&self) -> Option<Rank> {
        let of_clause = |clause: &Arc<Rule>| Rank { priority: clause.priority, age: u64::MAX };
        let rule = self.rule.as_ref().map(|rule| rule.rank());
        rule.or_else(|| self.clauses.first().map(of_clause))
    }
}

impl Traversal {
    /// Returns the traversal of a frame that the switch itself sends on a port.
    ///
    /// No table has decided about the frame, so no rule is credited, and the traversal is valid at
    /// every version.
    #[must_use]
    pub fn of_own_frame(port: DatapathPort) -> Self {
        let queue = QueueId::DEFAULT;
        let output = DatapathAction::Output { port, queue, unless_ingress: false, max_len: None };
        Self {
            version: Version::ZERO,
            key: SparseKey::from(&FlowKey::ZERO),
            continuation: None,
            next: None,
            mask: SparseMask::from(&FlowMask::EMPTY),
            visits: Box::default(),
            reads: Box::default(),
            group_hits: Box::default(),
            output_hits: Box::default(),
            learnings: Vec::new(),
            refreshes: Box::default(),
            actions: Arc::new([output]),
            error: None,
            drop_cause: DropCause::default(),
        }
    }

    /// Returns whether hits credit no rule, group or output, and refresh nothing.
    pub(crate) fn credits_nothing(&self) -> bool {
        self.visits.is_empty()
            && self.group_hits.is_empty()
            && self.output_hits.is_empty()
            && self.refreshes.is_empty()
    }

    /// Returns whether `again` decides like this traversal of the same region.
    ///
    /// Equal traversals have the same actions, the same rules, groups, mirrors and refreshes to
    /// credit, and no learn requests.
    #[must_use]
    pub fn decides_like(&self, again: &Self) -> bool {
        self.actions == again.actions
            && self.next == again.next
            && self.error == again.error
            && self.drop_cause == again.drop_cause
            && self.group_hits == again.group_hits
            && self.output_hits == again.output_hits
            && again.learnings.is_empty()
            && self.refreshes == again.refreshes
            && self.visits.len() == again.visits.len()
            && self.visits.iter().zip(&again.visits).all(|(own, again)| own.decides_like(again))
    }

    /// Returns whether sub-traversals credit the same objects as this traversal.
    /// Refreshes and learn requests are compared as well.
    ///
    /// The effects on the packet are not compared: a sub-traversal writes headers at its end that
    /// the whole traversal writes only before it sends the packet.
    #[must_use]
    pub fn credits_like(&self, sub_traversals: &[Arc<Self>]) -> bool {
        let visits = || sub_traversals.iter().flat_map(|sub_traversal| &sub_traversal.visits);
        let refreshes = || sub_traversals.iter().flat_map(|sub_traversal| &sub_traversal.refreshes);
        self.error == sub_traversals.iter().find_map(|sub_traversal| sub_traversal.error)
            && self
                .learnings
                .iter()
                .eq(sub_traversals.iter().flat_map(|sub_traversal| &sub_traversal.learnings))
            && self.visits.len() == visits().count()
            && self.visits.iter().zip(visits()).all(|(own, part)| own.decides_like(part))
            && self
                .group_hits
                .iter()
                .eq(sub_traversals.iter().flat_map(|sub_traversal| &sub_traversal.group_hits))
            && self
                .output_hits
                .iter()
                .eq(sub_traversals.iter().flat_map(|sub_traversal| &sub_traversal.output_hits))
            && self.refreshes.iter().all(|own| refreshes().any(|part| part == own))
            && refreshes().all(|part| self.refreshes.contains(part))
    }

    /// Returns the visits that end a lookup, with the matched rule.
    ///
    /// A lookup with conjunctions ends with its last visit.
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
    /// The group that the packet entered.
    pub group: Arc<Group>,
    /// The bucket; `None`: all buckets.
    pub bucket: Option<usize>,
}

impl GroupHit {
    /// Counts hits, for the group and for its chosen buckets.
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

/// A rule or address with a lifetime that a hit prolongs or lowers (invariant 7).
///
/// A hit never creates a rule, and never moves an address.
#[derive(Clone, Debug)]
pub enum Refresh {
    /// The rule that a `learn` would add again.
    Rule(Arc<Rule>),
    /// The MAC address that NORMAL would learn again.
    Mac(Arc<MacEntry>),
    /// The rule of a `fin_timeout`: a TCP FIN or RST lowers its timeouts.
    FinTimeout {
        /// The rule with the lowered timeouts.
        rule: Arc<Rule>,
        /// New upper bound of the idle timeout, in seconds; 0: unchanged.
        idle: u16,
        /// New upper bound of the hard timeout, in seconds; 0: unchanged.
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
    /// Applies the refresh for a packet at `now`.
    ///
    /// Returns the rule, if the packet has lowered its timeouts.
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

/// The error that stopped a translation: the packet is dropped without any output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraversalError {
    /// Resubmits, buckets, patch ports or copies are nested deeper than the limit.
    #[error(
        "the packet goes through more than {0} nested resubmits, buckets, patch ports or copies, \
         which is the limit"
    )]
    TooDeep(u16),
    /// The translation has more table lookups after the first than the limit.
    #[error("the packet needs more than {0} resubmits, which is the limit")]
    TooManyResubmits(u16),
    /// The packet has more MPLS labels than a key holds.
    #[error("the packet gets more than {0} MPLS labels, which is the limit")]
    TooManyMplsLabels(u8),
    /// The stack has more bytes than the limit.
    #[error(
        "the packet needs more than {0} bytes on the stack of `push` and `pop`, which is the \
         limit"
    )]
    StackTooDeep(usize),
    /// The packet was parsed again more often than the limit.
    /// Pops of labels and checks of the length cause this.
    #[error("the packet needs more than {0} recirculations, which is the limit")]
    TooManyRecirculations(u8),
    /// The packet arrived on a port that no bridge has.
    #[error("the packet arrived on a port that belongs to no bridge")]
    NoSuchPort,
    /// The packet has more learn requests or refreshes than the limit.
    #[error("the packet needs more than {0} learn requests or refreshes, which is the limit")]
    TooManyLearnedRules(usize),
    /// The packet has more datapath actions than the limit.
    #[error("the packet needs more than {0} datapath actions, which is the limit")]
    TooManyActions(usize),
}
