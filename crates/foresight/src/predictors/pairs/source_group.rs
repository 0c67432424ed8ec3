//! Groups of sources that open flows to the same destinations.

use std::time::Duration;

use super::{
    super::flow_ends::FlowService,
    destination_set::{DestinationId, DestinationSet},
};
use crate::forecast::Confidence;

/// All groups of sources, and the numbering of new groups.
#[derive(Debug, Default)]
pub(super) struct SourceGroups {
    /// The groups, by their index.
    groups: Vec<SourceGroup>,
    /// Number of groups so far.
    created: u64,
}

/// Sources that open flows to the same destinations.
#[derive(Debug)]
pub(super) struct SourceGroup {
    /// The number of the group, which is never used again.
    number: u64,
    /// Number of sources that opened a flow to each destination.
    counts: Box<[u16; DestinationId::COUNT]>,
    /// The sum of all counts.
    total: u32,
    /// The sum of all counts when a destination got its first source.
    totals_before: Box<[u32; DestinationId::COUNT]>,
    /// The destinations of at least [`SHARED_MIN`] sources.
    shared: DestinationSet,
    /// The sources of the group.
    members: Vec<FlowService>,
    /// The index of the member that was last examined.
    hand: usize,
    /// Time of the last flow from a member.
    used: Duration,
}

/// A group as a source remembers it.
///
/// A new group takes the place of an old one, and has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupRef {
    /// Index of the group.
    index: usize,
    /// The number of the group, which shows if the index was reused.
    number: u64,
}

/// Maximum number of groups.
pub(super) const GROUPS_MAX: usize = 32;

/// Maximum number of members that a group remembers.
pub(super) const MEMBERS_MAX: usize = 512;

/// Minimum number of sources that share a destination of their group.
const SHARED_MIN: u16 = 2;

/// Minimum number of destinations between which a source without a group chooses.
///
/// The destinations of a single coflow would otherwise be as likely by chance as by their group.
const DESTINATIONS_MIN: f64 = 64.0;

/// The weight of a destination that no source of a group has opened, in sources.
///
/// With a greater weight, a source with one destination in common joins the group, and two coflows
/// become one group.
const UNSEEN: f64 = 0.01;

/// The greatest confidence of a forecast, in percent.
///
/// This is about the precision for recorded coflows.
const CONFIDENCE_MAX_PERCENT: u32 = 70;

impl SourceGroups {
    /// Returns a group; `None` if another group has its place.
    pub(super) fn find(&mut self, group: GroupRef) -> Option<&mut SourceGroup> {
        self.groups.get_mut(group.index).filter(|own| own.number == group.number)
    }

    /// Returns a group to read; `None` if another group has its place.
    pub(super) fn find_shared(&self, group: GroupRef) -> Option<&SourceGroup> {
        self.groups.get(group.index).filter(|own| own.number == group.number)
    }

    /// Returns the number of members of all groups.
    pub(super) fn members(&self) -> usize {
        self.groups.iter().map(|group| group.members.len()).sum()
    }

    /// Removes a destination from all groups.
    pub(super) fn remove_destination(&mut self, id: DestinationId) {
        for group in &mut self.groups {
            group.total -= u32::from(std::mem::take(&mut group.counts[id.index()]));
            group.shared.remove(id);
        }
    }

    /// Returns the group that explains best which destinations a source has opened.
    ///
    /// The result is a new group if a random choice of `destinations` explains them better. A group
    /// without a flow for `age_max` explains nothing.
    pub(super) fn choose(
        &mut self,
        opened: DestinationSet,
        destinations: usize,
        now: Duration,
        age_max: Duration,
    ) -> GroupRef {
        let recent = self.groups.iter().enumerate();
        let recent = recent.filter(|(_, group)| group.is_recent(now, age_max));
        let ratios = recent.map(|(index, own)| (own.likelihood_ratio(opened, destinations), index));
        let best = ratios.max_by(|(one, _), (other, _)| one.total_cmp(other));
        if let Some((ratio, index)) = best
            && ratio > 1.0
        {
            return GroupRef { index, number: self.groups[index].number };
        }
        self.create(now)
    }

    /// Returns each group with its number of sources for each destination.
    #[cfg(test)]
    pub(super) fn all_counts(
        &self,
    ) -> impl Iterator<Item = (GroupRef, &[u16; DestinationId::COUNT])> {
        let groups = self.groups.iter().enumerate();
        groups.map(|(index, own)| (GroupRef { index, number: own.number }, &*own.counts))
    }

