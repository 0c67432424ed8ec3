//! The oracle: a list of rules that each lookup scans.
//!
//! The list is simple enough to be obviously correct, and tests compare other classifiers with it.

use shunt_flow::{FlowKey, FlowMask, Match};

use crate::{Classifier, Lifetime, Matches, Priority, Rank, Version};

/// A classifier that scans a list of rules.
///
/// Every operation takes time proportional to the number of rules.
#[derive(Clone, Debug)]
pub struct Linear<R> {
    /// The rules, in the order of insertion.
    rules: Vec<ListedRule<R>>,
}

/// A rule of the list, and the versions that contain it.
#[derive(Clone, Debug)]
struct ListedRule<R> {
    /// The match of the rule.
    matching: Match,
    /// The priority and the age of the rule.
    rank: Rank,
    /// The versions that contain the rule.
    lifetime: Lifetime,
    /// The value of the caller for this rule.
    rule: R,
}

impl<R> Linear<R> {
    /// Creates a table without rules.
    #[must_use]
    pub const fn new() -> Self {
        Self { rules: Vec::new() }
    }

    /// Returns the rules that are visible to a version.
    fn visible(&self, version: Version) -> impl Iterator<Item = &ListedRule<R>> {
        self.rules.iter().filter(move |listed| listed.lifetime.is_visible(version))
    }

    /// Returns the rule of the highest rank that matches `key`.
    fn best(&self, key: &FlowKey, version: Version) -> Option<&ListedRule<R>> {
        let matching = self.visible(version).filter(|listed| listed.matching.matches(key));
        matching.max_by_key(|listed| listed.rank)
    }
}

impl<R> Default for Linear<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Clone> Classifier<R> for Linear<R> {
    fn insert(&mut self, matching: Match, rank: Rank, added: Version, rule: R) {
        self.rules.push(ListedRule { matching, rank, lifetime: Lifetime::since(added), rule });
    }

    fn remove(&mut self, matching: &Match, rank: Rank, removed: Version) -> Option<R> {
        let listed = self.rules.iter_mut().find(|listed| {
            listed.lifetime.removed().is_none()
                && listed.rank == rank
                && listed.matching == *matching
        })?;
        listed.lifetime.end(Some(removed));
        Some(listed.rule.clone())
    }

    fn reclaim(&mut self, oldest: Version) {
        self.rules.retain(|listed| !listed.lifetime.is_over(oldest));
    }

    fn find_exact(&self, matching: &Match, priority: Priority, version: Version) -> Option<&R> {
        let same = |listed: &&ListedRule<R>| {
            listed.rank.priority == priority && listed.matching == *matching
        };
        self.visible(version).filter(same).min_by_key(|listed| listed.rank).map(|l| &l.rule)
    }

    fn lookup(&self, key: &FlowKey, version: Version) -> Option<&R> {
        self.best(key, version).map(|listed| &listed.rule)
    }

    /// Adds the masks of all rules with the rank of the result or a higher rank.
    ///
    /// The result depends only on which of the rules of these ranks match.
    fn lookup_masked(&self, key: &FlowKey, version: Version, mask: &mut FlowMask) -> Option<&R> {
        let best = self.best(key, version);
        let rank = best.map(|listed| listed.rank);
        self.visible(version)
            .filter(|listed| rank.is_none_or(|rank| listed.rank >= rank))
            .for_each(|listed| mask.add_sparse(listed.matching.mask()));
        best.map(|listed| &listed.rule)
    }

    fn matches<'a>(&'a self, key: &FlowKey, version: Version) -> impl Matches<'a, R>
    where
        R: 'a,
    {
        let mut listed: Vec<_> = self.visible(version).collect();
        listed.sort_by_key(|listed| listed.rank);
        LinearMatches { key, listed }
    }

    fn overlaps(&self, matching: &Match, priority: Priority, version: Version) -> bool {
        let mut same = self.visible(version).filter(|listed| listed.rank.priority == priority);
        same.any(|listed| listed.matching.overlaps(matching))
    }

    fn rules_within<'a>(
        &'a self,
        matching: &Match,
        version: Version,
    ) -> impl Iterator<Item = (&'a Match, Rank, &'a R)>
    where
        R: 'a,
    {
        let within = self.visible(version).filter(|listed| listed.matching.is_within(matching));
        within.map(|listed| (&listed.matching, listed.rank, &listed.rule))
    }

    fn rules<'a>(&'a self, version: Version) -> impl Iterator<Item = (&'a Match, Rank, &'a R)>
    where
        R: 'a,
    {
        self.visible(version).map(|listed| (&listed.matching, listed.rank, &listed.rule))
    }

    fn len(&self) -> usize {
        self.rules.len()
    }
}

/// The rules that were not compared with a key yet, highest rank last.
struct LinearMatches<'a, 'k, R> {
    /// The key that is looked up.
    key: &'k FlowKey,
    /// The rules that remain to be compared, highest rank last.
    listed: Vec<&'a ListedRule<R>>,
}

impl<'a, R> Matches<'a, R> for LinearMatches<'a, '_, R> {
    fn priority_max(&self) -> Option<Priority> {
        self.listed.last().map(|listed| listed.rank.priority)
    }

    fn next_masked(&mut self, floor: Priority, mask: &mut FlowMask) -> Option<(Rank, &'a R)> {
        while let Some(listed) = self.listed.pop_if(|listed| listed.rank.priority >= floor) {
            mask.add_sparse(listed.matching.mask());
            if listed.matching.matches(self.key) {
                return Some((listed.rank, &listed.rule));
            }
        }
        None
    }
}
