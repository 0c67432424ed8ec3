//! Group-mods: changes of the groups of a bridge (OpenFlow 1.3.5, 6.5).
//!
//! Where the standard is open, Shunt does as Open vSwitch does:
//!
//! * a modified group keeps the time of its addition, and counts from zero;
//! * a group may be deleted while buckets name it: their `group` action then does nothing;
//! * a watched port or group that does not exist is not live;
//! * buckets that a request inserts or removes change the group as a modification does.
//!
//! A group-mod is refused if its group would reach itself by the actions of buckets or by watched
//! groups.

use std::{collections::BTreeSet, sync::Arc};

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::group::{
    Bucket, BucketPlace, BucketSelector, Group, GroupCommand, GroupKind, GroupMod, GroupModError,
    GroupStats,
};
use crate::{
    action::Action,
    bridges::bridge::VersionedBridge,
    id::{BridgeId, GroupId},
    tables::{flow_mod::FlowModError, rule_filter::any_action},
    update::{batch::UpdateBatch, check::check_action, pending::RuleSelection},
    versions::delta::{Delta, Object},
};

impl UpdateBatch {
    /// Applies one request for a group. A request that fails changes nothing.
    pub(crate) fn change_group(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        request: GroupMod,
    ) -> Result<(), GroupModError> {
        let version = self.version();
        let Some(group) = request.group else {
            return match request.command {
                GroupCommand::Delete => {
                    self.note(RuleSelection::DeleteGroups(None));
                    Ok(())
                }
                _ => {
                    Err(GroupModError::Invalid(GroupId::ALL, "only a deletion may name all groups"))
                }
            };
        };
        let old = bridge.groups.find(group, version).cloned();
        match request.command {
            GroupCommand::Delete => {
                if old.is_some() {
                    self.note(RuleSelection::DeleteGroups(Some(group)));
                }
                return Ok(());
            }
            GroupCommand::Add if old.is_some() => return Err(GroupModError::Exists(group)),
            GroupCommand::Modify
            | GroupCommand::InsertBuckets(_)
            | GroupCommand::RemoveBuckets(_)
                if old.is_none() =>
            {
                return Err(GroupModError::Unknown(group));
            }
            GroupCommand::Add
            | GroupCommand::Modify
            | GroupCommand::AddOrModify
            | GroupCommand::InsertBuckets(_)
            | GroupCommand::RemoveBuckets(_) => {}
        }
        let is_insertion = matches!(request.command, GroupCommand::InsertBuckets(_));
        let request = match &old {
            Some(old) => with_all_buckets(old, request)?,
            None => request,
        };
        check_shape(group, &request)?;
        check_targets(bridge, group, &request.buckets, version)?;
        if is_insertion && self.group_check.is_some_and(|check| !check(&request)) {
            return Err(GroupModError::TooLong(group, request.buckets.len()));
        }
        if old.is_none() && bridge.groups.count() >= Group::COUNT_MAX {
            return Err(GroupModError::TooMany(Group::COUNT_MAX));
        }
        let value = Group {
            id: group,
            bridge: id,
            kind: request.kind,
            selection: request.selection,
            created: old.map_or_else(|| self.now(), |old| old.created),
            stats: Arc::new(GroupStats::new(request.buckets.len())),
            buckets: request.buckets,
        };
        bridge.liveness.add_group(&value, version);
        bridge.groups.set(group, Arc::new(value), version);
        self.push_live(id, bridge);
        self.push(Delta::Changed(Object::Group(id, group)));
        Ok(())
    }
}

/// Returns a request with all buckets of the group and the result of `request`.
fn with_all_buckets(old: &Group, request: GroupMod) -> Result<GroupMod, GroupModError> {
    let buckets = match request.command {
        GroupCommand::InsertBuckets(place) => with_inserted(old, place, request.buckets)?,
        GroupCommand::RemoveBuckets(selector) => without_removed(old, selector)?,
        GroupCommand::Add
        | GroupCommand::Modify
        | GroupCommand::AddOrModify
        | GroupCommand::Delete => return Ok(request),
    };
    if buckets.len() > Group::BUCKETS_MAX {
        return Err(GroupModError::TooManyBuckets(old.id, buckets.len()));
    }
    Ok(GroupMod {
        command: GroupCommand::Modify,
        group: Some(old.id),
        kind: old.kind,
        selection: old.selection.clone(),
        buckets,
    })
}

