//! `pipebench list`: the built-in pipelines and rule sets.

use crate::{
    classbench::BuiltinSet,
    pipeline_file::{BUILTIN, PipelineFile},
};
use clap::Args;
use miette::IntoDiagnostic;

use super::{out::print, table::TextTable};

/// List the built-in pipelines and rule sets.
#[derive(Debug, Args)]
pub(crate) struct ListCommand {}

impl ListCommand {
    /// Prints the built-in pipelines and rule sets.
    pub(crate) fn run(self) -> miette::Result<()> {
        let mut table = TextTable::new(["pipeline", "tables", "traversals", ""]);
        for builtin in BUILTIN {
            let pipeline = PipelineFile::parse(builtin.json).into_diagnostic()?;
            let tables = pipeline.tables.len().to_string();
            let traversals = pipeline.traversals.len().to_string();
            table.row([builtin.name, &tables, &traversals, &pipeline.title]);
        }
        let mut sets = TextTable::new(["rule-set", ""]);
        for set in BuiltinSet::ALL {
            sets.row([set.name(), set.title()]);
        }
        print(|out| write!(out, "{table}\n{sets}"))
    }
}
