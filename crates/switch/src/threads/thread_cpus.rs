//! The CPUs on which packet threads may run, as the kernel knows them.
//!
//! A thread is not where the configuration has it if the kernel refused the CPU.
//!
//! Source: proc(5), and `/sys/devices/system/cpu` of the kernel.

use std::{collections::BTreeMap, fs, path::Path};

/// The start of the names of packet threads in the kernel.
const PREFIX: &str = "shunt-packet-";

/// The field of the CPUs in the status of a thread.
const ALLOWED: &str = "Cpus_allowed_list:";

/// The CPUs of a packet thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadCpus {
    /// The CPUs, such as `0-3,8`.
    pub(crate) cpus: String,
    /// The NUMA node, if there is only one CPU.
    pub(crate) numa_node: Option<u32>,
}

/// Returns the CPUs of the packet threads of this process, by their numbers.
///
/// The files are below `root`. The map has no thread with files that cannot be read.
pub(crate) fn of_packet_threads(root: &Path) -> BTreeMap<usize, ThreadCpus> {
    let tasks = fs::read_dir(root.join("proc/self/task")).into_iter().flatten();
    let threads = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let number = name.trim_end().strip_prefix(PREFIX)?.parse::<usize>().ok()?;
        let status = fs::read_to_string(task.join("status")).ok()?;
        let cpus = status.lines().find_map(|line| line.strip_prefix(ALLOWED))?.trim().to_owned();
        let numa_node = cpus.parse().ok().and_then(|cpu| find_node(root, cpu));
        Some((number, ThreadCpus { cpus, numa_node }))
    });
    threads.collect()
}

/// Returns the NUMA node of a CPU; `None` on a system without nodes.
fn find_node(root: &Path, cpu: u32) -> Option<u32> {
    let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
    let mut entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    entries.find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_thread_has_its_numa_node() {
        let root = tempfile::tempdir().unwrap();
        let threads = [
            ("1", "shuntd", "0-7"),
            ("2", "shunt-packet-0", "5"),
            ("3", "shunt-packet-11", "0-3,8"),
        ];
        for (id, name, cpus) in threads {
            let task = root.path().join("proc/self/task").join(id);
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("comm"), format!("{name}\n")).unwrap();
            let status = format!("Cpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n");
            fs::write(task.join("status"), status).unwrap();
        }
        let cpu = root.path().join("sys/devices/system/cpu/cpu5");
        for entry in ["cache", "node1", "topology"] {
            fs::create_dir_all(cpu.join(entry)).unwrap();
        }
        let found = of_packet_threads(root.path());
        let bound = ThreadCpus { cpus: "5".to_owned(), numa_node: Some(1) };
        let free = ThreadCpus { cpus: "0-3,8".to_owned(), numa_node: None };
        assert_eq!(found, BTreeMap::from([(0, bound), (11, free)]));
        assert!(of_packet_threads(Path::new("/no/such/root")).is_empty());
    }
}
