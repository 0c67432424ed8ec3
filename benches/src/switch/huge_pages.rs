//! Huge pages for a running switch.

use std::{fs, sync::OnceLock};

const COUNT_FILE: &str = "/proc/sys/vm/nr_hugepages";

/// Number of 2 MiB huge pages for OVS-DPDK.
const COUNT: u32 = 768;

/// Huge pages requested from the system; released on drop.
#[derive(Debug)]
pub(super) struct HugePages {
    before: Option<String>,
    are_enough: bool,
}

impl HugePages {
    pub(super) fn ask() -> Self {
        let before = fs::read_to_string(COUNT_FILE).ok();
        let _ = fs::write(COUNT_FILE, COUNT.to_string());
        let pages = fs::read_to_string(COUNT_FILE).unwrap_or_default();
        let are_enough = pages.trim().parse::<u32>().is_ok_and(|count| count >= COUNT);
        Self { before, are_enough }
    }

    /// Returns whether the huge pages suffice for a switch.
    pub(super) const fn are_enough(&self) -> bool {
        self.are_enough
    }

    /// Returns whether this system provides enough huge pages.
    pub(super) fn are_here() -> bool {
        /// The result of the first call.
        static PREPARED: OnceLock<bool> = OnceLock::new();
        *PREPARED.get_or_init(|| Self::ask().are_enough)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(count) = &self.before {
            let _ = fs::write(COUNT_FILE, count.trim());
        }
    }
}
