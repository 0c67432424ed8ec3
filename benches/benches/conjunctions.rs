//! Translation through a table of 10,000 rules that are clauses of conjunctions.
//!
//! The reference in the same run is a table with the same number of ordinary rules: ratios are
//! comparable between machines, nanoseconds are not.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use shunt_benches::capture;
use shunt_flow::{
    FieldId, FlowKey, PortNo,
    extract::{VlanLimit, extract},
    text::NoPortNames,
};
use shunt_pipeline::{
    BridgeId, BridgeSettings, FlowModCommand, Pipeline, PortInfo, Time, text::parse_rule,
};

/// Returns a bridge with two ports and the given rules.
fn pipeline(rules: impl Iterator<Item = String>) -> Pipeline {
    let (pipeline, bridge) = (Pipeline::new(1), BridgeId::new(1));
    pipeline.add_bridge(bridge, BridgeSettings::default());
    let _ = pipeline.set_ports(bridge, [1, 2].map(PortInfo::datapath).into());
    let parsed = |rule: String| parse_rule(FlowModCommand::Add, &rule, &NoPortNames).ok();
    let mods: Vec<_> = rules.filter_map(parsed).collect();
    assert!(
        pipeline.apply(bridge, &mods, Time::ZERO).is_ok_and(|change| !change.deltas.is_empty())
    );
    pipeline
}

/// Returns firewall rules between two groups of 5,000 addresses each.
///
/// The rules are clauses of conjunctions, or ordinary rules with the same matches.
fn firewall(is_conjunction: bool) -> impl Iterator<Item = String> {
    let clauses = (0..10_000).map(move |rule| {
        let (field, clause) = [("nw_src", 1), ("nw_dst", 2)][rule % 2];
        let (high, low) = (rule / 2 / 250, rule / 2 % 250);
        let then = if is_conjunction {
            format!("conjunction(7,{clause}/2)")
        } else {
            "output:2".to_owned()
        };
        format!("priority=10,ip,{field}=10.1.{high}.{low},actions={then}")
    });
    let rest = ["priority=5,ip,conj_id=7,actions=output:2", "priority=0,actions=drop"];
    clauses.chain(rest.into_iter().map(str::to_owned))
}

fn key(frame: &[u8]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    extract(frame, VlanLimit::One, &mut key);
    key.set_bridge(1);
    key.set_in_port(PortNo::new(1));
    key
}

fn conjunctions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("10,000 clauses");
    let packet = |source: [u8; 4], target: [u8; 4]| {
        let mut key = key(&capture::frame(0x0005_0207));
        key.set_field(FieldId::Ipv4Src, u32::from_be_bytes(source).into());
        key.set_field(FieldId::Ipv4Dst, u32::from_be_bytes(target).into());
        key
    };
    let packets = [
        ("both clauses", packet([10, 1, 3, 7], [10, 1, 4, 8])),
        ("one clause", packet([10, 1, 3, 7], [10, 9, 4, 8])),
        ("no clause", packet([10, 9, 3, 7], [10, 9, 4, 8])),
    ];
    for (kind, is_conjunction) in [("clauses", true), ("plain rules", false)] {
        let pipeline = pipeline(firewall(is_conjunction));
        let version = pipeline.version();
        for (which, key) in &packets {
            group.bench_function(format!("{kind}, {which}"), |bencher| {
                bencher.iter(|| pipeline.translate(black_box(key), version));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, conjunctions);
criterion_main!(benches);
