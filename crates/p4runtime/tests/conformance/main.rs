//! Tests of the P4Runtime specification over a real connection.
//!
//! Each case is one request and the specified response. Many cases fail with widely used servers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the test fails on a wrong response")]

mod arbitration;
mod connections;
mod peer;
mod pipeline;
mod read;
mod stream;
mod write;
