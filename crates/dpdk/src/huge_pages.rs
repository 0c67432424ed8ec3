//! Reads the numbers of huge pages of the system.
//!
//! Source: Linux, `Documentation/admin-guide/mm/hugetlbpage.rst`.

use std::{fs, path::Path};

/// A size of huge pages, with the reserved and the free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePageSize {
    /// Size of a page, in KiB.
    pub page_kib: u64,
    /// Number of pages that the system has reserved.
    pub total: u64,
    /// Number of reserved pages that are not in use.
    pub free: u64,
}

impl HugePageSize {
    /// Returns the size of all free pages, in MiB.
    #[must_use]
    pub const fn free_mib(&self) -> u64 {
        self.free.saturating_mul(self.page_kib) / 1024
    }
}

/// Returns the huge pages of each size that the kernel supports, smallest first.
#[must_use]
pub fn huge_page_sizes() -> Vec<HugePageSize> {
    sizes_in(Path::new("/sys/kernel/mm/hugepages"))
}

/// Returns the sizes of huge pages that a folder of sysfs lists.
fn sizes_in(folder: &Path) -> Vec<HugePageSize> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let page_kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let number = |file| fs::read_to_string(entry.path().join(file)).ok()?.trim().parse().ok();
        Some(HugePageSize {
            page_kib,
            total: number("nr_hugepages")?,
            free: number("free_hugepages")?,
        })
    });
    let mut sizes: Vec<_> = sizes.collect();
    sizes.sort_by_key(|size| size.page_kib);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        for (name, free) in [("hugepages-1048576kB", "1\n"), ("hugepages-2048kB", "30\n")] {
            let size = folder.path().join(name);
            fs::create_dir(&size).unwrap();
            fs::write(size.join("nr_hugepages"), "40\n").unwrap();
            fs::write(size.join("free_hugepages"), free).unwrap();
        }
        fs::create_dir(folder.path().join("other")).unwrap();
        let sizes = sizes_in(folder.path());
        let expected = [(2048, 40, 30), (1_048_576, 40, 1)];
        assert_eq!(
            sizes.iter().map(|s| (s.page_kib, s.total, s.free)).collect::<Vec<_>>(),
            expected
        );
        assert_eq!(sizes.iter().map(HugePageSize::free_mib).collect::<Vec<_>>(), [60, 1024]);
        assert_eq!(sizes_in(&folder.path().join("absent")), []);
    }
}
