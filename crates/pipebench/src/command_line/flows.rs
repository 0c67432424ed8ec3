//! `pipebench flows`: the flows of a workload.

use clap::Args;

use super::{
    out::OutputDestination,
    workload::{NAMES, NamedWorkload},
};

/// Write the flows of a workload as comma-separated values.
///
/// Each line has the flow's class (the traversal it was sampled from), its role in a coflow, its
/// number of packets, its ingress port, and its headers.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench flows psc:high:1k | head\n  \
    pipebench flows ols:low:100k:seed=7 --out flows.csv\n\n{NAMES}"))]
pub(crate) struct FlowsCommand {
    #[command(flatten)]
    named: NamedWorkload,
    #[command(flatten)]
    out: OutputDestination,
}

impl FlowsCommand {
    /// Writes the flows of the workload to the output.
    pub(crate) fn run(&self) -> miette::Result<()> {
        self.out.check()?;
        let workload = self.named.workload()?;
        self.out.write(|mut out| workload.write_flows(&mut out))
    }
}
