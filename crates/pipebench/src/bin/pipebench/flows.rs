//! `pipebench flows`: the flows of a workload.

use clap::Args;

use crate::{
    out::Out,
    workload::{NAMES, Named},
};

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
    #[command(flatten)]
    out: Out,
}

impl Flows {
    pub(crate) fn run(&self) -> miette::Result<()> {
        self.out.check()?;
        let workload = self.named.workload()?;
        self.out.write(|mut out| workload.write_flows(&mut out))
    }
}
