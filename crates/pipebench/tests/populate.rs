//! Pipelines filled with rules: counts beside the published ones, and other readers of the rules.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fmt::Write as _, io::Write as _, process::Command};

use shunt_pipebench::{
    Progress, Seed,
    classbench::{BuiltinSet, Filter, Request, generate},
    pipeline_file::{BUILTIN, Builtin, PipelineFile},
    populate::{Filling, Population, populate},
};
use shunt_pipeline::{BridgeId, BridgeSettings, Pipeline, Time};

fn filters(count: u32) -> Vec<Filter> {
    let acl = BuiltinSet::Acl.parameters();
    generate(&acl, &Request::new(count), Seed::new(1), &Progress::hidden()).unwrap()
}

fn filled(name: &str, count: u32, filling: Filling) -> Population {
    let pipeline = PipelineFile::parse(Builtin::find(name).unwrap().json).unwrap();
    populate(&pipeline, &filters(count), filling, Seed::new(1)).unwrap()
}

fn text(population: &Population) -> String {
    population.rules().iter().fold(String::new(), |mut text, rule| {
        writeln!(text, "{rule}").unwrap();
        text
    })
}

#[test]
fn filled_pipelines_have_the_published_tables_and_traversals() {
    for builtin in BUILTIN {
        let pipeline = PipelineFile::parse(builtin.json).unwrap();
        let published = pipeline.paper_table_3_1.unwrap();
        let counts = filled(builtin.name, 2000, Filling::All).counts();
        assert_eq!(counts.tables, published.tables, "{}", builtin.name);
        assert_eq!(counts.traversals, published.traversals, "{}", builtin.name);
        assert_eq!(counts.rules_by_table.values().sum::<usize>(), counts.rules);
    }
}

#[test]
fn sub_traversals_are_fewer_than_what_they_make() {
    for builtin in BUILTIN {
        let counts = filled(builtin.name, 2000, Filling::Forwarding).counts();
        assert!(counts.combinations >= counts.whole as u64, "{}: {counts:?}", builtin.name);
        assert_eq!(counts.placed + counts.rejected, filters(2000).len());
        assert!(counts.placed > counts.rejected, "{}: {counts:?}", builtin.name);
    }
}

#[test]
fn the_same_seed_gives_the_same_rules() {
    let first = text(&filled("psc", 500, Filling::Forwarding));
    assert_eq!(first, text(&filled("psc", 500, Filling::Forwarding)));
}

#[test]
fn a_pipeline_takes_all_the_rules() {
    for builtin in BUILTIN {
        let population = filled(builtin.name, 300, Filling::All);
        let (pipeline, bridge) = (Pipeline::new(1), BridgeId::new(1));
        pipeline.add_bridge(bridge, BridgeSettings::default());
        let mods = population.flow_mods().unwrap();
        pipeline.apply(bridge, &mods, Time::ZERO).unwrap();
        // None of them replaced another.
        assert_eq!(mods.len(), population.rules().len());
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn ovs_ofctl_reads_all_the_rules() {
    if Command::new("ovs-ofctl").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no ovs-ofctl");
        return;
    }
    for builtin in BUILTIN {
        let population = filled(builtin.name, 500, Filling::All);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text(&population).as_bytes()).unwrap();
        let output = Command::new("ovs-ofctl")
            .args(["-O", "OpenFlow13", "parse-flows"])
            .arg(file.path())
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {complaint}", builtin.name);
        let read = String::from_utf8_lossy(&output.stdout);
        let rules = read.lines().filter(|line| line.contains("actions=")).count();
        assert_eq!(rules, population.rules().len(), "{}", builtin.name);
    }
}
