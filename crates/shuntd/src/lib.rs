//! The Shunt daemon and its client, as two entry points: [`daemon::main`] and [`client::main`].
//!
//! The daemon reads its configuration (`config`), starts a [`shunt_switch::Switch`], and answers
//! in its run directory (`run_dir`), on a control socket (`rpc`, `methods`) that `ovs-appctl` and `shuntctl` speak to.

pub mod client;
mod config;
pub mod daemon;
mod methods;
mod metrics;
mod nic;
mod render;
mod render_caches;
mod render_evict;
mod render_nic;
mod rpc;
mod run_dir;
mod setting;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod trace_log;
