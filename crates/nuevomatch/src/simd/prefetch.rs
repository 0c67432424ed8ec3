//! Prefetch hints for lines that a later phase of a lookup reads.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the intrinsic takes a pointer"))]

use super::line::Line;

/// Asks the processor to load lines into its L1 cache.
#[inline]
pub(super) fn prefetch(lines: &[Line]) {
    #[cfg(target_arch = "x86_64")]
    for line in lines {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        // SAFETY: SSE is in every x86-64 processor, and a hint never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const *line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = lines;
}
