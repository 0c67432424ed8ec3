//! `pipebench write`: writes a complete workload as a folder.

use std::path::PathBuf;

use crate::{Progress, statistics::table, workload::write_folder};
use clap::Args;
use miette::IntoDiagnostic;

use super::{
    out::print,
    workload::{NAMES, NamedWorkload},
};

/// Write a complete workload into a folder: rules, flows, packets, updates,
/// statistics.
///
/// The folder is created if needed. Each file is written completely or not at all.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench write psc:high:100k --out psc\n  \
    pipebench write ols:low:10k:packets=100k:updates=p4@1s:rate=10k --out ols\n  \
    ovs-ofctl -O OpenFlow13 add-flows br0 psc/rules.txt\n\n{NAMES}"))]
pub(crate) struct WriteCommand {
    #[command(flatten)]
    named: NamedWorkload,
    /// Folder to write into
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl WriteCommand {
    /// Writes all files of the workload to a folder, and prints its figures.
    pub(crate) fn run(&self) -> miette::Result<()> {
        let workload = self.named.workload()?;
        let flows = u64::try_from(workload.flows().len()).unwrap_or(u64::MAX);
        let progress =
            Progress::new("packets and flows", workload.packets().left().saturating_add(flows));
        let figures = write_folder(&workload, &self.out, &progress).into_diagnostic()?;
        drop(progress);
        print(|out| writeln!(out, "{}\n\n{}", workload.name(), table(&figures)))
    }
}
