//! The NUMA nodes of packet threads and devices, for the choice of packet threads.
//!
//! A receive queue goes only to packet threads of the NUMA node of its device, whatever their loads
//! are. If no packet thread of this node runs, the queue may go to any packet thread. Open vSwitch
//! has the same rule.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use shunt_flow::PortNo;
use shunt_pipeline::BridgeId;

use crate::threads::{
    load::history::RxQueueName,
    thread_cpus::{ThreadCpus, of_packet_threads},
};

/// The NUMA node of each packet thread that has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadNodes(BTreeMap<usize, u32>);

impl ThreadNodes {
    /// Reads the nodes from the files below `root`.
    pub(crate) fn read(root: &Path) -> Self {
        let threads = of_packet_threads(root).into_iter();
        let node = |(thread, ThreadCpus { numa_node, .. })| Some((thread, numa_node?));
        threads.filter_map(node).collect()
    }

    /// Returns whether a thread is not on the node of a device.
    ///
    /// A device without a node is near to all threads.
    pub(crate) fn is_remote(&self, thread: usize, device: Option<u32>) -> bool {
        device.is_some_and(|device| self.0.get(&thread) != Some(&device))
    }

    /// Returns which of `threads` may have the queues of a device.
    pub(crate) fn allowed(&self, threads: &[usize], device: Option<u32>) -> Vec<usize> {
        let is_local = |thread: &usize| !self.is_remote(*thread, device);
        let local: Vec<_> = threads.iter().copied().filter(is_local).collect();
        if local.is_empty() { threads.to_vec() } else { local }
    }
}

impl FromIterator<(usize, u32)> for ThreadNodes {
    fn from_iter<I: IntoIterator<Item = (usize, u32)>>(nodes: I) -> Self {
        Self(nodes.into_iter().collect())
    }
}

/// The nodes of packet threads, which are read when a device has a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct LazyThreadNodes {
    /// The folder of the files that describe threads; `None`: no thread has a node.
    root: Option<PathBuf>,
    /// The nodes, once they were read.
    nodes: ThreadNodes,
}

impl LazyThreadNodes {
    /// Creates nodes that are read from the files below `root`.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: Some(root.to_owned()), nodes: ThreadNodes::default() }
    }

    /// Returns the nodes of threads; reads them if the device has a node.
    pub(crate) fn for_device(&mut self, device: Option<u32>) -> &ThreadNodes {
        if let Some(root) = self.root.take_if(|_| device.is_some()) {
            self.nodes = ThreadNodes::read(&root);
        }
        &self.nodes
    }
}

/// The nodes of packet threads, and those of the devices of ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct NumaNodes {
    /// The nodes of the packet threads.
    pub(crate) threads: ThreadNodes,
    /// The node of each device that has one, by its port.
    pub(crate) devices: BTreeMap<(BridgeId, PortNo), u32>,
}

impl NumaNodes {
    /// Returns the nodes of `devices` and of the threads, by the files below `root`.
    pub(crate) fn of_devices(devices: BTreeMap<(BridgeId, PortNo), u32>, root: &Path) -> Self {
        let mut threads = LazyThreadNodes::new(root);
        let threads = threads.for_device(devices.values().next().copied()).clone();
        Self { threads, devices }
    }

    /// Returns the node of the device of a queue.
    pub(crate) fn of_queue(&self, queue: RxQueueName) -> Option<u32> {
        self.devices.get(&(queue.bridge, queue.port)).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn queues_stay_on_the_node_that_has_threads() {
        let nodes = ThreadNodes::from_iter([(0, 0), (1, 1), (2, 1)]);
        let threads = [0, 1, 2, 3];
        let allowed = |device| nodes.allowed(&threads, device);
        assert_eq!((allowed(Some(0)), allowed(Some(1))), (vec![0], vec![1, 2]));
        assert_eq!(allowed(None), threads, "a device without a node");
        assert_eq!(allowed(Some(2)), threads, "a node without threads");
        assert_eq!(nodes.allowed(&[0, 3], Some(1)), [0, 3], "the threads of the node have stopped");
        assert!(nodes.is_remote(3, Some(0)), "a thread that may leave the node");
    }

    #[test]
    fn threads_are_read_only_for_devices_with_nodes() {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join("proc/self/task/1");
        let node = root.path().join("sys/devices/system/node/node1");
        fs::create_dir_all(&task).unwrap();
        fs::create_dir_all(&node).unwrap();
        fs::write(task.join("comm"), "shunt-packet-0\n").unwrap();
        fs::write(task.join("status"), "Cpus_allowed_list:\t4\n").unwrap();
        fs::write(node.join("cpulist"), "4-7\n").unwrap();
        let mut lazy = LazyThreadNodes::new(root.path());
        assert_eq!(lazy.for_device(None), &ThreadNodes::default());
        let read = ThreadNodes::from_iter([(0, 1)]);
        assert_eq!(lazy.for_device(Some(0)), &read);
        assert_eq!(lazy.for_device(None), &read);
        let devices = BTreeMap::from([((BridgeId::new(1), PortNo::new(1)), 1)]);
        assert_eq!(NumaNodes::of_devices(devices, root.path()).threads, read);
        let without = NumaNodes::of_devices(BTreeMap::new(), root.path());
        assert_eq!(without.threads, ThreadNodes::default());
    }
}
