//! The NUMA node of a network device.
//!
//! Source: `Documentation/ABI/testing/sysfs-bus-pci` of the kernel (`numa_node`).

use std::{fs, path::Path, str::FromStr};

/// Returns the NUMA node of a network device, by the files below `root`.
///
/// `None` for a device without a node: a virtual device, or one of a system without nodes, for
/// which the kernel writes -1. Also `None` if the files describe a device with another index. Such a
/// device has the same name in another network namespace.
pub(super) fn device_node(root: &Path, name: &str, index: u32) -> Option<u32> {
    let folder = root.join("sys/class/net").join(name);
    if read_number::<u32>(&folder.join("ifindex"))? != index {
        return None;
    }
    // The conversion refuses -1.
    read_number(&folder.join("device/numa_node"))
}

/// Reads a file with one number.
fn read_number<T: FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_node_of_its_bus() {
        let root = tempfile::tempdir().unwrap();
        for (name, index, node) in [
            ("eth0", "2\n", Some("0\n")),
            ("eth1", "3\n", Some("11\n")),
            ("eth2", "4\n", Some("-1\n")),
            ("eth3", "5\n", Some("many\n")),
            ("veth0", "6\n", None),
            ("eth4", "x\n", Some("1\n")),
        ] {
            let folder = root.path().join("sys/class/net").join(name);
            fs::create_dir_all(folder.join("device")).unwrap();
            fs::write(folder.join("ifindex"), index).unwrap();
            if let Some(node) = node {
                fs::write(folder.join("device/numa_node"), node).unwrap();
            }
        }
        let node = |name, index| device_node(root.path(), name, index);
        assert_eq!((node("eth0", 2), node("eth1", 3)), (Some(0), Some(11)));
        assert_eq!(node("eth2", 4), None, "-1 means no node");
        assert_eq!([node("eth3", 5), node("veth0", 6), node("eth4", 7)], [None; 3]);
        assert_eq!(node("eth1", 2), None, "the files describe another device");
        assert_eq!(node("eth9", 2), None);
    }
}
