//! Tests filled pipelines: counts next to published counts, and rules in other programs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fmt::Write as _, io::Write as _, process::Command};

use shunt_pipebench::{
    Progress, Seed,
    classbench::{BuiltinSet, Filter, FilterRequest, generate, read_filters},
    pipeline_file::{BUILTIN, Builtin, PipelineFile},
    populate::{Population, RuleForm, TraversalSelection, populate, sampled},
    published::Figure,
    statistics::FlowTraversals,
    workload::Workload,
};
use shunt_pipeline::{BridgeId, BridgeSettings, Pipeline, Time};

fn filters(count: u32) -> Vec<Filter> {
    let acl = BuiltinSet::Acl.parameters();
    generate(&acl, &FilterRequest::new(count), Seed::new(1), &Progress::hidden()).unwrap()
}

fn build_population(name: &str, count: u32, filling: TraversalSelection) -> Population {
    let pipeline = PipelineFile::parse(Builtin::find(name).unwrap().json).unwrap();
    populate(
        &pipeline,
        &filters(count),
        filling,
        RuleForm::Plain,
        Seed::new(1),
        &Progress::hidden(),
    )
    .unwrap()
}

/// Fills a pipeline like the published ones, with ten thousand sampled filters.
fn as_published(name: &str) -> Population {
    let pipeline = PipelineFile::parse(Builtin::find(name).unwrap().json).unwrap();
    let parameters = BuiltinSet::OpenFlow.parameters();
    let request = FilterRequest::new(10_000);
    let filters = generate(&parameters, &request, Seed::new(1), &Progress::hidden()).unwrap();
    let filters = sampled(&filters, 10_000, Seed::new(1));
    populate(
        &pipeline,
        &filters,
        TraversalSelection::Forwarding,
        RuleForm::Plain,
        Seed::new(1),
        &Progress::hidden(),
    )
    .unwrap()
}

#[test]
fn filters_become_the_published_number_of_rules() {
    // Most tables of Antrea match addresses. The author's description, which is not published, must
    // have tables with fewer fields.
    for name in ["ofd", "psc", "ols"] {
        let published = Figure::find("rules", name, "-", "10K filters").unwrap().value;
        let rules = as_published(name).rules().len() as f64;
        assert!((rules / published - 1.0).abs() <= 0.10, "{name}: {rules}, not {published}");
    }
}

#[test]
fn narrower_rules_have_higher_priorities() {
    let text = "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t0 : 65535\t0x00/0x00\n\
                @10.1.0.0/16\t0.0.0.0/0\t0 : 65535\t0 : 65535\t0x00/0x00\n";
    let pipeline = r#"{"pipeline": "one", "edges": [],
        "tables": [{"id": 0, "match_fields": ["ip_src"]}],
        "traversals": [{"id": "all", "terminal": "output",
            "steps": [{"table": 0, "match": ["ip_src"]}]}]}"#;
    let pipeline = PipelineFile::parse(pipeline).unwrap();
    let filters = read_filters(text).unwrap();
    let (filling, form) = (TraversalSelection::Forwarding, RuleForm::Plain);
    let filled =
        populate(&pipeline, &filters, filling, form, Seed::new(1), &Progress::hidden()).unwrap();
    let priority = |prefix: &str| {
        let rule = filled.rules().iter().find(|rule| rule.matching.contains(prefix));
        rule.unwrap_or_else(|| panic!("{prefix}: {}", self::text(&filled))).priority
    };
    assert!(priority("10.1.0.0/16") > priority("10.0.0.0/8"));
}

#[test]
fn filters_are_sampled_with_replacement() {
    let filters = filters(500);
    let once = sampled(&filters, 500, Seed::new(1));
    assert_eq!(once, sampled(&filters, 500, Seed::new(1)));
    assert!(once.iter().all(|filter| filters.contains(filter)));
    let distinct: std::collections::BTreeSet<_> = once.iter().collect();
    assert!(distinct.len() < filters.len());
    assert_eq!(sampled(&[], 500, Seed::new(1)), []);
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
        let counts = build_population(builtin.name, 2000, TraversalSelection::All).counts();
        for (metric, count) in [("tables", counts.tables), ("traversals", counts.traversals)] {
            let published = Figure::find(metric, builtin.name, "-", "-").unwrap().value;
            assert_eq!(count as f64, published, "{}: {metric}", builtin.name);
        }
        assert_eq!(counts.rules_by_table.values().sum::<usize>(), counts.rules);
    }
}

#[test]
fn sub_traversals_are_fewer_than_traversals() {
    // These pipelines have traversals that split into parts without a common field.
    for name in ["psc", "ofd"] {
        let counts = build_population(name, 2000, TraversalSelection::Forwarding).counts();
        assert!((counts.parts as u64) < counts.combinations / 2, "{name}: {counts:?}");
    }
}

