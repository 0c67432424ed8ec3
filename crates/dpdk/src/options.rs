//! The options with which DPDK starts in this process.

/// The options with which DPDK starts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(deny_unknown_fields, default)
)]
pub struct EalOptions {
    /// Size of the memory for packet buffers and queues, in MiB.
    pub memory_mib: u32,
    /// The kind of memory pages.
    pub huge_pages: HugePages,
    /// Further arguments of DPDK's Environment Abstraction Layer.
    ///
    /// An example is `--iova-mode=va`.
    pub extra_args: Vec<String>,
}

/// The use of huge pages for the memory of DPDK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum HugePages {
    /// Uses huge pages if enough are free, and otherwise ordinary pages.
    #[default]
    Auto,
    /// Uses huge pages; without enough of them DPDK does not start.
    Required,
    /// Uses ordinary pages.
    ///
    /// No network card can use ordinary pages, and virtual devices are two to three times slower.
    Off,
}

impl EalOptions {
    /// Smallest value of `memory_mib`, in MiB.
    pub const MEMORY_MIN: u32 = 64;
    /// Largest value of `memory_mib`, in MiB.
    pub const MEMORY_MAX: u32 = 1 << 20;
}

impl Default for EalOptions {
    fn default() -> Self {
        Self { memory_mib: 256, huge_pages: HugePages::default(), extra_args: Vec::new() }
    }
}

/// Returns the name of the device of `devargs`.
///
/// The name is the part before the first comma, without the bus.
///
/// `net_null0,size=64` and `vdev:net_null0` are one device.
#[must_use]
pub fn device_name(devargs: &str) -> &str {
    let name = devargs.split(',').next().unwrap_or_default();
    name.strip_prefix("vdev:").or_else(|| name.strip_prefix("pci:")).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_no_arguments_and_no_bus() {
        let names = ["net_null0,size=64", "vdev:net_null0", "pci:0000:01:00.0", "0000:01:00.0"];
        let expected = ["net_null0", "net_null0", "0000:01:00.0", "0000:01:00.0"];
        assert_eq!(names.map(device_name), expected);
    }
}
