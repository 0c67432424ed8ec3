//! Names and workloads on the command line, for all commands that take a name.

use std::path::Path;

use clap::Args;
use miette::{Diagnostic, IntoDiagnostic, SourceSpan, WrapErr};
use shunt_pipebench::{DumpError, NameError, Progress, name::Name, workload::Workload};

/// What a name is, for `--help`.
pub(crate) const NAMES: &str = "\
A NAME says all of a workload: SOURCE[:LOCALITY][:FLOWS][:KEY=VALUE]..\n  \
psc                                the PISCES pipeline, high locality, 100k flows, seed 1\n  \
ols:low:1m:seed=7                  a million flows of low locality over OVN's pipeline\n  \
classbench-fw:high:50k:rules=1m    one table of a million firewall filters\n  \
coflow:coflowiness=0.25            coflows of which a quarter is predicted\n  \
./mine.json:filters=./mine.rules   a pipeline and filters of your own\n  \
./br-int.flows:low:10k             the rules of a switch, and flows for them\n\
See `pipebench names` for every source and key.";

/// The name of a workload.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Name of the workload, as in psc:high:100k:seed=1
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

impl Named {
    /// Reads the name.
    pub(crate) fn name(&self) -> miette::Result<Name> {
        Ok(self.name.parse().map_err(BadName::new)?)
    }

    /// Makes the workload.
    pub(crate) fn workload(&self) -> miette::Result<Workload> {
        make(&self.name()?)
    }
}

/// Makes a workload, and says that it takes time if it does.
pub(crate) fn make(name: &Name) -> miette::Result<Workload> {
    let progress = Progress::new("workload", 3);
    let made = Workload::of(name, &progress).into_diagnostic();
    let made = made.wrap_err_with(|| format!("the workload {name} cannot be made"))?;
    drop(progress);
    tell_left_out(made.left_out());
    Ok(made)
}

/// Says which rules of a dump were left out, and why the first of them was.
#[expect(clippy::print_stderr, reason = "what was left out is no part of the answer")]
pub(crate) fn tell_left_out(left_out: &[DumpError]) {
    if let Some(first) = left_out.first() {
        eprintln!("rules that were left out: {}; the first: {first}", left_out.len());
    }
}

/// A misspelled name, with the place of the mistake.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("`{name}` is no name of a workload")]
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
    fn new(error: NameError) -> Self {
        let rest = error.name.get(error.at..).unwrap_or_default();
        let length = rest.find([':', '=']).unwrap_or(rest.len());
        let word = error.name.split(':').next().unwrap_or_default();
        let help = if error.at == 0 && Path::new(word).is_file() {
            format!("a file is named by its path: `./{}`", error.name)
        } else {
            help(&error)
        };
        let span = (error.at, length).into();
        Self { problem: error.problem.to_string(), name: error.name, span, help }
    }
}

fn help(error: &NameError) -> String {
    error.nearest.as_ref().map_or_else(
        || "`pipebench names` lists all sources and keys".to_owned(),
        |nearest| format!("is `{nearest}` meant?"),
    )
}