#[test]
fn every_filter_is_placed_or_counted() {
    for builtin in BUILTIN {
        let counts = build_population(builtin.name, 2000, TraversalSelection::Forwarding).counts();
        assert_eq!(counts.placed + counts.rejected, filters(2000).len());
        assert!(counts.placed > 9 * counts.rejected, "{}: {counts:?}", builtin.name);
    }
}

#[test]
fn the_same_seed_gives_the_same_rules() {
    let first = text(&build_population("psc", 500, TraversalSelection::Forwarding));
    assert_eq!(first, text(&build_population("psc", 500, TraversalSelection::Forwarding)));
}

fn populate_real(name: &str, count: u32) -> Population {
    let pipeline = PipelineFile::parse(Builtin::find(name).unwrap().json).unwrap();
    populate(
        &pipeline,
        &filters(count),
        TraversalSelection::Forwarding,
        RuleForm::Real,
        Seed::new(1),
        &Progress::hidden(),
    )
    .unwrap()
}

#[test]
fn the_real_pipeline_uses_registers_and_rewrites_headers() {
    let psc = text(&populate_real("psc", 300));
    for action in ["set_field:02:00:5e:20:", "->eth_src", "->eth_dst", "dec_ttl"] {
        assert!(psc.contains(action), "{action}");
    }
    let ols = text(&populate_real("ols", 300));
    // Later tables match registers that earlier tables load.
    let loads = |line: &&str| line.contains("->reg");
    let asks = |line: &&str| line.split("actions").next().unwrap().contains(",reg");
    assert!(ols.lines().any(|line| loads(&line)) && ols.lines().any(|line| asks(&line)), "{ols}");
    let plain = text(&build_population("ols", 300, TraversalSelection::Forwarding));
    assert!(!plain.lines().any(|line| loads(&line) || asks(&line)));
}

/// Returns the share of flows of each class with the intended traversal.
/// The function also returns the share of forwarded flows.
fn class_shares(name: &str) -> (Vec<f64>, f64) {
    let workload = Workload::of(&name.parse().unwrap(), &Progress::hidden()).unwrap();
    let rules = workload.base_rules().map(|rule| rule.text.as_str());
    let all_effects = FlowTraversals::of(rules, workload.flows(), &Progress::hidden()).unwrap();
    let rows = all_effects.rows(workload.classes());
    let of_class = rows.iter().filter(|row| row.what.contains(" with the traversal of "));
    let forwarded = rows.iter().find(|row| row.what == "flows that are forwarded").unwrap().value;
    (of_class.map(|row| row.value).collect(), forwarded)
}

#[test]
fn flows_take_their_intended_traversal() {
    for builtin in BUILTIN {
        for locality in ["high", "low"] {
            let name = format!("{}:{locality}:2k:rules=1k:packets=2k", builtin.name);
            let (class_shares, forwarded) = class_shares(&name);
            assert!(class_shares.iter().all(|share| *share > 90.0), "{name}: {class_shares:?}");
            assert!(forwarded > 99.0, "{name}: {forwarded} %");
        }
    }
}

#[test]
fn both_forms_of_a_pipeline_forward_equally() {
    for source in ["psc", "ols", "ant"] {
        let name = format!("{source}:low:500:rules=300:packets=1k");
        let (plain, real) = (class_shares(&name).1, class_shares(&format!("{name}:form=real")).1);
        assert!(plain > 99.0 && real > 90.0, "{source}: {real} % instead of {plain} %");
    }
}

#[test]
fn a_pipeline_accepts_all_generated_rules() {
    let each =
        |population: fn(&str) -> Population| BUILTIN.iter().map(move |one| population(one.name));
    for population in each(|name| build_population(name, 300, TraversalSelection::All))
        .chain(each(|name| populate_real(name, 300)))
    {
        let (pipeline, bridge) = (Pipeline::new(1), BridgeId::new(1));
        pipeline.add_bridge(bridge, BridgeSettings::default());
        let mods = population.flow_mods().unwrap();
        pipeline.apply(bridge, &mods, Time::ZERO).unwrap();
        // No rule has replaced another rule.
        assert_eq!(mods.len(), population.rules().len());
    }
}

#[test]
fn ovs_ofctl_reads_all_the_rules() {
    if Command::new("ovs-ofctl").arg("--version").output().is_err() {
        // The harness hides the output of `eprintln!` in tests that pass.
        let _ = writeln!(std::io::stderr(), "SKIPPED: ovs-ofctl is not installed");
        return;
    }
    let all = |builtin: &Builtin| {
        [
            build_population(builtin.name, 500, TraversalSelection::All),
            populate_real(builtin.name, 500),
        ]
        .map(|one| (builtin.name, one))
    };
    for (name, population) in BUILTIN.iter().flat_map(all) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text(&population).as_bytes()).unwrap();
        let output = Command::new("ovs-ofctl")
            .args(["-O", "OpenFlow13", "parse-flows"])
            .arg(file.path())
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {complaint}");
        let read = String::from_utf8_lossy(&output.stdout);
        let rules = read.lines().filter(|line| line.contains("actions=")).count();
        assert_eq!(rules, population.rules().len(), "{name}");
    }
}
