//! A workload as a folder of files for other tools.

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
    statistics::{StatisticRow, TrafficStatistics, table},
};

/// The capture file if all packets have one ingress port.
pub const PACKETS_FILE: &str = "packets.pcap";
/// Name of the file of rules.
const RULES_FILE: &str = "rules.txt";
/// Name of the file of flows.
const FLOWS_FILE: &str = "flows.csv";
/// Name of the file of rule changes.
const UPDATES_FILE: &str = "updates.txt";
/// Name of the script that plays the updates.
const PLAYER_FILE: &str = "play-updates.sh";
/// Name of the file that describes the workload.
const MANIFEST_FILE: &str = "manifest.json";
/// Name of the file that explains the others.
const README_FILE: &str = "README.md";
/// Name of this program in the manifest.
const GENERATOR: &str = "pipebench";
/// The script that applies the batches of updates.
const PLAYER: &str = include_str!("play-updates.sh");
/// Number of packets between two progress updates.
const STEP: u64 = 1000;

/// The machine-readable list of what is in a workload folder.
#[derive(Serialize)]
struct Manifest<'a> {
    name: String,
    generator: String,
    files: Vec<String>,
    /// The ingress port of each capture's packets.
    ports: BTreeMap<String, u32>,
    /// The name in the pipeline file of each table of the rules.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tables: BTreeMap<u8, &'a str>,
    statistics: &'a [StatisticRow],
}

/// Writes a workload into a folder, which is created if needed.
///
/// Returns the statistics.
///
/// # Errors
///
/// If a file cannot be written, or would replace a file that is not part of a workload. The folder
/// then stays unchanged.
pub fn write_folder(
    workload: &Workload,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<StatisticRow>, WorkloadError> {
    let before = files_before(folder);
    if let Some(path) = foreign_file(folder, &before) {
        return Err(WorkloadError::Foreign { path: path.display().to_string() });
    }
    let output = OutputFolder::create(folder)?;
    let figures = write_files(workload, output.files(), progress)?;
    output.finish(MANIFEST_FILE, &before)?;
    Ok(figures)
}

/// Returns a file that the output would replace and that is not part of a workload.
///
/// A file with a name like that of a part of a workload counts as well.
fn foreign_file(folder: &Path, before: &[String]) -> Option<PathBuf> {
    let is_ours = |name: &str| {
        let is_listed = [MANIFEST_FILE, README_FILE].contains(&name) && !before.is_empty();
        is_listed || before.iter().any(|own| own == name)
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

/// Returns the files of the workload that the folder contains now.
fn files_before(folder: &Path) -> Vec<String> {
    /// The part of an old manifest that lists the files of the folder.
    #[derive(Deserialize)]
    struct PreviousFiles {
        generator: String,
        files: Vec<String>,
    }
    let manifest = fs::read(folder.join(MANIFEST_FILE)).ok();
    let before = manifest.and_then(|text| serde_json::from_slice::<PreviousFiles>(&text).ok());
    let before = before.filter(|before| before.generator.starts_with(GENERATOR));
    before.map_or_else(Vec::new, |before| before.files)
}

/// Writes the files of the workload to a folder, and returns its figures.
fn write_files(
    workload: &Workload,
    folder: &Path,
    progress: &Progress,
) -> Result<Vec<StatisticRow>, WorkloadError> {
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

/// Writes the packets as one capture; returns their statistics.
///
/// # Errors
///
/// If the capture cannot be written. The file then does not exist.
pub fn write_capture(
    workload: &Workload,
    path: &Path,
    progress: &Progress,
) -> Result<TrafficStatistics, WorkloadError> {
    let capture = CaptureFile::create(path, 1)?;
    write_packets(workload, vec![capture], |_| 0, progress)
}

/// Writes a capture for each ingress port.
///
/// Returns the file names with their ports, and packet statistics.
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
        numbers.iter().map(|port| CaptureFile::create(&folder.join(name(port)), numbers.len()));
    let captures = captures.collect::<Result<Vec<_>, _>>()?;
    let place = |flow: u32| {
        let port = usize::try_from(flow).ok().and_then(|flow| of_flow.get(flow));
        port.and_then(|port| numbers.binary_search(port).ok()).unwrap_or(0)
    };
    let statistics = write_packets(workload, captures, place, progress)?;
    Ok((ports, statistics))
}

/// A capture that is being written.
struct CaptureFile {
    path: PathBuf,
    writer: PcapWriter<OutputFile>,
}

impl CaptureFile {
    /// Starts one of `count` captures.
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
    mut captures: Vec<CaptureFile>,
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

/// Writes a complete file.
fn write(
    path: &Path,
    content: impl FnOnce(&mut OutputFile) -> std::io::Result<()>,
) -> Result<(), WorkloadError> {
    let mut file = OutputFile::create(path)?;
    content(&mut file).map_err(|error| file.failed(error))?;
    Ok(file.finish()?)
}

/// Returns the text of the README of a workload.
fn readme(workload: &Workload, captures: usize, figures: &[StatisticRow]) -> String {
    let name = workload.name();
    let packets = if captures == 1 {
        format!("`{PACKETS_FILE}`: the packets")
    } else {
        format!("`packets-PORT.pcap`: the packets that arrive on each of {captures} ports")
    };
    let updates = if workload.updates().batches.is_empty() {
        "nothing, as no rules change"
    } else {
        "rules that are added and deleted, in batches with their times in comments"
    };
    let mut text = format!(
        "# {name}\n\nA workload for virtual switches, generated by `pipebench write {name}`: the \
         same name gives the same bytes.\n\n- `{RULES_FILE}`: the rules, for `ovs-ofctl -O \
         OpenFlow13 add-flows BRIDGE {RULES_FILE}`\n- `{FLOWS_FILE}`: the flows, one on each \
         line\n- {packets}, with times in nanoseconds, for `tcpreplay`\n- `{UPDATES_FILE}`: \
         {updates}\n"
    );
    if !workload.updates().batches.is_empty() {
        text.push_str(&format!(
            "- `{PLAYER_FILE}`: `sh {PLAYER_FILE} BRIDGE` applies the batches of \
             `{UPDATES_FILE}`, each at its time; start it together with the packets\n"
        ));
    }
    text.push_str(&format!("- `{MANIFEST_FILE}`: this description for programs\n\n"));
    let mut tables = workload.tables().peekable();
    if tables.peek().is_some() {
        text.push_str("Tables of the rules, with their names in the pipeline:\n\n");
        tables.for_each(|(number, name)| text.push_str(&format!("- {number}: {name}\n")));
        text.push('\n');
    }
    text.push_str(&format!("```text\n{}```\n", table(figures)));
    text
}
