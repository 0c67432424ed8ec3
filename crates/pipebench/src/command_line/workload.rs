//! Workload names on the command line, for all commands that take one.

use std::path::Path;

use crate::{DumpError, NameError, Progress, name::WorkloadName, workload::Workload};
use clap::Args;
use miette::{Diagnostic, IntoDiagnostic, SourceSpan, WrapErr};

/// Description of names for `--help`.
pub(crate) const NAMES: &str = "A NAME describes a workload completely: \
                                SOURCE[:LOCALITY][:FLOWS][:KEY=VALUE]..\n  psc                   \
                                             the PISCES pipeline, high locality, 100k flows, \
                                seed 1\n  ols:low:1m:seed=7                  a million flows of \
                                low locality over OVN's pipeline\n  \
                                classbench-fw:high:50k:rules=1m    one table of a million \
                                firewall filters\n  coflow:coflowiness=0.25            coflows \
                                of which a quarter is predicted\n  \
                                ./mine.json:filters=./mine.rules   your own pipeline and \
                                filters\n  ./br-int.flows:low:10k             the rules of a \
                                switch, and flows for them\nRun `pipebench names` for every \
                                source and key.";

/// The name of a workload.
#[derive(Debug, Args)]
pub(crate) struct NamedWorkload {
    /// Name of the workload, as in psc:high:100k:seed=1
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

impl NamedWorkload {
    /// Parses the name of the workload from the command line.
    pub(crate) fn name(&self) -> miette::Result<WorkloadName> {
        Ok(self.name.parse().map_err(BadName::new)?)
    }

    /// Generates the workload that the command line names.
    pub(crate) fn workload(&self) -> miette::Result<Workload> {
        make(&self.name()?)
    }
}

/// Generates a workload, and shows progress if it takes long.
pub(crate) fn make(name: &WorkloadName) -> miette::Result<Workload> {
    let progress = Progress::new("workload", 3);
    let made = Workload::of(name, &progress).into_diagnostic();
    let made = made.wrap_err_with(|| format!("the workload {name} cannot be generated"))?;
    drop(progress);
    print_left_out(made.left_out());
    Ok(made)
}

/// Prints which rules of a dump were left out, and the reason for the first.
#[expect(clippy::print_stderr, reason = "notes are not part of the output")]
pub(crate) fn print_left_out(left_out: &[DumpError]) {
    if let Some(first) = left_out.first() {
        eprintln!("rules left out: {}; the first: {first}", left_out.len());
    }
}

/// A misspelled name, with the position of the mistake.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("`{name}` is not the name of a workload")]
struct BadName {
    #[source_code]
    name: String,
    #[label("{problem}")]
    span: SourceSpan,
    problem: String,
    #[help]
    help: String,
}

impl BadName {
    /// Returns a diagnostic that marks the wrong part of the name and suggests help.
    fn new(error: NameError) -> Self {
        let rest = error.name.get(error.at..).unwrap_or_default();
        let length = rest.find([':', '=']).unwrap_or(rest.len());
        let word = error.name.split(':').next().unwrap_or_default();
        let help = if error.at == 0 && Path::new(word).is_file() {
            format!("write the path of a file as `./{}`", error.name)
        } else {
            help(&error)
        };
        let span = (error.at, length).into();
        Self { problem: error.problem.to_string(), name: error.name, span, help }
    }
}

/// Returns the help for a wrong name.
fn help(error: &NameError) -> String {
    error.nearest.as_ref().map_or_else(
        || "`pipebench names` lists all sources and keys".to_owned(),
        |nearest| format!("did you mean `{nearest}`?"),
    )
}
