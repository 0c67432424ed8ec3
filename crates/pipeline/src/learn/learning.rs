//! Learn requests: changes of the tables that a packet causes.
//!
//! A translation changes nothing. A packet that learns lists [`Learning`]s in its traversal, and
//! control makes a version of them by [`Pipeline::learn`](crate::Pipeline::learn). The datapath
//! executes the packet itself by the version of its translation. Later packets of the same queue
//! wait for the version that learns (see `shunt_datapath`). The packet itself waits, too, if its
//! address must be learned first ([`Learning::precede_packet`]).
//!
//! A request for a rule or an address that exists is a [`Refresh`](crate::Refresh) instead. A
//! traversal that has only refreshes can be cached, and its hits repeat them.

use std::sync::Arc;

use shunt_classifier::Version;

use crate::{
    bridges::{
        bridge::VersionedBridge, mac_table::MacObservation, multicast::MulticastObservation,
    },
    id::{BridgeId, Cookie},
    tables::{
        flow_mod::{FlowMod, FlowModError, TableSelector},
        rule::Rule,
    },
    update::batch::{Revision, UpdateBatch},
};

/// One learn request of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learning {
    /// A rule, by `learn`.
    Rule(Box<LearnedRule>),
    /// The port of a MAC address, by NORMAL.
    Mac(MacObservation),
    /// The content of a message of IGMP or MLD.
    ///
    /// Control makes this request of a message that NORMAL has punted.
    Multicast(MulticastObservation),
}

impl Learning {
    /// Returns whether the packet waits for the decision on its learn requests.
    ///
    /// A packet that learns a rule does not wait: after a wait, the packet would match the learned
    /// rule.
    #[must_use]
    pub fn precede_packet(learnings: &[Self]) -> bool {
        let mut all = learnings.iter();
        all.clone().all(|own| matches!(own, Self::Mac(_)))
            && all.any(|own| matches!(own, Self::Mac(observation) if observation.precedes_packet))
    }
}

/// A rule that a `learn` action makes of a packet.
#[derive(Clone, Debug)]
pub struct LearnedRule {
    /// The bridge of the learning rule.
    pub bridge: BridgeId,
    /// The learning rule; `None` for a packet-out.
    ///
    /// If the rule was removed or has changed meanwhile, nothing is learned. So a controller that
    /// deletes the learning rule and its learned rules gets no late learned rule.
    pub learner: Option<Arc<Rule>>,
    /// The learned rule, as a request to add it.
    ///
    /// An existing rule with the same match and priority gets the instructions of the request. The
    /// existing rule also gets the cookie of the request, unless this cookie is all ones.
    pub request: FlowMod,
    /// The most rules with the same table and cookie; 0: no limit.
    pub limit: u32,
}

impl PartialEq for LearnedRule {
    fn eq(&self, other: &Self) -> bool {
        let learner = |own: &Self| own.learner.as_ref().map(|rule| (rule.id, rule.revision));
        (self.bridge, self.limit, &self.request) == (other.bridge, other.limit, &other.request)
            && learner(self) == learner(other)
    }
}

impl Eq for LearnedRule {}

/// The reason why a learn request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LearnError {
    /// The table refuses the rule.
    #[error(transparent)]
    Refused(#[from] FlowModError),
    /// The learning rule was removed or has changed.
    #[error("the rule with the learn action was removed or has changed")]
    Outdated,
    /// The number of rules of the table and cookie has reached the limit of the
    /// `learn`.
    #[error(
        "there are {0} rules with this table and cookie, which is the limit of the learn action"
    )]
    Limit(u32),
}

/// The cookie of a `learn` that keeps the cookie of an existing rule.
/// See `nx_action_learn`.
const COOKIE_KEPT: Cookie = Cookie::new(u64::MAX);

impl LearnedRule {
    /// Returns whether the learning rule exists unchanged.
    fn is_current(&self, bridge: &VersionedBridge, version: Version) -> bool {
        self.learner.as_ref().is_none_or(|learner| {
            let table = bridge.table(learner.table);
            let found = table.and_then(|existing| {
                existing.find_exact(&learner.matching, learner.priority, version)
            });
            found.is_some_and(|own| (own.id, own.revision) == (learner.id, learner.revision))
        })
    }

    /// Returns whether `rule`, which has the same match and priority, equals the
    /// learned rule.
    pub(crate) fn matches_rule(&self, rule: &Rule) -> bool {
        self.cookie_after(rule) == rule.cookie && *rule.instructions == self.request.instructions
    }

    /// Returns whether another learn request has this table, match and priority.
    /// An equal learn request replaces nothing.
    pub(crate) fn replaces(&self, other: &Learning) -> bool {
        let slot =
            |learned: &Self| (learned.bridge, learned.request.table, learned.request.priority);
        match other {
            Learning::Rule(other) => {
                slot(self) == slot(other)
                    && self.request.matching == other.request.matching
                    && self != &**other
            }
            Learning::Mac(_) | Learning::Multicast(_) => false,
        }
    }

    /// Returns whether the number of rules of the table and cookie is below the limit.
    pub(crate) fn is_below_limit(&self, bridge: &VersionedBridge, version: Version) -> bool {
        let TableSelector::One(table) = self.request.table else { return true };
        let count = |cookie| bridge.cookie_count(table, cookie, version);
        self.limit == 0 || count(self.request.cookie) < self.limit as usize
    }

    /// Returns the cookie of a rule after it has been learned again.
    fn cookie_after(&self, rule: &Rule) -> Cookie {
        if self.request.cookie == COOKIE_KEPT { rule.cookie } else { self.request.cookie }
    }
}

impl UpdateBatch {
    /// Learns a rule: refreshes an equal one, changes one with its match and priority,
    /// or adds it.
    ///
    /// The removal of rules that have lost their learning rule is left to the caller, as of any
    /// selection of rules ([`Self::must_select`]).
    pub(crate) fn learn(
        &mut self,
        bridge: &mut VersionedBridge,
        learned: &LearnedRule,
    ) -> Result<(), LearnError> {
        if !learned.is_current(bridge, self.version) {
            return Err(LearnError::Outdated);
        }
        let request = &learned.request;
        if let (TableSelector::One(table), 1..) = (request.table, learned.limit) {
            bridge.begin_count(table, self.version);
        }
        let old = match request.table {
            TableSelector::One(table) => bridge.table(table).and_then(|existing| {
                existing.find_exact(&request.matching, request.priority, self.version).cloned()
            }),
            TableSelector::All => None,
        };
        match old {
            Some(old) if learned.matches_rule(&old) => old.timers().refresh(self.now),
            _ if !learned.is_below_limit(bridge, self.version) => {
                return Err(LearnError::Limit(learned.limit));
            }
            Some(old) => {
                let cookie = learned.cookie_after(&old);
                let stats = Arc::clone(&old.stats);
                let instructions = &request.instructions.clone().into();
                self.revise(bridge, old, Revision { cookie, instructions, stats });
            }
            None => self.add(learned.bridge, bridge, request)?,
        }
        self.note_orphans(bridge);
        Ok(())
    }
}
