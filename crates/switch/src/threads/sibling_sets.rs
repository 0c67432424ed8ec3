//! Sets of back ends: addresses that the buckets of a select group write, or that rules added together match.
//!
//! A client that talks to one member of such a set is likely to talk to the others.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shunt_classifier::Version;
use shunt_flow::FieldId;
use shunt_foresight::{SiblingSet, SiblingSets};
use shunt_pipeline::{Action, Bucket, Group, GroupKind, Pipeline};

use super::rule_siblings::RuleSiblings;

/// The fields that identify a back end.
pub(super) const ADDRESSES: [FieldId; 2] = [FieldId::Ipv4Dst, FieldId::Ipv6Dst];

/// Time between two reads of the groups.
const INTERVAL: Duration = Duration::from_secs(1);

/// Finds the sets again after the tables have changed.
pub(crate) struct SiblingWatch {
    pipeline: Arc<Pipeline>,
    /// The sets of rule changes, which the publisher finds.
    rules: Arc<Mutex<RuleSiblings>>,
    /// The version of the tables at the last read, and the changes of `rules`.
    seen: Option<(Version, u64)>,
    next_read: Duration,
    /// The newest sets, and earlier ones that a packet thread may still use.
    ///
    /// They are dropped here: it takes long, and packets would wait.
    sets: Vec<Arc<SiblingSets>>,
}

impl SiblingWatch {
    pub(crate) const fn new(pipeline: Arc<Pipeline>, rules: Arc<Mutex<RuleSiblings>>) -> Self {
        Self { pipeline, rules, seen: None, next_read: Duration::ZERO, sets: Vec::new() }
    }

    /// Returns the sets of all bridges if they have changed.
    ///
    /// Reads the groups once a second at most.
    pub(crate) fn changed(&mut self, now: Duration) -> Option<Arc<SiblingSets>> {
        let version = self.pipeline.version();
        let rules = self.rules.lock();
        let found = Some((version, rules.changes()));
        if now < self.next_read || self.seen == found {
            return None;
        }
        (self.seen, self.next_read) = (found, now + INTERVAL);
        let mut sets: Vec<SiblingSet> = rules.sets().collect();
        drop(rules);
        // The last set with an address is used: a group knows best.
        sets.extend(sibling_sets(&self.pipeline.all_groups()));
        let sets = Arc::new(SiblingSets::new(sets));
        if self.sets.last().is_some_and(|last| *last == sets) {
            return None;
        }
        self.sets.retain(|own| Arc::strong_count(own) > 1);
        self.sets.push(Arc::clone(&sets));
        Some(sets)
    }
}

/// Returns the sets of at least two addresses that a select group chooses from.
fn sibling_sets(groups: &[Arc<Group>]) -> Vec<SiblingSet> {
    let select = groups.iter().filter(|group| group.kind == GroupKind::Select);
    let sets = select.flat_map(|group| {
        ADDRESSES.map(|field| {
            let values = group.buckets.iter().filter_map(|bucket| written(bucket, field));
            SiblingSet { field, values: values.collect::<BTreeSet<_>>().into_iter().collect() }
        })
    });
    sets.filter(|set| set.values.len() > 1).collect()
}

/// Returns the mask of all bits of a field.
pub(super) const fn whole(field: FieldId) -> u128 {
    u128::MAX >> (128 - field.width())
}

/// Returns the whole value that a bucket writes to a field, if it does.
fn written(bucket: &Bucket, field: FieldId) -> Option<u128> {
    bucket.actions.iter().rev().find_map(|action| match action {
        Action::SetField { field: own, value, mask } if *own == field && *mask == whole(field) => {
            Some(*value)
        }
        _ => None,
    })
}
