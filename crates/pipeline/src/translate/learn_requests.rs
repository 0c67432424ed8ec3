//! Learn requests and refreshes that a translation collects.
//!
//! A translation changes no table: the traversal lists the learn requests of the packet, and
//! control applies them as a version. A request for a rule or an address that exists already
//! becomes a refresh, which each later hit of the cache entry repeats.

use super::limits::LEARN_REQUESTS_MAX;
use crate::{
    learn::learning::{LearnedRule, Learning},
    traversals::traversal::{Refresh, TraversalError},
};

/// The learn requests and refreshes of one packet.
#[derive(Default)]
pub(super) struct LearnRequests {
    /// The entries and rules to learn.
    learnings: Vec<Learning>,
    /// The learned entries that the packet has used.
    refreshes: Vec<Refresh>,
}

impl LearnRequests {
    /// Creates an empty list of requests, which reuses the memory of `refreshes`.
    pub(super) const fn with(refreshes: Vec<Refresh>) -> Self {
        Self { learnings: Vec::new(), refreshes }
    }

    /// Adds a learn request, so the traversal is not cached.
    ///
    /// The translation has read the object that the request depends on.
    pub(super) fn learn(&mut self, learning: Learning) -> Result<(), TraversalError> {
        if !self.learnings.contains(&learning) {
            self.learnings.push(learning);
        }
        check_count(self.learnings.len())
    }

    /// Adds a refresh of a rule or address.
    ///
    /// Each hit of the cache entry repeats the refresh.
    pub(super) fn refresh(&mut self, refresh: Refresh) -> Result<(), TraversalError> {
        if !self.refreshes.contains(&refresh) {
            self.refreshes.push(refresh);
        }
        check_count(self.refreshes.len())
    }

    /// Returns whether an earlier request is for another rule with the same match.
    pub(super) fn is_replaced_by(&self, rule: &LearnedRule) -> bool {
        self.learnings.iter().any(|other| rule.replaces(other))
    }

    /// Returns how many rules and addresses each hit refreshes.
    pub(super) const fn refreshes_count(&self) -> usize {
        self.refreshes.len()
    }

    /// Returns the learn requests and the refreshes.
    pub(super) fn finish(self) -> (Vec<Learning>, Vec<Refresh>) {
        (self.learnings, self.refreshes)
    }
}

/// Refuses more learn requests than a packet may cause.
const fn check_count(count: usize) -> Result<(), TraversalError> {
    if count > LEARN_REQUESTS_MAX {
        Err(TraversalError::TooManyLearnedRules(LEARN_REQUESTS_MAX))
    } else {
        Ok(())
    }
}
