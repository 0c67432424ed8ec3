//! The five built-in pipelines.
//!
//! The pipelines come from A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per
//! Second Era*, thesis, University of Michigan, 2026, Table 3.1. The author did not publish his
//! descriptions. The files here were made from the public documents that each file names under
//! `provenance`, and each file names its inferred parts.

/// A built-in pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Name of the pipeline on the command line and in the names of workloads.
    pub name: &'static str,
    /// The text of the pipeline file.
    pub json: &'static str,
}

impl Builtin {
    /// Returns the pipeline of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        BUILTIN.iter().find(|builtin| builtin.name == name)
    }
}

/// All built-in pipelines, in the order of Table 3.1.
pub const BUILTIN: &[Builtin] = &[
    Builtin { name: "ofd", json: include_str!("../../data/pipelines/ofd.json") },
    Builtin { name: "psc", json: include_str!("../../data/pipelines/psc.json") },
    Builtin { name: "ols", json: include_str!("../../data/pipelines/ols.json") },
    Builtin { name: "ant", json: include_str!("../../data/pipelines/ant.json") },
    Builtin { name: "otl", json: include_str!("../../data/pipelines/otl.json") },
];