/// Returns the buckets of a group after the insertion of `new` ones.
fn with_inserted(
    old: &Group,
    place: BucketPlace,
    new: Box<[Bucket]>,
) -> Result<Box<[Bucket]>, GroupModError> {
    let find = |id: u32| old.buckets.iter().position(|bucket| bucket.id == id);
    let before = match place {
        BucketPlace::First => 0,
        BucketPlace::Last => old.buckets.len(),
        BucketPlace::After(id) => match find(id) {
            Some(index) => index + 1,
            None => return Err(GroupModError::UnknownBucket(old.id, id)),
        },
    };
    let ids: BTreeSet<u32> = old.buckets.iter().map(|bucket| bucket.id).collect();
    if let Some(bucket) = new.iter().find(|bucket| ids.contains(&bucket.id)) {
        return Err(GroupModError::BucketExists(old.id, bucket.id));
    }
    let (before, after) = old.buckets.split_at(before);
    Ok(before.iter().cloned().chain(new).chain(after.iter().cloned()).collect())
}

/// Returns the buckets of a group that a removal keeps.
fn without_removed(old: &Group, selector: BucketSelector) -> Result<Box<[Bucket]>, GroupModError> {
    let buckets = &*old.buckets;
    Ok(match selector {
        BucketSelector::All => Box::default(),
        BucketSelector::First => buckets.get(1..).unwrap_or_default().into(),
        BucketSelector::Last => {
            buckets.split_last().map_or_else(Box::default, |(_, kept)| kept.into())
        }
        BucketSelector::Id(id) if buckets.iter().all(|bucket| bucket.id != id) => {
            return Err(GroupModError::UnknownBucket(old.id, id));
        }
        BucketSelector::Id(id) => {
            buckets.iter().filter(|bucket| bucket.id != id).cloned().collect()
        }
    })
}

/// Checks that the buckets fit the type of the group.
fn check_shape(group: GroupId, request: &GroupMod) -> Result<(), GroupModError> {
    let buckets = &request.buckets;
    let is_watched =
        |bucket: &Bucket| bucket.watch_port != PortNo::ANY || bucket.watch_group.is_some();
    let invalid = |reason| Err(GroupModError::Invalid(group, reason));
    if group > GroupId::MAX {
        return invalid("the number is reserved: use 0 to 4294967040");
    }
    let is_weighted = |bucket: &Bucket| bucket.weight != 0;
    match request.kind {
        GroupKind::Select => {}
        GroupKind::Indirect if buckets.len() != 1 => {
            return invalid("an indirect group needs exactly one bucket");
        }
        _ if buckets.iter().any(is_weighted) => {
            return invalid("only buckets of select groups may have a weight");
        }
        GroupKind::FastFailover if !buckets.iter().all(is_watched) => {
            return invalid("each bucket of a fast_failover group must watch a port or a group");
        }
        GroupKind::All | GroupKind::Indirect if buckets.iter().any(is_watched) => {
            return Err(GroupModError::Unwatchable(group));
        }
        GroupKind::All | GroupKind::Indirect | GroupKind::FastFailover => {}
    }
    Ok(())
}

/// Checks that buckets name existing groups, and that no path leads to `group`.
fn check_targets(
    bridge: &VersionedBridge,
    group: GroupId,
    buckets: &[Bucket],
    version: Version,
) -> Result<(), GroupModError> {
    let mut seen = BTreeSet::new();
    let mut ahead = targets(buckets);
    while let Some(target) = ahead.pop() {
        if target == group {
            return Err(GroupModError::Loop(group));
        }
        if seen.insert(target)
            && let Some(found) = bridge.groups.find(target, version)
        {
            ahead.extend(targets(&found.buckets));
        }
    }
    let mut result = Ok(());
    any_action(&lists(buckets), |action| {
        result = match check_action(bridge, action, version) {
            Err(FlowModError::NoSuchGroup(target)) => Err(GroupModError::NoSuchGroup(target)),
            Err(FlowModError::NotYet(name)) => Err(GroupModError::NotYet(name)),
            // An action set does not run a meter, so the meter need not exist.
            _ => Ok(()),
        };
        result.is_err()
    });
    result
}

/// Returns the action list of each bucket.
fn lists(buckets: &[Bucket]) -> Vec<&[Action]> {
    buckets.iter().map(|bucket| &*bucket.actions).collect()
}

/// Returns the groups that buckets execute or watch.
fn targets(buckets: &[Bucket]) -> Vec<GroupId> {
    let mut targets: Vec<_> = buckets.iter().filter_map(|bucket| bucket.watch_group).collect();
    any_action(&lists(buckets), |action| {
        if let Action::Group(target) = action {
            targets.push(*target);
        }
        false
    });
    targets
}
