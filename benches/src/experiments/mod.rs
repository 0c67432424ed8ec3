//! What is measured: an experiment a module.

pub(crate) mod classifier;
pub(crate) mod flow_mods;
pub(crate) mod forwarding;
pub(crate) mod megaflows;
pub(crate) mod pipeline;
pub(crate) mod regress;
pub(crate) mod set_up;
mod tables;
pub(crate) mod translate;

pub(crate) use tables::{Case, SOURCE, chain};
