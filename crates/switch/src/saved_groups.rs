//! The order in which saved groups are added.

use std::collections::BTreeSet;

use shunt_pipeline::{Action, GroupId, GroupMod};

/// Orders requests so that each group can be added after the groups before it.
///
/// `group_of` returns the group of a request. A group is placed after the groups that its buckets
/// name. Groups that name each other keep their order; the switch refuses such groups.
pub(crate) fn in_order<R>(
    mut requests: Vec<R>,
    group_of: impl Fn(&R) -> Option<&GroupMod>,
) -> Vec<R> {
    let own_id = |request: &R| group_of(request).and_then(|group| group.group);
    let mut ordered = Vec::with_capacity(requests.len());
    let mut waiting: BTreeSet<GroupId> = requests.iter().filter_map(own_id).collect();
    while !requests.is_empty() {
        let is_ready = |request: &R| {
            group_of(request).is_none_or(|group| named_groups(group).is_disjoint(&waiting))
        };
        let (ready, rest): (Vec<_>, Vec<_>) = requests.into_iter().partition(is_ready);
        if ready.is_empty() {
            ordered.extend(rest);
            break;
        }
        for id in ready.iter().filter_map(own_id) {
            waiting.remove(&id);
        }
        ordered.extend(ready);
        requests = rest;
    }
    ordered
}

/// Returns the other groups that the buckets of a group name.
fn named_groups(group: &GroupMod) -> BTreeSet<GroupId> {
    let mut found = BTreeSet::new();
    for bucket in &group.buckets {
        found.extend(bucket.watch_group);
        let mut lists = vec![&*bucket.actions];
        while let Some(list) = lists.pop() {
            for action in list {
                match action {
                    Action::Group(id) => {
                        found.insert(*id);
                    }
                    Action::Clone(inner) => lists.push(inner),
                    _ => {}
                }
            }
        }
    }
    found.retain(|id| Some(*id) != group.group);
    found
}
