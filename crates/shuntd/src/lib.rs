//! The Shunt daemon and its client, with the entry points [`daemon::main`] and [`client::main`].
//!
//! The daemon reads its configuration (`config`) and starts a [`shunt_switch::Switch`]. It serves
//! `ovs-appctl` and `shuntctl` on a control socket (`rpc`, `methods`) in its run directory
//! (`run_dir`). SIGHUP loads the configuration again (`reload`).

pub mod client;
mod config;
pub mod daemon;
mod limits;
mod methods;
mod metrics;
mod nic;
mod open_vswitch;
mod preload;
mod reload;
mod render;
mod render_caches;
mod render_drops;
mod render_evict;
mod render_forecast;
mod render_nic;
mod render_top;
mod rpc;
mod run_dir;
mod setting;
mod state_file;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod trace_log;
