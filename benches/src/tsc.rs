//! The time stamp counter, which is what Open vSwitch reports its cycles in.

#![expect(unsafe_code, reason = "reading the counter is an intrinsic")]

/// Cycles of the time stamp counter since the machine started.
#[must_use]
pub fn cycles() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 CPU and touches nothing but two registers.
    unsafe { core::arch::x86_64::_rdtsc() }
}
