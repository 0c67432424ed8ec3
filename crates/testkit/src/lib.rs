//! Oracles, generators and devices that the tests of several crates share.
//!
//! Only tests depend on this crate, so no product crate compiles it or needs `proptest`. The test
//! kit depends on the crates that it tests. Integration tests of these crates use it; their unit
//! tests cannot, because they see another build of the same types. `docs/testing.md` lists the test
//! kits that are modules of their crates, with the reason of each.

pub mod partition;

#[cfg(not(loom))]
pub mod offload;

#[cfg(not(loom))]
pub mod fuzz;
