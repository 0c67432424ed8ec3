//! `pipebench flows`: the flows of a workload.

use std::path::PathBuf;

use clap::Args;

use crate::workload::{NAMES, Named, write_out};

/// Writes the flows of a workload as comma-separated values.
///
/// One line for each: its class (the traversal it was drawn from), its part in a coflow, how many
/// packets it has, the port they come in by, and their headers.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench flows psc:high:1k | head\n  \
    pipebench flows ols:low:100k:seed=7 --out flows.csv\n\n{NAMES}"))]
pub(crate) struct Flows {
    #[command(flatten)]
    named: Named,
    /// File to write; standard output unless given
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Flows {
    pub(crate) fn run(&self) -> miette::Result<()> {
        let workload = self.named.workload()?;
        write_out(self.out.as_deref(), |mut out| workload.write_flows(&mut out))
    }
}
