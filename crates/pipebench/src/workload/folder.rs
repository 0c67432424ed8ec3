//! A workload as a folder of files that other tools read.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::Workload;
use shunt_pcap::PcapWriter;

use crate::{
    Progress, WorkloadError,
    output::{OutputFile, OutputFolder},
    statistics::{Row, TrafficStatistics, table},
};

/// The file of packets, if all come in by one port.
pub const PACKETS_FILE: &str = "packets.pcap";
const RULES_FILE: &str = "rules.txt";
const FLOWS_FILE: &str = "flows.csv";
const UPDATES_FILE: &str = "updates.txt";
const PLAYER_FILE: &str = "play-updates.sh";
const MANIFEST_FILE: &str = "manifest.json";
const README_FILE: &str = "README.md";
const GENERATOR: &str = "pipebench";
/// Plays the batches of updates.
const PLAYER: &str = include_str!("play-updates.sh");
/// Packets after which progress is told.
const STEP: u64 = 1000;

/// What a folder holds, for programs.
#[derive(Serialize)]
struct Manifest<'a> {
    name: String,
    generator: String,
    files: Vec<String>,
    /// The port that the packets of each capture come in by.
    ports: BTreeMap<String, u32>,
    /// What the pipeline's file calls each table of the rules.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tables: BTreeMap<u8, &'a str>,
    statistics: &'a [Row],
}

