//! Tests devices of DPDK without hardware: rings, capture files, and null devices.

#![cfg_attr(
    feature = "dpdk",
    expect(clippy::unwrap_used, reason = "a device that cannot be set up fails the test")
)]

#[cfg(feature = "dpdk")]
mod buffers;
#[cfg(feature = "dpdk")]
mod virtual_devices;

#[cfg(not(feature = "dpdk"))]
#[test]
fn devices_need_a_build_with_dpdk() {
    use std::io::Write as _;
    let what = "devices of DPDK are tested by `cargo xtask test dpdk`";
    // The harness hides the output of `eprintln!` in tests that pass.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}
