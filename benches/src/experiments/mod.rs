//! The experiments, with one module for each experiment.

mod cables;
mod captures;
pub(crate) mod characterisation;
pub(crate) mod classifier;
pub(crate) mod flow_mods;
pub(crate) mod foresight;
pub(crate) mod forwarding;
pub(crate) mod generation;
pub(crate) mod gigaflow;
pub(crate) mod guest_ports;
pub(crate) mod idle_ports;
pub(crate) mod kernel_ports;
pub(crate) mod live;
mod loaded;
pub(crate) mod megaflows;
pub(crate) mod misses;
pub(crate) mod nic_push;
pub(crate) mod nuevomatch;
pub(crate) mod pipeline;
pub(crate) mod regress;
pub(crate) mod set_up;
pub(crate) mod slow_path;
mod tables;
pub(crate) mod translate;
pub(crate) mod updates;
mod windows;
pub(crate) mod workloads;
