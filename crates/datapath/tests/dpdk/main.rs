//! Tests DPDK ports with the drivers for rings, capture files and virtio.

#![cfg_attr(
    feature = "dpdk",
    expect(clippy::unwrap_used, reason = "a device that cannot be set up fails the test")
)]

#[cfg(feature = "dpdk")]
mod guest;
#[cfg(feature = "dpdk")]
mod ports;

#[cfg(not(feature = "dpdk"))]
#[test]
fn dpdk_ports_need_a_build_with_dpdk() {
    use std::io::Write as _;
    let what = "DPDK ports are tested by `cargo xtask test dpdk_ports`";
    // The harness hides the output of `eprintln!` in tests that pass.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}
