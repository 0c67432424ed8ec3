//! The crates of the workspace: order, edges and dependencies.

use std::collections::BTreeSet;

use serde_json::Value;
use shunt_tests::repository::{metadata, read, root};

/// The crates that each crate may use, except in tests:
/// the arrows of ARCHITECTURE.md.
const EDGES: &[(&str, &[&str])] = &[
    ("shunt-thread-watch", &[]),
    ("shunt-pcap", &[]),
    ("shunt-flow-export", &[]),
    ("shunt-shared-memory", &[]),
    ("shunt-vhost-user", &["shunt-thread-watch", "shunt-shared-memory"]),
    ("shunt-memif", &["shunt-thread-watch", "shunt-shared-memory"]),
    ("shunt-dpdk", &[]),
    ("shunt-tls", &[]),
    ("shunt-ovsdb", &["shunt-thread-watch", "shunt-tls"]),
    ("shunt-lacp", &[]),
    ("shunt-multicast", &[]),
    ("shunt-bfd", &[]),
    ("shunt-flow", &[]),
    ("shunt-classifier", &["shunt-flow"]),
    ("shunt-nuevomatch", &[]),
    ("shunt-nuevomatch-c", &["shunt-nuevomatch"]),
    ("shunt-foresight", &["shunt-flow"]),
    ("shunt-pipeline", &["shunt-flow", "shunt-classifier", "shunt-nuevomatch"]),
    ("shunt-pipebench", &["shunt-pcap", "shunt-flow", "shunt-classifier", "shunt-pipeline"]),
    ("shunt-gigaflow", &["shunt-flow", "shunt-classifier", "shunt-pipeline"]),
    ("shunt-kairo", &["shunt-flow", "shunt-pipeline"]),
    ("shunt-kairo-c", &["shunt-flow", "shunt-pipeline", "shunt-kairo"]),
    ("shunt-p4runtime", &["shunt-flow", "shunt-pipeline", "shunt-gigaflow"]),
    (
        "shunt-datapath",
        &[
            "shunt-thread-watch",
            "shunt-pcap",
            "shunt-shared-memory",
            "shunt-vhost-user",
            "shunt-memif",
            "shunt-dpdk",
            "shunt-flow",
            "shunt-classifier",
            "shunt-nuevomatch",
            "shunt-foresight",
            "shunt-pipeline",
            "shunt-gigaflow",
        ],
    ),
    (
        "shunt-nic",
        &[
            "shunt-thread-watch",
            "shunt-flow",
            "shunt-pipeline",
            "shunt-gigaflow",
            "shunt-p4runtime",
            "shunt-datapath",
        ],
    ),
    ("shunt-ofproto", &["shunt-flow", "shunt-pipeline", "shunt-tls"]),
    (
        "shunt-switch",
        &[
            "shunt-thread-watch",
            "shunt-flow",
            "shunt-classifier",
            "shunt-foresight",
            "shunt-pipeline",
            "shunt-gigaflow",
            "shunt-kairo",
            "shunt-p4runtime",
            "shunt-datapath",
            "shunt-nic",
            "shunt-ofproto",
            "shunt-flow-export",
            "shunt-lacp",
            "shunt-multicast",
            "shunt-tls",
            "shunt-bfd",
        ],
    ),
    (
        "shuntd",
        &[
            "shunt-pcap",
            "shunt-ovsdb",
            "shunt-flow",
            "shunt-pipeline",
            "shunt-p4runtime",
            "shunt-datapath",
            "shunt-nic",
            "shunt-ofproto",
            "shunt-lacp",
            "shunt-tls",
            "shunt-bfd",
            "shunt-switch",
        ],
    ),
    (TEST_KIT, &["shunt-flow", "shunt-pipeline", "shunt-gigaflow", "shunt-datapath"]),
    (
        "shunt-kernels",
        &["shunt-flow", "shunt-classifier", "shunt-pipeline", "shunt-gigaflow", "shunt-datapath"],
    ),
    ("xtask", &[]),
];

/// The crate of test kits, which only tests of earlier crates use.
const TEST_KIT: &str = "shunt-testkit";

/// The crates that do not depend on an async runtime.
const WITHOUT_RUNTIME: &[&str] = &[
    "shunt-thread-watch",
    "shunt-pcap",
    "shunt-flow-export",
    "shunt-shared-memory",
    "shunt-vhost-user",
    "shunt-memif",
    "shunt-dpdk",
    "shunt-lacp",
    "shunt-multicast",
    "shunt-bfd",
    "shunt-flow",
    "shunt-classifier",
    "shunt-nuevomatch",
    "shunt-nuevomatch-c",
    "shunt-foresight",
    "shunt-pipeline",
    "shunt-pipebench",
    "shunt-gigaflow",
    "shunt-kairo",
    "shunt-kairo-c",
    "shunt-datapath",
    "shunt-kernels",
];

/// Returns the packages of the workspace, in the order of its manifest.
///
/// `cargo` lists a package earlier if a previous package has a dev-dependency on it.
pub(crate) fn packages(metadata: &Value) -> Vec<&Value> {
    let all = metadata["packages"].as_array().unwrap();
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    let packages = members.iter().map(|member| {
        let path = root().join(member.as_str().unwrap()).join("Cargo.toml");
        let is_at = |package: &&Value| package["manifest_path"].as_str() == path.to_str();
        all.iter().find(is_at).unwrap()
    });
    packages.collect()
}

