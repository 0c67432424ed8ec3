//! Groups: which buckets run, and on what (OpenFlow 1.3.5, 5.6).
//!
//! A bucket runs as an action set does, on a copy of the packet: what it changes, neither the next
//! bucket nor what follows the group sees; and what ends it early ends nothing else.
//!
//! A select group takes, of its live buckets, the one with the highest random weight: each bucket
//! draws a number by the packet's hash and its own number, with a distribution that its weight
//! stretches, so that its chances are as its weight, and a bucket that dies, comes back or changes
//! its weight moves only the packets that it loses or wins (Schindelhauer and Schomaker, "Weighted
//! Distributed Hash Tables").

use std::sync::Arc;

use shunt_flow::PortNo;

use super::{
    context::{Step, Translation},
    hash::Hash,
};
use crate::{
    bridges::port::PortInfo,
    groups::group::{Bucket, Group, GroupKind, Selection},
    id::{GroupId, MeterId},
    meters::meter::Meter,
    traversals::{
        datapath_action::DatapathAction,
        traversal::{GroupHit, TraversalError},
    },
    versions::delta::Object,
};

impl<'a> Translation<'a> {
    /// `group`: runs buckets. A group that is not there does nothing.
    pub(super) fn run_group(&mut self, id: GroupId) -> Result<(), TraversalError> {
        self.recorder.read(Object::Group(self.here.id, id));
        let Some(group) = self.here.group(id, self.version) else { return Ok(()) };
        let bucket = match group.kind {
            GroupKind::All | GroupKind::Indirect => {
                self.group_hits.push(GroupHit { group: Arc::clone(group), bucket: None });
                self.agenda.push(Step::Buckets(group.buckets.iter()));
                return Ok(());
            }
            GroupKind::FastFailover => group.buckets.iter().position(|bucket| self.is_live(bucket)),
            GroupKind::Select => self.select(group),
        };
        let Some(index) = bucket else { return Ok(()) };
        self.group_hits.push(GroupHit { group: Arc::clone(group), bucket });
        self.run_bucket(&group.buckets[index])
    }

    /// Runs the next of some buckets, and comes back for the rest.
    pub(super) fn run_buckets(
        &mut self,
        mut rest: std::slice::Iter<'a, Bucket>,
    ) -> Result<(), TraversalError> {
        let Some(bucket) = rest.next() else { return Ok(()) };
        self.agenda.push(Step::Buckets(rest));
        self.run_bucket(bucket)
    }

    /// `meter`: whoever executes it drops the packet if it comes too fast.
    pub(super) fn meter(&mut self, id: MeterId) -> Result<(), TraversalError> {
        match self.find_meter(id) {
            Some(meter) => self.emit(DatapathAction::Meter(meter)),
            None => Ok(()),
        }
    }

    /// A meter of this bridge.
    pub(super) fn find_meter(&mut self, id: MeterId) -> Option<Arc<Meter>> {
        self.recorder.read(Object::Meter(self.here.id, id));
        self.here.meter(id, self.version).cloned()
    }

    /// The bucket of a select group that the packet goes to; without a live one of some weight,
    /// none.
    fn select(&mut self, group: &'a Group) -> Option<usize> {
        let hash = match &group.selection {
            Selection::Default => self.hash_connection(0),
            Selection::DatapathHash { basis } => self.hash_connection(*basis),
            Selection::Fields { basis, fields } => self.hash_masked(fields, *basis),
        };
        let mut soonest: Option<(f64, usize)> = None;
        for (index, bucket) in group.buckets.iter().enumerate() {
            if bucket.weight == 0 || !self.is_live(bucket) {
                continue;
            }
            let delay = delay(hash, bucket);
            if soonest.is_none_or(|(least, _)| delay < least) {
                soonest = Some((delay, index));
            }
        }
        soonest.map(|(_, index)| index)
    }

    /// Whether a bucket is live: it watches nothing, its port is up, or its group has a live
    /// bucket. Groups that watch groups are many but lead nowhere back.
    fn is_live(&mut self, bucket: &'a Bucket) -> bool {
        let mut ahead = vec![bucket];
        let mut seen = Vec::new();
        while let Some(bucket) = ahead.pop() {
            let port = bucket.watch_port;
            if port == PortNo::ANY && bucket.watch_group.is_none()
                || port != PortNo::ANY && self.find_port(port).is_some_and(PortInfo::is_live)
            {
                return true;
            }
            if let Some(watched) = bucket.watch_group.filter(|group| !seen.contains(group)) {
                seen.push(watched);
                self.recorder.read(Object::Group(self.here.id, watched));
                let found = self.here.group(watched, self.version).into_iter();
                ahead.extend(found.flat_map(|group| &group.buckets));
            }
        }
        false
    }
}

/// When a bucket would be the next to come, if its weight were the rate at which it comes: of
/// several, each is the first as often as its weight says.
#[expect(clippy::cast_precision_loss, reason = "52 bits are what a float holds")]
fn delay(hash: Hash, bucket: &Bucket) -> f64 {
    let drawn = (hash.with(u128::from(bucket.id)).whole() >> 12) as f64 + 0.5;
    -(drawn / (1_u64 << 52) as f64).ln() / f64::from(bucket.weight)
}
