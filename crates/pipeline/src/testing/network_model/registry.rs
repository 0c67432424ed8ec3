//! The groups and meters of the model, as plain maps.

use std::collections::BTreeMap;

use shunt_flow::PortNo;

use super::Tables;
use crate::{
    groups::group::{
        Bucket, BucketPlace, BucketSelector, GroupCommand, GroupKind, GroupMod, GroupModError,
    },
    id::{GroupId, MeterId},
    meters::meter::{Meter, MeterCommand, MeterMod, MeterModError},
    tables::{flow_mod::FlowModError, rule::Instructions},
};

impl Tables {
    /// Checks that instructions name existing groups and meters.
    pub(super) fn check(&self, instructions: &Instructions) -> Result<(), FlowModError> {
        let (groups, meters) = (groups_named(instructions), meters(instructions));
        let group = groups.into_iter().find(|id| !self.groups.contains_key(&GroupId::new(*id)));
        let meter = meters.into_iter().find(|id| !self.meters.contains_key(&MeterId::new(*id)));
        match (group, meter) {
            (Some(group), _) => Err(FlowModError::NoSuchGroup(GroupId::new(group))),
            (None, Some(meter)) => Err(FlowModError::NoSuchMeter(MeterId::new(meter))),
            (None, None) => Ok(()),
        }
    }

    /// Applies a group-mod. Rules that use a deleted group are deleted too.
    pub(super) fn change_group(&mut self, request: &GroupMod) -> Result<(), GroupModError> {
        let Some(id) = request.group else {
            self.groups.clear();
            self.rules.retain(|rule| groups_named(&rule.instructions).is_empty());
            return Ok(());
        };
        let is_there = self.groups.contains_key(&id);
        match request.command {
            GroupCommand::Delete => {
                if self.groups.remove(&id).is_some() {
                    self.rules
                        .retain(|rule| !groups_named(&rule.instructions).contains(&id.number()));
                }
                return Ok(());
            }
            GroupCommand::Add if is_there => return Err(GroupModError::Exists(id)),
            GroupCommand::Modify
            | GroupCommand::InsertBuckets(_)
            | GroupCommand::RemoveBuckets(_)
                if !is_there =>
            {
                return Err(GroupModError::Unknown(id));
            }
            _ => {}
        }
        let request = &self.with_all_buckets(id, request)?;
        is_legal(request).map_err(|reason| GroupModError::Invalid(id, reason))?;
        let named = groups_named(&request.buckets);
        if leads_to(&self.groups, request, id) {
            return Err(GroupModError::Loop(id));
        }
        if let Some(missing) =
            named.into_iter().map(GroupId::new).find(|named| !self.groups.contains_key(named))
        {
            return Err(GroupModError::NoSuchGroup(missing));
        }
        self.groups.insert(id, request.clone());
        Ok(())
    }

    /// Applies a command for single buckets to the buckets of the group.
    fn with_all_buckets(&self, id: GroupId, request: &GroupMod) -> Result<GroupMod, GroupModError> {
        let Some(old) = self.groups.get(&id) else { return Ok(request.clone()) };
        let mut buckets = old.buckets.to_vec();
        let index_of = |buckets: &[Bucket], wanted: u32| {
            let found = buckets.iter().position(|bucket| bucket.id == wanted);
            found.ok_or(GroupModError::UnknownBucket(id, wanted))
        };
        match request.command {
            GroupCommand::InsertBuckets(place) => {
                let first = match place {
                    BucketPlace::First => 0,
                    BucketPlace::Last => buckets.len(),
                    BucketPlace::After(wanted) => index_of(&buckets, wanted)? + 1,
                };
                for (bucket, index) in request.buckets.iter().zip(first..) {
                    if index_of(&buckets, bucket.id).is_ok() {
                        return Err(GroupModError::BucketExists(id, bucket.id));
                    }
                    buckets.insert(index, bucket.clone());
                }
            }
            GroupCommand::RemoveBuckets(BucketSelector::All) => buckets.clear(),
            GroupCommand::RemoveBuckets(BucketSelector::First) => {
                drop(buckets.drain(..old.buckets.len().min(1)));
            }
            GroupCommand::RemoveBuckets(BucketSelector::Last) => drop(buckets.pop()),
            GroupCommand::RemoveBuckets(BucketSelector::Id(wanted)) => {
                buckets.remove(index_of(&buckets, wanted)?);
            }
            _ => return Ok(request.clone()),
        }
        Ok(GroupMod { buckets: buckets.into(), ..old.clone() })
    }

