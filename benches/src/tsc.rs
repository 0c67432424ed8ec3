//! The time stamp counter, which is the unit of the cycle statistics of Open vSwitch.

#![expect(unsafe_code, reason = "reading the counter is an intrinsic")]

/// Returns the cycles of the time stamp counter since the machine started.
#[must_use]
pub fn cycles() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 CPU and accesses only two registers.
    unsafe { core::arch::x86_64::_rdtsc() }
}
