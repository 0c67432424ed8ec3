//! What packets teach: changes of tables that a translation asks for.
//!
//! A translation changes nothing. A packet that teaches says so by its traversal's
//! [`Learning`]s, and control makes a version of them by [`Pipeline::learn`](crate::Pipeline::learn).
//! The packet itself fares as its own version says; what comes behind it on its queue waits for the
//! version that has learned (see `shunt_datapath`).
//!
//! What is known already is no learning but a [`Refresh`](crate::Refresh): a traversal that has
//! only those can be cached, and its hits refresh too.

use std::sync::Arc;

use shunt_classifier::Version;

use crate::{
    bridges::{bridge::Bridge, mac_table::MacSighting},
    id::{BridgeId, Cookie},
    tables::{
        flow_mod::{FlowMod, FlowModError, TableSelector},
        rule::Rule,
    },
    update::batch::{Batch, Revision},
};

/// Something that a packet teaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learning {
    /// A rule, by `learn`.
    Rule(Box<LearnedRule>),
    /// Where a MAC address is, by NORMAL.
    Mac(MacSighting),
}

/// A rule that a `learn` action makes of a packet.
#[derive(Clone, Debug)]
pub struct LearnedRule {
    /// The bridge of the rule that learns.
    pub bridge: BridgeId,
    /// The rule that learns; `None`: a packet-out. If it is gone or has changed meanwhile, nothing is
    /// learned: a controller that has removed it, and what it learned, need not do so twice.
    pub teacher: Option<Arc<Rule>>,
    /// The rule, as a request to add it. If there is one with its match and priority, that gets
    /// its instructions and, unless it is all ones, its cookie.
    pub request: FlowMod,
    /// The most rules of its table and cookie; 0: no limit.
    pub limit: u32,
}

impl PartialEq for LearnedRule {
    fn eq(&self, other: &Self) -> bool {
        let teacher = |own: &Self| own.teacher.as_ref().map(|rule| (rule.id, rule.revision));
        (self.bridge, self.limit, &self.request) == (other.bridge, other.limit, &other.request)
            && teacher(self) == teacher(other)
    }
}

impl Eq for LearnedRule {}

/// Why something was not learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LearnError {
    /// The table refuses the rule.
    #[error(transparent)]
    Refused(#[from] FlowModError),
    /// The rule that learns is gone, or has changed.
    #[error("the rule that learns is gone or has changed")]
    Outdated,
    /// There are as many rules of its table and cookie as the `learn` allows.
    #[error("there are {0} rules of this table and cookie, the limit")]
    Limit(u32),
}

/// A cookie that changes none (`nx_action_learn`).
const COOKIE_KEPT: Cookie = Cookie::new(u64::MAX);

impl LearnedRule {
    /// Whether the rule that learns is there, as it was.
    fn is_current(&self, bridge: &Bridge, version: Version) -> bool {
        self.teacher.as_ref().is_none_or(|teacher| {
            let table = bridge.table(teacher.table);
            let found = table
                .and_then(|held| held.find_exact(&teacher.matching, teacher.priority, version));
            found.is_some_and(|own| (own.id, own.revision) == (teacher.id, teacher.revision))
        })
    }

    /// Whether `rule`, which has its match and priority, is just what would be learned.
    pub(crate) fn is_known_as(&self, rule: &Rule) -> bool {
        self.cookie_after(rule) == rule.cookie && *rule.instructions == self.request.instructions
    }

    /// Whether the rule would stand in the place of another one that is being learned.
    pub(crate) fn replaces(&self, other: &Learning) -> bool {
        let place =
            |learned: &Self| (learned.bridge, learned.request.table, learned.request.priority);
        match other {
            Learning::Rule(other) => {
                place(self) == place(other)
                    && self.request.matching == other.request.matching
                    && self != &**other
            }
            Learning::Mac(_) => false,
        }
    }

    /// Whether there are fewer rules of its table and cookie than its limit.
    pub(crate) fn is_below_limit(&self, bridge: &Bridge, version: Version) -> bool {
        let TableSelector::One(table) = self.request.table else { return true };
        let count = |cookie| bridge.cookie_count(table, cookie, version);
        self.limit == 0 || count(self.request.cookie) < self.limit as usize
    }

    /// The cookie of a rule after it has been learned again.
    fn cookie_after(&self, rule: &Rule) -> Cookie {
        if self.request.cookie == COOKIE_KEPT { rule.cookie } else { self.request.cookie }
    }
}

impl Batch {
    /// Learns a rule: refreshes the one that is just so, changes the one in its place, or adds it.
    pub(crate) fn learn(
        &mut self,
        bridge: &mut Bridge,
        learned: &LearnedRule,
    ) -> Result<(), LearnError> {
        if !learned.is_current(bridge, self.version) {
            return Err(LearnError::Outdated);
        }
        let request = &learned.request;
        let old = match request.table {
            TableSelector::One(table) => bridge.table(table).and_then(|held| {
                held.find_exact(&request.matching, request.priority, self.version).cloned()
            }),
            TableSelector::All => None,
        };
        match old {
            Some(old) if learned.is_known_as(&old) => old.timers().refresh(self.now),
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
        self.remove_orphans(bridge);
        Ok(())
    }
}
