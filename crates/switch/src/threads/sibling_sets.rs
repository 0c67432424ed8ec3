//! Sets of back ends: addresses of the buckets of a select group, or of rules added together.
//!
//! A client that talks to one back end of a set is likely to talk to the others.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shunt_classifier::Version;
use shunt_flow::FieldId;
use shunt_foresight::{SiblingSet, SiblingSets};
use shunt_pipeline::{Action, Bucket, Group, GroupKind, Pipeline};

use super::rule_siblings::RuleSiblings;

/// The fields with the address of a back end.
pub(super) const ADDRESSES: [FieldId; 2] = [FieldId::Ipv4Dst, FieldId::Ipv6Dst];

/// Time between two reads of the groups.
const INTERVAL: Duration = Duration::from_secs(1);

/// Computes the sets of back ends again after the tables have changed.
pub(crate) struct SiblingWatch {
    pipeline: Arc<Pipeline>,
    /// The sets that rules form, which the publisher updates.
    rules: Arc<Mutex<RuleSiblings>>,
    /// Version of the tables and number of changes of `rules` at the last read.
    seen: Option<(Version, u64)>,
    /// Time of the next comparison with the tables.
    next_read: Duration,
    /// The newest sets, and earlier sets that a packet thread may still use.
    ///
    /// The sets are dropped in this thread: dropping takes long, and a packet thread would delay
    /// packets.
    sets: Vec<Arc<SiblingSets>>,
}

impl SiblingWatch {
    /// Returns a watch that reads the tables on its first call.
    pub(crate) const fn new(pipeline: Arc<Pipeline>, rules: Arc<Mutex<RuleSiblings>>) -> Self {
        Self { pipeline, rules, seen: None, next_read: Duration::ZERO, sets: Vec::new() }
    }

    /// Returns the sets of all bridges if they have changed since the last call.
    ///
    /// The groups are read at most once a second.
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
        // For an address in several sets, the last set is used, so groups have precedence.
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

/// Returns the sets of at least two addresses from which select groups choose.
fn sibling_sets(groups: &[Arc<Group>]) -> Vec<SiblingSet> {
    let select = groups.iter().filter(|group| group.kind == GroupKind::Select);
    let sets = select.flat_map(|group| {
        ADDRESSES.map(|field| {
            let values = group.buckets.iter().filter_map(|bucket| written_value(bucket, field));
            SiblingSet { field, values: values.collect::<BTreeSet<_>>().into_iter().collect() }
        })
    });
    sets.filter(|set| set.values.len() > 1).collect()
}

/// Returns the mask of all bits of a field.
pub(super) const fn whole(field: FieldId) -> u128 {
    u128::MAX >> (128 - field.width())
}

/// Returns the value that a bucket writes to a whole field, if it writes a value.
fn written_value(bucket: &Bucket, field: FieldId) -> Option<u128> {
    bucket.actions.iter().rev().find_map(|action| match action {
        Action::SetField { field: own, value, mask } if *own == field && *mask == whole(field) => {
            Some(*value)
        }
        _ => None,
    })
}