    /// Applies a meter-mod. Rules that use a deleted meter are deleted too.
    pub(super) fn change_meter(&mut self, request: &MeterMod) -> Result<(), MeterModError> {
        let Some(id) = request.meter else {
            self.meters.clear();
            self.rules.retain(|rule| meters(&rule.instructions).is_empty());
            return Ok(());
        };
        match (request.command, self.meters.contains_key(&id)) {
            (MeterCommand::Delete, false) => {}
            (MeterCommand::Delete, true) => {
                self.meters.remove(&id);
                self.rules.retain(|rule| !meters(&rule.instructions).contains(&id.number()));
            }
            (MeterCommand::Add, true) => return Err(MeterModError::Exists(id)),
            (MeterCommand::Modify, false) => return Err(MeterModError::Unknown(id)),
            (MeterCommand::Add, false) | (MeterCommand::Modify, true) => {
                if request.config.bands.len() > Meter::BANDS_MAX {
                    return Err(MeterModError::TooManyBands(request.config.bands.len()));
                }
                self.meters.insert(id, request.config.clone());
            }
        }
        Ok(())
    }
}

/// Returns whether the buckets of a group lead to another group.
/// The path may be direct or lead through other groups.
fn leads_to(groups: &BTreeMap<GroupId, GroupMod>, from: &GroupMod, to: GroupId) -> bool {
    let watched = from.buckets.iter().filter_map(|bucket| bucket.watch_group);
    let named = groups_named(&from.buckets).into_iter().map(GroupId::new);
    named.chain(watched).any(|next| {
        let found = groups.get(&next).filter(|_| next != to);
        next == to || found.is_some_and(|found| leads_to(groups, found, to))
    })
}

/// Fails if the type of a group forbids the weights or watches of its buckets.
fn is_legal(request: &GroupMod) -> Result<(), &'static str> {
    let watches =
        |bucket: &Bucket| bucket.watch_port != PortNo::ANY || bucket.watch_group.is_some();
    let buckets = &request.buckets;
    let weighs_nothing = buckets.iter().all(|bucket| bucket.weight == 0);
    let is_legal = match request.kind {
        GroupKind::All => weighs_nothing && !buckets.iter().any(watches),
        GroupKind::Select => true,
        GroupKind::Indirect => weighs_nothing && buckets.len() == 1 && !buckets.iter().any(watches),
        GroupKind::FastFailover => weighs_nothing && buckets.iter().all(watches),
    };
    if is_legal { Ok(()) } else { Err("the group type does not allow these buckets") }
}

/// Returns the meters that packets pass, without the meters of packet-ins.
fn meters(instructions: &Instructions) -> Vec<u32> {
    let mut meters = names(instructions, " Meter(MeterId(");
    meters.extend(names(instructions, "[Meter(MeterId("));
    meters.extend(instructions.meter.map(MeterId::number));
    meters
}

/// Returns the groups that actions name, at any depth of `clone`.
pub(super) fn groups_named(actions: &impl std::fmt::Debug) -> Vec<u32> {
    names(actions, "Group(GroupId(")
}

/// Returns the numbers that follow `before` in the `Debug` text of a value.
fn names(value: &impl std::fmt::Debug, before: &str) -> Vec<u32> {
    let text = format!("{value:?}");
    let parts = text.split(before).skip(1);
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    parts.filter_map(|part| digits(part).parse().ok()).collect()
}
