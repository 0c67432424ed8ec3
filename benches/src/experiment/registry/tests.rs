//! Tests of the registry of experiments.

use super::*;

#[test]
fn a_mistyped_name_gets_a_suggestion() {
    assert!(find("piepline").unwrap_err().contains("`pipeline`"));
    assert!(find("spines").unwrap_err().contains("`spine`"));
    assert!(find("xyzzyplugh").unwrap_err().contains("--list"));
    assert_eq!(find("spine").unwrap().name, "spine");
    let circuits = find("kairo-gates");
    assert!(circuits.map_or_else(|error| error.contains("--dbsp"), |_| cfg!(feature = "dbsp")));
}

#[test]
fn names_are_unique_and_lines_are_short() {
    let mut names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), EXPERIMENTS.len());
    assert!(EXPERIMENTS.iter().all(|experiment| experiment.what.len() <= 100));
    assert!(WITH_CIRCUITS.iter().all(|name| names.contains(name)));
}
