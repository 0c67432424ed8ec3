//! `pipebench pcap`: writes the packets of a workload as a capture file.

use std::path::PathBuf;

use crate::{Progress, output::OutputFile, workload::write_capture};
use clap::Args;
use miette::IntoDiagnostic;

use super::workload::{NAMES, NamedWorkload};

/// Write the packets of a workload as a capture file, with times in nanoseconds.
///
/// The file has the packets of all ingress ports; `pipebench write` makes one file per port.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench pcap psc:high:100k --out psc.pcap\n  \
    pipebench pcap ofd:low:10k:packets=1m:bytes=imix --out imix.pcap\n  \
    tcpreplay --intf1=eth0 psc.pcap\n\n{NAMES}"))]
pub(crate) struct PcapCommand {
    #[command(flatten)]
    named: NamedWorkload,
    /// File to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl PcapCommand {
    /// Writes the packets of the workload to a capture file.
    pub(crate) fn run(&self) -> miette::Result<()> {
        OutputFile::check(&self.out).into_diagnostic()?;
        let workload = self.named.workload()?;
        let progress = Progress::new("packets", workload.packets().left());
        write_capture(&workload, &self.out, &progress).into_diagnostic()?;
        Ok(())
    }
}
