//! `pipebench list`: what comes with the program.

use clap::Args;
use miette::IntoDiagnostic;
use shunt_pipebench::{
    classbench::BuiltinSet,
    pipeline_file::{BUILTIN, PipelineFile},
};

use crate::{out::print, table::Table};

/// Lists the pipelines and rule-sets that come with the program.
#[derive(Debug, Args)]
pub(crate) struct List {}

impl List {
    pub(crate) fn run(self) -> miette::Result<()> {
        let mut table = Table::new(["pipeline", "tables", "traversals", ""]);
        for builtin in BUILTIN {
            let pipeline = PipelineFile::parse(builtin.json).into_diagnostic()?;
            let tables = pipeline.tables.len().to_string();
            let traversals = pipeline.traversals.len().to_string();
            table.row([builtin.name, &tables, &traversals, &pipeline.title]);
        }
        let mut sets = Table::new(["rule-set", ""]);
        for set in BuiltinSet::ALL {
            sets.row([set.name(), set.title()]);
        }
        print(|out| write!(out, "{table}\n{sets}"))
    }
}
