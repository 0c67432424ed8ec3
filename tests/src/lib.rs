//! What the whole-switch tests share: the repository's own facts, a daemon to drive, namespaces.

#![expect(clippy::panic, reason = "a test that cannot be set up has failed")]

pub mod capture;
pub mod daemon;
pub mod namespace;
pub mod open_vswitch;
pub mod prose;
pub mod repository;
