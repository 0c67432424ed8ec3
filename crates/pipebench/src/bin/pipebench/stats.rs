//! `pipebench stats`: what a workload or a capture is like.

use std::{fs::File, io::BufReader, path::Path};

use clap::Args;
use miette::{IntoDiagnostic, WrapErr};
use shunt_pipebench::{
    Progress,
    statistics::{Row, TrafficStatistics, table},
    workload::{Workload, capture_statistics},
};

use crate::workload::{NAMES, Named, write_out};

/// Prints the figures of a workload or of a capture file, beside what they should be.
///
/// Of a workload: its rules, flows and packets, the entries and masks that a cache needs for them, and
/// which ways they take through the tables. Of a capture: its flows and packets, beside CAIDA's.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench stats psc:high:100k\n  \
    pipebench stats trace.pcap --json\n\n{NAMES}"))]
pub(crate) struct Stats {
    /// Name of a workload, or a capture file that ends with .pcap
    #[arg(value_name = "NAME|FILE.pcap")]
    subject: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(&self) -> miette::Result<()> {
        let is_capture = Path::new(&self.subject).extension().is_some_and(|end| end == "pcap");
        let (title, rows) = if is_capture { self.of_capture()? } else { self.of_workload()? };
        write_out(None, |out| {
            if self.json {
                serde_json::to_writer_pretty(&mut *out, &rows)?;
                writeln!(out)
            } else {
                write!(out, "{title}\n\n{}", table(&rows))
            }
        })
    }

    fn of_workload(&self) -> miette::Result<(String, Vec<Row>)> {
        let workload = Named { name: self.subject.clone() }.workload()?;
        let flows = u64::try_from(workload.flows().len()).unwrap_or(u64::MAX);
        let progress =
            Progress::new("packets and flows", workload.packets().left().saturating_add(flows));
        let statistics = packets(&workload, &progress);
        let rows = workload.figures(&statistics, &progress).into_diagnostic()?;
        Ok((workload.name().to_string(), rows))
    }

    fn of_capture(&self) -> miette::Result<(String, Vec<Row>)> {
        let file = File::open(&self.subject).into_diagnostic();
        let file = file.wrap_err_with(|| format!("cannot read {}", self.subject))?;
        let statistics =
            capture_statistics(&self.subject, BufReader::new(file)).into_diagnostic()?;
        Ok((self.subject.clone(), statistics))
    }
}

/// Packets after which progress is told.
const STEP: u64 = 1000;

fn packets(workload: &Workload, progress: &Progress) -> TrafficStatistics {
    let mut statistics = TrafficStatistics::default();
    for packet in workload.packets() {
        statistics.add(packet.time_ns, packet.flow, packet.bytes.into());
        if statistics.packets().is_multiple_of(STEP) {
            progress.advance(STEP);
        }
    }
    statistics
}
