//! How much memory this process uses.

use std::fs;

/// Bytes that a page has where `/proc` counts in pages of the smallest size.
const PAGE_BYTES: u64 = 4096;

/// Bytes of memory that are resident; 0 where the system does not say.
pub(crate) fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * PAGE_BYTES
}
