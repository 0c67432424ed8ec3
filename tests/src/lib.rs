//! Shared parts of the whole-switch tests: repository facts, a daemon to control, namespaces.

#![expect(clippy::panic, reason = "a test that cannot be set up has failed")]

pub mod capture;
pub mod daemon;
pub mod namespace;
pub mod open_vswitch;
pub mod ovsdb_server;
pub mod prose;
pub mod repository;
pub mod testpmd;
pub mod traffic;
