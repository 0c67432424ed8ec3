//! The CPUs on which packet threads may run, as the kernel knows them.
//!
//! A thread is not where the configuration has it if the kernel refused the CPU.
//!
//! Source: proc(5), and `/sys/devices/system/node` of the kernel.

use std::{collections::BTreeMap, fs, ops::RangeInclusive, path::Path};

/// The start of the names of packet threads in the kernel.
const PREFIX: &str = "shunt-packet-";

/// The field of the CPUs in the status of a thread.
const ALLOWED: &str = "Cpus_allowed_list:";

/// The CPUs of a packet thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadCpus {
    /// The CPUs, such as `0-3,8`.
    pub(crate) cpus: String,
    /// The NUMA node, if all CPUs belong to one.
    pub(crate) numa_node: Option<u32>,
}

/// Returns the CPUs of the packet threads of this process, by their numbers.
///
/// The files are below `root`. The map has no thread with files that cannot be read.
pub(crate) fn of_packet_threads(root: &Path) -> BTreeMap<usize, ThreadCpus> {
    let nodes = numa_nodes(root);
    let tasks = fs::read_dir(root.join("proc/self/task")).into_iter().flatten();
    let threads = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let number = name.trim_end().strip_prefix(PREFIX)?.parse::<usize>().ok()?;
        let status = fs::read_to_string(task.join("status")).ok()?;
        let cpus = status.lines().find_map(|line| line.strip_prefix(ALLOWED))?.trim().to_owned();
        let numa_node = find_node(&nodes, &cpus);
        Some((number, ThreadCpus { cpus, numa_node }))
    });
    threads.collect()
}

/// The CPUs of a list, in ascending order.
type CpuRanges = Vec<RangeInclusive<u32>>;

/// Returns the NUMA nodes with their CPUs; no node on a system without nodes.
fn numa_nodes(root: &Path) -> Vec<(u32, CpuRanges)> {
    let nodes = fs::read_dir(root.join("sys/devices/system/node")).into_iter().flatten();
    let nodes = nodes.filter_map(|entry| {
        let entry = entry.ok()?;
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let cpus = fs::read_to_string(entry.path().join("cpulist")).ok()?;
        Some((number, cpu_ranges(&cpus)?))
    });
    nodes.collect()
}

/// Returns the CPUs of a list such as `0-3,8`; `None` for other text.
///
/// A node without CPUs has an empty list.
fn cpu_ranges(list: &str) -> Option<CpuRanges> {
    let ranges = list.trim().split(',').filter(|range| !range.is_empty());
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    ranges.map(range).collect()
}

/// Returns the NUMA node to which all CPUs of a list belong.
fn find_node(nodes: &[(u32, CpuRanges)], cpus: &str) -> Option<u32> {
    let cpus = cpu_ranges(cpus).filter(|cpus| !cpus.is_empty())?;
    let is_within = |range: &RangeInclusive<u32>, own: &CpuRanges| {
        own.iter().any(|own| own.contains(range.start()) && own.contains(range.end()))
    };
    let has_all = |(_, own): &&(u32, CpuRanges)| cpus.iter().all(|range| is_within(range, own));
    nodes.iter().find(has_all).map(|(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_on_one_node_has_its_number() {
        let root = tempfile::tempdir().unwrap();
        let threads = [
            ("1", "shuntd", "0-7"),
            ("2", "shunt-packet-0", "5"),
            ("3", "shunt-packet-11", "0-3,8"),
            ("4", "shunt-packet-12", "4,6-7"),
        ];
        for (id, name, cpus) in threads {
            let task = root.path().join("proc/self/task").join(id);
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("comm"), format!("{name}\n")).unwrap();
            let status = format!("Cpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n");
            fs::write(task.join("status"), status).unwrap();
        }
        let nodes = root.path().join("sys/devices/system/node");
        for (node, cpus) in [("node0", "0-3"), ("node1", "4-7,8"), ("node2", ""), ("power", "5")] {
            fs::create_dir_all(nodes.join(node)).unwrap();
            fs::write(nodes.join(node).join("cpulist"), format!("{cpus}\n")).unwrap();
        }
        let found = of_packet_threads(root.path());
        let bound = ThreadCpus { cpus: "5".to_owned(), numa_node: Some(1) };
        let free = ThreadCpus { cpus: "0-3,8".to_owned(), numa_node: None };
        let near = ThreadCpus { cpus: "4,6-7".to_owned(), numa_node: Some(1) };
        assert_eq!(found, BTreeMap::from([(0, bound), (11, free), (12, near)]));
        assert!(of_packet_threads(Path::new("/no/such/root")).is_empty());
    }
}
