//! What the P4Runtime specification demands of a server, asked over a real connection.
//!
//! Each case is one request and the answer that the specification says; many are those that widely
//! used servers get wrong.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a wrong answer fails the test")]

mod arbitration;
mod connections;
mod peer;
mod pipeline;
mod read;
mod stream;
mod write;
