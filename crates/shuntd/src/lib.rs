//! The Shunt daemon and its client, with the entry points [`daemon::main`] and [`client::main`].
//!
//! The daemon reads its configuration (`config`) and starts a [`shunt_switch::Switch`]. The daemon
//! serves `ovs-appctl` and `shuntctl` on a control socket (`rpc`, `appctl`) in its run directory
//! (`run_dir`), and metrics over HTTP (`http`). On SIGHUP the daemon reloads the configuration
//! (`daemon::reload`).

mod appctl;
pub mod client;
mod config;
mod connection_places;
pub mod daemon;
mod host_statistics;
mod http;
mod listener_log;
mod lock_file;
mod memory_use;
mod metrics;
mod number_range;
mod open_vswitch;
mod ovsdb;
mod render;
mod rpc;
mod run_dir;
mod run_dir_links;
mod setting;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;
