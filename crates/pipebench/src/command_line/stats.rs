//! `pipebench stats`: statistics of a workload or a capture.

use std::{
    fs::File,
    io::{BufReader, Read as _},
    path::Path,
};

use crate::{
    Progress,
    input::is_capture,
    statistics::{StatisticRow, TrafficStatistics, table},
    workload::{Workload, capture_statistics},
};
use clap::Args;
use miette::{IntoDiagnostic, WrapErr};

use super::{
    out::print,
    workload::{NAMES, NamedWorkload},
};

/// Print statistics of a workload or a capture file, next to their targets.
///
/// For a workload: its rules, flows and packets, the cache entries and masks that they need, and
/// the traversals of the flows (for at most 300,000 rules: more need gigabytes). For a capture: its
/// flows and packets, next to CAIDA's.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench stats psc:high:100k\n  \
    pipebench stats trace.pcap --json\n\n{NAMES}"))]
pub(crate) struct StatsCommand {
    /// Name of a workload, or a capture file
    #[arg(value_name = "NAME|CAPTURE")]
    subject: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl StatsCommand {
    /// Prints the figures of a capture or a workload as a table, or as JSON.
    pub(crate) fn run(&self) -> miette::Result<()> {
        let (title, rows) =
            if self.is_capture() { self.of_capture()? } else { self.of_workload()? };
        print(|out| {
            if self.json {
                serde_json::to_writer_pretty(&mut *out, &rows)?;
                writeln!(out)
            } else {
                write!(out, "{title}\n\n{}", table(&rows))
            }
        })
    }

    /// Returns whether the subject is a capture, by content or file name.
    fn is_capture(&self) -> bool {
        let mut beginning = Vec::new();
        let file = File::open(&self.subject);
        let read = file.and_then(|file| file.take(MAGIC_LENGTH).read_to_end(&mut beginning));
        let end = Path::new(&self.subject).extension();
        let is_called =
            end.is_some_and(|end| END.iter().any(|known| end.eq_ignore_ascii_case(known)));
        is_called || read.is_ok() && is_capture(&beginning)
    }

    /// Returns the name and the statistics of a workload.
    fn of_workload(&self) -> miette::Result<(String, Vec<StatisticRow>)> {
        let workload = NamedWorkload { name: self.subject.clone() }.workload()?;
        let flows = u64::try_from(workload.flows().len()).unwrap_or(u64::MAX);
        let progress =
            Progress::new("packets and flows", workload.packets().left().saturating_add(flows));
        let statistics = packets(&workload, &progress);
        let rows = workload.figures(&statistics, &progress).into_diagnostic()?;
        let mut title = workload.name().to_string();
        for (number, name) in workload.tables() {
            title.push_str(&format!("\ntable {number}: {name}"));
        }
        Ok((title, rows))
    }

    /// Returns the name and the statistics of a capture file.
    fn of_capture(&self) -> miette::Result<(String, Vec<StatisticRow>)> {
        let file = File::open(&self.subject).into_diagnostic();
        let file = file.wrap_err_with(|| format!("cannot read {}", self.subject))?;
        let statistics =
            capture_statistics(&self.subject, BufReader::new(file)).into_diagnostic()?;
        Ok((self.subject.clone(), statistics))
    }
}

/// File name extensions of captures.
const END: [&str; 3] = ["pcap", "cap", "pcapng"];
/// Number of bytes that identify a file type.
const MAGIC_LENGTH: u64 = 8;
/// Number of packets between two progress updates.
const STEP: u64 = 1000;

/// Returns statistics of the packets of a workload.
fn packets(workload: &Workload, progress: &Progress) -> TrafficStatistics {
    let mut statistics = workload.traffic_statistics();
    for packet in workload.packets() {
        statistics.add(packet.time_ns, packet.flow, packet.bytes.into());
        if statistics.packets().is_multiple_of(STEP) {
            progress.advance(STEP);
        }
    }
    statistics
}
