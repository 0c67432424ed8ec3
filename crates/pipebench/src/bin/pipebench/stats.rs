//! `pipebench stats`: what a workload or a capture is like.

use std::{
    fs::File,
    io::{BufReader, Read as _},
    path::Path,
};

use clap::Args;
use miette::{IntoDiagnostic, WrapErr};
use shunt_pipebench::{
    Progress,
    input::is_capture,
    statistics::{Row, TrafficStatistics, table},
    workload::{Workload, capture_statistics},
};

use crate::{
    out::print,
    workload::{NAMES, Named},
};

/// Prints the figures of a workload or of a capture file, beside what they should be.
///
/// Of a workload: its rules, flows and packets, the entries and masks that a cache needs for them, and
/// which ways they take through the tables (of at most 300,000 rules: more need gigabytes). Of a
/// capture: its flows and packets, beside CAIDA's.
#[derive(Debug, Args)]
#[command(after_help = NAMES)]
#[command(after_long_help = format!("Examples:\n  \
    pipebench stats psc:high:100k\n  \
    pipebench stats trace.pcap --json\n\n{NAMES}"))]
pub(crate) struct Stats {
    /// Name of a workload, or a capture file
    #[arg(value_name = "NAME|CAPTURE")]
    subject: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Stats {
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

    /// Whether the subject is a file that is a capture, or that is called one.
    fn is_capture(&self) -> bool {
        let mut beginning = Vec::new();
        let file = File::open(&self.subject);
        let read = file.and_then(|file| file.take(MAGIC_LENGTH).read_to_end(&mut beginning));
        let end = Path::new(&self.subject).extension();
        let is_called =
            end.is_some_and(|end| END.iter().any(|known| end.eq_ignore_ascii_case(known)));
        is_called || read.is_ok() && is_capture(&beginning)
    }

    fn of_workload(&self) -> miette::Result<(String, Vec<Row>)> {
        let workload = Named { name: self.subject.clone() }.workload()?;
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

    fn of_capture(&self) -> miette::Result<(String, Vec<Row>)> {
        let file = File::open(&self.subject).into_diagnostic();
        let file = file.wrap_err_with(|| format!("cannot read {}", self.subject))?;
        let statistics =
            capture_statistics(&self.subject, BufReader::new(file)).into_diagnostic()?;
        Ok((self.subject.clone(), statistics))
    }
}

/// What captures are called.
const END: [&str; 3] = ["pcap", "cap", "pcapng"];
/// Bytes that tell what a file is.
const MAGIC_LENGTH: u64 = 8;
/// Packets after which progress is told.
const STEP: u64 = 1000;

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
