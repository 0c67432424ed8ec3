//! What a miss costs: extraction of the headers, and translation through one and ten tables.
//!
//! Extraction is the yardstick in the same run: ratios travel between machines, nanoseconds do not.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use shunt_benches::capture;
use shunt_flow::{
    FlowKey, PortNo,
    extract::{VlanLimit, extract},
    text::NoPortNames,
};
use shunt_pipeline::{
    BridgeId, BridgeSettings, DatapathPort, FlowModCommand, Pipeline, PortConfig, PortInfo,
    PortKind, PortVlans, Time, text::parse_rule,
};

/// A bridge with two ports and a chain of tables, each with 100 rules of which one matches.
fn pipeline(tables: u8) -> Pipeline {
    let (pipeline, bridge) = (Pipeline::new(1), BridgeId::new(1));
    pipeline.add_bridge(bridge, BridgeSettings::default());
    let port = |number| PortInfo {
        number: PortNo::new(number),
        name: format!("p{number}"),
        kind: PortKind::Datapath(DatapathPort::new(number)),
        config: PortConfig::default(),
        link_up: true,
        mac: [2, 0, 0, 0, 0, 1],
        vlans: PortVlans::default(),
    };
    let _ = pipeline.set_ports(bridge, vec![port(1), port(2)]);
    let mut mods = Vec::new();
    for table in 0..tables {
        for rule in 0..100_u32 {
            let (high, low) = (rule / 10, rule % 10);
            let then = match table + 1 {
                last if last == tables => "output:2".to_owned(),
                next => format!("goto_table:{next}"),
            };
            let text = format!(
                "table={table},priority={rule},udp,nw_src=10.{high}.{low}.0/24,actions={then}"
            );
            mods.extend(parse_rule(FlowModCommand::Add, &text, &NoPortNames));
        }
    }
    assert!(
        pipeline.apply(bridge, &mods, Time::ZERO).is_ok_and(|change| !change.deltas.is_empty())
    );
    pipeline
}

fn key(frame: &[u8]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    extract(frame, VlanLimit::One, &mut key);
    key.set_bridge(1);
    key.set_in_port(PortNo::new(1));
    key
}

fn slow_path(criterion: &mut Criterion) {
    let frame = capture::frame(0x0005_0207);
    let mut group = criterion.benchmark_group("slow path");
    let mut extracted = FlowKey::ZERO;
    group.bench_function("extract", |bencher| {
        bencher.iter(|| extract(black_box(&frame), VlanLimit::One, &mut extracted));
    });
    for tables in [1, 10] {
        let (pipeline, key) = (pipeline(tables), key(&frame));
        let version = pipeline.version();
        assert_eq!(pipeline.translate(&key, version).visits.len(), usize::from(tables));
        group.bench_function(format!("translate {tables} tables"), |bencher| {
            bencher.iter(|| pipeline.translate(black_box(&key), version));
        });
    }
    group.finish();
}

criterion_group!(benches, slow_path);
criterion_main!(benches);
