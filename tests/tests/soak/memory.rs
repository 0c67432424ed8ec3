//! Memory use of this process.

use std::fs;

/// Bytes of a page in `/proc`.
const PAGE_BYTES: u64 = 4096;

/// Returns the resident memory in bytes; 0 if the system does not report it.
pub(crate) fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * PAGE_BYTES
}