pub(crate) fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

fn dependencies<'a>(package: &'a Value, kind: Option<&str>) -> Vec<&'a str> {
    let list = package["dependencies"].as_array().unwrap().iter();
    list.filter(|dependency| dependency["kind"].as_str() == kind).map(name).collect()
}

#[test]
fn a_crate_depends_only_on_those_above_it() {
    let metadata = metadata();
    let order: Vec<&str> = packages(&metadata).into_iter().map(name).collect();
    let rank = |name: &str| order.iter().position(|other| *other == name);
    for package in packages(&metadata) {
        for kind in [None, Some("dev")] {
            for dependency in dependencies(package, kind) {
                if (kind, dependency) == (Some("dev"), TEST_KIT) {
                    continue;
                }
                let below =
                    rank(dependency).is_some_and(|below| below > rank(name(package)).unwrap());
                assert!(!below, "{} depends on {dependency}, which comes after it", name(package));
            }
        }
    }
}

#[test]
fn edges_between_crates_are_those_on_list() {
    let metadata = metadata();
    for package in packages(&metadata) {
        let Some((_, allowed)) = EDGES.iter().find(|(crate_name, _)| *crate_name == name(package))
        else {
            continue;
        };
        for dependency in dependencies(package, None) {
            let ours = dependency.starts_with("shunt");
            assert!(!ours || allowed.contains(&dependency), "{} -> {dependency}", name(package));
        }
    }
}

#[test]
fn only_tests_depend_on_the_test_kit() {
    let metadata = metadata();
    let mut users = 0;
    for package in packages(&metadata) {
        for kind in [None, Some("build")] {
            let uses = dependencies(package, kind).contains(&TEST_KIT);
            assert!(!uses, "{} needs {TEST_KIT} outside of its tests", name(package));
        }
        users += usize::from(dependencies(package, Some("dev")).contains(&TEST_KIT));
    }
    assert!(users > 0, "no tests use {TEST_KIT}");
}

#[test]
fn no_async_runtime_below_the_control_plane() {
    let metadata = metadata();
    for package in packages(&metadata) {
        if WITHOUT_RUNTIME.contains(&name(package)) {
            let dependencies = dependencies(package, None);
            assert!(!dependencies.contains(&"tokio"), "{} uses tokio", name(package));
        }
    }
}

#[test]
fn dependencies_are_versioned_and_not_git() {
    let metadata = metadata();
    for package in packages(&metadata) {
        for dependency in package["dependencies"].as_array().unwrap() {
            let source = dependency["source"].as_str().unwrap_or_default();
            assert!(!source.starts_with("git"), "{dependency}");
            assert!(dependency["path"].is_string() || dependency["req"] != "*", "{dependency}");
        }
    }
}

#[test]
fn the_dependency_page_is_complete() {
    let metadata = metadata();
    let mut used = BTreeSet::new();
    for package in packages(&metadata) {
        for kind in [None, Some("dev"), Some("build")] {
            used.extend(
                dependencies(package, kind).into_iter().filter(|name| !name.starts_with("shunt")),
            );
        }
    }
    let page = read("docs/dependencies.md");
    let row = |line: &str| line.strip_prefix("| `")?.split('`').next().map(str::to_owned);
    let named: BTreeSet<String> = page.lines().filter_map(row).collect();
    let used: BTreeSet<String> = used.into_iter().map(str::to_owned).collect();
    assert_eq!(named, used, "docs/dependencies.md (left) against the manifests (right)");
}

/// The checks of the gate never build a feature that the list lacks.
#[test]
fn the_gate_builds_every_feature_but_dpdk() {
    let metadata = metadata();
    let mut features = BTreeSet::new();
    for package in packages(&metadata) {
        features.extend(package["features"].as_object().unwrap().keys().map(String::as_str));
    }
    features.retain(|feature| !["default", "dpdk"].contains(feature));
    let suites = read("xtask/src/suite.rs");
    let listed = |name: &str| -> BTreeSet<String> {
        let line = suites.lines().find(|line| line.contains(&format!("const {name}: &str")));
        let list = line.and_then(|line| line.split('"').nth(1)).unwrap();
        list.split(',').map(str::to_owned).collect()
    };
    let mut expected: BTreeSet<String> = features.into_iter().map(str::to_owned).collect();
    assert_eq!(listed("FEATURES"), expected);
    expected.insert("dpdk".to_owned());
    assert_eq!(listed("FEATURES_AND_DPDK"), expected);
}

/// A member that the list lacks is built like a dependency.
#[test]
fn the_dev_profile_lists_every_member() {
    let metadata = metadata();
    let members: BTreeSet<&str> = packages(&metadata).into_iter().map(name).collect();
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let listed = manifest["profile"]["dev"]["package"].as_table().unwrap().iter();
    let listed = listed.filter(|(_, settings)| settings.get("debug").is_some());
    let listed: BTreeSet<&str> = listed.map(|(package, _)| package.as_str()).collect();
    assert_eq!(listed, members, "the list in Cargo.toml (left) against the members (right)");
}