/// Writes rules, flows, packets and updates into a folder, which is made if it is not there; answers
/// the figures.
///
/// # Errors
///
/// When a file cannot be written, or would replace one that is of no workload: then the folder is as it
/// was.
pub fn write_folder(
    workload: &Workload,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<Row>, WorkloadError> {
    let before = files_before(folder);
    if let Some(path) = foreign_file(folder, &before) {
        return Err(WorkloadError::Foreign { path: path.display().to_string() });
    }
    let output = OutputFolder::create(folder)?;
    let figures = write_files(workload, output.files(), progress)?;
    output.finish(MANIFEST_FILE, &before)?;
    Ok(figures)
}

/// A file that a workload would replace, or that would look like a part of it, and is of none.
fn foreign_file(folder: &Path, before: &[String]) -> Option<PathBuf> {
    let is_ours = |name: &str| {
        let told_of = [MANIFEST_FILE, README_FILE].contains(&name) && !before.is_empty();
        told_of || before.iter().any(|own| own == name)
    };
    let names = [RULES_FILE, FLOWS_FILE, UPDATES_FILE, PLAYER_FILE, MANIFEST_FILE, README_FILE];
    let is_of_workloads = |name: &str| {
        names.contains(&name)
            || name == PACKETS_FILE
            || name.starts_with("packets-") && name.ends_with(".pcap")
    };
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let found = names.find(|name| is_of_workloads(name) && !is_ours(name))?;
    Some(folder.join(found))
}

/// The files of the workload that a folder has had until now.
fn files_before(folder: &Path) -> Vec<String> {
    #[derive(Deserialize)]
    struct Before {
        generator: String,
        files: Vec<String>,
    }
    let manifest = fs::read(folder.join(MANIFEST_FILE)).ok();
    let before = manifest.and_then(|text| serde_json::from_slice::<Before>(&text).ok());
    let before = before.filter(|before| before.generator.starts_with(GENERATOR));
    before.map_or_else(Vec::new, |before| before.files)
}

fn write_files(
    workload: &Workload,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<Row>, WorkloadError> {
    write(&folder.join(RULES_FILE), |out| workload.write_rules(out))?;
    write(&folder.join(FLOWS_FILE), |out| workload.write_flows(out))?;
    write(&folder.join(UPDATES_FILE), |out| workload.write_updates(out))?;
    let mut text = vec![RULES_FILE, FLOWS_FILE, UPDATES_FILE];
    if !workload.updates().batches.is_empty() {
        write(&folder.join(PLAYER_FILE), |out| out.write_all(PLAYER.as_bytes()))?;
        text.push(PLAYER_FILE);
    }
    let (ports, statistics) = write_captures(workload, folder, progress)?;
    let figures = workload.figures(&statistics, progress)?;
    let text = text.into_iter().map(str::to_owned);
    let manifest = Manifest {
        name: workload.name().to_string(),
        generator: format!("{GENERATOR} {}", env!("CARGO_PKG_VERSION")),
        files: text.chain(ports.keys().cloned()).collect(),
        ports,
        tables: workload.tables().collect(),
        statistics: &figures,
    };
    write(&folder.join(MANIFEST_FILE), |out| {
        serde_json::to_writer_pretty(&mut *out, &manifest)?;
        out.write_all(b"\n")
    })?;
    let readme = readme(workload, manifest.ports.len(), &figures);
    write(&folder.join(README_FILE), |out| out.write_all(readme.as_bytes()))?;
    Ok(figures)
}

/// Writes the packets as one capture; answers what they are like.
///
/// # Errors
///
/// When it cannot be written: then it is not there.
pub fn write_capture(
    workload: &Workload,
    path: &Path,
    progress: &Progress,
) -> Result<TrafficStatistics, WorkloadError> {
    let capture = Capture::create(path, 1)?;
    write_packets(workload, vec![capture], |_| 0, progress)
}

/// Captures for each port that packets come in by: file names with ports, and what the packets are
/// like.
fn write_captures(
    workload: &Workload,
    folder: &Path,
    progress: &Progress,
) -> Result<(BTreeMap<String, u32>, TrafficStatistics), WorkloadError> {
    let mut numbers: Vec<u32> =
        workload.flows().iter().map(|flow| flow.in_port().number()).collect();
    let of_flow = numbers.clone();
    numbers.sort_unstable();
    numbers.dedup();
    let name = |port: &u32| match numbers.as_slice() {
        [_] => PACKETS_FILE.to_owned(),
        _ => format!("packets-{port}.pcap"),
    };
    let ports: BTreeMap<String, u32> = numbers.iter().map(|port| (name(port), *port)).collect();
    let captures =
        numbers.iter().map(|port| Capture::create(&folder.join(name(port)), numbers.len()));
    let captures = captures.collect::<Result<Vec<_>, _>>()?;
    let place = |flow: u32| {
        let port = usize::try_from(flow).ok().and_then(|flow| of_flow.get(flow));
        port.and_then(|port| numbers.binary_search(port).ok()).unwrap_or(0)
    };
    let statistics = write_packets(workload, captures, place, progress)?;
    Ok((ports, statistics))
}

/// A capture that is being written.
struct Capture {
    path: PathBuf,
    writer: PcapWriter<OutputFile>,
}

impl Capture {
    /// Begins one of so many captures.
    fn create(path: &Path, count: usize) -> Result<Self, WorkloadError> {
        let file = OutputFile::create_beside(path, count)?;
        let writer =
            PcapWriter::new(file).map_err(|error| crate::OutputError::new("write", path, error))?;
        Ok(Self { path: path.to_owned(), writer })
    }
}

/// Writes each packet into the capture that `place` chooses for its flow.
fn write_packets(
    workload: &Workload,
    mut captures: Vec<Capture>,
    place: impl Fn(u32) -> usize,
    progress: &Progress,
) -> Result<TrafficStatistics, WorkloadError> {
    let mut statistics = workload.traffic_statistics();
    let mut frame = Vec::new();
    for packet in workload.packets() {
        packet.write_frame(workload.flows(), &mut frame)?;
        statistics.add(packet.time_ns, packet.flow, packet.bytes.into());
        if let Some(capture) = captures.get_mut(place(packet.flow)) {
            capture
                .writer
                .write(packet.time_ns, &frame)
                .map_err(|error| crate::OutputError::new("write", &capture.path, error))?;
        }
        if statistics.packets().is_multiple_of(STEP) {
            progress.advance(STEP);
        }
    }
    for capture in captures {
        capture.writer.into_inner().finish()?;
    }
    Ok(statistics)
}

fn write(
    path: &Path,
    content: impl FnOnce(&mut OutputFile) -> std::io::Result<()>,
) -> Result<(), WorkloadError> {
    let mut file = OutputFile::create(path)?;
    content(&mut file).map_err(|error| file.failed(error))?;
    Ok(file.finish()?)
}

fn readme(workload: &Workload, captures: usize, figures: &[Row]) -> String {
    let name = workload.name();
    let packets = if captures == 1 {
        format!("`{PACKETS_FILE}`: the packets")
    } else {
        format!("`packets-PORT.pcap`: the packets that come in by each of {captures} ports")
    };
    let updates = if workload.updates().batches.is_empty() {
        "nothing, as no rules come and go"
    } else {
        "rules that come and go, in batches whose times are in comments"
    };
    let mut text = format!(
        "# {name}\n\n\
         A workload for virtual switches, made by `pipebench write {name}`: the same name makes the \
         same bytes.\n\n\
         - `{RULES_FILE}`: the rules, for `ovs-ofctl -O OpenFlow13 add-flows BRIDGE {RULES_FILE}`\n\
         - `{FLOWS_FILE}`: the flows, one on each line\n\
         - {packets}, with times in nanoseconds, for `tcpreplay`\n\
         - `{UPDATES_FILE}`: {updates}\n"
    );
    if !workload.updates().batches.is_empty() {
        text.push_str(&format!(
            "- `{PLAYER_FILE}`: `sh {PLAYER_FILE} BRIDGE` plays the batches of `{UPDATES_FILE}`, each \
             at its time; start it together with the packets\n"
        ));
    }
    text.push_str(&format!("- `{MANIFEST_FILE}`: this for programs\n\n"));
    let mut tables = workload.tables().peekable();
    if tables.peek().is_some() {
        text.push_str("Tables of the rules, and what the pipeline calls them:\n\n");
        tables.for_each(|(number, name)| text.push_str(&format!("- {number}: {name}\n")));
        text.push('\n');
    }
    text.push_str(&format!("```text\n{}```\n", table(figures)));
    text
}