    /// Creates a group; replaces the least recently used one of too many.
    fn create(&mut self, now: Duration) -> GroupRef {
        self.created += 1;
        let (new, number) = (SourceGroup::new(self.created, now), self.created);
        if self.groups.len() < GROUPS_MAX {
            self.groups.push(new);
            return GroupRef { index: self.groups.len() - 1, number };
        }
        let oldest = self.groups.iter().enumerate().min_by_key(|(_, group)| group.used);
        let index = oldest.map_or(0, |(index, _)| index);
        self.groups[index] = new;
        GroupRef { index, number }
    }
}

impl SourceGroup {
    /// Creates a group without members.
    fn new(number: u64, now: Duration) -> Self {
        Self {
            number,
            counts: Box::new([0; DestinationId::COUNT]),
            total: 0,
            totals_before: Box::new([0; DestinationId::COUNT]),
            shared: DestinationSet::default(),
            members: Vec::new(),
            hand: 0,
            used: now,
        }
    }

    /// Returns whether the group had a flow within `age_max`.
    pub(super) fn is_recent(&self, now: Duration, age_max: Duration) -> bool {
        now.saturating_sub(self.used) < age_max
    }

    /// Returns the destinations that several sources of the group share.
    pub(super) const fn shared(&self) -> &DestinationSet {
        &self.shared
    }

    /// Returns the confidence that a source of the group opens a flow to a destination.
    ///
    /// Of the flows that the group had since the first flow to the destination, each shared
    /// destination should have an equal part. So the confidence is the number of sources with the
    /// destination, as a share of this part, times [`CONFIDENCE_MAX_PERCENT`]. The flows before do
    /// not count, because all sources may open flows to one destination before the next one.
    pub(super) fn confidence(&self, id: DestinationId) -> Confidence {
        let since = self.total.saturating_sub(self.totals_before[id.index()]).max(1);
        let parts = u32::from(self.counts[id.index()]) * self.shared.len();
        let percent = (parts * CONFIDENCE_MAX_PERCENT / since).min(CONFIDENCE_MAX_PERCENT);
        Confidence::of_percent(u8::try_from(percent).unwrap_or(u8::MAX))
    }

    /// Adds a source with the destinations that it has opened.
    pub(super) fn join(&mut self, source: FlowService, opened: DestinationSet, now: Duration) {
        opened.iter().for_each(|id| self.count_flow(id, now));
        if self.members.len() < MEMBERS_MAX {
            self.members.push(source);
        }
    }

    /// Removes a source with the destinations that it has opened.
    pub(super) fn leave(&mut self, source: FlowService, opened: DestinationSet) {
        self.members.retain(|member| *member != source);
        for id in opened.iter() {
            let count = &mut self.counts[id.index()];
            if let Some(left) = count.checked_sub(1) {
                *count = left;
                self.total -= 1;
            }
            if *count < SHARED_MIN {
                self.shared.remove(id);
            }
        }
    }

    /// Counts a flow of a source of the group to another destination.
    pub(super) fn count_flow(&mut self, id: DestinationId, now: Duration) {
        self.used = now;
        let count = &mut self.counts[id.index()];
        if let Some(more) = count.checked_add(1) {
            if more == 1 {
                self.totals_before[id.index()] = self.total;
            }
            *count = more;
            self.total += 1;
        }
        if *count >= SHARED_MIN {
            self.shared.insert(id);
        }
    }

    /// Returns the next member, in turn.
    pub(super) fn next_member(&mut self) -> Option<FlowService> {
        self.hand = (self.hand + 1) % self.members.len().max(1);
        self.members.get(self.hand).copied()
    }

    /// Returns the number of members.
    pub(super) const fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns how much better than chance the group explains destinations.
    ///
    /// The result is the ratio of two likelihoods. A source of this group opens each destination
    /// with the share that it has in the group. A source without a group opens any of the
    /// `destinations` with equal probability.
    fn likelihood_ratio(&self, opened: DestinationSet, destinations: usize) -> f64 {
        // At most 256.
        let all = f64::from(u16::try_from(destinations).unwrap_or(u16::MAX));
        let all = all.max(DESTINATIONS_MIN);
        let total = f64::from(self.total) + UNSEEN * all;
        let ratio = |id: DestinationId| (f64::from(self.counts[id.index()]) + UNSEEN) * all / total;
        opened.iter().map(ratio).product()
    }
}
