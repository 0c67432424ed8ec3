//! A guest for tests: memory, a virtio driver that is slow and obvious, and a front-end.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "a guest that cannot be set up, or a device that breaks a rule, fails the test"
)]

mod front_end;
mod fuzz;
mod guest;
mod packed_driver;
mod split_driver;

pub use front_end::{MessageOrder, TestFrontEnd};
pub use fuzz::{fuzz_messages, fuzz_packed_ring, fuzz_ring};
pub use guest::{BufferLayout, ReceivedFrame, TestGuest};
