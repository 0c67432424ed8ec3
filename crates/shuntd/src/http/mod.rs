//! The HTTP server of the daemon: metrics for Prometheus, health, readiness, and a live page.
//!
//! [`HttpService`] listens, and runs on the control threads with limits for connections, headers
//! and time. [`HttpPages`](pages::HttpPages) answers requests from the status of the switch. No
//! page but `flows` waits for packet threads: they count in memory that other threads can read.

mod accept;
mod body;
mod health;
mod options;
mod pages;
mod query;
mod readiness;
mod service;
mod stall_timeout;
#[cfg(test)]
mod tests;
mod token;
mod window;

pub(crate) use options::HttpOptions;
pub(crate) use service::{HttpService, HttpStartError};
