//! Tests of the contents of a bridge at one version.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use shunt_pipeline::{GroupCommand, GroupKind, Modification, Time};

use crate::{
    build::{add_group, bucket, group, group_mod, output, rule},
    switch::{BRIDGE, Switch},
};

/// A bundle adds a group and a rule that names it.
/// The deletion of the group removes the group and the rule.
#[test]
fn a_listing_contains_whole_bundles() {
    let Switch { pipeline } = Switch::new(&[]);
    let adds = [
        add_group(1, GroupKind::Indirect, vec![bucket(vec![output(2)])]),
        Modification::Flow(rule("priority=1", vec![group(1)])),
    ];
    let removal: Modification =
        group_mod(GroupCommand::Delete, 1, GroupKind::Indirect, Vec::new()).into();
    let removes = [removal];
    let is_done = AtomicBool::new(false);
    let (mut seen, mut torn, reads) = ([0_u32; 2], 0, AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for bundle in [&adds[..], &removes].into_iter().cycle().take(4000) {
                pipeline.modify(BRIDGE, bundle.to_vec(), Time::ZERO).expect("legal");
                pipeline.reclaim(pipeline.version());
                let before = reads.load(Ordering::Relaxed);
                while reads.load(Ordering::Relaxed) < before + 2 {
                    std::thread::yield_now();
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        while !is_done.load(Ordering::Relaxed) {
            let contents = pipeline.contents(BRIDGE);
            torn += u32::from(contents.rules.len() != contents.groups.len());
            seen[contents.rules.len().min(1)] += 1;
            reads.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(torn, 0);
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}
